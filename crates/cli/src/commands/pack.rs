//! `forebay pack`: a dataset into tar shards, sample by sample. Where they go is in `target`.

pub(super) mod target;

use super::{Context, Done, counted, size};
use crate::args::PackPlan;
use crate::progress::Progress;
use forebay_core::manifest::{FieldKind, Manifest};
use forebay_core::plan::{Sampler, Shuffle};
use forebay_core::{Error, Result};
use forebay_engine::reshard::ShardKeys;
use forebay_engine::shard::ShardWriter;
use forebay_engine::source::{Dataset, FieldValue};
use futures::{StreamExt, stream};
use serde_json::json;
use std::path::Path;
use target::{Packed, Target};

/// Samples that are read ahead of the one being written: enough to keep a disk busy, few enough to bound memory.
const READ_AHEAD: usize = 16;

/// The member of a shard that holds the label, as WebDataset names it.
const LABEL: &str = "cls";

/// Columns of a table that hold the label, the likeliest first.
const LABEL_COLUMNS: [&str; 6] = ["label", "class", "class_name", "category", "target", "y"];

pub(super) fn run(plan: &PackPlan, context: &Context) -> Result<Done> {
    let target = Target::open(plan)?;
    let existing = context.wait(target.existing(&plan.prefix))??;
    if !plan.shards.overwrite && !existing.is_empty() {
        let (first, many) = (&existing[0], counted(existing.len() as u64, "shard"));
        let message = format!("write shards `{first}` and so on: {many} of that name exist already");
        return Err(Error::invalid_config(message)
            .with_hint("add `--overwrite` to replace them, or choose another `--prefix`"));
    }
    let dataset = context.open(&plan.data)?;
    let left_out = tell_left_out(&dataset, context)?;
    let shards = write(plan, &target, &dataset, context)?;
    let classes = match dataset.class_names() {
        Some(names) => Some(context.wait(target.put_classes(&plan.prefix, names))??),
        None => None,
    };

    let report = &context.report;
    for shard in &shards {
        let (samples, bytes) = (counted(shard.samples, "sample"), size(shard.bytes));
        report.line(format_args!("{}: {samples}, {bytes}", shard.place));
    }
    if let Some(classes) = &classes {
        let names = dataset.class_names().map_or(0, <[String]>::len);
        report.line(format_args!("{classes}: {}", counted(names as u64, "class name")));
    }
    let (samples, bytes) = totals(&shards);
    report.line(format_args!(
        "packed {} into {}, {}",
        counted(samples, "sample"),
        counted(shards.len() as u64, "shard"),
        size(bytes)
    ));
    let left: Vec<&String> =
        existing.iter().filter(|place| !shards.iter().any(|shard| shard.place == **place)).collect();
    if !left.is_empty() {
        let named = left.iter().take(5).map(|place| format!("`{place}`")).collect::<Vec<_>>().join(", ");
        report.warning(format_args!(
            "{} of an earlier run remain beside the new ones: {named}",
            counted(left.len() as u64, "shard")
        ));
    }
    let shard =
        |shard: &Packed| json!({ "path": shard.place, "samples": shard.samples, "bytes": shard.bytes });
    Ok(Done::with(json!({
        "samples": samples,
        "bytes": bytes,
        "shards": shards.iter().map(shard).collect::<Vec<_>>(),
        "classes": classes,
        "left_out": left_out,
        "left_over": left,
    })))
}

/// Says what is stored in the dataset and will not be in shards of it; returns that.
pub(super) fn tell_left_out(dataset: &Dataset, context: &Context) -> Result<Vec<String>> {
    let left_out: Vec<String> = dataset.left_out()?.iter().map(ToString::to_string).collect();
    for why in &left_out {
        context.report.warning(format_args!("left out of every sample: {why}"));
    }
    Ok(left_out)
}

/// Writes the names of classes beside shards; returns where.
pub(super) async fn put_classes(folder: &Path, prefix: &str, names: &[String]) -> Result<String> {
    Target::Folder(folder.to_path_buf()).put_classes(prefix, names).await
}

fn totals(shards: &[Packed]) -> (u64, u64) {
    shards.iter().fold((0, 0), |(samples, bytes), shard| (samples + shard.samples, bytes + shard.bytes))
}

/// Reads a few samples ahead and writes them in order.
fn write(plan: &PackPlan, target: &Target, dataset: &Dataset, context: &Context) -> Result<Vec<Packed>> {
    let manifest = dataset.manifest();
    let (shuffle, seed) = match plan.shuffle {
        Some(seed) => (Shuffle::Full, seed),
        None => (Shuffle::Sequential, 0),
    };
    let order = Sampler::new(manifest, shuffle, seed)?.plan(0);
    let mut keys = ShardKeys::new(dataset);
    let label = label_field(manifest);
    let mut writer = ShardWriter::new(target.writer_options(plan))?;
    let bar = Progress::new(&context.report, "packing", "samples", manifest.len());
    let samples = stream::iter((0..manifest.len()).map(|position| order.at(position)));
    let read = samples.map(|sample| async move { (sample, dataset.read_sample(sample).await) });
    let mut read = Box::pin(read.buffered(READ_AHEAD).enumerate());
    context.wait(async {
        let mut packed = Vec::new();
        while let Some((at, (sample, fields))) = read.next().await {
            context.interrupt.check()?;
            let fields = fields?;
            let named = |name: &'_ str| {
                // No member has a `/` behind its key.
                if Some(name) == label { LABEL.to_owned() } else { name.replace('/', ".") }
            };
            let payloads: Vec<(String, Vec<u8>)> =
                fields.iter().map(|(name, value)| (named(name), payload(value))).collect();
            let members: Vec<(&str, &[u8])> =
                payloads.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())).collect();
            writer.add(&keys.of(sample)?, &members)?;
            target.take(writer.take_finished(), &mut packed).await?;
            bar.set(at as u64 + 1, manifest.len());
        }
        target.take(writer.finish()?, &mut packed).await?;
        Ok(packed)
    })?
}

/// The field of integers that is the label under another name; `None` when there is none, or a `cls` already.
fn label_field(manifest: &Manifest) -> Option<&str> {
    if manifest.field_index(LABEL).is_some() {
        return None;
    }
    let ints = || manifest.fields().iter().filter(|field| field.kind == FieldKind::Int);
    let by_name =
        LABEL_COLUMNS.iter().find_map(|label| ints().find(|field| field.name.eq_ignore_ascii_case(label)));
    by_name.map(|field| field.name.as_str())
}

/// A field as it lies in a shard: payloads as they are, integers as decimal text.
fn payload(value: &FieldValue) -> Vec<u8> {
    match value {
        FieldValue::Payload(bytes) | FieldValue::Record(bytes) => bytes.to_vec(),
        FieldValue::Int(value) => value.to_string().into_bytes(),
    }
}
