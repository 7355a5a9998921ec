use super::*;
use proptest::prelude::*;

fn payload(id: u128, length: u64) -> Payload {
    Payload { id: PayloadId(id), rank: Rank(id as u64), length, group: id as u64 % 2 }
}

fn body(id: u128, length: u64) -> Bytes {
    vec![id as u8; length as usize].into()
}

#[test]
fn what_is_shown_stays_what_it_was_when_its_slab_is_gone() {
    let slabs = Slabs::with_slab_bytes(100_000, 4096).unwrap();
    for id in 0..20 {
        assert!(slabs.keep(&payload(id, 1000), &body(id, 1000)));
    }
    let shown: Vec<Bytes> = (0..20).map(|id| slabs.bytes(&payload(id, 1000)).unwrap()).collect();
    let before = slabs.version();
    slabs.forget(&(0..20).filter(|id| id % 4 != 0).map(PayloadId).collect::<Vec<_>>());
    assert_ne!(slabs.version(), before);
    assert_eq!(slabs.view().payloads, 5);
    for id in 100..115 {
        assert!(slabs.keep(&payload(id, 1000), &body(id, 1000)));
    }
    for (id, shown) in shown.iter().enumerate() {
        assert_eq!(*shown, body(id as u128, 1000));
    }
    assert!((0..20).step_by(4).all(|id| slabs.bytes(&payload(id, 1000)).unwrap() == body(id, 1000)));
}

#[test]
fn what_is_shown_cannot_be_written_by_those_it_is_shown_to() {
    let slabs = Slabs::with_slab_bytes(10_000, 4096).unwrap();
    assert!(slabs.keep(&payload(1, 9000), &body(1, 9000)), "one that is larger than a slab has its own");
    let slab = slabs.slab(0, slabs.version()).unwrap();
    let shown = File::from(slab.shown.try_clone().unwrap());
    assert!(shown.write_all_at(b"x", 0).is_err() && shown.set_len(1).is_err());
    assert!(slabs.slab(0, slabs.version() ^ 1 << 60).is_none(), "another process had it under this number");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn slabs_hold_what_a_map_would_hold_and_never_more_than_their_limit(
        steps in prop::collection::vec((0u8..8, 0u128..40, 0u64..3000), 1..80),
    ) {
        let slabs = Slabs::with_slab_bytes(20_000, 4096).unwrap();
        let mut model: BTreeMap<u128, u64> = BTreeMap::new();
        let mut limit = 20_000;
        for (step, id, length) in steps {
            match step {
                0..=4 => {
                    let room = model.values().sum::<u64>() + length <= limit;
                    let kept = slabs.keep(&payload(id, length), &body(id, length));
                    prop_assert_eq!(kept, room || model.contains_key(&id));
                    if room {
                        model.entry(id).or_insert(length);
                    }
                }
                5 | 6 => {
                    slabs.forget(&[PayloadId(id), PayloadId(id + 1)]);
                    model.remove(&id);
                    model.remove(&(id + 1));
                }
                _ => {
                    limit = length * 10;
                    slabs.resize(limit);
                    while model.values().sum::<u64>() > limit {
                        model.pop_last();
                    }
                }
            }
            let view = slabs.view();
            prop_assert_eq!((view.bytes, view.payloads), (model.values().sum(), model.len() as u64));
            prop_assert!(view.bytes <= limit);
            for (id, length) in &model {
                prop_assert_eq!(slabs.bytes(&payload(*id, *length)), Some(body(*id, *length)));
            }
            prop_assert_eq!(slabs.held(0).len() + slabs.held(1).len(), model.len());
        }
    }
}
