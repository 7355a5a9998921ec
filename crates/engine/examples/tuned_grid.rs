//! How near a loader that was told nothing comes to the best of a grid: threads and batches kept ready, after 200 steps.
//!
//! `cargo run --release -p forebay-engine --example tuned_grid`. Ops, stores and steps sleep and hardly compute, so the
//! points of a grid run side by side. What is printed is the share of the best point's batches a second that is reached
//! in steps 200 to 260, and what was chosen. Processors that are the limit are simulated in `forebay_core::tune`.
#![expect(clippy::print_stdout, reason = "figures are all it is for")]

use forebay_core::portion::{Consumer, LastBatch};
use forebay_core::recipe::Recipe;
use forebay_core::{Error, Result};
use forebay_engine::source::{Dataset, SyntheticPayload, SyntheticSpec, synthetic};
use forebay_engine::{Loader, LoaderConfig, Next, Stats};
use forebay_store::{Throttle, ThrottleStore};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const BYTES: u64 = 1024;
const BATCH: u64 = 4;
/// Steps after which the tuner must be there, and those that are then looked at.
const TUNED: usize = 200;
const LOOKED_AT: usize = 60;

/// What a loop has to do with: seconds of a sample in an op, of a batch on the link, and of a step.
#[derive(Clone, Copy, Debug)]
struct Work {
    op: f64,
    link: f64,
    step: f64,
}

fn main() -> Result<()> {
    for (name, work) in [
        ("ops that wait", Work { op: 0.02, link: 0.0, step: 0.001 }),
        ("the link", Work { op: 0.001, link: 0.02, step: 0.005 }),
        ("the step", Work { op: 0.004, link: 0.005, step: 0.02 }),
    ] {
        let (best, threads, prefetch) = best_of_grid(work)?;
        let config = LoaderConfig { threads: 2, more_threads: true, ..alone() };
        let (rate, stats) = run(work, config, TUNED + LOOKED_AT)?;
        println!(
            "{name}: {rate:.1} batches/s with {} threads and {} open batches, {:.0} % of {best:.1} with {threads} and {}",
            stats.threads,
            stats.open_batches,
            100.0 * rate / best,
            prefetch + 1,
        );
        for choice in &stats.tuned {
            println!("  step {}: {}", choice.step, choice.why);
        }
    }
    Ok(())
}

/// The best of a grid, and where it is.
fn best_of_grid(work: Work) -> Result<(f64, usize, usize)> {
    thread::scope(|scope| {
        let mut points = Vec::new();
        for threads in [1, 2, 4, 8, 16] {
            for prefetch in [1, 4, 16] {
                let config = LoaderConfig { threads, prefetch_batches: Some(prefetch), ..alone() };
                points.push((threads, prefetch, scope.spawn(move || run(work, config, 20 + LOOKED_AT))));
            }
        }
        let mut best = (0.0, 0, 0);
        for (threads, prefetch, point) in points {
            let (rate, _) = point.join().map_err(|_| Error::internal("a point of the grid panicked"))??;
            if rate > best.0 {
                best = (rate, threads, prefetch);
            }
        }
        Ok(best)
    })
}

fn alone() -> LoaderConfig {
    let consumer = Consumer { rank: 0, world_size: 1, batch_size: BATCH, last_batch: LastBatch::Partial };
    LoaderConfig { consumer, request_bytes: Some(BATCH * BYTES), ..LoaderConfig::default() }
}

fn dataset(work: Work) -> Result<Dataset> {
    let payload = SyntheticPayload::Noise { bytes: BYTES };
    let data = synthetic(SyntheticSpec { samples: 8192, payload, ..SyntheticSpec::default() })?;
    let bytes_per_second = (work.link > 0.0).then(|| ((BATCH * BYTES) as f64 / work.link) as u64);
    let throttle = Throttle { bytes_per_second, ..Throttle::default() };
    let store = ThrottleStore::new(Arc::clone(data.store()), throttle);
    Dataset::new(data.manifest().clone(), Arc::new(store), "throttled")
}

/// Batches a second over the last steps of so many, and what the loader says about itself.
fn run(work: Work, config: LoaderConfig, steps: usize) -> Result<(f64, Stats)> {
    let delay = format!(r#""ops": [{{"op": "delay", "seconds": {}}}]"#, work.op);
    let recipe =
        Recipe::from_json(&format!(r#"[{{"field": "bin", "decode": {{"kind": "bytes"}}, {delay}}}]"#))?;
    let data = dataset(work)?;
    let mut loader = Loader::new(data.manifest(), Arc::clone(data.store()), &recipe, config)?;
    loader.begin()?;
    let mut since = Instant::now();
    for step in 0..steps {
        if step == steps - LOOKED_AT {
            since = Instant::now();
        }
        while !matches!(loader.next(Duration::from_secs(60))?, Next::Batch(_)) {}
        thread::sleep(Duration::from_secs_f64(work.step));
    }
    Ok((LOOKED_AT as f64 / since.elapsed().as_secs_f64(), loader.stats()))
}
