//! What would be if, against loaders to which it is then done: a store of another bandwidth, a cache of another size, a
//! loop of another speed, all in virtual time.
//!
//! Threads live outside of that clock. What more of them bring is compared in `forebay_core::stall`, and whole loaders in
//! real time by `examples/what_if_grid.rs`.
#![allow(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

mod common;
#[path = "common/timed.rs"]
mod timed;

use common::*;
use forebay_core::cache::{Capacity, Ownership};
use forebay_core::stall::{Analysis, IDLE_RATE, Rate, Rates, RunFacts, analyze};
use forebay_engine::LoaderConfig;
use forebay_engine::cache::{CacheAt, CacheSettings, Keeper, LocalKeeper};
use std::sync::Arc;
use std::time::Duration;
use timed::*;
use tokio::time::{Instant, sleep};

const SAMPLES: u64 = 320;
const ROWS: u64 = 8;
const BYTES: u64 = 1000;
/// Batches of an epoch that do not count: some of them were made in the one before.
const SKIPPED: usize = 10;

/// Samples a second that the store gives and the loop takes, and the share of samples that a cache keeps.
#[derive(Clone, Copy, Debug)]
struct Run {
    fetch: f64,
    ingest: f64,
    cached: f64,
}

impl Run {
    /// Samples a second of an epoch that finds the cache filled.
    fn measured(self) -> f64 {
        let step = Duration::from_secs_f64(ROWS as f64 / self.ingest);
        in_virtual_time(async move {
            let store =
                TimedStore::new(BYTES, BYTES as f64 * self.fetch, |_, _| Reply::after(Duration::ZERO));
            let config = LoaderConfig { hedge: false, ..alone(ROWS) };
            let mut loader = loader_on(&manifest_of_objects(SAMPLES, BYTES), store, &bytes_recipe(), config);
            if self.cached > 0.0 {
                loader = loader.with_cache(cache((self.cached * (SAMPLES * BYTES) as f64) as u64));
            }
            epoch_timed(&mut loader).await;
            loader.begin().unwrap();
            let mut at = Vec::new();
            while next_timed(&mut loader).await.unwrap().is_some() {
                at.push(Instant::now());
                sleep(step).await;
            }
            let counted = (at.len() - 1 - SKIPPED) as f64 * ROWS as f64;
            counted / (at[at.len() - 1] - at[SKIPPED]).as_secs_f64()
        })
    }

    /// What is found out of it, with the fetch rate as it is measured.
    fn analyzed(self, what_if: Option<&str>) -> Analysis {
        let fetch = Run { ingest: IDLE_RATE, cached: 0.0, ..self }.measured();
        let rates = Rates {
            ingest: Rate::exact(self.ingest),
            prep: Rate::exact(IDLE_RATE),
            fetch: Some(Rate::exact(fetch)),
        };
        let (sample_bytes, batch_size) = (BYTES as f64, ROWS);
        let facts =
            RunFacts { samples: SAMPLES, sample_bytes, batch_size, threads: 2, ..RunFacts::default() };
        analyze(rates, facts, what_if).unwrap()
    }
}

/// So many bytes of memory for payloads.
fn cache(memory: u64) -> CacheSettings {
    let keeper = Arc::new(LocalKeeper::new(memory, None));
    CacheSettings {
        capacity: Capacity { memory, disk: 0 },
        seed: 0,
        owners: Ownership::alone().into(),
        at: CacheAt::Bytes,
        open: Arc::new(move || Ok(Arc::clone(&keeper) as Arc<dyn Keeper>)),
    }
}

#[test]
fn p069_what_if_is_within_a_tenth_of_loaders_to_which_it_is_then_done() {
    let far = Run { fetch: 200.0, ingest: 600.0, cached: 0.0 };
    let busy = Run { fetch: 1500.0, ingest: 400.0, cached: 0.0 };
    let cases = [
        (far, "cache=0%", far),
        (far, "cache=25%", Run { cached: 0.25, ..far }),
        (far, "cache=50%", Run { cached: 0.5, ..far }),
        (far, "cache=75%", Run { cached: 0.75, ..far }),
        (far, "cache=100%", Run { cached: 1.0, ..far }),
        (far, "bandwidth=x0.5", Run { fetch: 100.0, ..far }),
        (far, "bandwidth=x2", Run { fetch: 400.0, ..far }),
        (far, "step=x0.5", Run { ingest: 1200.0, ..far }),
        (far, "step=x4", Run { ingest: 150.0, ..far }),
        (far, "bandwidth=x2,step=x0.5,cache=50%", Run { fetch: 400.0, ingest: 1200.0, cached: 0.5 }),
        (busy, "bandwidth=x0.5", Run { fetch: 750.0, ..busy }),
        (busy, "step=x0.5", Run { ingest: 800.0, ..busy }),
        (busy, "step=x2", Run { ingest: 200.0, ..busy }),
        (busy, "cache=50%", Run { cached: 0.5, ..busy }),
    ];
    std::thread::scope(|scope| {
        for (base, change, then) in cases {
            scope.spawn(move || {
                let predicted = base.analyzed(Some(change)).what_if.unwrap().prediction.later.rate;
                let measured = then.measured();
                let off = (predicted / measured - 1.0).abs();
                assert!(off <= 0.1, "{change} of {base:?}: {predicted:.1} for {measured:.1} samples/s");
            });
        }
    });
}

#[test]
fn p069_a_cache_of_the_size_that_is_named_ends_fetch_stalls_and_half_of_it_does_not() {
    let far = Run { fetch: 200.0, ingest: 600.0, cached: 0.0 };
    let needed = far.analyzed(None).cache_needed_bytes.unwrap() / (SAMPLES * BYTES) as f64;
    assert!((needed - 2.0 / 3.0).abs() < 0.05, "{needed} of the dataset");
    let reached = |cached| Run { cached, ..far }.measured() / far.ingest;
    let (enough, half) = (reached(needed), reached(needed / 2.0));
    assert!(enough > 0.9, "{enough} with {needed} of the dataset");
    assert!(half < 0.6, "{half} with half of it");
}
