use super::*;
use forebay_core::cache::Rank;
use forebay_engine::cache::TierView;
use proptest::prelude::*;

fn payloads() -> impl Strategy<Value = Payload> {
    (any::<u128>(), any::<u64>(), 0..=MAX_TAIL, any::<u64>()).prop_map(|(id, rank, length, group)| Payload {
        id: PayloadId(id),
        rank: Rank(rank),
        length,
        group,
    })
}

fn tiers() -> impl Strategy<Value = Tier> {
    prop::sample::select(vec![Tier::Memory, Tier::Disk, Tier::Peer])
}

fn answers() -> impl Strategy<Value = Answer> {
    prop_oneof![
        Just(Answer::Absent),
        Just(Answer::Coming),
        (tiers(), any::<u32>()).prop_map(|(tier, together)| Answer::Near { tier, together }),
        (any::<u32>(), any::<u64>()).prop_map(|(slab, offset)| Answer::Slab { slab, offset }),
    ]
}

fn views() -> impl Strategy<Value = KeeperView> {
    let tier = || {
        let times = [1u32.., 1u32..].map(prop::option::of);
        (any::<[u64; 6]>(), times).prop_map(
            |([limit, bytes, payloads, refused, damaged, hits], [oldest, newest])| TierView {
                limit,
                bytes,
                payloads,
                refused,
                damaged,
                hits,
                oldest,
                newest,
            },
        )
    };
    (tier(), tier()).prop_map(|(memory, disk)| KeeperView { memory, disk, ..KeeperView::default() })
}

fn messages() -> impl Strategy<Value = Message> {
    let names = || prop::collection::vec(any::<u128>().prop_map(PayloadId), 0..20);
    prop_oneof![
        prop::collection::vec(payloads(), 0..20).prop_map(Message::Look),
        prop::collection::vec(payloads(), 0..20).prop_map(Message::Read),
        (payloads(), any::<(bool, bool)>())
            .prop_map(|(payload, (memory, disk))| Message::Keep(payload, Place { memory, disk })),
        payloads().prop_map(Message::GiveUp),
        any::<u64>().prop_map(Message::Held),
        names().prop_map(Message::Forget),
        any::<(u64, u64)>().prop_map(|(memory, disk)| Message::Resize(Capacity { memory, disk })),
        Just(Message::View),
        Just(Message::Slabs),
        (any::<u64>(), prop::collection::vec(answers(), 0..20))
            .prop_map(|(slabs, answers)| Message::Answers { slabs, answers }),
        (any::<u32>(), tiers(), 0..=MAX_TAIL).prop_map(|(index, tier, length)| Message::Bytes {
            index,
            tier,
            length
        }),
        any::<u32>().prop_map(Message::Missing),
        any::<u32>().prop_map(Message::Coming),
        prop::collection::vec(payloads(), 0..20).prop_map(Message::Ask),
        prop::collection::vec(payloads(), 0..20).prop_map(Message::Await),
        views().prop_map(Message::Done),
        (prop::sample::select(ErrorKind::ALL.to_vec()), ".{0,40}")
            .prop_map(|(kind, text)| Message::Refused(kind, text)),
        (names(), any::<bool>()).prop_map(|(names, more)| Message::Names { names, more }),
        (any::<u64>(), prop::collection::vec(any::<u32>(), 0..20))
            .prop_map(|(version, slabs)| Message::SlabList { version, slabs }),
    ]
}

proptest! {
    #[test]
    fn what_was_said_is_what_is_heard(message in messages(), request: u64) {
        let frame = message.encode(request);
        let length = u32::from_le_bytes([frame[0], frame[1], frame[2], frame[3]]) as usize;
        prop_assert_eq!(length, frame.len() - 4);
        prop_assert_eq!(Message::decode(&frame[4..]).unwrap(), (request, message));
    }

    #[test]
    fn any_bytes_are_refused_or_understood_and_then_say_the_same_again(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        if let Ok((request, message)) = Message::decode(&bytes) {
            prop_assert!(message.tail() <= MAX_TAIL);
            let again = message.encode(request);
            prop_assert_eq!(Message::decode(&again[4..]).unwrap(), (request, message));
        }
    }

    #[test]
    fn changed_and_cut_messages_do_no_harm(
        message in messages(), at: prop::sample::Index, value: u8, cut: prop::sample::Index,
    ) {
        let mut body = message.encode(7)[4..].to_vec();
        let at = at.index(body.len());
        body[at] = value;
        let _ = Message::decode(&body);
        let _ = Message::decode(&body[..cut.index(body.len())]);
    }
}

#[test]
fn a_list_that_claims_more_than_it_has_is_refused_before_room_is_made() {
    for kind in Kind::ALL {
        let mut body = vec![kind as u8];
        body.extend_from_slice(&[0; 8]);
        body.extend_from_slice(&[0xff; 64]);
        assert!(Message::decode(&body).is_err() || matches!(kind, Kind::Refused | Kind::Held), "{kind:?}");
    }
    let many = vec![Payload { id: PayloadId(0), rank: Rank(0), length: 0, group: 0 }; MAX_PAYLOADS + 1];
    assert!(Message::decode(&Message::Look(many).encode(0)[4..]).is_err());
}
