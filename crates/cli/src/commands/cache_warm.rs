//! `forebay cache warm`: fills the cache of a pipeline before anybody trains.

use super::{Context, Done, counted, seconds, size};
use crate::args::CacheWarmArgs;
use crate::pipeline::RawPipeline;
use crate::progress::Progress;
use forebay_core::{Error, Result};
use forebay_engine::cache::{CacheSettings, Warmed, warm};
use serde_json::json;
use std::time::Instant;

pub(super) fn run(args: &CacheWarmArgs, context: &Context) -> Result<Done> {
    let begun = Instant::now();
    let pipeline = RawPipeline::read(&args.pipeline)?.resolve()?;
    let fault = |what: &str, hint: &str| {
        Error::invalid_config(format!("warm the cache of `{}`: {what}", args.pipeline.display()))
            .with_hint(hint)
    };
    let data = pipeline.data.ok_or_else(|| fault("it names no dataset", "add `url` under `[data]`"))?;
    let recipe = pipeline.recipe.ok_or_else(|| {
        fault("it has no recipe, so that it is not known which fields are needed", "add `[[recipe]]`")
    })?;
    let config = pipeline.loader.cache().filter(|cache| cache.disk.is_some()).ok_or_else(|| {
        fault(
            "it has no cache on disk, and memory ends with this command",
            "add `cache = { disk = \"/nvme/forebay:500GiB\" }` under `[loader]`",
        )
    })?;
    let settings = CacheSettings::local(config.clone());
    let dataset = context.open(&data)?;
    let samples = dataset.manifest().len();
    let bar = Progress::new(&context.report, "warming", "samples", samples);
    let warmed: Warmed = context.wait(warm(&dataset, &recipe, &settings, |so_far| {
        bar.set(so_far.samples, samples);
        context.interrupt.check()
    }))??;
    drop(bar);
    let Warmed { found, read, read_bytes, .. } = warmed;
    context.report.line(format_args!(
        "warm: {} read, {}, {} were there, in {}",
        counted(read, "payload"),
        size(read_bytes),
        super::count(found),
        seconds(begun.elapsed().as_secs_f64()),
    ));
    Ok(Done::with(json!({
        "samples": samples,
        "found": found,
        "read": read,
        "read_bytes": read_bytes,
    })))
}
