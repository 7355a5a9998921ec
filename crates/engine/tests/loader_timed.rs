//! Promises that are times or rates, of whole loaders on a clock that this machine's load does not touch.
//!
//! What is measured is all that a loop would see: the plan, the window, tries with their pauses, delivery. What bytes cost
//! the processor is not: `forebay bench wan` measures that on sockets.
#![allow(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

mod common;
#[path = "common/timed.rs"]
mod timed;

use common::*;
use forebay_core::ErrorKind;
use forebay_engine::{DeliveryOrder, LoaderConfig};
use forebay_store::RetryOptions;
use std::time::Duration;
use timed::*;
use tokio::time::Instant;

const DELAY: Duration = Duration::from_millis(100);
const NO_LIMIT: f64 = f64::INFINITY;

fn once(batch_size: u64) -> LoaderConfig {
    LoaderConfig { epochs: Some(1), hedge: false, ..alone(batch_size) }
}

fn deep(prefetch_batches: usize) -> LoaderConfig {
    LoaderConfig { prefetch_batches: Some(prefetch_batches), requests_in_flight: Some(4096), ..once(32) }
}

/// Samples a second of one epoch of small objects, each of which came once.
fn rate(samples: u64, config: LoaderConfig, script: fn(&str, u32) -> Reply) -> f64 {
    in_virtual_time(async move {
        let store = TimedStore::new(1000, NO_LIMIT, script);
        let mut loader = loader_on(&manifest_of_objects(samples, 1000), store, &bytes_recipe(), config);
        let (batches, seconds) = epoch_timed(&mut loader).await;
        assert_each_once(ids(&batches), samples);
        samples as f64 / seconds
    })
}

#[test]
fn p001_sixteen_batches_ahead_hide_100_ms() {
    let at_depth = |depth, samples| rate(samples, deep(depth), |_, _| Reply::after(DELAY));
    let (shallow, far) = (at_depth(1, 2048), at_depth(16, 8704));
    assert!(far >= 6.0 * shallow, "{far:.0} samples a second against {shallow:.0}");
    let most = 17.0 * 32.0 / DELAY.as_secs_f64();
    assert!(far >= 0.8 * most, "{far:.0} samples a second of {most:.0}");
}

/// One in fifty, scattered: at equal distances they would be a lucky or an unlucky case.
fn is_late(key: &str) -> bool {
    let sample: u64 = key.parse().unwrap();
    sample.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32 < (1 << 32) / 50
}

#[test]
fn p003_arrival_order_is_four_times_as_fast_when_one_reply_in_fifty_takes_a_second() {
    let samples = 8704;
    let count = (0..samples).filter(|sample| is_late(&object_key(*sample))).count();
    assert!((160..=190).contains(&count), "{count} late samples of {samples}");
    let script = |key: &str, _: u32| Reply::after(if is_late(key) { Duration::from_secs(1) } else { DELAY });
    let in_order = |order| rate(samples, LoaderConfig { order, ..deep(16) }, script);
    let (plan, arrival) = (in_order(DeliveryOrder::Plan), in_order(DeliveryOrder::Arrival { window: 8192 }));
    assert!(arrival >= 4.0 * plan, "{arrival:.0} samples a second against {plan:.0}");
}

#[test]
fn p008_eight_connections_of_20_megabytes_a_second_give_six_times_one() {
    let bytes = 115_000;
    let on = |connections| {
        let config = LoaderConfig { requests_in_flight: Some(connections), ..once(32) };
        in_virtual_time(async move {
            let capped = Reply::after(Duration::from_secs_f64(bytes as f64 / 20e6));
            let store = TimedStore::new(bytes, NO_LIMIT, move |_, _| capped);
            let mut loader = loader_on(&manifest_of_objects(640, bytes), store, &bytes_recipe(), config);
            let (batches, seconds) = epoch_timed(&mut loader).await;
            assert_each_once(ids(&batches), 640);
            640.0 * bytes as f64 / seconds
        })
    };
    let (one, eight) = (on(1), on(8));
    assert!(one <= 20e6, "{one:.0} bytes a second over one connection");
    assert!(eight >= 6.0 * one, "{eight:.0} bytes a second against {one:.0}");
}

/// Seconds of an epoch of 115 KB objects over 100 ms and so many bytes a second, with nothing set by hand, when the first
/// `failing` tries of each object fail. Each is asked for once more than that.
fn seconds_when_failing(bytes_per_second: f64, failing: u32) -> f64 {
    let (samples, bytes) = (4096, 115_000);
    in_virtual_time(async move {
        let script = move |_: &str, attempt| Reply { fails: attempt <= failing, ..Reply::after(DELAY) };
        let store = TimedStore::new(bytes, bytes_per_second, script);
        let manifest = manifest_of_objects(samples, bytes);
        let mut loader = loader_on(&manifest, store.clone(), &bytes_recipe(), once(32));
        let (batches, seconds) = epoch_timed(&mut loader).await;
        assert_each_once(ids(&batches), samples);
        assert!(store.attempts().all(|attempts| attempts == failing + 1));
        assert_eq!(loader.stats().retries, samples * u64::from(failing));
        seconds
    })
}

#[test]
fn p013_a_server_that_fails_each_request_once_takes_less_than_twice_the_time() {
    for megabits in [1000.0, 5000.0] {
        let [sound, failing] = [0, 1].map(|tries| seconds_when_failing(megabits * 1e6 / 8.0, tries));
        assert!(failing < 2.0 * sound, "{failing:.1} s against {sound:.1} s at {megabits} Mb/s");
    }
}

#[test]
fn p013_a_hung_server_is_named_within_a_second_of_the_time_out() {
    let hung = |_: &str, _| Reply::after(Duration::from_secs(1_000_000));
    // A single try ends with its own time, several end with the deadline for all of them.
    let once_only =
        RetryOptions { tries: 1, request_timeout: Duration::from_secs(10), ..RetryOptions::default() };
    let again = RetryOptions { deadline: Duration::from_secs(30), ..once_only };
    for (retry, limit) in [(once_only, 10), (RetryOptions { tries: 100, ..again }, 30)] {
        let (error, seconds) = in_virtual_time(async move {
            let store = TimedStore::new(1000, NO_LIMIT, hung);
            let config = LoaderConfig { retry, ..once(4) };
            let mut loader = loader_on(&manifest_of_objects(40, 1000), store, &bytes_recipe(), config);
            let began = Instant::now();
            loader.begin().unwrap();
            let error = next_timed(&mut loader).await.unwrap_err();
            (error, began.elapsed().as_secs_f64())
        });
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.report().contains("timed://0000"), "{}", error.report());
        assert!(seconds <= f64::from(limit) + 1.0, "{seconds:.1} s for a limit of {limit} s");
    }
    // And the process goes on.
    assert!(rate(64, deep(1), |_, _| Reply::after(DELAY)) > 0.0);
}

/// Seconds of an epoch of 115 KB objects over 100 ms and 1 Gb/s whose store is away from the second second on, how often it
/// was asked for what it did not give, and how long it was found to be away.
fn seconds_when_away(away: u64) -> (f64, u64, f64) {
    let (samples, bytes) = (4096, 115_000);
    in_virtual_time(async move {
        let since = Instant::now();
        let (from, until) = (Duration::from_secs(2), Duration::from_secs(2 + away));
        let script = move |_: &str, _| {
            let gone = (from..until).contains(&since.elapsed());
            if gone { Reply::away() } else { Reply::after(DELAY) }
        };
        let store = TimedStore::new(bytes, 1.25e8, script);
        let manifest = manifest_of_objects(samples, bytes);
        let mut loader = loader_on(&manifest, store.clone(), &bytes_recipe(), once(32));
        let (batches, seconds) = epoch_timed(&mut loader).await;
        assert_each_once(ids(&batches), samples);
        let asked: u64 = store.attempts().map(u64::from).sum();
        (seconds, asked - samples, loader.stats().store_away_seconds)
    })
}

#[test]
fn p013_a_store_that_restarts_costs_its_absence_and_no_sample_and_is_left_alone_meanwhile() {
    let (sound, ..) = seconds_when_away(0);
    for away in [1, 30] {
        let (seconds, in_vain, found) = seconds_when_away(away);
        let absence = away as f64;
        assert!(seconds <= sound + absence + 3.0, "{seconds:.1} s with {away} s away, {sound:.1} s without");
        assert!((found - absence).abs() <= 2.0, "{found:.1} s of {away} s");
        // What was in flight or about to be when it went, and then one every two seconds.
        assert!(in_vain <= 400 + away / 2 + 8, "{in_vain} requests in vain in {away} s");
    }
}

#[test]
fn p013_a_store_that_stays_away_is_named_at_the_deadline_with_tries_and_time() {
    let (error, seconds) = in_virtual_time(async {
        let since = Instant::now();
        let script = move |_: &str, _| {
            if since.elapsed() < Duration::from_secs(1) { Reply::after(DELAY) } else { Reply::away() }
        };
        let store = TimedStore::new(1000, NO_LIMIT, script);
        let retry = RetryOptions { deadline: Duration::from_secs(20), ..RetryOptions::default() };
        let config = LoaderConfig { retry, ..once(32) };
        let mut loader = loader_on(&manifest_of_objects(100_000, 1000), store, &bytes_recipe(), config);
        loader.begin().unwrap();
        let error = loop {
            match next_timed(&mut loader).await {
                Ok(batch) => assert!(batch.is_some()),
                Err(error) => break error,
            }
        };
        (error, since.elapsed().as_secs_f64())
    });
    let report = error.report();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(report.contains("read `timed://") && report.contains("connection refused"), "{report}");
    assert!(report.contains("gave up after") && report.contains("in 20.0 s"), "{report}");
    assert!((20.0..23.0).contains(&seconds), "{seconds:.1} s");
}

#[test]
fn a_link_of_25_gbit_and_100_ms_is_full_by_batch_64_of_512() {
    let filled = fill_link();
    assert!(filled.link_share >= 0.95, "{filled:?}");
    assert!(filled.held_delays <= 3.0, "{filled:?}");
}
