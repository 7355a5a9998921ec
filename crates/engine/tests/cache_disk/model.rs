//! Random operations beside a naive map: both must agree after each.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Act {
    Keep(u64, usize),
    Read(u64),
    Forget(Vec<u64>),
    Flush,
    Reopen,
    Resize(u64),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => (0..24u64, prop_oneof![0..200usize, 4000..9000usize, 20_000..40_000usize])
            .prop_map(|(n, length)| Act::Keep(n, length)),
        3 => (0..24u64).prop_map(Act::Read),
        2 => prop::collection::vec(0..24u64, 1..6).prop_map(Act::Forget),
        1 => Just(Act::Flush),
        1 => Just(Act::Reopen),
        1 => (60_000..300_000u64).prop_map(Act::Resize),
    ]
}

/// What the costs say about a set of payloads.
fn charged(held: &BTreeMap<u64, usize>) -> u64 {
    DiskTier::fixed_cost() + held.values().map(|length| DiskTier::cost(*length as u64)).sum::<u64>()
}

fn run(acts: Vec<Act>) {
    let dir = tempfile::tempdir().unwrap();
    let mut limit = 200_000;
    let open = |limit| {
        let options = DiskOptions { segment_bytes: Some(30_000), ..DiskOptions::new(limit) };
        DiskTier::open_with(dir.path(), &options).unwrap()
    };
    let mut tier = open(limit);
    let mut held: BTreeMap<u64, usize> = BTreeMap::new();
    for act in acts {
        // Files can only be summed up while nobody works on them.
        let quiet = matches!(act, Act::Flush | Act::Reopen | Act::Resize(_));
        match act {
            Act::Keep(n, length) => {
                let length = *held.get(&n).unwrap_or(&length);
                let fits = held.contains_key(&n) || charged(&held) + DiskTier::cost(length as u64) <= limit;
                assert_eq!(keep(&tier, n, length), fits, "payload {n} of {length} bytes beside {held:?}");
                if fits {
                    held.insert(n, length);
                }
            }
            Act::Read(n) => {
                assert_eq!(read(&tier, n), held.get(&n).map(|length| made(n, *length)), "payload {n}");
            }
            Act::Forget(which) => {
                tier.forget(&which.iter().map(|n| payload(*n, 0).id).collect::<Vec<_>>());
                held.retain(|n, _| !which.contains(n));
            }
            Act::Flush => assert!(tier.flush()),
            Act::Reopen => {
                drop(tier);
                tier = open(limit);
            }
            Act::Resize(to) => {
                limit = to;
                tier.resize(limit).unwrap();
                // Ranks are the numbers: the highest go.
                while charged(&held) > limit {
                    held.pop_last();
                }
            }
        }
        let view = tier.view();
        let expected: usize = held.values().sum();
        assert_eq!((view.payloads, view.bytes), (held.len() as u64, expected as u64));
        assert_eq!((view.limit, view.damaged), (limit, 0));
        assert!(tier.detail().file_bytes <= limit);
        if quiet {
            assert!(file_bytes(dir.path()) <= limit, "{} of {limit}", file_bytes(dir.path()));
        }
    }
    drop(tier);
    let tier = open(limit);
    for n in 0..24 {
        assert_eq!(read(&tier, n), held.get(&n).map(|length| made(n, *length)), "payload {n} at the end");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn a_disk_tier_holds_what_a_map_would_hold(acts in prop::collection::vec(act(), 1..80)) {
        run(acts);
    }
}
