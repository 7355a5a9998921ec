//! Promises about the cache of one process: exact hits, bounded bytes, nothing stale, nothing fetched twice.
#![allow(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

mod common;

use common::*;
use forebay_core::cache::{Capacity, Ownership};
use forebay_core::plan::Shuffle;
use forebay_engine::cache::{CacheAt, CacheConfig, DiskConfig, DiskTier, Keeper, LocalKeeper};
use forebay_engine::source::Dataset;
use forebay_engine::{CacheSettings, DeliveryOrder, Loader, LoaderConfig};
use forebay_store::{CountingStore, Store};
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::Arc;

const SAMPLE_BYTES: u64 = 400;

/// A loader that counts what it reads from the store, over a cache.
struct Cached {
    loader: Loader,
    store: Arc<CountingStore>,
    keeper: Arc<LocalKeeper>,
}

fn settings(keeper: &Arc<LocalKeeper>, capacity: Capacity) -> CacheSettings {
    let keeper = Arc::clone(keeper);
    CacheSettings {
        capacity,
        seed: 0,
        owners: Ownership::alone().into(),
        at: CacheAt::Bytes,
        open: Arc::new(move || Ok(Arc::clone(&keeper) as Arc<dyn Keeper>)),
    }
}

fn cached(dataset: &Dataset, memory: u64, config: LoaderConfig) -> Cached {
    let keeper = Arc::new(LocalKeeper::new(memory, None));
    over(dataset, keeper, Capacity { memory, disk: 0 }, config)
}

fn over(dataset: &Dataset, keeper: Arc<LocalKeeper>, capacity: Capacity, config: LoaderConfig) -> Cached {
    let store = Arc::new(CountingStore::new(Arc::clone(dataset.store())));
    let counted: Arc<dyn Store> = Arc::clone(&store) as _;
    let loader = loader_on(dataset.manifest(), counted, &raw_recipe(), config);
    Cached { loader: loader.with_cache(settings(&keeper, capacity)), store, keeper }
}

impl Cached {
    /// One epoch: ids, and payloads read from the store during all epochs so far.
    fn epoch(&mut self) -> Vec<u64> {
        ids(&epoch(&mut self.loader))
    }

    fn reads(&self) -> u64 {
        self.store.counts().bytes_read / SAMPLE_BYTES
    }
}

/// Waits until everything that was fetched is kept: the last samples of an epoch are handed over before they are.
fn settled(keeper: &LocalKeeper) {
    eventually(|| keeper.view().coming == 0);
}

fn eventually(holds: impl Fn() -> bool) {
    let since = std::time::Instant::now();
    while !holds() {
        assert!(since.elapsed() < std::time::Duration::from_secs(60), "it never comes to hold");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// A keeper as a new process would open it, once the one before is gone.
fn restarted(
    before: &mut std::sync::Weak<LocalKeeper>,
    dir: &std::path::Path,
    capacity: Capacity,
) -> Arc<LocalKeeper> {
    eventually(|| before.strong_count() == 0);
    let disk = Some(DiskConfig { dir: dir.to_owned(), limit: capacity.disk });
    let config = CacheConfig { memory: capacity.memory, disk, ..CacheConfig::default() };
    let keeper = LocalKeeper::open(&config).unwrap();
    *before = Arc::downgrade(&keeper);
    keeper
}

fn shuffled(batch_size: u64, epochs: u64) -> LoaderConfig {
    LoaderConfig { shuffle: Shuffle::Full, epochs: Some(epochs), ..alone(batch_size) }
}

#[test]
fn p042_every_epoch_from_the_second_hits_exactly_what_fits() {
    let samples = 2000;
    // One object per sample: a read of the store is a read of a sample.
    let dataset = noise(samples, SAMPLE_BYTES, 2000);
    for percent in [35, 65] {
        let memory = samples * SAMPLE_BYTES * percent / 100;
        let epochs = 6;
        let mut run = cached(&dataset, memory, shuffled(64, epochs));
        let resident = samples * percent / 100;
        for _ in 0..epochs {
            assert_each_once(run.epoch(), samples);
        }
        let stats = run.loader.stats();
        assert_eq!(run.reads(), samples + (epochs - 1) * (samples - resident), "{percent} %");
        assert_eq!(stats.cache_memory_hits, (epochs - 1) * resident);
        assert_eq!(stats.cache_misses, samples + (epochs - 1) * (samples - resident));
        assert_eq!(
            (stats.cache_memory_bytes, stats.cache_memory_limit_bytes),
            (resident * SAMPLE_BYTES, memory)
        );
    }
}

/// Hit rate of a cache that throws out what was used longest ago, over the orders that a plan gives.
fn lru_hit_rate(samples: u64, capacity: u64, seed: u64, epochs: std::ops::Range<u64>) -> f64 {
    let dataset = noise(samples, 1, 1);
    let sampler = shuffled(1, 1);
    let sampler = LoaderConfig { seed, ..sampler }.sampler(dataset.manifest()).unwrap();
    let (mut last_use, mut order, mut clock, mut hits) =
        (HashMap::new(), std::collections::BTreeMap::new(), 0u64, 0u64);
    for epoch in 0..epochs.end {
        let plan = sampler.plan(epoch);
        for position in 0..samples {
            let sample = plan.at(position).0;
            clock += 1;
            match last_use.insert(sample, clock) {
                Some(before) => {
                    order.remove(&before);
                    hits += u64::from(epochs.contains(&epoch));
                }
                None if last_use.len() as u64 > capacity => {
                    let (_, oldest) = order.pop_first().unwrap();
                    last_use.remove(&oldest);
                }
                None => {}
            }
            order.insert(clock, sample);
        }
    }
    hits as f64 / (samples * (epochs.end - epochs.start)) as f64
}

#[test]
fn p042_the_same_orders_give_a_recency_cache_far_fewer_hits() {
    let samples = 2000;
    for (percent, expected) in [(35, 0.07), (65, 0.28)] {
        let rates: Vec<f64> =
            (0..16).map(|seed| lru_hit_rate(samples, samples * percent / 100, seed, 1..6)).collect();
        let mean = rates.iter().sum::<f64>() / rates.len() as f64;
        assert!((mean - expected).abs() <= 0.01, "{percent} %: {mean} of {rates:?}");
    }
}

#[test]
fn what_comes_from_the_cache_is_what_the_store_has() {
    let dataset = noise(300, SAMPLE_BYTES, 7);
    for order in [DeliveryOrder::Plan, DeliveryOrder::Arrival { window: 64 }] {
        let config = LoaderConfig { order, seed: 3, ..shuffled(16, 3) };
        let mut run = cached(&dataset, 300 * SAMPLE_BYTES / 2, config.clone());
        let mut plain = loader(&dataset, &raw_recipe(), config);
        for _ in 0..3 {
            let by_id = |batches: Vec<forebay_engine::Batch>| {
                let mut rows: Vec<(u64, Vec<u8>)> = Vec::new();
                for batch in &batches {
                    let forebay_ops::Column::Bytes(payloads) = &batch.columns[0].1 else { panic!() };
                    rows.extend(
                        batch.ids.iter().map(|id| id.0).zip(payloads.iter().map(|bytes| bytes.to_vec())),
                    );
                }
                rows.sort();
                rows
            };
            assert_eq!(by_id(epoch(&mut run.loader)), by_id(epoch(&mut plain)));
        }
    }
}

#[test]
fn p043_a_limit_changed_at_run_time_is_honoured_and_hits_are_exact_again() {
    let samples = 400;
    let dataset = noise(samples, SAMPLE_BYTES, 400);
    let room = |percent| Capacity { memory: samples * SAMPLE_BYTES * percent / 100, disk: 0 };
    let keeper = Arc::new(LocalKeeper::new(room(100).memory, None));
    // What an epoch reads, and the room after it: less room lets go at once, more is filled by the next epoch.
    for (percent, reads, next) in
        [(100, 400, 100), (100, 0, 25), (25, 300, 25), (25, 300, 75), (75, 300, 75), (75, 100, 75)]
    {
        let mut run = over(&dataset, Arc::clone(&keeper), room(percent), shuffled(20, 1));
        assert_each_once(run.epoch(), samples);
        assert_eq!(run.reads(), reads, "{percent} %");
        settled(&keeper);
        run.loader.resize_cache(room(next)).unwrap();
        let view = keeper.view().memory;
        assert_eq!(view.bytes, room(percent.min(next)).memory);
        assert_eq!(run.loader.stats().cache_memory_limit_bytes, room(next).memory);
    }
}

#[test]
fn loaders_of_one_process_over_one_keeper_read_every_sample_once() {
    let samples = 500;
    let dataset = noise(samples, SAMPLE_BYTES, 500);
    let keeper = Arc::new(LocalKeeper::new(u64::MAX, None));
    let capacity = Capacity { memory: u64::MAX, disk: 0 };
    let runs: Vec<Cached> = (0..4)
        .map(|seed| over(&dataset, Arc::clone(&keeper), capacity, LoaderConfig { seed, ..shuffled(10, 1) }))
        .collect();
    let reads: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = runs
            .into_iter()
            .map(|mut run| {
                scope.spawn(move || {
                    assert_each_once(run.epoch(), samples);
                    run.reads()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(reads, samples);
}

#[test]
fn p048_what_memory_does_not_hold_comes_from_disk_and_nothing_from_the_store() {
    let samples = 300;
    let dataset = noise(samples, SAMPLE_BYTES, 300);
    let dir = tempfile::tempdir().unwrap();
    // Room for two thirds beside a third in memory, and none for copies.
    let memory = 100 * SAMPLE_BYTES;
    let disk = DiskTier::fixed_cost() + 200 * DiskTier::cost(SAMPLE_BYTES);
    let mut before = std::sync::Weak::new();
    let capacity = Capacity { memory, disk };
    // A new process has an empty memory: what was in it comes from the store, the rest from disk.
    for first in [(0, 0, 300), (0, 200, 100)] {
        let keeper = restarted(&mut before, dir.path(), capacity);
        for expected in [first, (100, 200, 0), (100, 200, 0)] {
            let mut run = over(&dataset, Arc::clone(&keeper), capacity, shuffled(16, 1));
            assert_each_once(run.epoch(), samples);
            let stats = run.loader.stats();
            assert_eq!((stats.cache_memory_hits, stats.cache_disk_hits, stats.cache_misses), expected);
            assert_eq!(run.reads(), expected.2);
            settled(&keeper);
            let view = keeper.view();
            assert!(view.memory.bytes <= memory && view.disk.bytes <= disk);
        }
    }
}

#[test]
fn p044_what_is_on_disk_hits_from_the_first_epoch_and_room_that_is_left_copies_memory() {
    let samples = 100;
    let dataset = noise(samples, SAMPLE_BYTES, 3);
    let dir = tempfile::tempdir().unwrap();
    let capacity = Capacity { memory: samples * SAMPLE_BYTES, disk: 16 << 20 };
    let mut before = std::sync::Weak::new();
    for (disk_hits, misses) in [(0, samples), (samples, 0)] {
        let keeper = restarted(&mut before, dir.path(), capacity);
        let run = |expected| {
            let mut run = over(&dataset, Arc::clone(&keeper), capacity, shuffled(16, 1));
            assert_each_once(run.epoch(), samples);
            let stats = run.loader.stats();
            assert_eq!((stats.cache_memory_hits, stats.cache_disk_hits, stats.cache_misses), expected);
            // A loader that ends takes the last ones with it that were handed over and not kept yet.
            settled(&keeper);
        };
        run((0, disk_hits, misses));
        // What came from disk belongs into memory too.
        eventually(|| keeper.view().memory.bytes == samples * SAMPLE_BYTES);
        settled(&keeper);
        run((samples, 0, 0));
    }
}

#[test]
fn warming_reads_exactly_what_will_be_resident_and_is_missing() {
    let dataset = noise(200, SAMPLE_BYTES, 9);
    let dir = tempfile::tempdir().unwrap();
    let limit = DiskTier::fixed_cost() + 120 * DiskTier::cost(SAMPLE_BYTES);
    let settings = CacheSettings::local(CacheConfig {
        disk: Some(DiskConfig { dir: dir.path().to_owned(), limit }),
        ..CacheConfig::default()
    });
    let warm = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let warmed =
            runtime.block_on(forebay_engine::cache::warm(&dataset, &raw_recipe(), &settings, |_| Ok(())));
        warmed.unwrap()
    };
    let first = warm();
    assert_eq!((first.samples, first.found, first.read, first.read_bytes), (200, 0, 120, 120 * SAMPLE_BYTES));
    assert_eq!((warm().found, warm().read), (120, 0));
    let mut loader = loader(&dataset, &raw_recipe(), shuffled(16, 1)).with_cache(settings.clone());
    assert_each_once(ids(&epoch(&mut loader)), 200);
    assert_eq!((loader.stats().cache_disk_hits, loader.stats().cache_misses), (120, 80));
}

/// With `FOREBAY_SLOW=1` as many samples as ImageNet has.
#[test]
fn a_large_dataset_is_warmed_and_hits_exactly_in_both_tiers() {
    let samples = if std::env::var("FOREBAY_SLOW").is_ok() { 1_281_167 } else { 20_000 };
    let bytes = 16;
    let dataset = noise(samples, bytes, 147);
    let dir = tempfile::tempdir().unwrap();
    let (in_memory, on_disk) = (samples * 35 / 100, samples / 2);
    let disk = DiskTier::fixed_cost() + on_disk * DiskTier::cost(bytes);
    let settings = CacheSettings::local(CacheConfig {
        memory: in_memory * bytes,
        disk: Some(DiskConfig { dir: dir.path().to_owned(), limit: disk }),
        ..CacheConfig::default()
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let recipe = raw_recipe();
    let warmed = forebay_engine::cache::warm(&dataset, &recipe, &settings, |_| Ok(()));
    let warmed = runtime.block_on(warmed).unwrap();
    assert_eq!((warmed.samples, warmed.read), (samples, on_disk));
    let mut loader = loader(&dataset, &recipe, shuffled(4096, 2)).with_cache(settings);
    for _ in 0..2 {
        assert_each_once(ids(&epoch(&mut loader)), samples);
    }
    let stats = loader.stats();
    // Memory is filled by the first epoch; the loader looks into the second meanwhile, so both are counted together.
    assert_eq!(stats.cache_memory_hits, in_memory);
    assert_eq!(stats.cache_disk_hits, 2 * on_disk);
    assert_eq!(stats.cache_misses, 2 * samples - in_memory - 2 * on_disk);
}

#[test]
fn a_changed_object_is_never_served_from_the_cache() {
    let keeper = Arc::new(LocalKeeper::new(1 << 20, None));
    for version in 0..3u64 {
        let dataset = objects(40, version);
        let mut run =
            over(&dataset, Arc::clone(&keeper), Capacity { memory: 1 << 20, disk: 0 }, shuffled(8, 1));
        let batches = epoch(&mut run.loader);
        let stale = if version == 0 { 40 } else { 1 };
        assert_eq!(run.store.counts().bytes_read, stale * 8, "version {version}");
        let rows = batches.iter().flat_map(|batch| match &batch.columns[0].1 {
            forebay_ops::Column::Bytes(payloads) => payloads.clone(),
            _ => panic!("payloads are bytes"),
        });
        let changed = rows.filter(|bytes| bytes[..] == version.to_le_bytes()[..] && version > 0).count();
        assert_eq!(changed, usize::from(version > 0));
    }
}

#[test]
fn a_dataset_that_grows_keeps_what_it_had_and_hits_are_exact_again() {
    // With room for all of it only what is new is read.
    let room = Capacity { memory: 60 * 8, disk: 0 };
    let keeper = Arc::new(LocalKeeper::new(room.memory, None));
    for (count, read) in [(40, 40), (60, 20), (60, 0)] {
        let mut run = over(&objects(count, 0), Arc::clone(&keeper), room, shuffled(8, 1));
        run.epoch();
        assert_eq!(run.store.counts().bytes_read, read * 8, "{count} objects");
        settled(&keeper);
    }
    // With room for half of what it is now, half of it is hit in every epoch from the second.
    let room = Capacity { memory: 30 * 8, disk: 0 };
    let keeper = Arc::new(LocalKeeper::new(room.memory, None));
    for count in [40, 60] {
        let mut run = over(&objects(count, 0), Arc::clone(&keeper), room, shuffled(8, 1));
        run.epoch();
        assert!(run.loader.stats().cache_misses >= count - 30, "{count} objects");
        settled(&keeper);
        let mut run = over(&objects(count, 0), Arc::clone(&keeper), room, shuffled(8, 2));
        for _ in 0..2 {
            run.epoch();
        }
        assert_eq!(run.loader.stats().cache_misses, 2 * (count - 30), "{count} objects");
        assert_eq!(keeper.view().memory.payloads, 30);
    }
}

/// So many objects of eight bytes, of which the first was written again `version` times.
fn objects(count: u64, version: u64) -> Dataset {
    use forebay_core::manifest::{FieldInfo, FieldKind, Manifest, ManifestBuilder, Value};
    let store = forebay_store::MemoryStore::new();
    let fields = vec![
        FieldInfo { name: "bin".into(), kind: FieldKind::Payload },
        FieldInfo { name: "cls".into(), kind: FieldKind::Int },
    ];
    let mut builder = ManifestBuilder::new(fields, serde_json::json!({"kind": "tree"}));
    for object in 0..count {
        let (key, bytes) = (format!("{object:02}"), if object == 0 { version } else { 1000 + object });
        futures::executor::block_on(store.write(&key, bytes.to_le_bytes().to_vec().into())).unwrap();
        builder.add_object(&key, 8, if object == 0 { 1 + version } else { 1 }).unwrap();
        let payload = Value::Payload { offset: 0, length: 8, object: None };
        builder.add_sample(&key, &[(0, payload), (1, Value::Int(0))]).unwrap();
    }
    let manifest = Manifest::open(builder.finish().unwrap()).unwrap();
    Dataset::new(manifest, Arc::new(store), "altered").unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn p043_resident_bytes_never_pass_the_limit_with_mixed_sizes(
        samples in 1u64..200, shards in 1u32..9, memory in 0u64..60_000, batch in 1u64..40,
    ) {
        let payload = forebay_engine::source::SyntheticPayload::Noise { bytes: 300 };
        let spec = forebay_engine::source::SyntheticSpec { samples, payload, shards, ..Default::default() };
        let dataset = forebay_engine::source::synthetic(spec).unwrap();
        let mut run = cached(&dataset, memory, shuffled(batch, 2));
        run.loader.begin().unwrap();
        for _ in 0..2 {
            let mut seen = Vec::new();
            while let Some(batch) = next(&mut run.loader).unwrap() {
                prop_assert!(run.keeper.view().memory.bytes <= memory);
                seen.push(batch);
            }
            assert_each_once(ids(&seen), samples);
            run.loader.begin().unwrap();
        }
    }
}
