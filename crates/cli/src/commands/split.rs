//! `forebay split`: which samples are for training and which for checking, as a file.

use super::{Context, Done, counted};
use crate::args::SplitPlan;
use crate::progress::Progress;
use forebay_core::manifest::FieldKind;
use forebay_core::split::split;
use forebay_core::{Error, Result, SampleId};
use forebay_engine::source::Dataset;
use forebay_store::{ByteRange, LocalStore, Store};
use futures::{StreamExt, stream};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The field of classes that is taken when none is named.
const CLASS_FIELD: &str = "cls";
/// Raised when the meaning of the file changes.
const FORMAT: u32 = 1;
/// Labels read side by side, for datasets that hold them as payloads.
const READ_AHEAD: usize = 32;
/// No label is longer.
const MAX_LABEL_BYTES: u64 = 4096;

pub(super) fn run(plan: &SplitPlan, context: &Context) -> Result<Done> {
    let dataset = context.open(&plan.data)?;
    let manifest = dataset.manifest();
    let by = match plan.by.as_deref() {
        Some("none") => None,
        Some(name) => Some(name),
        None => manifest.field_index(CLASS_FIELD).map(|_| CLASS_FIELD),
    };
    let classes = match by {
        Some(name) => classes(&dataset, name, context)?,
        None => vec![None; manifest.len() as usize],
    };
    let parts = split(&classes, &plan.ratios, plan.seed);
    let mut splits = Map::new();
    for (name, part) in plan.names.iter().zip(&parts) {
        let keys: Vec<String> = part.iter().map(|sample| manifest.key(*sample)).collect();
        splits.insert(name.clone(), json!({ "samples": part, "keys": keys }));
    }
    let file = json!({
        "format": FORMAT,
        "dataset": { "url": dataset.url(), "version": manifest.version(), "samples": manifest.len() },
        "names": plan.names,
        "ratios": plan.ratios.shares(),
        "seed": plan.seed,
        "by": by,
        "splits": splits,
    });
    write(plan, &file, context)?;

    let report = &context.report;
    let mut counts = Map::new();
    for (name, part) in plan.names.iter().zip(&parts) {
        report.fact(name, counted(part.len() as u64, "sample"));
        counts.insert(name.clone(), part.len().into());
    }
    let groups: std::collections::BTreeSet<_> = classes.iter().collect();
    report.fact("classes", by.map_or("none".to_owned(), |by| format!("{} of field `{by}`", groups.len())));
    report.fact("written", plan.output.display());
    Ok(Done::with(json!({
        "output": plan.output.display().to_string(),
        "version": manifest.version(),
        "samples": manifest.len(),
        "seed": plan.seed,
        "by": by,
        "classes": by.map(|_| groups.len()),
        "counts": counts,
    })))
}

/// The class of every sample. Payloads, as shards hold their labels, are compared by their bytes.
fn classes(dataset: &Dataset, name: &str, context: &Context) -> Result<Vec<Option<i64>>> {
    let manifest = dataset.manifest();
    let Some(field) = manifest.field_index(name) else {
        let have: Vec<_> = manifest.fields().iter().map(|field| format!("`{}`", field.name)).collect();
        return Err(Error::invalid_config(format!(
            "split `{}` by `{name}`: there is no such field",
            dataset.url()
        ))
        .with_hint(format!("the dataset has {}; `--by none` splits without classes", have.join(", "))));
    };
    let samples = (0..manifest.len()).map(SampleId);
    if manifest.fields()[field].kind == FieldKind::Int {
        return Ok(samples.map(|sample| manifest.int(sample, field)).collect());
    }
    let bar = Progress::new(&context.report, "reading labels", "samples", manifest.len());
    let read = stream::iter(samples).map(|sample| async move {
        let Some(location) = manifest.location(sample, field) else { return Ok(None) };
        if location.length > MAX_LABEL_BYTES {
            let (key, length) = (manifest.key(sample), location.length);
            let message =
                format!("split by `{name}`: that of sample `{key}` has {length} bytes and is no label");
            return Err(Error::invalid_config(message));
        }
        dataset.read_field(sample, field, ByteRange::Full).await.map(Some)
    });
    let mut read = Box::pin(read.buffered(READ_AHEAD));
    context.wait(async {
        let mut numbers: BTreeMap<Vec<u8>, i64> = BTreeMap::new();
        let mut classes = Vec::new();
        while let Some(label) = read.next().await {
            context.interrupt.check()?;
            let next = numbers.len() as i64;
            classes.push(label?.map(|label| *numbers.entry(label.trim_ascii().to_vec()).or_insert(next)));
            bar.set(classes.len() as u64, manifest.len());
        }
        Ok(classes)
    })?
}

/// Writes the file whole or not at all.
fn write(plan: &SplitPlan, file: &Value, context: &Context) -> Result<()> {
    let doing = format!("write splits `{}`", plan.output.display());
    let path = std::path::absolute(&plan.output).map_err(|error| Error::io(doing.clone(), error))?;
    let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return Err(Error::invalid_config(format!("{doing}: it is not a file name")));
    };
    let store = LocalStore::new(folder.to_path_buf());
    let text = format!("{file}\n").into_bytes();
    context.wait(store.write(name, text.into()))?.map_err(|error| error.while_doing(doing))
}
