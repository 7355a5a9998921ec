//! `forebay demo`: a training loop without a framework, an accelerator or a dataset of one's own.
//!
//! The accelerator is a sleep of known length, so that whatever the loop waits beyond it is the loader's doing.

mod made;

use super::{Context, Done, counted, seconds, size};
use crate::args::DemoPlan;
use crate::interrupt::SLICE;
use crate::progress::Progress;
use forebay_core::plan::{BlockShuffle, Shuffle};
use forebay_core::portion::{Consumer, LastBatch};
use forebay_core::recipe::Recipe;
use forebay_core::{Error, Result};
use forebay_engine::source::{self, OpenOptions};
use forebay_engine::{Loader, LoaderConfig, Next, Stats};
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// A smaller share of waiting than this is no stall worth naming.
const SMALL_SHARE: f64 = 0.05;

/// What image models are usually trained with.
const RECIPE: &str = r#"
[[recipe]]
field = "jpg"
decode = "image"
ops = [
    { op = "random_resized_crop", size = 224 },
    { op = "flip" },
    { op = "normalize", mean = [0.485, 0.456, 0.406], std = [0.229, 0.224, 0.225] },
]

[[recipe]]
field = "cls"
decode = "label"
"#;

pub(super) fn run(plan: &DemoPlan, context: &Context) -> Result<Done> {
    let report = &context.report;
    let folder = place(plan)?;
    let making = Instant::now();
    let made = made::dataset(folder.path(), plan.samples, context)?;
    report.line(format_args!(
        "made {} of {} in {} ({}) in {}",
        counted(plan.samples, "JPEG"),
        format_args!("{0} x {0} pixels", made::SIDE),
        counted(made.shards, "shard"),
        size(made.bytes),
        seconds(making.elapsed().as_secs_f64()),
    ));
    let spec = [folder.path().display().to_string()];
    let dataset = context.wait(source::open(&spec, &no_cache(folder.path())))??;
    let consumer =
        Consumer { rank: 0, world_size: 1, batch_size: plan.batch_size, last_batch: LastBatch::Partial };
    let config = LoaderConfig {
        consumer,
        shuffle: Shuffle::Block(BlockShuffle::default()),
        epochs: Some(plan.epochs),
        ledger: plan.ledger.clone(),
        ..LoaderConfig::default()
    };
    let recipe = Recipe::from_toml(RECIPE)?;
    let loader = Loader::new(dataset.manifest(), Arc::clone(dataset.store()), &recipe, config)?;
    let (stats, elapsed) = train(loader, plan, context)?;
    let verdict = Verdict::new(&stats, elapsed, plan);
    say(plan, context, &stats, elapsed, &verdict);
    let kept: Option<PathBuf> = plan.keep.then(|| folder.keep().components().collect());
    if let Some(kept) = &kept {
        report.fact("dataset", kept.display());
    }
    Ok(Done::with(json!({
        "samples": plan.samples,
        "epochs": plan.epochs,
        "batch_size": plan.batch_size,
        "step_seconds": plan.step.as_secs_f64(),
        "seconds": elapsed,
        "samples_per_second": stats.samples as f64 / elapsed,
        "first_batch_seconds": stats.first_batch_seconds,
        "stall_share": verdict.share,
        "bottleneck": verdict.bottleneck,
        "verdict": verdict.sentence,
        "stats": stats,
        "dataset": kept,
    })))
}

fn place(plan: &DemoPlan) -> Result<tempfile::TempDir> {
    let parent = plan.dir.clone().unwrap_or_else(std::env::temp_dir);
    let doing = |error| Error::io(format!("make a folder in `{}`", parent.display()), error);
    std::fs::create_dir_all(&parent).map_err(doing)?;
    tempfile::Builder::new().prefix("forebay-demo-").tempdir_in(&parent).map_err(doing)
}

/// The demo's dataset is gone in a moment, and so is its manifest.
fn no_cache(folder: &std::path::Path) -> OpenOptions {
    OpenOptions { manifest_dir: Some(folder.join(".manifests")), ..OpenOptions::default() }
}

/// The training loop: take a batch, step, again.
fn train(mut loader: Loader, plan: &DemoPlan, context: &Context) -> Result<(Stats, f64)> {
    let begun = Instant::now();
    let steps = loader.steps()? * plan.epochs;
    let bar = Progress::new(&context.report, "training", "steps", steps);
    let mut done = 0;
    for _ in 0..plan.epochs {
        loader.begin()?;
        loop {
            context.interrupt.check()?;
            match loader.next(SLICE)? {
                Next::Batch(batch) => {
                    context.interrupt.sleep(plan.step)?;
                    drop(batch);
                    done += 1;
                    bar.set(done, steps);
                }
                Next::Waiting => {}
                Next::End => break,
            }
        }
    }
    drop(bar);
    Ok((loader.stats(), begun.elapsed().as_secs_f64()))
}

fn say(plan: &DemoPlan, context: &Context, stats: &Stats, elapsed: f64, verdict: &Verdict) {
    let report = &context.report;
    report.fact(
        "trained",
        format_args!(
            "{} of {}, {} of {}, {} per step",
            counted(plan.epochs, "epoch"),
            counted(plan.samples, "image"),
            counted(stats.batches, "step"),
            plan.batch_size,
            seconds(plan.step.as_secs_f64()),
        ),
    );
    report.fact(
        "throughput",
        format_args!("{:.0} images/s over {}", stats.samples as f64 / elapsed, seconds(elapsed)),
    );
    report.fact("first batch", format_args!("after {}", seconds(stats.first_batch_seconds)));
    report.fact(
        "stall",
        format_args!(
            "{} ({:.1} % of the time): fetch {}, prep {}",
            seconds(stats.stall_seconds),
            100.0 * stats.stall_seconds / elapsed,
            seconds(stats.fetch_stall_seconds),
            seconds(stats.prep_stall_seconds),
        ),
    );
    report.fact("bottleneck", format_args!("{}: {}", verdict.bottleneck, verdict.sentence));
}

/// What limits the run, and what to do about it.
#[derive(Debug, PartialEq)]
struct Verdict {
    /// `step`, `prep` or `fetch`.
    bottleneck: &'static str,
    sentence: String,
    /// Share of the time after the first batch that the loop waited.
    share: f64,
}

impl Verdict {
    fn new(stats: &Stats, elapsed: f64, plan: &DemoPlan) -> Self {
        // The first batch is waited for whatever the loader does; what counts is whether it keeps up afterwards.
        let stall = (stats.stall_seconds - stats.first_batch_seconds).max(0.0);
        let share = stall / (elapsed - stats.first_batch_seconds).max(f64::EPSILON);
        let waited =
            format!("the accelerator waited {:.1} % of the time after the first batch", 100.0 * share);
        if share < SMALL_SHARE {
            let sentence = format!("the loader keeps up, {waited}. A faster accelerator would train faster.");
            return Self { bottleneck: "step", sentence, share };
        }
        if stats.fetch_stall_seconds > stats.prep_stall_seconds {
            let sentence = format!(
                "{waited}, mostly for bytes. Put the data on a faster disk, or give the loader more `memory` to read \
                 further ahead."
            );
            return Self { bottleneck: "fetch", sentence, share };
        }
        let prep_rate = stats.samples as f64 / (stats.prep_seconds / stats.threads as f64).max(f64::EPSILON);
        let wanted = plan.batch_size as f64 / plan.step.as_secs_f64().max(f64::EPSILON);
        let wanted = if wanted < 1e6 { format!("takes {wanted:.0}") } else { "takes all it gets".to_owned() };
        let sentence = format!(
            "{waited}, mostly for decoding. {} prepare about {prep_rate:.0} images/s and the step {wanted}: use more \
             processors, smaller images or fewer ops.",
            counted(stats.threads, "thread"),
        );
        Self { bottleneck: "prep", sentence, share }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn bottleneck(fetch: f64, prep: f64, first: f64) -> &'static str {
        let plan = DemoPlan {
            samples: 100,
            step: Duration::from_millis(10),
            epochs: 1,
            batch_size: 10,
            dir: None,
            keep: false,
            ledger: None,
        };
        let stats = Stats {
            samples: 100,
            threads: 2,
            prep_seconds: 1.0,
            stall_seconds: fetch + prep,
            fetch_stall_seconds: fetch,
            prep_stall_seconds: prep,
            first_batch_seconds: first,
            ..Stats::default()
        };
        Verdict::new(&stats, 10.0, &plan).bottleneck
    }

    #[test]
    fn the_verdict_names_the_stage_that_was_waited_for() {
        assert_eq!(bottleneck(0.1, 0.1, 0.1), "step");
        assert_eq!(bottleneck(0.0, 2.0, 1.9), "step", "waiting for the first batch is no stall of the loop");
        assert_eq!(bottleneck(3.0, 1.0, 0.1), "fetch");
        assert_eq!(bottleneck(1.0, 3.0, 0.1), "prep");
    }
}
