//! Several datasets as one whose samples have the fields of all: those with one key belong together.
//!
//! The first dataset says which samples there are and in which order they lie; the others lend their fields. Payloads stay
//! where they are, and objects of part `n` have its number before their key, as in a mix. Nothing is decided while a loop
//! runs: partners are found once, and the result is a manifest like any other.

use super::dataset::Dataset;
use super::mix::{MixStore, common_records, name};
use super::origin::DataSpec;
use forebay_core::manifest::{FieldKind, Manifest, ManifestBuilder, Value};
use forebay_core::{Error, Result, SampleId};
use forebay_ops::record::META_KEY;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_128;

/// How many keys a message names.
const NAMED: usize = 20;

/// What becomes of a sample that some dataset lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MissingPartner {
    /// It is an error that names the keys.
    #[default]
    Refuse,
    /// It is left out, and a note says how many were.
    Skip,
    /// It is kept without the fields of that dataset. A sample that the first dataset lacks is left out.
    Keep,
}

/// How a join is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JoinOptions {
    /// What becomes of a sample that some dataset lacks.
    #[serde(default)]
    pub missing: MissingPartner,
    /// Whether samples may lie in another order than in the first dataset. Where they do, one block of the first dataset
    /// is many small reads of the others.
    #[serde(default)]
    pub any_order: bool,
}

/// One dataset whose samples have the fields of all parts. A field that several parts have is that of the first of them.
pub fn join(parts: &[Dataset], options: JoinOptions) -> Result<Dataset> {
    let [first, others @ ..] = parts else {
        return Err(Error::invalid_config("join datasets: none is given"));
    };
    if others.is_empty() {
        return Err(Error::invalid_config("join datasets: one alone has no partner"));
    }
    let mut notes = Vec::new();
    let partners = others
        .iter()
        .map(|other| Partners::find(first, other, options, &mut notes))
        .collect::<Result<Vec<_>>>()?;
    let weighted: Vec<(Dataset, f64)> = parts.iter().map(|part| (part.clone(), 1.0)).collect();
    let described = parts.iter().map(|part| {
        serde_json::json!({ "url": part.url(), "version": part.manifest().version(), "samples": part.manifest().len() })
    });
    let mut meta = serde_json::json!({ "kind": "join", "parts": described.collect::<Vec<_>>() });
    if let Some(names) = parts.iter().find_map(Dataset::class_names) {
        meta["class_names"] = serde_json::json!(names);
    }
    let records = common_records(&weighted)?;
    if !records.is_empty() {
        meta[META_KEY] = serde_json::json!(records);
    }
    let manifest = Manifest::open(build(parts, &partners, options, meta, &mut notes)?)?;
    let stores = parts.iter().map(|part| Arc::clone(part.store())).collect();
    let url = name("join", &weighted);
    let dataset = Dataset::with_notes(manifest, Arc::new(MixStore { stores }), url, notes)?;
    let origins = parts.iter().map(|part| Some((part.origin()?.clone(), 1.0)));
    Ok(match origins.collect::<Option<Vec<_>>>() {
        Some(origins) => {
            let spec = DataSpec { join: Some(options), ..DataSpec::of_parts(origins) };
            dataset.with_origin(spec)
        }
        None => dataset,
    })
}

/// For each sample of the first dataset, its partner in another one.
struct Partners(Vec<Option<u64>>);

impl Partners {
    fn find(first: &Dataset, other: &Dataset, options: JoinOptions, notes: &mut Vec<String>) -> Result<Self> {
        let (here, there) = (first.manifest(), other.manifest());
        let doing = || format!("join `{}` with `{}`", first.url(), other.url());
        let mut by_key = keys(there).map_err(|error| error.while_doing(doing()))?;
        let (mut found, mut lacking) = (Vec::with_capacity(here.len() as usize), Vec::new());
        let (mut last, mut stray) = (None, None);
        for sample in (0..here.len()).map(SampleId) {
            let key = here.key(sample);
            let partner = by_key.remove(&xxh3_128(key.as_bytes()));
            match partner {
                None => lacking.push(sample),
                Some(partner) if last.is_some_and(|last| partner < last) => stray = stray.or(Some(key)),
                Some(partner) => last = Some(partner),
            }
            found.push(partner);
        }
        // A key twice in the first dataset would find its partner once.
        keys(here).map_err(|error| error.while_doing(doing()))?;
        if let Some(key) = stray {
            let why = format!("{}: samples lie in another order there, `{key}` first", doing());
            if !options.any_order {
                return Err(Error::invalid_config(why).with_hint(
                    "sort both by key with `forebay reshard`, or allow any order and many small reads",
                ));
            }
            notes.push(why);
        }
        let mut alone: Vec<u64> = by_key.into_values().collect();
        alone.sort_unstable();
        let lacking = Lacking::new(here, lacking.iter().map(|sample| sample.0));
        let alone = Lacking::new(there, alone.into_iter());
        if options.missing == MissingPartner::Refuse && lacking.count + alone.count > 0 {
            let (of, at, what) =
                if lacking.count > 0 { (first, other, &lacking) } else { (other, first, &alone) };
            let message = format!(
                "{}: {} samples of `{}` are not in `{}`: {}",
                doing(),
                what.count,
                of.url(),
                at.url(),
                what.named
            );
            return Err(
                Error::invalid_config(message).with_hint("set missing to `skip` or `keep` to go on without")
            );
        }
        if lacking.count > 0 {
            let done =
                if options.missing == MissingPartner::Skip { "left out" } else { "kept without its fields" };
            notes.push(format!("{} samples are not in `{}`: {done}", lacking.count, other.url()));
        }
        if alone.count > 0 {
            notes.push(format!("{} samples of `{}` have no partner: left out", alone.count, other.url()));
        }
        Ok(Self(found))
    }
}

/// Samples without a partner.
struct Lacking {
    count: usize,
    named: String,
}

impl Lacking {
    fn new(manifest: &Manifest, samples: impl ExactSizeIterator<Item = u64>) -> Self {
        let count = samples.len();
        let named = samples.take(NAMED).map(|sample| format!("`{}`", manifest.key(SampleId(sample))));
        Self { count, named: named.collect::<Vec<_>>().join(", ") }
    }
}

/// Samples by the hash of their key: 128 bits, so that two keys never share one by chance.
fn keys(manifest: &Manifest) -> Result<HashMap<u128, u64>> {
    let mut keys = HashMap::with_capacity(manifest.len() as usize);
    for sample in 0..manifest.len() {
        let key = manifest.key(SampleId(sample));
        if keys.insert(xxh3_128(key.as_bytes()), sample).is_some() {
            return Err(Error::invalid_config(format!("two samples have the key `{key}`")));
        }
    }
    Ok(keys)
}

fn build(
    parts: &[Dataset],
    partners: &[Partners],
    options: JoinOptions,
    meta: serde_json::Value,
    notes: &mut Vec<String>,
) -> Result<Vec<u8>> {
    let mut builder = ManifestBuilder::new(Vec::new(), meta);
    // Objects of the others come first: samples belong to the object added last before them.
    let mut first_objects = vec![0; parts.len()];
    for (number, part) in parts.iter().enumerate().skip(1) {
        for object in 0..part.manifest().object_count() {
            let added = add_object(&mut builder, number, part.manifest(), object)?;
            if object == 0 {
                first_objects[number] = added;
            }
        }
    }
    let mut known: Vec<String> = Vec::new();
    let mut fields: Vec<Vec<(usize, usize, FieldKind)>> = Vec::new();
    for part in parts {
        let (mut own, mut twice) = (Vec::new(), Vec::new());
        for (at, field) in part.manifest().fields().iter().enumerate() {
            if known.contains(&field.name) {
                twice.push(format!("`{}`", field.name));
                continue;
            }
            own.push((at, builder.field(&field.name, field.kind)?, field.kind));
        }
        known.extend(own.iter().map(|(at, _, _)| part.manifest().fields()[*at].name.clone()));
        if !twice.is_empty() {
            notes.push(format!(
                "fields {} of `{}` are taken from a dataset before it",
                twice.join(", "),
                part.url()
            ));
        }
        fields.push(own);
    }
    let main = parts[0].manifest();
    for object in 0..main.object_count() {
        let added = add_object(&mut builder, 0, main, object)?;
        if object == 0 {
            first_objects[0] = added;
        }
        for sample in main.samples_of(object) {
            let partner =
                |part: usize| if part == 0 { Some(sample) } else { partners[part - 1].0[sample as usize] };
            let lacks = (0..parts.len()).any(|part| partner(part).is_none());
            if lacks && options.missing == MissingPartner::Skip {
                continue;
            }
            let mut values = Vec::new();
            for (part, own) in fields.iter().enumerate() {
                let Some(sample) = partner(part).map(SampleId) else { continue };
                let manifest = parts[part].manifest();
                for (field, target, kind) in own {
                    let value = match kind {
                        FieldKind::Int => manifest.int(sample, *field).map(Value::Int),
                        FieldKind::Payload => manifest.location(sample, *field).map(|at| Value::Payload {
                            object: first_objects[part].checked_add(at.object),
                            offset: at.offset,
                            length: at.length,
                        }),
                    };
                    values.extend(value.map(|value| (*target, value)));
                }
            }
            builder.add_sample(&main.key(SampleId(sample)), &values)?;
        }
    }
    if builder.is_empty() {
        return Err(Error::not_found("join datasets: no sample is in all of them"));
    }
    builder.finish()
}

fn add_object(builder: &mut ManifestBuilder, number: usize, part: &Manifest, object: u32) -> Result<u32> {
    let info = part.object(object);
    builder.add_object(&format!("{number}/{}", info.key), info.size, info.stamp)
}
