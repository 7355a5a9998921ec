//! Where a loop's time goes, of whole loaders: a throttled store and a slow loop in virtual time, resident payloads, ops
//! that sleep, phases.
#![allow(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

mod common;
#[path = "common/timed.rs"]
mod timed;

use common::*;
use forebay_core::cache::{Capacity, Ownership};
use forebay_core::manifest::{FieldInfo, FieldKind, Manifest, ManifestBuilder, Value};
use forebay_core::metrics::Exposition;
use forebay_core::recipe::Recipe;
use forebay_core::stall::Split;
use forebay_engine::cache::{CacheAt, Keeper, LocalKeeper};
use forebay_engine::{CacheSettings, Loader, LoaderConfig};
use std::sync::Arc;
use std::time::Duration;
use timed::*;
use tokio::time::{Instant, sleep};

/// A link that carries `fetch` samples a second to a loop that takes `ingest`: the parts of two epochs, and their time.
fn throttled(ingest: f64, fetch: f64) -> (Loader, f64) {
    let (samples, rows, bytes) = (240, 8, 1000);
    let step = Duration::from_secs_f64(rows as f64 / ingest);
    in_virtual_time(async move {
        let store = TimedStore::new(bytes, bytes as f64 * fetch, |_, _| Reply::after(Duration::ZERO));
        let config = LoaderConfig { epochs: Some(2), hedge: false, ..alone(rows) };
        let mut loader = loader_on(&manifest_of_objects(samples, bytes), store, &bytes_recipe(), config);
        let mut seconds = 0.0;
        for _ in 0..2 {
            let began = Instant::now();
            loader.begin().unwrap();
            while next_timed(&mut loader).await.unwrap().is_some() {
                sleep(step).await;
            }
            seconds += began.elapsed().as_secs_f64();
        }
        (loader, seconds)
    })
}

#[test]
fn p070_step_and_fetch_stall_of_a_throttled_store_are_as_they_were_made() {
    for (ingest, fetch) in [(200.0, 50.0), (100.0, 50.0), (50.0, 100.0), (400.0, 200.0)] {
        let (loader, seconds) = throttled(ingest, fetch);
        let stats = loader.stats();
        let parts = [
            stats.step_seconds,
            stats.fetch_stall_seconds,
            stats.prep_stall_seconds,
            stats.queue_seconds,
            stats.transfer_seconds,
        ];
        let sum: f64 = parts.iter().sum();
        assert!((sum / seconds - 1.0).abs() < 0.02, "{parts:?} of {seconds}");
        assert!((stats.wall_seconds / seconds - 1.0).abs() < 0.02, "{} {seconds}", stats.wall_seconds);
        let step = 480.0 / ingest;
        assert!((stats.step_seconds / step - 1.0).abs() < 0.02, "{} for {step}", stats.step_seconds);
        let stall = (480.0 / fetch - step).max(0.0) / seconds;
        let found = stats.fetch_stall_seconds / seconds;
        assert!((found - stall).abs() < 0.05, "{found} for {stall} with {ingest} and {fetch}");
        let prep = stats.prep_stall_seconds / seconds;
        assert!(prep < 0.02, "{prep} with {ingest} and {fetch}");
        // Epochs and steps say the same in parts.
        let total = |splits: Vec<Split>| splits.iter().map(Split::seconds).sum::<f64>();
        let (epochs, steps) = (loader.meter().epochs(), loader.meter().steps());
        assert_eq!((epochs.len(), steps.len()), (2, 60));
        assert_eq!((epochs[1].batches, epochs[1].samples, epochs[1].epoch, steps[59].step), (30, 240, 1, 29));
        for splits in [epochs, steps] {
            assert!((total(splits) / sum - 1.0).abs() < 1e-6);
        }
        let median = stats.percentiles["step_seconds_p50"];
        assert!((median * ingest / 8.0 - 1.0).abs() < 0.1, "{median}");
    }
}

#[test]
fn p070_step_time_against_batch_length_is_part_of_the_report() {
    // Every batch is one sample, of one to twelve thousand bytes.
    let length = |sample: u64| 1000 * (1 + sample % 12);
    let fields = vec![FieldInfo { name: "bin".into(), kind: FieldKind::Payload }];
    let mut builder = ManifestBuilder::new(fields, serde_json::json!({}));
    for sample in 0..120 {
        let key = object_key(sample);
        builder.add_object(&key, 12_000, 0).unwrap();
        let payload = Value::Payload { object: None, offset: 0, length: length(sample) };
        builder.add_sample(&key, &[(0, payload)]).unwrap();
    }
    let manifest = Manifest::open(builder.finish().unwrap()).unwrap();
    let stats = in_virtual_time(async move {
        let store = TimedStore::new(12_000, 1e9, |_, _| Reply::after(Duration::ZERO));
        let config = LoaderConfig { epochs: Some(1), hedge: false, ..alone(1) };
        let mut loader = loader_on(&manifest, store, &bytes_recipe(), config);
        loader.begin().unwrap();
        while let Some(batch) = next_timed(&mut loader).await.unwrap() {
            // 5 ms, and 1 ms for each thousand bytes.
            sleep(Duration::from_millis(5) + Duration::from_micros(batch.bytes())).await;
        }
        let bytes = loader.meter().steps().iter().map(|step| step.bytes).collect::<Vec<_>>();
        assert!(bytes.iter().copied().eq((0..120).map(length)), "{bytes:?}");
        loader.stats()
    });
    let found = stats.step_by_length.unwrap();
    assert_eq!(found.steps, 120);
    assert!((found.base_seconds - 0.005).abs() < 0.001, "{found:?}");
    assert!((found.seconds_per_byte - 1e-6).abs() < 1e-7, "{found:?}");
    assert!(found.explained > 0.9, "{found:?}");
}

#[test]
fn p070_an_epoch_of_resident_payloads_has_no_fetch_stall() {
    let dataset = noise(64, 500, 1);
    let keeper = Arc::new(LocalKeeper::new(1 << 20, None));
    let kept = Arc::clone(&keeper);
    let settings = CacheSettings {
        capacity: Capacity { memory: 1 << 20, disk: 0 },
        seed: 0,
        owners: Ownership::alone().into(),
        at: CacheAt::Bytes,
        open: Arc::new(move || Ok(Arc::clone(&kept) as Arc<dyn Keeper>)),
    };
    // Nothing of the second epoch is asked for before all of the first is kept.
    let config = LoaderConfig { epochs: Some(1), ..alone(8) };
    let mut first = loader(&dataset, &raw_recipe(), config.clone()).with_cache(settings.clone());
    epoch(&mut first);
    while keeper.view().coming > 0 {
        std::thread::yield_now();
    }
    assert!(first.stats().fetch_stall_seconds > 0.0);
    let mut second = loader(&dataset, &raw_recipe(), config).with_cache(settings);
    epoch(&mut second);
    let stats = second.stats();
    assert_eq!((stats.cache_memory_hits, stats.fetch_stall_seconds), (64, 0.0));
    assert!(stats.prep_stall_seconds > 0.0);
}

#[test]
fn p070_ops_that_sleep_are_prep_stall() {
    let recipe = Recipe::from_json(
        r#"[{"field": "bin", "decode": {"kind": "bytes"}, "ops": [{"op": "delay", "seconds": 0.01}]}]"#,
    )
    .unwrap();
    let config = LoaderConfig { threads: 2, epochs: Some(1), ..alone(8) };
    let mut loader = loader(&noise(160, 100, 1), &recipe, config);
    epoch(&mut loader);
    let stats = loader.stats();
    // 1.6 s of sleep by two threads, in all of which the loop has nothing else to do.
    assert!(stats.prep_seconds >= 1.6, "{}", stats.prep_seconds);
    assert!(stats.prep_stall_seconds > 4.0 * stats.fetch_stall_seconds, "{stats:?}");
}

#[test]
fn without_metering_nothing_is_timed_and_everything_is_counted() {
    let config = LoaderConfig { metering: false, epochs: Some(1), ..alone(8) };
    let mut loader = loader(&noise(64, 100, 1), &raw_recipe(), config);
    epoch(&mut loader);
    let stats = loader.stats();
    assert_eq!((stats.batches, stats.samples, stats.payloads), (8, 64, 64));
    assert_eq!((stats.wall_seconds, stats.stall_seconds, stats.prep_seconds), (0.0, 0.0, 0.0));
}

#[test]
fn phases_are_kept_by_name() {
    let loader = loader(&noise(8, 100, 1), &raw_recipe(), alone(8));
    for (name, millis) in [("forward", 10), ("backward", 20), ("forward", 10)] {
        loader.meter().add_phase(name, Duration::from_millis(millis)).unwrap();
    }
    let phases = loader.stats().phases;
    assert_eq!(
        phases.iter().map(|phase| (&*phase.name, phase.count)).collect::<Vec<_>>(),
        [("forward", 2), ("backward", 1)]
    );
    assert!((phases[0].seconds - 0.02).abs() < 1e-9);
}

#[test]
fn p076_retries_and_waits_are_those_that_the_store_caused() {
    // One object in eight fails the first time, every answer takes 50 ms, and two batches at most are under way.
    let text = in_virtual_time(async {
        let store = TimedStore::new(1000, f64::INFINITY, |key, attempt| Reply {
            fails: key.parse::<u64>().unwrap() % 8 == 0 && attempt == 1,
            ..Reply::after(Duration::from_millis(50))
        });
        let config = LoaderConfig { epochs: Some(1), hedge: false, prefetch_batches: Some(1), ..alone(8) };
        let mut loader = loader_on(&manifest_of_objects(64, 1000), store, &bytes_recipe(), config);
        let (batches, _) = epoch_timed(&mut loader).await;
        assert_each_once(ids(&batches), 64);
        let mut out = Exposition::default();
        loader.expose(&mut out);
        out.finish()
    });
    let value = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(&format!("{name}{{"))).unwrap();
        line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
    };
    assert_eq!(value("forebay_engine_retries_total"), 8.0);
    assert_eq!(value("forebay_engine_requests_total"), 72.0);
    assert_eq!(value("forebay_engine_request_seconds_count"), 72.0);
    assert_eq!(value("forebay_engine_payloads_total"), 64.0);
    assert_eq!(value("forebay_engine_payload_bytes_total"), 64_000.0);
    assert_eq!((value("forebay_engine_batches_total"), value("forebay_engine_samples_total")), (8.0, 64.0));
    let stall =
        text.lines().find(|line| line.contains("part_seconds_sum") && line.contains("fetch_stall")).unwrap();
    let stall: f64 = stall.rsplit(' ').next().unwrap().parse().unwrap();
    // Eight batches, two at a time, each as late as its one request that had to be made again.
    assert!(stall >= 4.0 * 0.1, "{stall}");
}
