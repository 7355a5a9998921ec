//! `forebay reshard` and `forebay convert`: a dataset into shards, in another order, size or format.

use super::pack::{put_classes, tell_left_out};
use super::{Context, Done, counted, size};
use crate::args::ReshardJob;
use crate::progress::Progress;
use forebay_core::Result;
use forebay_engine::reshard::reshard;
use forebay_engine::shard::ShardInfo;
use serde_json::json;

pub(super) fn run(job: &ReshardJob, context: &Context) -> Result<Done> {
    let dataset = context.open(&job.data)?;
    let left_out = tell_left_out(&dataset, context)?;
    let bar = Progress::new(&context.report, job.doing, "steps", 2 * dataset.manifest().len());
    let mut progress = |done: u64, total: u64| {
        bar.set(done, total);
        context.interrupt.check()
    };
    let made = context.wait(reshard(&dataset, &job.options, &mut progress))??;
    drop(bar);
    let classes = match dataset.class_names() {
        Some(names) => Some(context.wait(put_classes(&job.out, &job.prefix, names))??),
        None => None,
    };
    let report = &context.report;
    for shard in &made.shards {
        let (samples, bytes) = (counted(shard.samples, "sample"), size(shard.bytes));
        report.line(format_args!("{}: {samples}, {bytes}", shard.path.display()));
    }
    if let Some(classes) = &classes {
        let names = dataset.class_names().map_or(0, <[String]>::len);
        report.line(format_args!("{classes}: {}", counted(names as u64, "class name")));
    }
    let (samples, bytes) = made
        .shards
        .iter()
        .fold((0, 0), |(samples, bytes), shard| (samples + shard.samples, bytes + shard.bytes));
    let (shards, kept) = (counted(made.shards.len() as u64, "shard"), made.kept);
    report.line(format_args!("{} in {shards}, {}", counted(samples, "sample"), size(bytes)));
    if kept > 0 {
        report.note(format!("{} of an earlier run were kept", counted(kept, "shard")));
    }
    let shard =
        |shard: &ShardInfo| json!({ "path": shard.path, "samples": shard.samples, "bytes": shard.bytes });
    Ok(Done::with(json!({
        "samples": samples,
        "bytes": bytes,
        "shards": made.shards.iter().map(shard).collect::<Vec<_>>(),
        "classes": classes,
        "left_out": left_out,
        "kept": kept,
        "spilled_bytes": made.spilled_bytes,
        "peak_bytes": made.peak_bytes,
    })))
}
