//! A loader that was told nothing finds out how many threads and open batches, and how many requests, serve its loop.
//!
//! How near the best of a grid it comes is a matter of time. Threads and open batches are simulated beside the tuner, in
//! `forebay_core::tune`; requests are looked at here, in virtual time; `examples/tuned_grid.rs` measures whole loaders. In
//! real time only choices are looked at here: ops that sleep make them clear however busy the machine is.
#![allow(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

mod common;
#[path = "common/timed.rs"]
mod timed;

use common::*;
use forebay_core::recipe::Recipe;
use forebay_engine::memory::MemoryPlan;
use forebay_engine::{Loader, LoaderConfig};
use forebay_ops::Program;
use proptest::prelude::*;
use std::time::Duration;
use timed::{Reply, TimedStore, in_virtual_time, next_timed};

/// A loop that only waits, for ops that sleep for so long with each of four samples.
fn sleeping(seconds: f64, config: LoaderConfig) -> Loader {
    let delay = format!(r#""ops": [{{"op": "delay", "seconds": {seconds}}}]"#);
    let recipe = format!(r#"[{{"field": "bin", "decode": {{"kind": "bytes"}}, {delay}}}]"#);
    let mut loader = loader(&noise(16_000, 64, 1), &Recipe::from_json(&recipe).unwrap(), config);
    loader.begin().unwrap();
    loader
}

/// Takes batches until so many threads prepare.
fn until_threads(loader: &mut Loader, threads: u64) {
    while loader.stats().threads < threads {
        let batch = next(loader).unwrap();
        assert!(batch.is_some(), "4000 steps and still {} threads", loader.stats().threads);
    }
}

#[test]
fn p066_threads_that_wait_inside_of_ops_get_company_and_what_was_chosen_is_told_with_its_reason() {
    let mut loader =
        sleeping(0.01, LoaderConfig { threads: 2, more_threads: true, metering: true, ..alone(4) });
    until_threads(&mut loader, 8);
    let stats = loader.stats();
    assert!(stats.tuned.iter().all(|choice| !choice.why.is_empty()));
    let last = stats.tuned.last().unwrap();
    assert_eq!(
        (last.knobs.threads as u64, last.knobs.open_batches as u64),
        (stats.threads, stats.open_batches)
    );
    assert!(stats.tuned.windows(2).all(|two| two[0].step < two[1].step), "{:?}", stats.tuned);
}

#[test]
fn p066_what_the_user_set_stays() {
    let fixed = LoaderConfig { threads: 2, prefetch_batches: Some(2), ..alone(4) };
    let mut loader = sleeping(0.002, fixed);
    for _ in 0..100 {
        next(&mut loader).unwrap().expect("the epoch is longer");
    }
    let stats = loader.stats();
    assert_eq!((stats.threads, stats.open_batches, stats.tuned), (2, 3, Vec::new()));
}

#[test]
fn p066_a_loader_that_is_closed_and_iterated_again_goes_on_with_what_it_found() {
    let mut loader = sleeping(0.01, LoaderConfig { threads: 2, more_threads: true, ..alone(4) });
    until_threads(&mut loader, 4);
    let found = loader.stats().threads;
    loader.close();
    loader.begin().unwrap();
    next(&mut loader).unwrap().expect("another epoch");
    assert_eq!(loader.stats().threads, found);
}

#[test]
fn p066_requests_in_flight_find_nine_tenths_of_the_best_grid_point_within_200_steps() {
    let bytes = 115_000;
    for (megabits, delay) in [(1000.0, 100), (200.0, 20), (1000.0, 2)] {
        // Batches a second of steps 150 to 200.
        let rate = |requests_in_flight| {
            in_virtual_time(async move {
                let reply = Reply::after(Duration::from_millis(delay));
                let store = TimedStore::new(bytes, megabits * 1e6 / 8.0, move |_, _| reply);
                let config = LoaderConfig { requests_in_flight, hedge: false, ..alone(8) };
                let mut loader = loader_on(&manifest_of_objects(4000, bytes), store, &bytes_recipe(), config);
                loader.begin().unwrap();
                let mut at = Vec::new();
                for _ in 0..200 {
                    next_timed(&mut loader).await.unwrap().expect("the epoch is longer");
                    at.push(tokio::time::Instant::now());
                }
                50.0 / (at[199] - at[149]).as_secs_f64().max(1e-9)
            })
        };
        let best = [16, 64, 256].map(|requests| rate(Some(requests))).into_iter().fold(0.0, f64::max);
        let found = rate(None);
        assert!(found >= 0.9 * best, "{found:.0} of {best:.0} batches/s at {megabits} Mb/s and {delay} ms");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn p066_no_number_of_open_batches_exceeds_the_memory_limit(
        rows in 1u64..64,
        bytes in 1u64..100_000,
        spare in 0u64..200,
        asked in 0usize..100,
    ) {
        let manifest = manifest_of_objects(64, bytes);
        let recipe = bytes_recipe();
        let outputs = Program::compile(&recipe).unwrap().outputs().to_vec();
        let least = MemoryPlan::new(&alone(rows), &manifest, 64, &outputs).unwrap();
        let limit = (least.batch_bytes + bytes) * (100 + 10 * spare) / 100;
        let config = LoaderConfig { memory_bytes: Some(limit), ..alone(rows) };
        let plan = MemoryPlan::new(&config, &manifest, 64, &outputs).unwrap();
        let tuned = plan.with_open_batches(asked);
        prop_assert!(tuned.open_batches >= plan.open_batches && tuned.open_batches <= plan.most_open_batches);
        prop_assert!(tuned.total_bytes() <= limit, "{tuned:?} of {limit}");
        // The largest sample still fits, and what fetching gathered by the first split does too.
        prop_assert!(tuned.payload_bytes >= bytes && 2 * tuned.payload_bytes >= plan.payload_bytes);
    }
}
