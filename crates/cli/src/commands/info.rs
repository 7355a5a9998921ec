//! `forebay info`: what a dataset holds.

use super::{Context, Done, count, counted, kept, size};
use crate::args::{Data, InfoArgs};
use forebay_core::manifest::{FieldInfo, FieldKind, Manifest};
use forebay_core::{Result, SampleId};
use forebay_engine::source::Dataset;
use serde_json::{Value, json};
use std::collections::HashSet;

/// Distinct integers of a field that are counted; a field with more is no set of classes.
const MAX_DISTINCT: usize = 1 << 20;

/// Class names shown to people; `--json` has all of them.
const NAMES_SHOWN: usize = 8;

pub(super) fn run(args: &InfoArgs, context: &Context) -> Result<Done> {
    let data = args.resolve()?;
    let (dataset, origin) = kept::watch(&data, || context.open(&data))?;
    let manifest = dataset.manifest();
    let fields: Vec<Field> = (0..manifest.fields().len()).map(|field| Field::new(manifest, field)).collect();
    let keys: Vec<String> =
        (0..manifest.len().min(args.keys)).map(|sample| manifest.key(SampleId(sample))).collect();
    let classes = dataset.class_names().map(|names| names.len() as u64).or_else(|| {
        let labels = fields.iter().find(|field| field.info.name == "cls")?;
        labels.distinct
    });

    let report = &context.report;
    report.fact("dataset", dataset.url());
    report.fact("kind", dataset.kind().name());
    report.fact("samples", count(manifest.len()));
    report.fact("objects", count(manifest.object_count().into()));
    report.fact(
        "payloads",
        format_args!(
            "{}; largest sample {}",
            size(manifest.total_bytes()),
            size(manifest.largest_sample_bytes())
        ),
    );
    for (at, field) in fields.iter().enumerate() {
        report.fact(if at == 0 { "fields" } else { "" }, field.text(manifest.len()));
    }
    let taken = dataset.fields()?.into_iter().map(|(name, _)| name);
    let taken: Vec<String> = taken.filter(|name| manifest.field_index(name).is_none()).collect();
    if !taken.is_empty() {
        report.fact("in records", taken.join(", "));
    }
    if let Some(classes) = classes {
        let names = dataset.class_names().unwrap_or_default();
        let mut shown = names.iter().take(NAMES_SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
        if names.len() > NAMES_SHOWN {
            shown.push_str(", …");
        }
        let shown = if shown.is_empty() { shown } else { format!(": {shown}") };
        report.fact("classes", format_args!("{}{shown}", count(classes)));
    }
    let parts = parts(&data, &dataset);
    for (at, part) in parts.iter().enumerate() {
        let share = 100.0 * part.share;
        report.fact(
            if at == 0 { "mix" } else { "" },
            format_args!("{share:>5.1} %  {}  {}", counted(part.samples, "sample"), part.url),
        );
    }
    report.fact("version", manifest.version());
    report.fact("manifest", origin.text());
    for (at, key) in keys.iter().enumerate() {
        report.fact(if at == 0 { "first keys" } else { "" }, key);
    }

    Ok(Done::with(json!({
        "url": dataset.url(),
        "kind": dataset.kind().name(),
        "samples": manifest.len(),
        "objects": manifest.object_count(),
        "bytes": manifest.total_bytes(),
        "largest_sample_bytes": manifest.largest_sample_bytes(),
        "fields": fields.iter().map(Field::object).collect::<Vec<_>>(),
        "classes": classes,
        "class_names": dataset.class_names(),
        "mix": parts.iter().map(Part::object).collect::<Vec<_>>(),
        "version": manifest.version(),
        "manifest": origin.object(),
        "keys": keys,
        "notes": dataset.notes(),
    })))
}

/// One dataset of a mix.
struct Part {
    url: String,
    samples: u64,
    weight: f64,
    /// Its weight as a part of all weights.
    share: f64,
}

impl Part {
    fn object(&self) -> Value {
        json!({ "url": self.url, "samples": self.samples, "weight": self.weight, "share": self.share })
    }
}

/// The datasets of a mix, in the order of their sample ids; none when it is one dataset.
fn parts(data: &Data, dataset: &Dataset) -> Vec<Part> {
    let runs = dataset.mix().unwrap_or_default();
    let total: f64 = runs.iter().map(|run| run.weight).sum();
    let named = runs.iter().zip(&data.parts).map(|(run, (part, _))| Part {
        url: part.spec.join("::"),
        samples: run.samples.end - run.samples.start,
        weight: run.weight,
        share: run.weight / total,
    });
    named.collect()
}

/// One field over all samples.
struct Field {
    info: FieldInfo,
    samples: u64,
    /// Payload bytes: in all and at most. Zero for integers.
    bytes: u64,
    largest: u64,
    /// Least and greatest integer.
    range: Option<(i64, i64)>,
    /// How many different integers, unless there are very many.
    distinct: Option<u64>,
}

impl Field {
    fn new(manifest: &Manifest, index: usize) -> Self {
        let info = manifest.fields()[index].clone();
        let (mut samples, mut bytes, mut largest) = (0, 0, 0);
        let (mut range, mut seen): (Option<(i64, i64)>, HashSet<i64>) = (None, HashSet::new());
        for sample in (0..manifest.len()).map(SampleId) {
            if let Some(location) = manifest.location(sample, index) {
                samples += 1;
                bytes += location.length;
                largest = largest.max(location.length);
            } else if let Some(value) = manifest.int(sample, index) {
                samples += 1;
                range = Some(range.map_or((value, value), |(low, high)| (low.min(value), high.max(value))));
                if seen.len() <= MAX_DISTINCT {
                    seen.insert(value);
                }
            }
        }
        let counted = info.kind == FieldKind::Int && seen.len() <= MAX_DISTINCT;
        let distinct = counted.then_some(seen.len() as u64);
        Self { info, samples, bytes, largest, range, distinct }
    }

    fn mean(&self) -> u64 {
        self.bytes.checked_div(self.samples).unwrap_or(0)
    }

    fn text(&self, all: u64) -> String {
        let has =
            if self.samples == all { "all samples".to_owned() } else { counted(self.samples, "sample") };
        let name = &self.info.name;
        match (self.info.kind, self.range, self.distinct) {
            (FieldKind::Payload, ..) => {
                format!("{name:<8} {has}, mean {}, max {}", size(self.mean()), size(self.largest))
            }
            (FieldKind::Int, Some((low, high)), Some(distinct)) => {
                format!("{name:<8} {has}, integers {low} to {high}, {} different", count(distinct))
            }
            (FieldKind::Int, Some((low, high)), None) => format!("{name:<8} {has}, integers {low} to {high}"),
            (FieldKind::Int, None, _) => format!("{name:<8} {has}, integers"),
        }
    }

    fn object(&self) -> Value {
        match self.info.kind {
            FieldKind::Payload => json!({
                "name": self.info.name,
                "kind": "payload",
                "samples": self.samples,
                "bytes": self.bytes,
                "mean_bytes": self.mean(),
                "max_bytes": self.largest,
            }),
            FieldKind::Int => json!({
                "name": self.info.name,
                "kind": "int",
                "samples": self.samples,
                "min": self.range.map(|(low, _)| low),
                "max": self.range.map(|(_, high)| high),
                "distinct": self.distinct,
            }),
        }
    }
}
