//! Promises about order: the same on any number of threads, in plan or arrival order, epoch after epoch.
#![allow(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

use crate::common::*;
use bytes::Bytes;
use forebay_core::Result;
use forebay_core::plan::{BlockShuffle, Shuffle};
use forebay_core::rng::{Rng, fold};
use forebay_engine::{DeliveryOrder, LoaderConfig};
use forebay_store::{ByteRange, ObjectMeta, Store};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Delays each request by a time drawn from a seed, so that payloads overtake each other.
#[derive(Debug)]
struct Jitter {
    inner: Arc<dyn Store>,
    seed: u64,
    requests: AtomicU64,
}

impl Jitter {
    fn over(inner: &Arc<dyn Store>, seed: u64) -> Arc<dyn Store> {
        Arc::new(Self { inner: Arc::clone(inner), seed, requests: AtomicU64::new(0) })
    }

    async fn wait(&self) {
        let request = self.requests.fetch_add(1, Ordering::Relaxed);
        let mut rng = Rng::keyed(fold(&[self.seed]), request, 0);
        // Most answers come at once, some late, a few very late.
        let millis = if rng.chance(0.05) { 12.0 } else { rng.uniform(0.0, 2.0) };
        tokio::time::sleep(Duration::from_secs_f64(millis / 1000.0)).await;
    }
}

impl Store for Jitter {
    fn url(&self, key: &str) -> String {
        self.inner.url(key)
    }
    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta>> {
        self.inner.head(key)
    }
    fn read<'a>(&'a self, key: &'a str, range: ByteRange) -> BoxFuture<'a, Result<Bytes>> {
        Box::pin(async move {
            self.wait().await;
            self.inner.read(key, range).await
        })
    }
    fn read_parts<'a>(&'a self, key: &'a str, parts: &'a [Range<u64>]) -> BoxFuture<'a, Result<Vec<Bytes>>> {
        Box::pin(async move {
            self.wait().await;
            self.inner.read_parts(key, parts).await
        })
    }
    fn list<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }
    fn write<'a>(&'a self, key: &'a str, bytes: Bytes) -> BoxFuture<'a, Result<()>> {
        self.inner.write(key, bytes)
    }
}

fn shuffles() -> [Shuffle; 3] {
    let small_blocks = BlockShuffle { block_bytes: 4096, group_blocks: 8 };
    [Shuffle::Sequential, Shuffle::Full, Shuffle::Block(small_blocks)]
}

#[test]
fn p025_batches_are_equal_byte_for_byte_on_any_number_of_threads() {
    let dataset = noise(503, 700, 7);
    for shuffle in shuffles() {
        let run = |threads| {
            let config = LoaderConfig { shuffle, seed: 5, threads, ..alone(16) };
            let mut loader = loader(&dataset, &raw_recipe(), config);
            let mut all = epoch(&mut loader);
            all.extend(epoch(&mut loader));
            all.iter().map(bytes).collect::<Vec<_>>()
        };
        let one = run(1);
        assert_eq!(one, run(2), "{shuffle:?}");
        assert_eq!(one, run(4), "{shuffle:?}");
        assert_eq!(one, run(13), "{shuffle:?}");
    }
}

#[test]
fn p004_arrival_order_delivers_every_sample_once_with_its_id_and_epoch() {
    let dataset = noise(997, 300, 997 / 8);
    let order = DeliveryOrder::Arrival { window: 200 };
    let config = LoaderConfig { shuffle: Shuffle::Full, order, threads: 3, ..alone(10) };
    let store = Jitter::over(dataset.store(), 1);
    let mut loader = loader_on(dataset.manifest(), store, &raw_recipe(), config);
    for number in 0..2 {
        let batches = epoch(&mut loader);
        assert!(batches.iter().all(|batch| batch.epoch == number));
        // The payload belongs to the id that is delivered with it.
        for batch in &batches {
            for (id, payload) in batch.ids.iter().zip(payloads(batch)) {
                assert_eq!(payload, stored(&dataset, id.0));
            }
        }
        assert_each_once(ids(&batches), 997);
    }
}

#[test]
fn p005_the_epoch_fence_holds_for_five_epochs_under_random_delays() {
    let dataset = noise(211, 100, 40);
    let order = DeliveryOrder::Arrival { window: 64 };
    let config = LoaderConfig { shuffle: Shuffle::Full, order, seed: 3, ..alone(8) };
    let store = Jitter::over(dataset.store(), 2);
    let mut loader = loader_on(dataset.manifest(), store, &raw_recipe(), config);
    for number in 0..5 {
        let batches = epoch(&mut loader);
        assert!(
            batches.iter().all(|batch| batch.epoch == number),
            "a sample of another epoch in epoch {number}"
        );
        assert_each_once(ids(&batches), 211);
    }
}

#[test]
fn p005_no_sample_comes_more_than_the_window_late_and_window_zero_is_plan_order() {
    let dataset = noise(600, 100, 300);
    let run = |order| {
        let config = LoaderConfig { shuffle: Shuffle::Full, order, seed: 8, ..alone(7) };
        let store = Jitter::over(dataset.store(), 9);
        epoch(&mut loader_on(dataset.manifest(), store, &raw_recipe(), config))
    };
    let planned = run(DeliveryOrder::Plan);
    let zero = run(DeliveryOrder::Arrival { window: 0 });
    assert!(planned.iter().map(bytes).eq(zero.iter().map(bytes)), "byte for byte");
    let place: std::collections::HashMap<u64, usize> =
        ids(&planned).into_iter().enumerate().map(|(place, id)| (id, place)).collect();
    let window = 25;
    let arrived = ids(&run(DeliveryOrder::Arrival { window }));
    assert_each_once(arrived.clone(), 600);
    for (row, id) in arrived.iter().enumerate() {
        assert!(row <= place[id] + window as usize, "sample {id} of place {} came at {row}", place[id]);
    }
    assert_ne!(arrived, ids(&planned), "delays reorder something");
}

#[test]
fn p028_three_shards_feed_eight_threads_and_four_ranks() {
    let dataset = noise(100, 64, 3);
    let block = Shuffle::Block(BlockShuffle::default());
    let all: Vec<u64> = (0..4)
        .flat_map(|rank| {
            let config =
                LoaderConfig { consumer: consumer(rank, 4, 8), shuffle: block, threads: 8, ..alone(8) };
            ids(&epoch(&mut loader(&dataset, &raw_recipe(), config)))
        })
        .collect();
    assert_each_once(all, 100);
}

#[test]
fn an_abandoned_epoch_is_followed_by_the_next_one_and_an_untouched_one_by_itself() {
    let dataset = noise(100, 16, 1);
    let mut loader = loader(&dataset, &raw_recipe(), alone(10));
    loader.begin().unwrap();
    assert_eq!(steps(&mut loader, 3)[0].epoch, 0, "beginning twice skips nothing");
    assert_eq!(epoch(&mut loader)[0].epoch, 1);
    assert_eq!(loader.epoch(), 2);
}

fn payloads(batch: &forebay_engine::Batch) -> Vec<Bytes> {
    match batch.column("bin") {
        Some(forebay_ops::Column::Bytes(payloads)) => payloads.clone(),
        other => panic!("raw payloads were asked for, got {other:?}"),
    }
}

fn stored(dataset: &forebay_engine::source::Dataset, id: u64) -> Bytes {
    let field = dataset.manifest().field_index("bin").unwrap();
    let read = dataset.read_field(forebay_core::SampleId(id), field, ByteRange::Full);
    futures::executor::block_on(read).unwrap()
}
