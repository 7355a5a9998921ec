//! `forebay ingest`: a dataset into a table of Cassandra or ScyllaDB.

use super::{Context, Done, counted, seconds, size};
use crate::args::IngestPlan;
use crate::progress::Progress;
use forebay_core::Result;
use forebay_engine::source::ingest::{Ingested, ingest};
use forebay_store::{CassandraStore, Store};
use serde_json::json;
use std::time::Instant;

pub(super) fn run(plan: &IngestPlan, context: &Context) -> Result<Done> {
    let begun = Instant::now();
    let store = CassandraStore::open(&plan.to, &plan.store)?;
    let dataset = context.open(&plan.data)?;
    let bar = Progress::new(&context.report, "ingesting", "samples", dataset.manifest().len());
    let watch = |done: &Ingested| {
        bar.set(done.written + done.skipped, done.samples);
        context.interrupt.check()
    };
    let done = context.wait(ingest(&dataset, &store, &plan.options, &watch))??;
    drop(bar);
    let elapsed = begun.elapsed().as_secs_f64();
    let report = &context.report;
    report.line(format_args!(
        "{}: wrote {}, {}, in {}",
        plan.to,
        counted(done.written, "row"),
        size(done.bytes),
        seconds(elapsed)
    ));
    if done.skipped > 0 {
        report.line(format_args!(
            "{} there already; `--overwrite` writes them again",
            counted(done.skipped, "row")
        ));
    }
    Ok(Done::with(json!({
        "url": store.url("").trim_end_matches('/'),
        "samples": done.samples,
        "written": done.written,
        "skipped": done.skipped,
        "bytes": done.bytes,
        "seconds": elapsed,
    })))
}
