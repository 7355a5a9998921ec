//! Promises about stores far away: depth, slow start, arrival order, tries, second requests, reads carried together.
//!
//! Nothing here measures time: requests are held and counted. By Little's law the rate is what is in flight over the
//! delay, so the number in flight *is* the promise; rates over an emulated link are measured by `forebay bench wan`.
#![allow(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

mod common;
#[path = "common/remote.rs"]
mod remote;

use common::*;
use forebay_core::ErrorKind;
use forebay_engine::{DeliveryOrder, LoaderConfig, Next};
use forebay_store::RetryOptions;
use remote::*;
use std::time::Duration;

const BATCH: usize = 32;

fn deep(prefetch_batches: usize) -> LoaderConfig {
    LoaderConfig {
        prefetch_batches: Some(prefetch_batches),
        requests_in_flight: Some(4096),
        hedge: false,
        ..once(BATCH as u64)
    }
}

/// One epoch, so that nothing of a second one is asked for and counted.
fn once(batch_size: u64) -> LoaderConfig {
    LoaderConfig { epochs: Some(1), ..alone(batch_size) }
}

fn quick(tries: u32) -> RetryOptions {
    RetryOptions { tries, first_pause: Duration::from_millis(1), ..RetryOptions::default() }
}

#[test]
fn p001_a_depth_of_n_batches_keeps_n_and_one_in_flight() {
    for depth in [1, 16] {
        let (manifest, memory) = objects(2000, 10);
        let store = Far::new(memory, |_, _| Answer::Held);
        let mut loader = loader_on(&manifest, store.clone(), &bytes_recipe(), deep(depth));
        loader.begin().unwrap();
        assert!(matches!(loader.next(Duration::from_millis(1)).unwrap(), Next::Waiting));
        store.wait_in_flight((depth + 1) * BATCH);
        // 17 batches against 2 is 8.5 times the rate at any delay, and nothing beyond the depth is asked for.
        assert_eq!(store.counts().most_in_flight, (depth + 1) * BATCH);
        store.release(2000);
        let batches: Vec<_> = std::iter::from_fn(|| next(&mut loader).unwrap()).collect();
        assert!(store.counts().most_in_flight <= (depth + 1) * BATCH);
        assert_each_once(ids(&batches), 2000);
    }
}

/// Takes `batches` batches although every fiftieth sample is held, sees whether another would come, lets all go.
fn batches_despite_held_samples(order: DeliveryOrder, batches: usize, another: bool) {
    let (manifest, memory) = objects(4000, 10);
    let late = |key: &str| key.ends_with("37") || key.ends_with("87");
    let store = Far::new(memory, move |key, _| if late(key) { Answer::Held } else { Answer::Now });
    let mut loader = loader_on(&manifest, store.clone(), &bytes_recipe(), LoaderConfig { order, ..deep(16) });
    loader.begin().unwrap();
    let mut taken = Vec::new();
    while taken.len() < batches {
        let Next::Batch(batch) = loader.next(Duration::from_secs(60)).unwrap() else {
            panic!("no batch in a minute")
        };
        taken.push(*batch);
    }
    if !another {
        assert!(matches!(loader.next(Duration::from_millis(200)).unwrap(), Next::Waiting));
    }
    store.release(4000);
    taken.extend(std::iter::from_fn(|| next(&mut loader).unwrap()));
    assert_each_once(ids(&taken), 4000);
}

#[test]
fn p003_in_arrival_order_late_samples_hold_up_nobody_else() {
    // Sample 37 is in the second batch, so that in order one comes.
    batches_despite_held_samples(DeliveryOrder::Plan, 1, false);
    // Sixteen batches ahead miss 2 % of their samples and still fill most of their rows: at least four times as many.
    batches_despite_held_samples(DeliveryOrder::Arrival { window: 1024 }, 8, true);
}

#[test]
fn p006_slow_start_takes_one_more_batch_ahead_every_n_steps() {
    let (manifest, memory) = objects(32 * 80, 10);
    let store = Far::new(memory, |_, _| Answer::Held);
    let config = LoaderConfig { slow_start: Some(4), ..deep(16) };
    let mut loader = loader_on(&manifest, store.clone(), &bytes_recipe(), config);
    loader.begin().unwrap();
    let mut ahead = Vec::new();
    for step in 0..72 {
        assert!(matches!(loader.next(Duration::from_millis(1)).unwrap(), Next::Waiting));
        // One batch can always be asked for; what comes beyond it is what slow start is about.
        store.wait_in_flight(BATCH);
        std::thread::sleep(Duration::from_millis(10));
        let requests = store.counts().requests as usize;
        ahead.push(requests.div_ceil(BATCH) - step);
        store.release((step as u64 + 1) * BATCH as u64);
        assert!(next(&mut loader).unwrap().is_some());
    }
    assert!(ahead[0] <= 2, "{ahead:?}");
    for (step, batches) in ahead.iter().enumerate() {
        assert!(*batches <= 2 + step / 4, "{batches} ahead at step {step}");
    }
    assert!(ahead.iter().all(|batches| *batches <= 17));
    // Full depth is reached, whenever the fetching thread got its turn.
    store.release(32 * 80);
    while next(&mut loader).unwrap().is_some() {}
}

#[test]
fn p008_requests_in_flight_equal_the_setting() {
    for setting in [1, 8] {
        let (manifest, memory) = objects(500, 10);
        let store = Far::new(memory, |_, _| Answer::Held);
        let config = LoaderConfig { requests_in_flight: Some(setting), hedge: false, ..once(BATCH as u64) };
        let mut loader = loader_on(&manifest, store.clone(), &bytes_recipe(), config);
        loader.begin().unwrap();
        assert!(matches!(loader.next(Duration::from_millis(1)).unwrap(), Next::Waiting));
        store.wait_in_flight(setting);
        store.release(500);
        assert_each_once(ids(&std::iter::from_fn(|| next(&mut loader).unwrap()).collect::<Vec<_>>()), 500);
        assert_eq!(store.counts().most_in_flight, setting);
    }
}

#[test]
fn p013_a_server_that_fails_each_request_once_costs_two_tries_a_sample() {
    let (manifest, memory) = objects(300, 10);
    let store = Far::new(memory, |_, attempt| if attempt == 1 { Answer::Fail } else { Answer::Now });
    let config = LoaderConfig { retry: quick(5), hedge: false, ..once(BATCH as u64) };
    let mut loader = loader_on(&manifest, store.clone(), &bytes_recipe(), config);
    assert_each_once(ids(&epoch(&mut loader)), 300);
    assert!(store.counts().attempts.values().all(|attempts| *attempts == 2));
    assert_eq!(loader.stats().retries, 300);
}

#[test]
fn p013_a_hung_server_is_an_error_that_names_the_request_and_the_time() {
    let (manifest, memory) = objects(40, 10);
    let store = Far::new(memory, |_, _| Answer::Never);
    let retry = RetryOptions { request_timeout: Duration::from_millis(50), ..quick(2) };
    let config = LoaderConfig { retry, hedge: false, ..once(4) };
    let mut loader = loader_on(&manifest, store, &bytes_recipe(), config);
    loader.begin().unwrap();
    let error = next(&mut loader).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let report = error.report();
    for part in ["far://0000", "gave up after 2 tries", "no answer in 0.1 s"] {
        assert!(report.contains(part), "{report}");
    }
}

#[test]
fn p014_a_request_that_hangs_is_asked_again_and_few_others_are() {
    let samples = 2000;
    let (manifest, memory) = objects(samples, 10);
    let hangs = |key: &str, attempt: u32| attempt == 1 && key.ends_with("50");
    let store =
        Far::new(memory, move |key, attempt| if hangs(key, attempt) { Answer::Never } else { Answer::Now });
    let mut loader = loader_on(&manifest, store.clone(), &bytes_recipe(), once(BATCH as u64));
    assert_each_once(ids(&epoch(&mut loader)), samples);
    let stats = loader.stats();
    assert!(stats.hedges >= 10, "{} hedges for 20 that hang", stats.hedges);
    let extra = store.counts().requests - samples;
    assert!(extra < samples / 20, "{extra} more requests than samples");
}

#[test]
fn a_throttled_request_is_made_again_and_counted() {
    let (manifest, memory) = objects(200, 10);
    let refused = |key: &str, attempt: u32| attempt == 1 && key.ends_with('7');
    let store = Far::new(
        memory,
        move |key, attempt| if refused(key, attempt) { Answer::Throttle } else { Answer::Now },
    );
    let config = LoaderConfig { retry: quick(5), hedge: false, ..once(BATCH as u64) };
    let mut loader = loader_on(&manifest, store, &bytes_recipe(), config);
    assert_each_once(ids(&epoch(&mut loader)), 200);
    assert_eq!((loader.stats().throttled, loader.stats().retries), (20, 20));
}

#[test]
fn p015_small_samples_are_carried_many_at_a_time_each_with_its_own_answer() {
    let (manifest, memory) = objects(1000, 10);
    let lost = |key: &str, attempt: u32| attempt == 1 && key.ends_with("99");
    let store = Far::carrying(
        256,
        memory,
        move |key, attempt| if lost(key, attempt) { Answer::Fail } else { Answer::Now },
    );
    let config = LoaderConfig { retry: quick(5), hedge: false, ..once(BATCH as u64) };
    let mut loader = loader_on(&manifest, store.clone(), &bytes_recipe(), config);
    let batches = epoch(&mut loader);
    assert_eq!(ids(&batches), (0..1000).collect::<Vec<u64>>(), "in strict order");
    let counts = store.counts();
    assert_eq!(counts.many.iter().sum::<usize>(), 1000, "each was asked for in a group");
    assert!(counts.many.len() <= 1000 / 5, "{} requests for 1000 samples", counts.many.len());
    assert!(counts.attempts.iter().all(|(key, tries)| *tries == 1 + u32::from(key.ends_with("99"))));
}

#[test]
fn a_long_payload_is_read_by_several_requests_side_by_side() {
    let (manifest, memory) = objects(3, 300_000);
    let store = Far::new(memory, |_, _| Answer::Held);
    let config =
        LoaderConfig { request_bytes: Some(65_536), requests_in_flight: Some(64), hedge: false, ..once(1) };
    let mut loader = loader_on(&manifest, store.clone(), &bytes_recipe(), config);
    loader.begin().unwrap();
    assert!(matches!(loader.next(Duration::from_millis(1)).unwrap(), Next::Waiting));
    store.wait_in_flight(5);
    store.release(1000);
    let batches: Vec<_> = std::iter::from_fn(|| next(&mut loader).unwrap()).collect();
    assert_each_once(ids(&batches), 3);
    for batch in &batches {
        let Some(forebay_ops::Column::Bytes(payloads)) = batch.column("bin") else { panic!("raw column") };
        assert_eq!(payloads[0].len(), 300_000);
        assert!(payloads[0].iter().all(|byte| u64::from(*byte) == batch.ids[0].0));
    }
    assert_eq!(store.counts().requests, 15);
}
