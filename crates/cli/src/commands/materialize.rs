//! `forebay materialize`: the prepared samples of a pipeline as a dataset of shards.

use super::{Context, Done, counted, seconds, size};
use crate::args::{MaterializeJob, program};
use crate::progress::Progress;
use forebay_core::Result;
use forebay_engine::feed::FeedSpec;
use forebay_engine::materialize::{self, MaterializePlan, Materialized};
use forebay_engine::source::Dataset;
use forebay_engine::{CacheSettings, Loader};
use forebay_net::service::{Own, supplier};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;

pub(super) fn run(job: &MaterializeJob, context: &Context) -> Result<Done> {
    let begun = Instant::now();
    let dataset = context.open(&job.data)?;
    let mut loader = loader(job, &dataset)?;
    let plan = materialize::plan(&loader, &job.options)?;
    let report = &context.report;
    if !plan.random_ops.is_empty() {
        report.warning(format_args!(
            "{} in the recipe: what epoch {} draws is saved, and every later epoch sees the same",
            plan.random_ops.join(", "),
            job.options.epoch
        ));
    }
    let outset = plan.outset();
    if job.dry_run {
        report.line(format_args!(
            "{}: would make {} of {}, {}; {} there already",
            job.options.out,
            super::count(outset.shards - outset.found),
            counted(outset.shards, "shard"),
            counted(plan.missing_samples(), "sample"),
            super::count(outset.found),
        ));
        return Ok(Done::with(object(job, &plan, &outset, None)));
    }
    if outset.found > 0 && outset.found < outset.shards {
        report.note(format_args!(
            "resuming: {} of {} are there, {} to make",
            super::count(outset.found),
            counted(outset.shards, "shard"),
            super::count(outset.shards - outset.found),
        ));
    }
    let missing = plan.missing_samples();
    let bar = Progress::new(report, "materializing", "samples", missing);
    let done = materialize::run(&mut loader, &plan, &mut |now| {
        bar.set(now.saved, missing);
        context.interrupt.check()
    });
    drop(bar);
    let done = done?;
    let elapsed = begun.elapsed().as_secs_f64();
    let others = match done.made_by_others {
        0 => String::new(),
        many => format!("; others made {}", super::count(many)),
    };
    let there = match done.found {
        0 => String::new(),
        many => format!("; {} there already", super::count(many)),
    };
    report.line(format_args!(
        "{}: {} of {} in {}, {}, in {}{others}{there}",
        job.options.out,
        counted(done.saved, "sample"),
        super::count(done.samples),
        counted(done.made, "shard"),
        size(done.bytes),
        seconds(elapsed),
    ));
    if done.bad > 0 {
        report.warning(format_args!(
            "{} left out or replaced, as `on_error` says",
            counted(done.bad, "bad sample")
        ));
    }
    Ok(Done::with(object(job, &plan, &done, Some(elapsed))))
}

/// The loader whose batches are saved.
fn loader(job: &MaterializeJob, dataset: &Dataset) -> Result<Loader> {
    let config = materialize::config(job.loader.config(dataset)?, job.options.epoch)?;
    let elsewhere = match job.loader.via() {
        Some(via) => {
            let own = Own {
                command: program()?,
                threads: Some(config.threads),
                memory_bytes: config.memory_bytes,
                ..Own::default()
            };
            match supplier(via, &own)? {
                Some(supplier) => {
                    let mut feed = FeedSpec::new(dataset, &job.recipe, &config)?;
                    feed.cache = job.loader.cache().map(forebay_engine::cache::CacheConfig::to_json);
                    Some((supplier, feed))
                }
                None => None,
            }
        }
        None => None,
    };
    let loader = Loader::new(dataset.manifest(), Arc::clone(dataset.store()), &job.recipe, config)?;
    Ok(match (elsewhere, job.loader.cache()) {
        (Some((supplier, feed)), _) => loader.with_supplier(supplier, feed),
        (None, Some(cache)) => loader.with_cache(CacheSettings::local(cache.clone())),
        (None, None) => loader,
    })
}

fn object(job: &MaterializeJob, plan: &MaterializePlan, done: &Materialized, elapsed: Option<f64>) -> Value {
    json!({
        "dry_run": job.dry_run,
        "out": job.options.out,
        "epoch": job.options.epoch,
        "chunk_samples": plan.chunk_samples(),
        "shards": done.shards,
        "found": done.found,
        "made": done.made,
        "made_by_others": done.made_by_others,
        "samples": done.samples,
        "saved": done.saved,
        "missing_samples": if job.dry_run { plan.missing_samples() } else { 0 },
        "bytes": done.bytes,
        "bad": done.bad,
        "random_ops": plan.random_ops,
        "recipe": plan.recipe(),
        "seconds": elapsed,
    })
}
