//! Rows of a table into a manifest: one row, one sample, found by its id.
//!
//! The data column is a payload field, called `data` unless the metadata table or the option `data_field` names it
//! (`jpg`). An integer label is the field `cls`; a label that is a blob is a second payload, `label_field`. Sizes come
//! from the columns `size` and `label_size`, which `forebay ingest` writes into the metadata table; for a table without
//! them every row is read once while it is indexed, several at a time, which takes as long as an epoch does.
//!
//! A row may be written again after it was indexed. [`RowStore`] reads rows for the loader and compares their lengths
//! with the manifest, so that such a row is an error of kind `stale` and never a payload cut short.

use super::dataset::Dataset;
use super::inventory::Inventory;
use super::kept::{self, Kept};
use super::options::{OpenOptions, Progress, SourceKind};
use super::reading;
use super::records::Described;
use bytes::Bytes;
use forebay_core::manifest::{FieldKind, Manifest, ManifestBuilder, Value};
use forebay_core::{Error, ErrorKind, Facts, Result, SampleId};
use forebay_store::cassandra::{CassandraStore, LabelType, Row, RowInfo};
use forebay_store::{ByteRange, ObjectMeta, Store, StoreOptions};
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{self, BoxStream, StreamExt};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3;

/// The field of an integer label.
const CLASS_FIELD: &str = "cls";

/// Rows between two reports of progress.
const REPORTED: u64 = 64;

/// What the fields of a table's samples are called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FieldNames {
    /// `None` follows the metadata table.
    data: Option<String>,
    label: String,
}

impl FieldNames {
    /// Takes the words `data_field` and `label_field` out of what was said about the store.
    pub(super) fn take(options: &mut StoreOptions) -> Self {
        let data = options.remove("data_field").filter(|name| !name.is_empty());
        let label = options.remove("label_field").filter(|name| !name.is_empty());
        Self { data, label: label.unwrap_or_else(|| "label".into()) }
    }
}

/// A table before it is indexed.
pub(super) struct Found {
    rows: Vec<RowInfo>,
    label: LabelType,
    /// To be compared with a kept manifest. Rows whose size is not noted have size 0 there.
    pub(super) inventory: Inventory,
}

/// Finds the rows of a table.
pub(super) async fn take(store: &CassandraStore, options: &OpenOptions) -> Result<Found> {
    let label = store.label_type().await?;
    let progress = options.progress.clone();
    let found = move |rows| progress.iter().for_each(|report| report(Progress::listing(rows)));
    let rows = store.scan_telling(Arc::new(found)).await?;
    if rows.is_empty() {
        return Err(Error::not_found(format!("open dataset `{}`: the table has no rows", store.url(""))));
    }
    let object = |row: &RowInfo| {
        let size = row.size.unwrap_or_default().saturating_add(row.label_size.unwrap_or_default());
        ObjectMeta { key: row.id.clone(), size, stamp: row.stamp }
    };
    // A label may change while the payload stays.
    let mut labels = Xxh3::new();
    for row in &rows {
        labels.update(format!("{:?}{:?}{:?}\0", row.label, row.label_name, row.field).as_bytes());
    }
    let inventory = Inventory {
        kind: SourceKind::Rows,
        prefix: String::new(),
        objects: rows.iter().map(object).collect(),
        others: vec![format!("labels {:032x}", labels.digest128())],
        labels: None,
        described: Described::default(),
        tokens: None,
    };
    Ok(Found { rows, label, inventory })
}

/// The manifest of a table, and what the user should know about it.
pub(super) async fn build(
    store: &CassandraStore,
    found: &Found,
    names: &FieldNames,
    options: &OpenOptions,
    mut meta: serde_json::Value,
    notes: &mut Vec<String>,
) -> Result<Vec<u8>> {
    if let (Some(meta), Some(classes)) = (meta.as_object_mut(), class_names(&found.rows)) {
        meta.insert("class_names".into(), serde_json::json!(classes));
    }
    let mut builder = ManifestBuilder::new(Vec::new(), meta);
    let mut progress = Progress { objects_total: found.rows.len() as u64, ..Progress::default() };
    options.report(progress);
    let (mut read, mut gone) = (0u64, 0u64);
    let sized =
        stream::iter(&found.rows).map(|row| async move { (row, sizes(store, row, found.label).await) });
    let mut sized = sized.buffered(options.parallel.max(1));
    while let Some((row, sizes)) = sized.next().await {
        progress.objects_done += 1;
        if let Some(Sizes { data, label, was_read }) = sizes? {
            builder.add_object(&row.id, data.saturating_add(label.unwrap_or_default()), row.stamp)?;
            let name = names.data.as_deref().or(row.field.as_deref()).unwrap_or("data");
            let field = builder.field(name, FieldKind::Payload)?;
            let mut values = vec![(field, Value::Payload { object: None, offset: 0, length: data })];
            if let Some(length) = label {
                let field = builder.field(&names.label, FieldKind::Payload)?;
                values.push((field, Value::Payload { object: None, offset: data, length }));
            }
            if let Some(label) = row.label.filter(|_| found.label == LabelType::Int) {
                values.push((builder.field(CLASS_FIELD, FieldKind::Int)?, Value::Int(label)));
            }
            builder.add_sample(&row.id, &values)?;
            progress.samples += 1;
            progress.bytes += data + label.unwrap_or_default();
            read += u64::from(was_read);
        } else {
            gone += 1;
        }
        if progress.objects_done.is_multiple_of(REPORTED) || progress.objects_done == progress.objects_total {
            options.report(progress);
        }
    }
    if read > 0 {
        notes.push(format!("{read} rows were read to learn their sizes: no column `size` holds them"));
    }
    if gone > 0 {
        notes.push(format!("{gone} rows of the metadata table have no data and are left out"));
    }
    builder.finish()
}

struct Sizes {
    data: u64,
    label: Option<u64>,
    was_read: bool,
}

/// The sizes noted for a row, or those that reading it shows; `None` when it has no data.
async fn sizes(store: &CassandraStore, row: &RowInfo, label: LabelType) -> Result<Option<Sizes>> {
    match (row.size, row.label_size) {
        (Some(data), _) if label != LabelType::Blob => {
            return Ok(Some(Sizes { data, label: None, was_read: false }));
        }
        (Some(data), Some(_)) => return Ok(Some(Sizes { data, label: row.label_size, was_read: false })),
        _ => {}
    }
    match store.row(&row.id).await {
        Ok(Row { data, label }) => {
            let label = label.map(|label| label.len() as u64);
            Ok(Some(Sizes { data: data.len() as u64, label, was_read: true }))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The names of the classes by number, when the numbers are 0, 1, 2 and so on and each has one name.
fn class_names(rows: &[RowInfo]) -> Option<Vec<String>> {
    let mut names: BTreeMap<i64, &str> = BTreeMap::new();
    for row in rows {
        let (label, name) = (row.label?, row.label_name.as_deref()?);
        if *names.entry(label).or_insert(name) != name {
            return None;
        }
    }
    let dense = names.keys().zip(0..).all(|(label, number)| *label == number);
    dense.then(|| names.into_values().map(String::from).collect())
}

/// Opens a table as a dataset: `cassandra://host[:port][,host]/keyspace/table`. `words` are the store's options, and
/// `data_field` and `label_field`, which name the fields. The manifest is kept between runs as for any dataset.
pub async fn open_rows(url: &str, words: &StoreOptions, options: &OpenOptions) -> Result<Dataset> {
    let mut words = words.clone();
    let names = FieldNames::take(&mut words);
    let store = CassandraStore::open(url.trim_end_matches('/'), &words)?;
    if let Some(kind) = options.kind.filter(|kind| *kind != SourceKind::Rows) {
        let message = format!("open dataset `{url}` as `{}`: it names a table", kind.name());
        return Err(Error::invalid_config(message));
    }
    let found = take(&store, options).await?;
    let mut notes = Vec::new();
    let folder = options.manifest_dir.clone().or_else(|| kept::default_folder(options));
    let shape = ["id_column", "data_column", "label_column", "label_type", "metadata_table"];
    let shape: Vec<_> = shape.iter().map(|word| words.get(*word)).collect();
    let identity = [format!("{url} {names:?} {shape:?} {}", found.label.name())];
    let kept = folder.map(|folder| Kept::new(folder, &identity, options));
    let old = kept.as_ref().filter(|_| !options.rebuild).and_then(|kept| kept.load(&mut notes));
    let manifest = match old.map(|old| (kept::stale(&old, &found.inventory), old)) {
        Some((None, old)) => old,
        stale => {
            if let Some((Some(reason), _)) = stale {
                tracing::warn!(dataset = url, reason, "manifest is stale");
                notes.push(format!("manifest is stale and was built again: {reason}"));
            }
            let meta = serde_json::json!({
                "kind": SourceKind::Rows.name(),
                "spec": url,
                "root": url,
                "inventory": kept::fingerprint(&found.inventory),
            });
            let manifest = kept::open_built(build(&store, &found, &names, options, meta, &mut notes).await?)?;
            if let Some(kept) = &kept {
                kept.save(&manifest, &mut notes).await;
            }
            manifest
        }
    };
    let store: Arc<dyn Store> = Arc::new(RowStore::new(store, manifest.clone()));
    let store = reading::copied(&store, options.local.as_deref(), &manifest, &mut notes).await?;
    Dataset::with_notes(manifest, store, url.to_owned(), notes)
}

/// A table as its manifest knows it: rows of other lengths are stale.
#[derive(Debug)]
pub(super) struct RowStore {
    rows: CassandraStore,
    manifest: Manifest,
}

impl RowStore {
    pub(super) fn new(rows: CassandraStore, manifest: Manifest) -> Self {
        Self { rows, manifest }
    }

    async fn row(&self, key: &str) -> Result<Row> {
        let row = self.rows.row(key).await?;
        let lengths = [Some(row.data.len() as u64), row.label.as_ref().map(|label| label.len() as u64)];
        check(&self.manifest, key, lengths, &self.rows.url(key))?;
        Ok(row)
    }

    fn at(&self, error: Error, key: &str) -> Error {
        let object = self.rows.url(key);
        error
            .while_doing(format_args!("read `{object}`"))
            .with_facts(Facts { object: Some(object), ..Facts::default() })
    }
}

/// Compares the lengths of a row's data and label with those of the manifest. A row that the manifest does not know
/// is nobody's payload and passes.
fn check(manifest: &Manifest, key: &str, found: [Option<u64>; 2], url: &str) -> Result<()> {
    let Some(sample) = find(manifest, key) else { return Ok(()) };
    let mut known: Vec<_> =
        (0..manifest.fields().len()).filter_map(|field| manifest.location(sample, field)).collect();
    known.sort_by_key(|location| location.offset);
    let expected = [known.first().map(|at| at.length), known.get(1).map(|at| at.length)];
    if found == expected {
        return Ok(());
    }
    let text = |lengths: [Option<u64>; 2]| match lengths {
        [Some(data), Some(label)] => format!("{data} bytes and a label of {label}"),
        [data, _] => format!("{} bytes", data.unwrap_or_default()),
    };
    let message = format!("read `{url}`: the row has {}, it had {}", text(found), text(expected));
    Err(Error::stale(message)
        .with_hint("the row was written again after the dataset was opened; open the dataset again")
        .with_facts(Facts { object: Some(url.to_owned()), ..Facts::default() }))
}

/// The sample of a key, by bisection: rows lie in the manifest in the order of their ids.
fn find(manifest: &Manifest, key: &str) -> Option<SampleId> {
    let (mut low, mut high) = (0, manifest.object_count());
    while low < high {
        let middle = low + (high - low) / 2;
        match manifest.object(middle).key.as_ref().cmp(key) {
            std::cmp::Ordering::Less => low = middle + 1,
            std::cmp::Ordering::Greater => high = middle,
            std::cmp::Ordering::Equal => return manifest.samples_of(middle).next().map(SampleId),
        }
    }
    None
}

impl Store for RowStore {
    fn url(&self, key: &str) -> String {
        self.rows.url(key)
    }

    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta>> {
        self.rows.head(key)
    }

    fn read<'a>(&'a self, key: &'a str, range: ByteRange) -> BoxFuture<'a, Result<Bytes>> {
        async move {
            let row = self.row(key).await?;
            let range = range.resolve(row.len()).map_err(|error| self.at(error, key))?;
            Ok(row.slice(&range))
        }
        .boxed()
    }

    fn read_parts<'a>(&'a self, key: &'a str, parts: &'a [Range<u64>]) -> BoxFuture<'a, Result<Vec<Bytes>>> {
        async move {
            let row = self.row(key).await?;
            forebay_store::range::check_parts(parts, row.len()).map_err(|error| self.at(error, key))?;
            Ok(parts.iter().map(|part| row.slice(part)).collect())
        }
        .boxed()
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<ObjectMeta>> {
        self.rows.list(prefix)
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn runtime(&self) -> Option<tokio::runtime::Handle> {
        self.rows.runtime()
    }

    fn write<'a>(&'a self, key: &'a str, bytes: Bytes) -> BoxFuture<'a, Result<()>> {
        self.rows.write(key, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(rows: &[(&str, u64, Option<u64>)]) -> Manifest {
        let mut builder = ManifestBuilder::new(Vec::new(), serde_json::json!({"kind": "rows"}));
        for (id, data, label) in rows {
            builder.add_object(id, data + label.unwrap_or_default(), 1).unwrap();
            let field = builder.field("jpg", FieldKind::Payload).unwrap();
            let mut values = vec![(field, Value::Payload { object: None, offset: 0, length: *data })];
            if let Some(length) = *label {
                let field = builder.field("label", FieldKind::Payload).unwrap();
                values.push((field, Value::Payload { object: None, offset: *data, length }));
            }
            builder.add_sample(id, &values).unwrap();
        }
        Manifest::open(builder.finish().unwrap()).unwrap()
    }

    #[test]
    fn p010_a_row_of_another_length_is_stale_even_when_the_sum_is_the_same() {
        let manifest = manifest(&[("a", 10, Some(5)), ("b", 7, Some(0)), ("c", 0, Some(3))]);
        let check =
            |key, data, label| check(&manifest, key, [Some(data), Some(label)], "u").map_err(|e| e.kind());
        assert_eq!(check("a", 10, 5), Ok(()));
        assert_eq!((check("b", 7, 0), check("c", 0, 3), check("unknown", 1, 1)), (Ok(()), Ok(()), Ok(())));
        for (data, label) in [(9, 6), (11, 4), (10, 6), (11, 5), (15, 0)] {
            assert_eq!(check("a", data, label), Err(ErrorKind::Stale), "{data} {label}");
        }
    }

    #[test]
    fn every_id_is_found_by_bisection() {
        let ids: Vec<String> = (0..100).map(|number| format!("{:03}", number * 2)).collect();
        let rows: Vec<_> = ids.iter().map(|id| (id.as_str(), 1, None)).collect();
        let manifest = manifest(&rows);
        for (number, id) in (0..).zip(&ids) {
            assert_eq!(find(&manifest, id), Some(SampleId(number)));
        }
        assert_eq!((find(&manifest, ""), find(&manifest, "003"), find(&manifest, "x")), (None, None, None));
    }

    #[test]
    fn class_names_need_one_name_for_each_number_from_0_on() {
        let row = |label, name: &str| RowInfo {
            label: Some(label),
            label_name: Some(name.into()),
            ..RowInfo::default()
        };
        assert_eq!(class_names(&[row(1, "b"), row(0, "a"), row(1, "b")]), Some(vec!["a".into(), "b".into()]));
        assert_eq!(class_names(&[row(1, "b"), row(2, "a")]), None);
        assert_eq!(class_names(&[row(0, "b"), row(0, "a")]), None);
    }
}
