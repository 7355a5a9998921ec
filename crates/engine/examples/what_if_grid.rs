//! What is predicted for a changed pipeline, and what is measured once it is changed: caches, threads, stores and steps.
//!
//! `cargo run --release -p forebay-engine --example what_if_grid`. Three pipelines, each held back by another part, are
//! measured once; every change is then predicted and made. Ops, stores and steps sleep and hardly compute, so the points of
//! a pipeline run side by side. Real time: on a busy machine sleeps are longer than they were made.
#![expect(clippy::print_stdout, reason = "figures are all it is for")]

use forebay_core::cache::Capacity;
use forebay_core::portion::{Consumer, LastBatch};
use forebay_core::recipe::Recipe;
use forebay_core::stall::{Rate, Rates, analyze};
use forebay_core::{Error, Result};
use forebay_engine::cache::{CacheAt, CacheSettings, Keeper, LocalKeeper, Owners};
use forebay_engine::source::{Dataset, SyntheticPayload, SyntheticSpec, synthetic};
use forebay_engine::{Loader, LoaderConfig, Next, measure};
use forebay_store::{Throttle, ThrottleStore};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const BYTES: u64 = 4096;
const BATCH: u64 = 4;
const SAMPLES: u64 = 320;
/// Batches of an epoch that do not count: some of them were made in the one before.
const SKIPPED: u64 = 20;

/// A pipeline by its parts: seconds of a sample in an op, threads, samples a second of the store, seconds of a step, share
/// of the epoch in the cache.
#[derive(Clone, Copy, Debug)]
struct Pipeline {
    op: f64,
    threads: usize,
    fetch: u64,
    step: f64,
    cached: f64,
}

fn main() -> Result<()> {
    // Fetching holds it back: 100 a second against 250 and 400.
    let far = Pipeline { op: 0.032, threads: 8, fetch: 100, step: 0.01, cached: 0.0 };
    // Preparing does: 50 a second by one thread against 900 and 470.
    let slow = Pipeline { op: 0.02, threads: 1, fetch: 900, step: 0.0085, cached: 0.0 };
    // The step does: 100 a second against 400 and 900.
    let busy = Pipeline { op: 0.02, threads: 8, fetch: 900, step: 0.04, cached: 0.0 };
    let cores = |threads| Pipeline { threads, ..slow };
    let mut worst = 0.0f64;
    for (base, changes) in [
        (
            far,
            vec![
                ("cache=0%", far),
                ("cache=25%", Pipeline { cached: 0.25, ..far }),
                ("cache=50%", Pipeline { cached: 0.5, ..far }),
                ("cache=75%", Pipeline { cached: 0.75, ..far }),
                ("cache=100%", Pipeline { cached: 1.0, ..far }),
                ("bandwidth=x0.5", Pipeline { fetch: 50, ..far }),
                ("bandwidth=x2", Pipeline { fetch: 200, ..far }),
                ("step=x0.5", Pipeline { step: 0.005, ..far }),
                ("step=x2", Pipeline { step: 0.02, ..far }),
            ],
        ),
        (slow, vec![("cores=1", slow), ("cores=x2", cores(2)), ("cores=4", cores(4)), ("cores=8", cores(8))]),
        (
            busy,
            vec![
                ("step=x0.5", Pipeline { step: 0.02, ..busy }),
                ("step=x2", Pipeline { step: 0.08, ..busy }),
                ("bandwidth=x0.5", Pipeline { fetch: 450, ..busy }),
                ("cores=4", Pipeline { threads: 4, ..busy }),
            ],
        ),
    ] {
        println!("{base:?}");
        for (change, predicted, measured) in compared(base, &changes)? {
            let off = predicted / measured - 1.0;
            worst = worst.max(off.abs());
            println!(
                "  {change:16} predicted {predicted:6.1}, measured {measured:6.1} samples/s, {:+.1} %",
                100.0 * off
            );
        }
    }
    println!("worst: {:.1} %", 100.0 * worst);
    Ok(())
}

/// What is predicted and what is measured, for every change.
fn compared<'a>(base: Pipeline, changes: &[(&'a str, Pipeline)]) -> Result<Vec<(&'a str, f64, f64)>> {
    let found = measure(&base.dataset(4000)?, &base.recipe()?, &base.config(), 2.0, &mut || Ok(()))?;
    let ingest = Rate::exact(BATCH as f64 / base.step);
    let rates = Rates { ingest, prep: found.prep, fetch: found.fetch };
    thread::scope(|scope| {
        let runs: Vec<_> =
            changes.iter().map(|(change, to)| (*change, scope.spawn(move || to.measured()))).collect();
        let mut points = Vec::new();
        for (change, run) in runs {
            let measured = run.join().map_err(|_| Error::internal("a pipeline panicked"))??;
            let what_if = analyze(rates, found.facts, Some(change))?.what_if;
            points.push((change, what_if.map_or(0.0, |what_if| what_if.prediction.later.rate), measured));
        }
        Ok(points)
    })
}

impl Pipeline {
    fn recipe(&self) -> Result<Recipe> {
        let delay = format!(r#"{{"op": "delay", "seconds": {}}}"#, self.op);
        Recipe::from_json(&format!(
            r#"[{{"field": "bin", "decode": {{"kind": "bytes"}}, "ops": [{delay}]}}]"#
        ))
    }

    fn config(&self) -> LoaderConfig {
        let consumer = Consumer { rank: 0, world_size: 1, batch_size: BATCH, last_batch: LastBatch::Partial };
        // One request a sample: a long one would keep all of its samples back until its end.
        LoaderConfig {
            consumer,
            threads: self.threads,
            request_bytes: Some(BYTES),
            ..LoaderConfig::default()
        }
    }

    fn dataset(&self, samples: u64) -> Result<Dataset> {
        let payload = SyntheticPayload::Noise { bytes: BYTES };
        let data = synthetic(SyntheticSpec { samples, payload, ..SyntheticSpec::default() })?;
        let throttle = Throttle { bytes_per_second: Some(self.fetch * BYTES), ..Throttle::default() };
        let store = ThrottleStore::new(Arc::clone(data.store()), throttle);
        Dataset::new(data.manifest().clone(), Arc::new(store), "throttled")
    }

    /// Samples a second of a real loop over an epoch that finds the cache filled.
    fn measured(&self) -> Result<f64> {
        let data = self.dataset(SAMPLES)?;
        let mut loader =
            Loader::new(data.manifest(), Arc::clone(data.store()), &self.recipe()?, self.config())?;
        let memory = (self.cached * (SAMPLES * BYTES) as f64) as u64;
        if memory > 0 {
            let keeper = Arc::new(LocalKeeper::new(memory, None));
            loader = loader.with_cache(CacheSettings {
                capacity: Capacity { memory, disk: 0 },
                seed: 0,
                owners: Owners::alone(),
                at: CacheAt::Bytes,
                open: Arc::new(move || Ok(Arc::clone(&keeper) as Arc<dyn Keeper>)),
            });
        }
        let mut since = Instant::now();
        for epoch in 0..2 {
            loader.begin()?;
            let mut taken = 0;
            loop {
                match loader.next(Duration::from_secs(60))? {
                    Next::Batch(_) => {}
                    Next::Waiting => continue,
                    Next::End => break,
                }
                if taken == SKIPPED {
                    since = Instant::now();
                }
                taken += 1;
                if epoch == 1 {
                    thread::sleep(Duration::from_secs_f64(self.step));
                }
            }
        }
        Ok((SAMPLES - SKIPPED * BATCH) as f64 / since.elapsed().as_secs_f64())
    }
}
