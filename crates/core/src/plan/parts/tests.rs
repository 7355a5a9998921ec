//! Promises of the sharding policies: who gets which sample how often, in an order that never moves.

use super::*;
use crate::ErrorKind;
use crate::manifest::{FieldInfo, FieldKind, ManifestBuilder, Value};
use crate::plan::{BlockShuffle, Plan};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Objects with so many samples each; sample `s` has `part = 7 - 3 * s` and a payload of 10 bytes.
fn dataset(objects: &[u64]) -> Manifest {
    let field = |name: &str, kind| FieldInfo { name: name.into(), kind };
    let fields = vec![field("bin", FieldKind::Payload), field("part", FieldKind::Int)];
    let mut builder = ManifestBuilder::new(fields, serde_json::Value::Null);
    let mut sample = 0;
    for (number, samples) in objects.iter().enumerate() {
        builder.add_object(&format!("shard-{number:04}"), samples * 10, 0).unwrap();
        for index in 0..*samples {
            let payload = Value::Payload { object: None, offset: index * 10, length: 10 };
            let values = [(0, payload), (1, Value::Int(hint(sample)))];
            builder.add_sample(&format!("{sample:06}"), &values).unwrap();
            sample += 1;
        }
    }
    Manifest::open(builder.finish().unwrap()).unwrap()
}

fn hint(sample: u64) -> i64 {
    7 - 3 * sample as i64
}

fn sharding(policy: &str, parts: u32) -> Sharding {
    Sharding { policy: policy.parse().unwrap(), parts }
}

fn order(plan: &Plan) -> Vec<u64> {
    (0..plan.len()).map(|position| plan.at(position).0).collect()
}

/// How often each sample comes.
fn multiset(order: &[u64]) -> BTreeMap<u64, u64> {
    let mut counts = BTreeMap::new();
    for sample in order {
        *counts.entry(*sample).or_default() += 1;
    }
    counts
}

fn any_shuffle() -> impl Strategy<Value = Shuffle> {
    let block = (1u64..60, 1u64..9)
        .prop_map(|(block_bytes, group_blocks)| Shuffle::Block(BlockShuffle { block_bytes, group_blocks }));
    prop_oneof![Just(Shuffle::Sequential), Just(Shuffle::Full), block]
}

const POLICIES: [&str; 6] = ["off", "dynamic", "file", "data", "file_or_data", "hint:part"];

/// The part that a sample belongs to, worked out the slow way; `None` where it is in all or there are none.
fn part_by_definition(policy: &str, objects: &[u64], parts: u32, sample: u64) -> Option<u32> {
    let filled: Vec<u64> = objects.iter().copied().filter(|samples| *samples > 0).collect();
    let by_file = policy == "file" || (policy == "file_or_data" && filled.len() >= parts as usize);
    match policy {
        "off" | "dynamic" => None,
        "hint:part" => Some(hint(sample).rem_euclid(i64::from(parts)) as u32),
        _ if by_file => {
            let mut end = 0;
            let object = filled.iter().position(|samples| {
                end += samples;
                sample < end
            });
            Some(object.unwrap() as u32 % parts)
        }
        _ => Some((sample % u64::from(parts)) as u32),
    }
}

proptest! {
    /// Off: each sample once per part. All others: each sample once, in the part that the definition says, and in no
    /// other. A position is found again, and `position_of` is its inverse where samples come once.
    #[test]
    fn p055_every_policy_gives_each_sample_as_often_as_it_says(
        objects in proptest::collection::vec(0u64..25, 1..14), parts in 1u32..9, chunk in 1u64..12,
        policy in 0usize..6, shuffle in any_shuffle(), seed: u64, epoch in 0u64..3,
    ) {
        let (manifest, policy) = (dataset(&objects), POLICIES[policy]);
        let filled = objects.iter().filter(|samples| **samples > 0).count();
        let sampler = Sampler::sharded(&manifest, &sharding(policy, parts), chunk, shuffle, seed);
        if policy == "file" && filled < parts as usize {
            prop_assert_eq!(sampler.unwrap_err().kind(), ErrorKind::InvalidConfig);
            return Ok(());
        }
        let plan = sampler.unwrap().plan(epoch);
        let order = order(&plan);
        let times = if policy == "off" { u64::from(parts) } else { 1 };
        prop_assert_eq!(plan.len(), manifest.len() * times);
        let expected: BTreeMap<u64, u64> = (0..manifest.len()).map(|sample| (sample, times)).collect();
        prop_assert_eq!(multiset(&order), expected);
        let mut of_part = vec![Vec::new(); parts as usize];
        for (position, sample) in (0u64..).zip(&order) {
            let part = plan.part_of(position);
            match part_by_definition(policy, &objects, parts, *sample) {
                None => prop_assert_eq!(part.is_some(), policy == "off"),
                some => prop_assert_eq!(part, some),
            }
            of_part[part.unwrap_or(0) as usize].push(*sample);
            let found = (policy != "off").then_some(position);
            prop_assert_eq!(plan.position_of(SampleId(*sample)), found);
        }
        if policy == "off" {
            for mut samples in of_part {
                samples.sort_unstable();
                prop_assert!(samples.iter().copied().eq(0..manifest.len()), "a part is a whole pass");
            }
        }
        prop_assert_eq!(plan.part_of(plan.len()), None);
        prop_assert_eq!(plan.position_of(SampleId(manifest.len())), None);
    }

    /// Chunks come from one part each, the parts in turn while they last; what is left comes part by part.
    #[test]
    fn p055_batches_never_mix_parts_before_the_leftovers(
        lens in proptest::collection::vec(0u64..60, 1..9), chunk in 1u64..12,
    ) {
        let turns = Turns::new(&lens, chunk);
        let mut expected = Vec::new();
        for round in 0..60 {
            for (part, len) in (0u32..).zip(&lens) {
                if (round + 1) * chunk <= *len {
                    expected.extend((round * chunk..(round + 1) * chunk).map(|place| (part, place)));
                }
            }
        }
        for (part, len) in (0u32..).zip(&lens) {
            expected.extend((len / chunk * chunk..*len).map(|place| (part, place)));
        }
        for (position, (part, place)) in (0u64..).zip(expected) {
            prop_assert_eq!(turns.at(position), (part, place));
            prop_assert_eq!(turns.position(part, place), position);
        }
    }
}

#[test]
fn p055_a_fixed_seed_and_epoch_give_the_same_order() {
    let manifest = dataset(&[40, 35, 50, 20, 45]);
    for policy in POLICIES {
        for shuffle in [Shuffle::Full, Shuffle::Block(BlockShuffle { block_bytes: 80, group_blocks: 4 })] {
            let of = |seed, epoch| {
                let sampler = Sampler::sharded(&manifest, &sharding(policy, 3), 8, shuffle, seed).unwrap();
                order(&sampler.plan(epoch))
            };
            assert_eq!(of(1, 4), of(1, 4), "{policy}");
            assert_ne!(of(1, 4), of(1, 5), "{policy}");
            assert_ne!(of(1, 4), of(2, 4), "{policy}");
        }
    }
    // Every pass of `off` has an order of its own.
    let plan = Sampler::sharded(&manifest, &sharding("off", 2), 190, Shuffle::Full, 1).unwrap().plan(0);
    assert_ne!(order(&plan)[..190], order(&plan)[190..]);
}

#[test]
fn p055_too_few_files_is_an_error_that_says_both_numbers_and_the_way_out() {
    let manifest = dataset(&[10, 0, 10, 10]);
    let error = Sampler::sharded(&manifest, &sharding("file", 4), 8, Shuffle::Full, 0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    assert!(error.message().contains("3 objects") && error.message().contains("4 parts"), "{error}");
    assert!(error.report().contains("file_or_data"), "{}", error.report());
    assert!(Sampler::sharded(&manifest, &sharding("file", 3), 8, Shuffle::Full, 0).is_ok());
    assert!(Sampler::sharded(&manifest, &sharding("file_or_data", 4), 8, Shuffle::Full, 0).is_ok());
}

#[test]
fn p055_a_hint_needs_an_integer_field_that_every_sample_has() {
    let manifest = dataset(&[10]);
    for (field, why) in [("nothing", "no such field"), ("bin", "holds payloads")] {
        let policy = sharding(&format!("hint:{field}"), 2);
        let error = Sampler::sharded(&manifest, &policy, 8, Shuffle::Full, 0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig);
        assert!(error.message().contains(why) && error.report().contains("`part`"), "{}", error.report());
    }
    let fields = vec![FieldInfo { name: "part".into(), kind: FieldKind::Int }];
    let mut builder = ManifestBuilder::new(fields, serde_json::Value::Null);
    builder.add_object("shard", 0, 0).unwrap();
    builder.add_sample("with", &[(0, Value::Int(1))]).unwrap();
    builder.add_sample("without", &[]).unwrap();
    let manifest = Manifest::open(builder.finish().unwrap()).unwrap();
    let error = Sampler::sharded(&manifest, &sharding("hint:part", 2), 8, Shuffle::Full, 0).unwrap_err();
    assert!(error.message().contains("sample 1 (`without`) has no value"), "{error}");
}

#[test]
fn policies_are_read_as_they_are_written() {
    for policy in POLICIES {
        assert_eq!(policy.parse::<ShardingPolicy>().unwrap().to_string(), policy);
        let setting = sharding(policy, 3);
        let text = serde_json::to_string(&setting).unwrap();
        assert_eq!(serde_json::from_str::<Sharding>(&text).unwrap(), setting, "{text}");
    }
    for bad in ["", "OFF", "hint", "hint:", "some"] {
        let error = bad.parse::<ShardingPolicy>().unwrap_err();
        assert!(error.report().contains("file_or_data"), "{}", error.report());
    }
    let from = |policy: Option<&str>, parts| {
        Sharding::from_settings(policy.map(|policy| policy.parse().unwrap()), parts)
    };
    assert_eq!(from(None, None).unwrap(), None);
    assert_eq!(from(Some("dynamic"), None).unwrap(), Some(sharding("dynamic", 1)));
    assert_eq!(from(Some("file"), Some(3)).unwrap(), Some(sharding("file", 3)));
    for (policy, parts) in [(None, Some(3)), (Some("file"), None), (Some("file"), Some(0))] {
        assert_eq!(from(policy, parts).unwrap_err().kind(), ErrorKind::InvalidConfig);
    }
    let manifest = dataset(&[10]);
    let resample = Shuffle::Resample { epoch_samples: None };
    for (parts, chunk, shuffle) in
        [(0, 8, Shuffle::Full), (1025, 8, Shuffle::Full), (2, 0, Shuffle::Full), (2, 8, resample)]
    {
        let error = Sampler::sharded(&manifest, &sharding("data", parts), chunk, shuffle, 0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    }
}

#[test]
fn sharded_order_never_changes_between_releases() {
    let manifest = dataset(&[40, 35, 50, 20, 45]);
    let first = |policy, shuffle| {
        let plan = Sampler::sharded(&manifest, &sharding(policy, 3), 4, shuffle, 1).unwrap().plan(2);
        order(&plan)[..8].to_vec()
    };
    assert_eq!(first("data", Shuffle::Full), GOLDEN_DATA);
    let block = Shuffle::Block(BlockShuffle { block_bytes: 80, group_blocks: 4 });
    assert_eq!(first("file", block), GOLDEN_FILE);
}

const GOLDEN_DATA: [u64; 8] = [174, 45, 135, 186, 184, 121, 181, 19];
const GOLDEN_FILE: [u64; 8] = [7, 8, 29, 25, 56, 65, 146, 150];
