//! Promises about the cache of one process: exact hits, bounded bytes, nothing stale, nothing fetched twice.
#![allow(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

mod common;

use common::*;
use forebay_core::cache::{Capacity, Ownership};
use forebay_core::plan::Shuffle;
use forebay_engine::cache::{Keeper, LocalKeeper};
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
        ownership: Ownership::alone(),
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
