//! Several datasets as one: their manifests one after the other, over a store that finds the right store for a key.
//!
//! Objects of part `n` have its number before their key, `n/key`; samples keep their keys. Which part comes how often
//! is the plan's concern (`forebay_core::plan::mix`); here the parts only get their runs of sample ids. The payloads
//! stay where they are.

use super::dataset::Dataset;
use super::origin::DataSpec;
use super::records::merge;
use bytes::Bytes;
use forebay_core::manifest::{FieldKind, Manifest, ManifestBuilder, Value};
use forebay_core::plan::mix::{MixPart, check_parts};
use forebay_core::{Error, Result, SampleId};
use forebay_ops::record::{META_KEY, RecordSpec, specs};
use forebay_store::{ByteRange, ObjectMeta, Store};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, TryFutureExt, TryStreamExt};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Names of datasets that the name of a mix lists.
const NAMED_PARTS: usize = 4;

/// One dataset out of several, each with its weight. A loader mixes them when its `mix` is [`Dataset::mix`].
///
/// The mix has the fields of all parts. A part that is a mix itself is taken apart, its weight shared out among its
/// own parts. Cost: one pass over all manifests.
pub fn mix(parts: &[(Dataset, f64)]) -> Result<Dataset> {
    let runs = runs(parts);
    let counts = parts.iter().map(|(dataset, _)| dataset.mix().map_or(1, <[_]>::len)).collect();
    check_parts(&runs)?;
    let described = parts.iter().map(|(dataset, weight)| {
        serde_json::json!({
            "url": dataset.url(),
            "version": dataset.manifest().version(),
            "samples": dataset.manifest().len(),
            "weight": weight,
        })
    });
    let mut meta = serde_json::json!({ "kind": "mix", "parts": described.collect::<Vec<_>>() });
    let mut notes = Vec::new();
    match common_class_names(parts) {
        Some(names) => meta["class_names"] = serde_json::json!(names),
        None if parts.iter().any(|(dataset, _)| dataset.class_names().is_some()) => {
            notes.push(
                "the mixed datasets number their classes differently: labels are kept as they are".into(),
            );
        }
        None => {}
    }
    let records = common_records(parts)?;
    if !records.is_empty() {
        meta[META_KEY] = serde_json::json!(records);
    }
    let mut builder = ManifestBuilder::new(Vec::new(), meta);
    for (number, (dataset, _)) in parts.iter().enumerate() {
        append(&mut builder, number, dataset.manifest()).map_err(|error| {
            error.while_doing(format_args!("mix dataset `{}` with others", dataset.url()))
        })?;
    }
    let manifest = Manifest::open(builder.finish()?)?;
    let stores = parts.iter().map(|(dataset, _)| Arc::clone(dataset.store())).collect();
    let dataset = Dataset::of_parts(
        manifest,
        Arc::new(MixStore { stores }),
        name("mix", parts),
        notes,
        (runs, counts),
    )?;
    let origins = parts.iter().map(|(dataset, weight)| Some((dataset.origin()?.clone(), *weight)));
    Ok(match origins.collect::<Option<Vec<_>>>() {
        Some(origins) => dataset.with_origin(DataSpec::of_parts(origins)),
        None => dataset,
    })
}

/// The runs of sample ids in the mix and their weights.
fn runs(parts: &[(Dataset, f64)]) -> Vec<MixPart> {
    let mut runs = Vec::new();
    let mut start = 0;
    for (dataset, weight) in parts {
        let len = dataset.manifest().len();
        match dataset.mix() {
            None => runs.push(MixPart { samples: start..start + len, weight: *weight }),
            Some(inner) => {
                let total: f64 = inner.iter().map(|part| part.weight).sum();
                runs.extend(inner.iter().map(|part| MixPart {
                    samples: start + part.samples.start..start + part.samples.end,
                    weight: weight * (part.weight / total),
                }));
            }
        }
        start += len;
    }
    runs
}

/// Class names, when all parts agree on them: otherwise number 3 would mean one thing here and another there.
fn common_class_names(parts: &[(Dataset, f64)]) -> Option<&[String]> {
    let (first, _) = parts.first()?;
    let names = first.class_names()?;
    parts.iter().all(|(dataset, _)| dataset.class_names() == Some(names)).then_some(names)
}

/// How the records of all parts are framed. One name means one way, and the fields of all.
pub(super) fn common_records(parts: &[(Dataset, f64)]) -> Result<BTreeMap<String, RecordSpec>> {
    let mut common = BTreeMap::new();
    for (dataset, _) in parts {
        for (field, spec) in specs(dataset.manifest().meta())? {
            merge(&mut common, field, spec)?;
        }
    }
    Ok(common)
}

/// What several datasets together are called.
pub(super) fn name(how: &str, parts: &[(Dataset, f64)]) -> String {
    let mut names: Vec<String> =
        parts.iter().take(NAMED_PARTS).map(|(dataset, _)| dataset.url().into()).collect();
    if parts.len() > NAMED_PARTS {
        names.push(format!("{} more", parts.len() - NAMED_PARTS));
    }
    format!("{how}({})", names.join(", "))
}

/// Adds all objects and samples of a part.
fn append(builder: &mut ManifestBuilder, number: usize, part: &Manifest) -> Result<()> {
    let fields: Vec<(usize, FieldKind)> = part
        .fields()
        .iter()
        .map(|field| Ok((builder.field(&field.name, field.kind)?, field.kind)))
        .collect::<Result<_>>()?;
    let samples_before = builder.len();
    let mut first_object = None;
    let mut values = Vec::with_capacity(fields.len());
    for object in 0..part.object_count() {
        let info = part.object(object);
        let added = builder.add_object(&format!("{number}/{}", info.key), info.size, info.stamp)?;
        let first_object = *first_object.get_or_insert(added);
        for sample in part.samples_of(object).map(SampleId) {
            values.clear();
            for (field, (target, kind)) in fields.iter().enumerate() {
                let value = match kind {
                    FieldKind::Int => part.int(sample, field).map(Value::Int),
                    FieldKind::Payload => part.location(sample, field).map(|at| Value::Payload {
                        object: first_object.checked_add(at.object),
                        offset: at.offset,
                        length: at.length,
                    }),
                };
                values.extend(value.map(|value| (*target, value)));
            }
            builder.add_sample(&part.key(sample), &values)?;
        }
    }
    // The runs were laid out by the parts' own counts.
    let added = builder.len() - samples_before;
    if added != part.len() {
        let why = format!("its manifest has {} samples, and its objects {added}", part.len());
        return Err(Error::corrupt(why));
    }
    Ok(())
}

/// Finds the part's store by the number before the key.
#[derive(Debug)]
pub(super) struct MixStore {
    pub(super) stores: Vec<Arc<dyn Store>>,
}

impl MixStore {
    /// The part's number, its store and the key in it. `None` for keys without a number, or with a second spelling
    /// of one: an object has one key.
    fn route<'a>(&self, key: &'a str) -> Option<(usize, &Arc<dyn Store>, &'a str)> {
        let (number, rest) = key.split_once('/')?;
        let part: usize = number.parse().ok().filter(|part: &usize| part.to_string() == number)?;
        Some((part, self.stores.get(part)?, rest))
    }

    fn found<'a>(&self, key: &'a str) -> Result<(usize, &Arc<dyn Store>, &'a str)> {
        self.route(key).ok_or_else(|| Error::not_found(format!("read `{}`: no such object", self.url(key))))
    }
}

impl Store for MixStore {
    fn url(&self, key: &str) -> String {
        self.route(key).map_or_else(|| format!("mix://{key}"), |(_, store, key)| store.url(key))
    }

    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta>> {
        match self.found(key) {
            Ok((part, store, key)) => store.head(key).map_ok(move |meta| numbered(part, meta)).boxed(),
            Err(error) => async { Err(error) }.boxed(),
        }
    }

    fn read<'a>(&'a self, key: &'a str, range: ByteRange) -> BoxFuture<'a, Result<Bytes>> {
        match self.found(key) {
            Ok((_, store, key)) => store.read(key, range),
            Err(error) => async { Err(error) }.boxed(),
        }
    }

    fn read_parts<'a>(&'a self, key: &'a str, parts: &'a [Range<u64>]) -> BoxFuture<'a, Result<Vec<Bytes>>> {
        match self.found(key) {
            Ok((_, store, key)) => store.read_parts(key, parts),
            Err(error) => async { Err(error) }.boxed(),
        }
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<ObjectMeta>> {
        if prefix.contains('/') {
            return match self.route(prefix) {
                Some((part, store, rest)) => {
                    store.list(rest).map_ok(move |meta| numbered(part, meta)).boxed()
                }
                None => futures::stream::empty().boxed(),
            };
        }
        let mut parts: Vec<(String, usize)> =
            (0..self.stores.len()).map(|part| (format!("{part}/"), part)).collect();
        parts.retain(|(name, _)| name.starts_with(prefix));
        // As text: `10/` comes before `2/`, as in every listing.
        parts.sort_unstable();
        futures::stream::iter(parts)
            .flat_map(|(_, part)| self.stores[part].list("").map_ok(move |meta| numbered(part, meta)))
            .boxed()
    }

    fn is_remote(&self) -> bool {
        self.stores.iter().any(|store| store.is_remote())
    }

    fn runtime(&self) -> Option<tokio::runtime::Handle> {
        self.stores.iter().find_map(|store| store.runtime())
    }

    fn write<'a>(&'a self, key: &'a str, _bytes: Bytes) -> BoxFuture<'a, Result<()>> {
        let url = self.url(key);
        async move { Err(Error::unsupported(format!("write `{url}`: a mix of datasets is only read"))) }
            .boxed()
    }
}

fn numbered(part: usize, mut meta: ObjectMeta) -> ObjectMeta {
    meta.key.insert_str(0, &format!("{part}/"));
    meta
}
