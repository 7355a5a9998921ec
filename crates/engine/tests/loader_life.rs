//! Promises about time and life: parallel by sample, no gap between epochs, gone when closed.
#![allow(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

mod common;

use common::*;
use forebay_core::ErrorKind;
use forebay_core::plan::{BlockShuffle, Shuffle};
use forebay_core::recipe::Recipe;
use forebay_engine::LoaderConfig;
use forebay_store::flaky::{Fault, FlakyStore, When};
use forebay_store::throttle::{Throttle, ThrottleStore};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Row 36: one batch of 256 samples that each wait 5 ms, 32 threads. By batch it would take 1.28 s.
#[test]
fn p036_the_first_batch_is_made_by_all_threads_together() {
    let dataset = noise(1024, 16, 1);
    let recipe = Recipe::from_json(
        r#"[{"field": "cls", "decode": {"kind": "label"}, "ops": [{"op": "delay", "seconds": 0.005}]}]"#,
    )
    .unwrap();
    let best = (0..3)
        .map(|_| {
            let mut loader = loader(&dataset, &recipe, LoaderConfig { threads: 32, ..alone(256) });
            let since = Instant::now();
            steps(&mut loader, 1);
            since.elapsed()
        })
        .min()
        .unwrap();
    assert!(best <= Duration::from_millis(150), "{best:?}");
}

/// Row 41: sixteen threads that each need half a second to start, at once; and none starts again later.
#[test]
fn p041_threads_start_in_parallel_and_live_on_across_epochs() {
    let dataset = noise(64, 16, 1);
    let started = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&started);
    let init = move |_thread: usize| {
        std::thread::sleep(Duration::from_millis(500));
        count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    };
    let config = LoaderConfig { threads: 16, thread_init: Some(Arc::new(init)), ..alone(8) };
    let mut loader = loader(&dataset, &raw_recipe(), config);
    let since = Instant::now();
    epoch(&mut loader);
    while started.load(Ordering::Relaxed) < 16 {
        assert!(since.elapsed() < Duration::from_millis(1500), "threads start one after the other");
        std::thread::sleep(Duration::from_millis(5));
    }
    epoch(&mut loader);
    epoch(&mut loader);
    assert_eq!(started.load(Ordering::Relaxed), 16);
}

/// Row 22: the same samples as files and as shards on a device with 100 random reads a second.
#[test]
fn p022_shards_beat_files_where_jumps_are_slow() {
    let run = |shards: u32| {
        let dataset = noise(120, 50_000, shards);
        let throttle = Throttle { random_reads_per_second: Some(100), ..Throttle::default() };
        let store = Arc::new(ThrottleStore::new(Arc::clone(dataset.store()), throttle));
        let shuffle = if shards > 10 { Shuffle::Full } else { Shuffle::Block(BlockShuffle::default()) };
        let config = LoaderConfig { shuffle, epochs: Some(1), ..alone(16) };
        let mut loader = loader_on(dataset.manifest(), store.clone(), &raw_recipe(), config);
        let since = Instant::now();
        assert_each_once(ids(&epoch(&mut loader)), 120);
        let stats = loader.stats();
        (120.0 / since.elapsed().as_secs_f64(), stats.payload_bytes / stats.requests, store.jumps())
    };
    let (files, bytes_a_file_read, file_jumps) = run(120);
    let (shards, bytes_a_shard_read, shard_jumps) = run(4);
    assert!(shards >= 2.0 * files, "{shards:.0} samples/s from shards, {files:.0} from files");
    assert!(
        bytes_a_shard_read > 4 * bytes_a_file_read,
        "{bytes_a_shard_read} and {bytes_a_file_read} bytes a read"
    );
    assert!(shard_jumps < file_jumps / 4, "{shard_jumps} and {file_jumps} jumps");
}

#[test]
fn a_hanging_store_ends_in_an_error_that_says_what_was_waited_for() {
    let dataset = noise(10, 16, 1);
    let store = FlakyStore::new(Arc::clone(dataset.store()), 0).with(When::Always, Fault::Hang);
    let config = LoaderConfig { timeout: Some(Duration::from_millis(100)), ..alone(5) };
    let mut loader = loader_on(dataset.manifest(), Arc::new(store), &raw_recipe(), config);
    loader.begin().unwrap();
    let error = loop {
        match loader.next(Duration::from_millis(20)) {
            Ok(forebay_engine::Next::Waiting) => {}
            Ok(other) => panic!("{other:?}"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.message().contains("5 of its 5 samples are still being fetched"), "{error}");
}

/// Row 77: a loader dropped at any moment leaves no thread behind.
#[test]
fn p077_a_dropped_loader_leaves_no_thread() {
    let before = threads();
    for round in 0..40 {
        let dataset = noise(500, 1000, 3);
        let mut loader = loader(&dataset, &raw_recipe(), LoaderConfig { threads: 4, ..alone(10) });
        steps(&mut loader, 1 + round % 5);
        let since = Instant::now();
        drop(loader);
        assert!(since.elapsed() < Duration::from_secs(2));
    }
    // Fetching threads end on their own right after; other tests of this file run beside us.
    let deadline = Instant::now() + Duration::from_secs(2);
    while threads() > before && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(threads() <= before, "{} threads, {before} before", threads());
}

/// Fetching and preparing threads of this process whose loader lives in this test's own thread group name.
fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with("forebay-fetch")).count()
}

#[test]
fn nothing_runs_before_the_first_batch_is_asked_for() {
    let dataset = noise(10, 16, 1);
    let store = Arc::new(forebay_store::CountingStore::new(Arc::clone(dataset.store())));
    let mut loader = loader_on(dataset.manifest(), store.clone(), &raw_recipe(), alone(5));
    loader.begin().unwrap();
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(store.counts().reads, 0);
    assert!(next(&mut loader).unwrap().is_some());
    assert!(store.counts().reads > 0);
}
