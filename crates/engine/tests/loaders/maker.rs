//! Batches by name: whoever asks, in whatever order, gets what a loader of its own would have made.
#![allow(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

use crate::common::*;
use forebay_core::cursor::Cursor;
use forebay_core::feed::BatchName;
use forebay_core::plan::{BlockShuffle, Shuffle};
use forebay_core::portion::{LastBatch, Portion};
use forebay_core::rng::Rng;
use forebay_core::{ErrorKind, Result};
use forebay_engine::cache::CacheConfig;
use forebay_engine::feed::FeedSpec;
use forebay_engine::source::Dataset;
use forebay_engine::{CacheSettings, LoaderConfig, Made, Make, Maker, MakerOptions, OnError};
use std::collections::BTreeMap;
use std::time::Duration;

fn spec(dataset: &Dataset, config: &LoaderConfig) -> FeedSpec {
    FeedSpec::new(dataset, &raw_recipe(), config).unwrap()
}

/// The names of all ranks of a job in one epoch.
fn names(
    samples: u64,
    epoch: u64,
    world_size: u64,
    batch_size: u64,
    last_batch: LastBatch,
) -> Vec<BatchName> {
    let portions = (0..world_size).map(|rank| {
        let consumer =
            forebay_core::portion::Consumer { last_batch, ..consumer(rank, world_size, batch_size) };
        Portion::new(samples, consumer, &Cursor::start_of(epoch)).unwrap()
    });
    portions
        .flat_map(|portion| {
            (0..portion.steps()).map(|step| BatchName::new(epoch, portion.batch(step))).collect::<Vec<_>>()
        })
        .collect()
}

fn take(maker: &Maker) -> Result<Made> {
    for _ in 0..60 {
        if let Some(made) = maker.take(Duration::from_secs(1))? {
            return Ok(made);
        }
    }
    panic!("no batch within a minute")
}

fn make_all(maker: &Maker, names: &[BatchName]) -> BTreeMap<BatchName, Vec<u8>> {
    maker.prepare(names);
    let made = (0..names.len()).map(|_| take(maker).unwrap());
    made.map(|made| (made.name, bytes(&made.batch.unwrap()))).collect()
}

#[test]
fn p050_a_named_batch_is_the_batch_that_a_loader_makes_whatever_the_order_of_asking() {
    let dataset = noise(503, 700, 7);
    let small_blocks = BlockShuffle { block_bytes: 4096, group_blocks: 8 };
    for shuffle in [Shuffle::Sequential, Shuffle::Full, Shuffle::Block(small_blocks)] {
        let config = LoaderConfig { shuffle, seed: 5, ..alone(16) };
        let mut loader = loader(&dataset, &raw_recipe(), config.clone());
        let wanted: Vec<Vec<u8>> =
            (0..3).flat_map(|_| epoch(&mut loader)).map(|batch| bytes(&batch)).collect();
        let maker = Maker::open(&spec(&dataset, &config), &MakerOptions::default()).unwrap();
        let all: Vec<BatchName> =
            (0..3).flat_map(|epoch| names(503, epoch, 1, 16, LastBatch::Partial)).collect();
        let mut mixed = all.clone();
        for (i, key) in (1..mixed.len()).rev().enumerate() {
            mixed.swap(key, Rng::keyed(9, i as u64, 0).below(key as u64 + 1) as usize);
        }
        let mut made = BTreeMap::new();
        for some in mixed.chunks(7) {
            made.extend(make_all(&maker, some));
        }
        assert_eq!(made.len(), all.len());
        for (name, wanted) in all.iter().zip(&wanted) {
            assert!(made[name] == *wanted, "{name}");
        }
    }
}

#[test]
fn p050_ranks_of_any_number_ask_for_the_same_batches_and_each_is_made_once() {
    let dataset = noise(512, 300, 3);
    let config = LoaderConfig { shuffle: Shuffle::Full, ..alone(16) };
    let maker = Maker::open(&spec(&dataset, &config), &MakerOptions::default()).unwrap();
    for world_size in [4, 1, 2] {
        maker.prepare(&names(512, 0, world_size, 16, LastBatch::Drop));
    }
    // What is asked for while it waits or is under way is not made again; the first may be done before the second asks.
    let mut made = BTreeMap::new();
    while made.len() < 32 {
        let batch = take(&maker).unwrap();
        *made.entry(batch.name).or_insert(0) += 1;
    }
    assert_eq!(maker.stats().payloads % 16, 0);
    let ids: Vec<u64> =
        make_all(&maker, &names(512, 0, 1, 16, LastBatch::Drop)).into_keys().map(|n| n.first()).collect();
    assert_eq!(ids, (0..32).map(|index| index * 16).collect::<Vec<_>>());
}

#[test]
fn padded_and_partial_batches_have_names_too() {
    let dataset = noise(37, 100, 2);
    for last_batch in [LastBatch::Partial, LastBatch::Pad, LastBatch::Wrap] {
        let base = alone(8);
        let consumer = forebay_core::portion::Consumer { last_batch, ..base.consumer };
        let config = LoaderConfig { consumer, shuffle: Shuffle::Full, ..base };
        let mut loader = loader(&dataset, &raw_recipe(), config.clone());
        let wanted: Vec<Vec<u8>> = epoch(&mut loader).iter().map(bytes).collect();
        let maker = Maker::open(&spec(&dataset, &config), &MakerOptions::default()).unwrap();
        let names = names(37, 0, 1, 8, last_batch);
        let made = make_all(&maker, &names);
        assert!(names.iter().zip(&wanted).all(|(name, wanted)| made[name] == *wanted), "{last_batch:?}");
    }
}

#[test]
fn a_bad_sample_fails_its_batch_and_no_other() {
    let temp = tempfile::tempdir().unwrap();
    for index in 0..24 {
        let value = if index == 13 { "not an array".into() } else { npy(index) };
        std::fs::write(temp.path().join(format!("{index:02}.npy")), value).unwrap();
    }
    let path = temp.path().display().to_string();
    let open = forebay_engine::source::OpenOptions {
        manifest_dir: Some(temp.path().join("kept")),
        ..forebay_engine::source::OpenOptions::default()
    };
    let dataset = futures::executor::block_on(forebay_engine::source::open(&[path], &open)).unwrap();
    let recipe =
        forebay_core::recipe::Recipe::from_json(r#"[{"field": "npy", "decode": {"kind": "npy"}}]"#).unwrap();
    for on_error in [OnError::Raise, OnError::Skip, OnError::Substitute] {
        let config = LoaderConfig { on_error, ..alone(4) };
        let spec = FeedSpec::new(&dataset, &recipe, &config).unwrap();
        let spec = FeedSpec::from_json(&spec.to_json().unwrap()).unwrap();
        let maker = Maker::open(&spec, &MakerOptions::default()).unwrap();
        let names = names(24, 0, 1, 4, LastBatch::Partial);
        maker.prepare(&names);
        let mut made: Vec<Made> = names.iter().map(|_| take(&maker).unwrap()).collect();
        made.sort_by(|a, b| a.name.cmp(&b.name));
        let bad = made.remove(3);
        assert!(made.iter().all(|made| made.batch.as_ref().unwrap().len() == 4));
        match (on_error, bad.batch) {
            (OnError::Raise, Err(error)) => assert_eq!(error.kind(), ErrorKind::Corrupt),
            (OnError::Skip, Ok(batch)) => assert_eq!((batch.len(), batch.faults.len()), (3, 1)),
            (OnError::Substitute, Ok(batch)) => {
                assert_eq!((batch.len(), batch.faults.len()), (4, 1));
                assert!(batch.faults[0].substitute.is_some());
            }
            (policy, outcome) => panic!("{policy:?}: {outcome:?}"),
        }
    }
}

fn npy(value: u8) -> Vec<u8> {
    let mut header = String::from("{'descr': '|u1', 'fortran_order': False, 'shape': (4,), }");
    while (header.len() + 11) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((header.len() as u16).to_le_bytes());
    file.extend(header.as_bytes());
    file.extend([value; 4]);
    file
}

#[test]
fn a_feed_of_another_version_is_refused_and_equal_feeds_have_one_id() {
    let dataset = noise(64, 100, 2);
    let config = alone(8);
    let one = spec(&dataset, &config);
    let mut fetched_otherwise = config.clone();
    fetched_otherwise.hedge = false;
    fetched_otherwise.threads = 7;
    assert_eq!(one.id(), spec(&dataset, &fetched_otherwise).id());
    let seeded = LoaderConfig { seed: 1, ..config.clone() };
    let shuffled = LoaderConfig { shuffle: Shuffle::Full, ..config.clone() };
    let skipping = LoaderConfig { on_error: OnError::Skip, ..config };
    for other in [seeded, shuffled, skipping] {
        assert_ne!(one.id(), spec(&dataset, &other).id());
    }
    let mut stale = one.clone();
    stale.dataset = "another".into();
    let error = Maker::open(&stale, &MakerOptions::default()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Stale);
    assert!(error.message().contains("another") && error.message().contains(&one.dataset), "{error}");
    let newer = one.to_json().unwrap().replacen("\"format\":1", "\"format\":2", 1);
    assert_eq!(FeedSpec::from_json(&newer).err().unwrap().kind(), ErrorKind::Unsupported);
}

#[test]
fn a_maker_keeps_payloads_near_and_reads_each_once() {
    let dataset = noise(96, 1000, 3);
    let config = LoaderConfig { shuffle: Shuffle::Full, ..alone(8) };
    let cache = CacheConfig::from_json(&serde_json::json!("1MiB")).unwrap();
    let options = MakerOptions { cache: Some(CacheSettings::local(cache)), ..MakerOptions::default() };
    let maker = Maker::open(&spec(&dataset, &config), &options).unwrap();
    for epoch in 0..3 {
        make_all(&maker, &names(96, epoch, 1, 8, LastBatch::Partial));
    }
    let stats = maker.stats();
    assert_eq!((stats.payloads, stats.cache_misses), (96, 96));
    assert_eq!(stats.cache_memory_hits, 192);
}
