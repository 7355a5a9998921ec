//! `forebay stage`: a dataset, or a part of it, from any store to a local disk.

use super::{Context, Done, counted, drawn, seconds, size, with_nearby};
use crate::args::StageJob;
use crate::progress::Progress;
use forebay_core::Result;
use forebay_engine::stage::{StageOptions, StagePlan, Staged, plan_stage, run_stage};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;

/// Objects that a dry run names to people.
const NAMED: usize = 20;

pub(super) fn run(job: &StageJob, context: &Context) -> Result<Done> {
    let begun = Instant::now();
    context.wait(async {
        let bar = Arc::new(Progress::new(&context.report, "listing", "objects", 0));
        let options = StageOptions { listed: Some(drawn(Arc::clone(&bar))), ..job.options.clone() };
        let plan = plan_stage(&job.spec, &job.dir, &options).await;
        drop((bar, options));
        let plan = plan.map_err(|error| with_nearby(error, &job.spec))?;
        if plan.wrong() > 0 {
            let many = counted(plan.wrong(), "object");
            context.report.warning(format_args!("{many} in the copy had wrong bytes"));
        }
        if job.dry_run {
            return Ok(said(job, &plan, context));
        }
        let bar = Progress::new(&context.report, "staging", "bytes", plan.bytes);
        let watch = |now: &Staged| {
            bar.set(now.done_bytes(), now.bytes);
            context.interrupt.check()
        };
        let staged = run_stage(&plan, &job.options, &watch).await?;
        drop(bar);
        Ok(done(job, &plan, &staged, begun, context))
    })?
}

/// What a run would do.
fn said(job: &StageJob, plan: &StagePlan, context: &Context) -> Done {
    let report = &context.report;
    for copy in plan.to_copy.iter().take(NAMED) {
        let half = match copy.half_bytes {
            0 => String::new(),
            half => format!(", {} of it there", size(half)),
        };
        report.line(format_args!("{}: {}{half}", copy.object.key, size(copy.object.size)));
    }
    if plan.to_copy.len() > NAMED {
        report.line(format_args!("and {} more", plan.to_copy.len() - NAMED));
    }
    report.line(format_args!(
        "{}: would read {} for {}; {}, {}, there already",
        job.dir.display(),
        size(plan.missing_bytes()),
        counted(plan.to_copy.len() as u64, "object"),
        counted(plan.here, "object"),
        size(plan.here_bytes),
    ));
    let copies: Vec<Value> = plan
        .to_copy
        .iter()
        .map(|copy| json!({ "key": copy.object.key, "bytes": copy.object.size, "half_bytes": copy.half_bytes }))
        .collect();
    Done::with(json!({
        "dry_run": true,
        "dir": job.dir.display().to_string(),
        "objects": plan.objects,
        "bytes": plan.bytes,
        "here": plan.here,
        "here_bytes": plan.here_bytes,
        "wrong": plan.wrong(),
        "missing_bytes": plan.missing_bytes(),
        "to_copy": copies,
    }))
}

fn done(job: &StageJob, plan: &StagePlan, staged: &Staged, begun: Instant, context: &Context) -> Done {
    let elapsed = begun.elapsed().as_secs_f64();
    let there = match staged.here {
        0 => String::new(),
        here => format!("; {}, {}, there already", counted(here, "object"), size(staged.here_bytes)),
    };
    context.report.line(format_args!(
        "{}: copied {}, {}, in {}{there}",
        job.dir.display(),
        counted(staged.copied, "object"),
        size(staged.copied_bytes),
        seconds(elapsed),
    ));
    Done::with(json!({
        "dry_run": false,
        "dir": job.dir.display().to_string(),
        "objects": staged.objects,
        "bytes": staged.bytes,
        "here": staged.here,
        "here_bytes": staged.here_bytes,
        "wrong": plan.wrong(),
        "copied": staged.copied,
        "copied_bytes": staged.copied_bytes,
        "read_bytes": staged.read_bytes,
        "seconds": elapsed,
    }))
}
