//! Objects that frame records into a manifest: many indexed at once, added in the order of the spec.
//!
//! An indexer looks at heads, or at an index of the format's own, and says where each record lies; payloads are stepped
//! over where the format allows it. Taking fields out of a record is not here: `forebay_ops::record`.

mod described;
mod jsonl;
mod litdata;
mod mds;
mod offsets;
mod recordio;
mod tfrecord;
mod tokens;
mod zip;

pub(super) use described::Described;
pub(super) use tokens::with_indexes;
pub use tokens::{TokenDocuments, TokenOptions, TokenTail};

use super::inventory::Inventory;
use super::locate::shard_name;
use super::options::{OpenOptions, Progress, SourceKind};
use super::shards;
use crate::shard::GroupedSample;
use forebay_core::manifest::{FieldKind, ManifestBuilder, Value};
use forebay_core::{Error, Facts, Result};
use forebay_ops::record::{META_KEY, RecordSpec};
use forebay_store::{ObjectMeta, Store};
use futures::{StreamExt, TryStreamExt, stream};
use std::collections::BTreeMap;
use std::ops::Range;

/// Records of each object that are looked into for the names of fields.
const LOOKED_INTO: usize = 64;

/// Records longer than this are not looked into.
const LOOKED_INTO_BYTES: u64 = 64 << 20;

/// What one object holds.
#[derive(Debug)]
pub(super) struct Indexed {
    /// As the reading store sees it.
    pub(super) object: ObjectMeta,
    pub(super) samples: Samples,
    /// How the fields are framed, by their name in the manifest.
    pub(super) specs: BTreeMap<String, RecordSpec>,
}

/// The samples of one object.
#[derive(Debug)]
pub(super) enum Samples {
    /// One record each, known by its number.
    Numbered(String, Vec<Range<u64>>),
    /// Several fields each, with a key.
    Grouped(Vec<GroupedSample>),
}

impl Indexed {
    /// Every record: its field, and where it lies.
    pub(super) fn records(&self) -> Vec<(&str, Range<u64>)> {
        match &self.samples {
            Samples::Numbered(field, places) => {
                places.iter().map(|place| (field.as_str(), place.clone())).collect()
            }
            Samples::Grouped(samples) => {
                let fields = samples.iter().flat_map(|sample| &sample.fields);
                fields.map(|field| (field.name.as_str(), field.offset..field.offset + field.length)).collect()
            }
        }
    }

    pub(super) fn count(&self) -> u64 {
        match &self.samples {
            Samples::Numbered(_, places) => places.len() as u64,
            Samples::Grouped(samples) => samples.len() as u64,
        }
    }
}

/// Indexes every object of the inventory.
pub(super) async fn build(
    store: &dyn Store,
    inventory: &Inventory,
    options: &OpenOptions,
    mut meta: serde_json::Value,
) -> Result<Vec<u8>> {
    let mut progress = Progress { objects_total: inventory.objects.len() as u64, ..Progress::default() };
    options.report(progress);
    let found = stream::iter(&inventory.objects).map(|object| index(store, inventory, object));
    let mut found = found.buffered(options.parallel.max(1));
    let (mut objects, mut specs) = (Vec::with_capacity(inventory.objects.len()), BTreeMap::new());
    while let Some(mut indexed) = found.try_next().await? {
        for (field, spec) in std::mem::take(&mut indexed.specs) {
            merge(&mut specs, field, spec)?;
        }
        progress.samples += indexed.count();
        progress.bytes += indexed.records().iter().map(|(_, range)| range.end - range.start).sum::<u64>();
        progress.objects_done += 1;
        options.report(progress);
        objects.push(indexed);
    }
    if progress.samples == 0 {
        let (count, kind) = (inventory.objects.len(), inventory.kind.name());
        return Err(Error::not_found(format!("index {count} objects as `{kind}`: they hold no sample")));
    }
    meta[META_KEY] = serde_json::to_value(specs)
        .map_err(|cause| Error::internal("describe records in a manifest").with_source(cause))?;
    let mut builder = ManifestBuilder::new(Vec::new(), meta);
    for indexed in &objects {
        add(&mut builder, indexed)?;
    }
    builder.finish()
}

/// What one object holds.
pub(super) async fn index(store: &dyn Store, inventory: &Inventory, object: &ObjectMeta) -> Result<Indexed> {
    if inventory.kind == SourceKind::Mds {
        mds::refuse_compression(store, &object.key)?;
    }
    let object = shards::expanded(store, object).await?;
    match inventory.kind {
        SourceKind::Tfrecord => tfrecord::index(store, object).await,
        SourceKind::Jsonl => jsonl::index(store, object).await,
        SourceKind::Zip => zip::index(store, object).await,
        SourceKind::Recordio => recordio::index(store, object).await,
        SourceKind::Mds => mds::index(store, object, &inventory.described).await,
        SourceKind::Tokens => tokens::index(store, object, inventory).await,
        SourceKind::Litdata => litdata::index(store, object, &inventory.described).await,
        other => Err(Error::internal(format!("index an object as `{}`", other.name()))),
    }
}

/// Adds an object and its samples.
fn add(builder: &mut ManifestBuilder, indexed: &Indexed) -> Result<()> {
    let object = &indexed.object;
    builder.add_object(&object.key, object.size, object.stamp)?;
    let payload = |range: &Range<u64>| {
        let (offset, length) = (range.start, range.end - range.start);
        Value::Payload { object: None, offset, length }
    };
    match &indexed.samples {
        Samples::Numbered(field, places) if !places.is_empty() => {
            let (field, stem) = (builder.field(field, FieldKind::Payload)?, key_stem(&object.key));
            for (number, place) in places.iter().enumerate() {
                builder.add_sample(&format!("{stem}/{number:08}"), &[(field, payload(place))])?;
            }
        }
        Samples::Numbered(..) => {}
        Samples::Grouped(samples) => {
            for sample in samples {
                shards::add(builder, sample)?;
            }
        }
    }
    Ok(())
}

/// Names found in several objects are all offered; what frames them must agree.
pub(super) fn merge(
    specs: &mut BTreeMap<String, RecordSpec>,
    field: String,
    found: RecordSpec,
) -> Result<()> {
    let Some(known) = specs.get_mut(&field) else {
        specs.insert(field, found);
        return Ok(());
    };
    if known.format == found.format && known.columns != found.columns {
        let message = format!("index records of `{field}`: objects differ in their columns");
        return Err(Error::unsupported(message).with_hint("open them as datasets of their own and mix those"));
    }
    if known.format == found.format {
        let new = found.fields.into_iter().filter(|name| !known.fields.contains(name)).collect::<Vec<_>>();
        known.fields.extend(new);
        known.fields.sort_unstable();
        return Ok(());
    }
    Err(Error::unsupported(format!("index records of `{field}`: one name stands for two formats"))
        .with_hint("open them as datasets of their own and mix those"))
}

/// What samples without a name of their own are called after: the object's key without what tells its format.
pub(super) fn key_stem(key: &str) -> &str {
    let name = key.rfind('/').map_or(0, |slash| slash + 1);
    let mut end = key.len();
    let chunk = (shard_name(key) == Some(SourceKind::Litdata)).then_some(".bin");
    let known = [
        ".gz",
        ".zst",
        ".zstd",
        ".mds",
        ".tfrecord",
        ".tfrecords",
        ".tfrec",
        ".jsonl",
        ".ndjson",
        ".csv",
        ".tsv",
        ".rec",
        ".parquet",
    ];
    for ending in known.into_iter().chain(chunk) {
        let stem = &key[name..end];
        if stem.len() > ending.len() && stem.to_ascii_lowercase().ends_with(ending) {
            end -= ending.len();
        }
    }
    &key[..end]
}

/// A fault of an object, with its place.
pub(super) fn fault(store: &dyn Store, key: &str, offset: u64, error: Error) -> Error {
    let url = store.url(key);
    let facts = Facts { object: Some(url.clone()), offset: Some(offset), ..Facts::default() };
    error.while_doing(format_args!("read shard `{url}` at byte {offset}")).with_facts(facts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_named_after_their_object() {
        for (key, wanted) in [
            ("a/train-00000-of-00010", "a/train-00000-of-00010"),
            ("a/x.tfrecord.gz", "a/x"),
            ("x.tfrecords", "x"),
            ("a.b/x.jsonl", "a.b/x"),
            (".jsonl", ".jsonl"),
            ("d/shard.00000.mds.zstd", "d/shard.00000"),
            ("chunk-0-3.bin", "chunk-0-3"),
            ("x.bin", "x.bin"),
            ("mnist.tfrecord-00000-of-00001", "mnist.tfrecord-00000-of-00001"),
        ] {
            assert_eq!(key_stem(key), wanted);
        }
    }
}
