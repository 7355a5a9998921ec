//! Promises about sharding policies and size classes through the whole engine: what ranks receive, and resuming.
#![allow(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

use crate::common::*;
use forebay_core::ErrorKind;
use forebay_core::cursor::Cursor;
use forebay_core::plan::mix::MixPart;
use forebay_core::plan::parts::Sharding;
use forebay_core::plan::rounds::{ClassBounds, SizeClasses};
use forebay_core::plan::{BlockShuffle, Shuffle};
use forebay_engine::source::{Dataset, SyntheticPayload, SyntheticSpec, synthetic};
use forebay_engine::{Batch, DeliveryOrder, Loader, LoaderConfig};
use forebay_ops::Column;
use std::collections::HashSet;
use std::sync::Arc;

const WORLD: u64 = 3;
const BATCH: u64 = 8;

fn sharded(policy: &str, parts: u32, shuffle: Shuffle, rank: u64) -> LoaderConfig {
    LoaderConfig {
        consumer: consumer(rank, WORLD, BATCH),
        sharding: Some(Sharding { policy: policy.parse().unwrap(), parts }),
        shuffle,
        seed: 4,
        threads: 2,
        ..LoaderConfig::default()
    }
}

/// Payloads of 20, 300 and 4000 bytes, drawn by seed.
fn three_sizes(samples: u64) -> Dataset {
    let templates = [20, 300, 4000].map(|bytes| vec![7; bytes].into()).to_vec();
    let payload = SyntheticPayload::Templates(templates);
    synthetic(SyntheticSpec { samples, payload, ..SyntheticSpec::default() }).unwrap()
}

fn classed(rank: u64) -> LoaderConfig {
    LoaderConfig {
        consumer: consumer(rank, WORLD, BATCH),
        size_classes: Some(SizeClasses {
            bounds: ClassBounds::Bytes(vec![100, 1000]),
            field: Some("bin".into()),
        }),
        shuffle: Shuffle::Full,
        seed: 4,
        threads: 2,
        ..LoaderConfig::default()
    }
}

/// Lengths of the payloads of a batch.
fn lengths(batch: &Batch) -> HashSet<usize> {
    let mut lengths = HashSet::new();
    for (_, column) in &batch.columns {
        if let Column::Bytes(payloads) = column {
            lengths.extend(payloads.iter().map(bytes::Bytes::len));
        }
    }
    lengths
}

#[test]
fn p055_three_ranks_together_receive_what_each_policy_says() {
    let dataset = noise(500, 40, 7);
    let block = Shuffle::Block(BlockShuffle { block_bytes: 400, group_blocks: 4 });
    for policy in ["off", "dynamic", "file", "data", "file_or_data", "hint:cls"] {
        for shuffle in [Shuffle::Sequential, Shuffle::Full, block] {
            let mut received = Vec::new();
            for rank in 0..WORLD {
                let mut loader = loader(&dataset, &raw_recipe(), sharded(policy, 3, shuffle, rank));
                let batches = epoch(&mut loader);
                assert_eq!(loader.epoch_samples(), if policy == "off" { 1500 } else { 500 });
                received.extend(ids(&batches));
            }
            received.sort_unstable();
            let times = if policy == "off" { 3 } else { 1 };
            let expected: Vec<u64> = (0..500).flat_map(|sample| vec![sample; times]).collect();
            assert_eq!(received, expected, "{policy} {shuffle:?}");
        }
    }
}

#[test]
fn p055_with_as_many_ranks_as_parts_a_rank_reads_one_part_while_whole_batches_last() {
    let dataset = noise(480, 40, 6);
    for rank in 0..WORLD {
        let mut loader = loader(&dataset, &label_recipe(), sharded("file", 3, Shuffle::Full, rank));
        let batches = epoch(&mut loader);
        let objects: HashSet<u32> = ids(&batches)
            .into_iter()
            .map(|sample| dataset.manifest().object_of(forebay_core::SampleId(sample)) % 3)
            .collect();
        assert_eq!(objects, HashSet::from([rank as u32]));
    }
}

#[test]
fn p055_a_sharded_epoch_resumes_batch_for_batch() {
    let dataset = noise(300, 40, 7);
    let block = Shuffle::Block(BlockShuffle { block_bytes: 400, group_blocks: 4 });
    for policy in ["off", "file", "data", "hint:cls"] {
        let config = || sharded(policy, 4, block, 1);
        let whole = epoch(&mut loader(&dataset, &raw_recipe(), config()));
        let mut first = loader(&dataset, &raw_recipe(), config());
        let mut batches = steps(&mut first, 5);
        let cursor = serde_json::to_string(&first.cursor()).unwrap();
        let mut second = loader(&dataset, &raw_recipe(), config());
        second.seek(Cursor::from_json(&cursor).unwrap()).unwrap();
        batches.extend(epoch(&mut second));
        assert!(batches.iter().map(bytes).eq(whole.iter().map(bytes)), "{policy}");
    }
}

#[test]
fn p060_three_ranks_get_one_class_at_every_step_and_a_restarted_one_rejoins_at_its_round() {
    let dataset = three_sizes(1000);
    let straight: Vec<Vec<Batch>> =
        (0..WORLD).map(|rank| epoch(&mut loader(&dataset, &raw_recipe(), classed(rank)))).collect();
    let mut received: Vec<u64> = straight.iter().flat_map(|batches| ids(batches)).collect();
    received.sort_unstable();
    assert!(received.into_iter().eq(0..1000));
    let stats = loader(&dataset, &raw_recipe(), classed(0)).stats();
    assert_eq!(stats.rounds, straight[0].len() as u64);
    let mixed = (0..straight[0].len()).filter(|step| {
        let all: HashSet<usize> = straight.iter().flat_map(|batches| lengths(&batches[*step])).collect();
        all.len() > 1
    });
    assert_eq!(mixed.count() as u64, stats.mixed_rounds);
    assert!(stats.mixed_rounds <= 2, "{} rounds are mixed", stats.mixed_rounds);
    assert!(stats.padding_waste < 0.05 && stats.padding_waste_shuffled > 0.4, "{stats:?}");
    // Rank 2 is started again from what rank 0 saved at round 11, while the others go on.
    let mut saved = loader(&dataset, &raw_recipe(), classed(0));
    steps(&mut saved, 11);
    let mut again = loader(&dataset, &raw_recipe(), classed(2));
    again.seek(saved.cursor()).unwrap();
    assert!(epoch(&mut again).iter().map(bytes).eq(straight[2][11..].iter().map(bytes)));
}

#[test]
fn orders_that_do_not_fit_together_are_refused_with_a_way_out() {
    let dataset = noise(100, 40, 3);
    let refused = |config: LoaderConfig| {
        let built = Loader::new(dataset.manifest(), Arc::clone(dataset.store()), &raw_recipe(), config);
        let error = built.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
        error.report()
    };
    let parts = || sharded("data", 2, Shuffle::Full, 0);
    let resample = Shuffle::Resample { epoch_samples: None };
    let mix = || Some(vec![MixPart { samples: 0..100, weight: 1.0 }]);
    let both = LoaderConfig { size_classes: classed(0).size_classes, ..parts() };
    assert!(refused(both).contains("give one of them"));
    assert!(refused(LoaderConfig { mix: mix(), ..parts() }).contains("a mix has no parts"));
    assert!(refused(LoaderConfig { shuffle: resample, ..parts() }).contains("resample"));
    assert!(refused(sharded("data", 0, Shuffle::Full, 0)).contains("parts is 0"));
    assert!(refused(sharded("file", 4, Shuffle::Full, 0)).contains("3 objects hold samples"));
    assert!(refused(sharded("hint:bin", 2, Shuffle::Full, 0)).contains("`cls`"));
    assert!(refused(LoaderConfig { epoch_samples: Some(9), ..parts() }).contains("epoch_samples"));
    assert!(refused(LoaderConfig { mix: mix(), ..classed(0) }).contains("a mix has none"));
    for shuffle in [Shuffle::Sequential, resample] {
        assert!(refused(LoaderConfig { shuffle, ..classed(0) }).contains("set shuffle to `full`"));
    }
    let arrival = DeliveryOrder::Arrival { window: 10 };
    assert!(refused(LoaderConfig { order: arrival, ..classed(0) }).contains("plan order"));
}
