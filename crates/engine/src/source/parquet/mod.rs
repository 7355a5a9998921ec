//! Parquet files into a manifest: row groups as objects, rows as samples, columns as fields.
//!
//! Values lie in *runs*: a few megabytes of neighbouring pages of one column, which are objects of their own in the
//! manifest. A location is a place among the values of a run, so a column that nobody asks for is never read, and a single
//! row costs one run and not its row group. Integers stand in the manifest itself. [`index`] finds all that, the store
//! that is read through is in [`store`], what runs are called in [`place`].

mod index;
mod place;
mod store;

pub(super) use index::{FileIndex, index};
pub(super) use place::stored;

use super::inventory::Inventory;
use super::options::{OpenOptions, Progress};
use super::records::{key_stem, merge};
use forebay_core::manifest::{FieldKind, Manifest, ManifestBuilder, Value};
use forebay_core::{Error, Result};
use forebay_ops::record::parquet::{ENDING, Leaf};
use forebay_ops::record::{Column, Format, RecordSpec};
use forebay_store::Store;
use futures::{StreamExt, TryStreamExt, stream};
use index::{ColumnIndex, Run};
use place::{Place, group_key};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Key of the manifest's meta under which the columns stand that keys of runs name by number.
pub(super) const META_KEY: &str = "parquet";

/// Most different columns of a dataset.
const MAX_LEAVES: usize = 1 << 14;

/// The store through which a dataset is read.
pub(super) fn reading_store(manifest: &Manifest, store: &Arc<dyn Store>) -> Result<Arc<dyn Store>> {
    let told = manifest.meta().get(META_KEY).cloned().unwrap_or_default();
    let leaves: Vec<Leaf> = serde_json::from_value(told).map_err(|cause| {
        Error::unsupported("read a manifest: it describes columns in a way that this release does not know")
            .with_source(cause)
    })?;
    Ok(Arc::new(store::ParquetStore::new(Arc::clone(store), leaves)))
}

/// Indexes every file of the inventory.
pub(super) async fn build(
    store: &dyn Store,
    inventory: &Inventory,
    options: &OpenOptions,
    mut meta: serde_json::Value,
    notes: &mut Vec<String>,
) -> Result<Vec<u8>> {
    let mut progress = Progress { objects_total: inventory.objects.len() as u64, ..Progress::default() };
    options.report(progress);
    let found = stream::iter(&inventory.objects).map(|object| index(store, object.clone()));
    let mut found = found.buffered(options.parallel.max(1));
    let (mut files, mut columns) = (Vec::new(), Columns::default());
    while let Some(file) = found.try_next().await? {
        columns.add(&file)?;
        progress.samples += file.rows();
        progress.bytes += file.object.size;
        progress.objects_done += 1;
        options.report(progress);
        files.push(file);
    }
    if progress.samples == 0 {
        let count = inventory.objects.len();
        return Err(Error::not_found(format!("index {count} objects as `parquet`: they hold no row")));
    }
    columns.describe(&mut meta)?;
    notes.extend(columns.refused.iter().map(|(name, why)| format!("column `{name}` is left out: {why}")));
    let mut builder = ManifestBuilder::new(Vec::new(), meta);
    for name in columns.refused.keys() {
        builder.field(&format!("{name}{ENDING}"), FieldKind::Payload)?;
    }
    for file in &files {
        add(&mut builder, file, &columns)?;
    }
    builder.finish()
}

/// A value that lies in a run.
pub(super) struct Payload {
    pub(super) field: String,
    pub(super) key: String,
    pub(super) range: Range<u64>,
}

impl FileIndex {
    /// Rows of all groups.
    pub(super) fn rows(&self) -> u64 {
        self.groups.iter().map(|group| group.rows).sum()
    }

    /// A store that reads the keys of [`Self::payloads`].
    pub(super) fn reading_store(&self, store: &Arc<dyn Store>) -> Arc<dyn Store> {
        Arc::new(store::ParquetStore::new(Arc::clone(store), self.leaves.clone()))
    }

    /// Bytes and text, which something may decode. Numbers and lists are known to be sound.
    pub(super) fn payloads(&self) -> Vec<Payload> {
        let mut found = Vec::new();
        for (group, index) in self.groups.iter().enumerate() {
            for (number, (leaf, column)) in self.leaves.iter().zip(&index.columns).enumerate() {
                let (ColumnIndex::Runs(runs), None) = (column, leaf.encoding()) else { continue };
                for run in runs {
                    let key = run.place(&self.object.key, group as u32, number as u32).key();
                    let mut at = 0;
                    for length in run.lengths.iter().flatten() {
                        let range = at..at + u64::from(*length);
                        at = range.end;
                        found.push(Payload { field: leaf.name.clone(), key: key.clone(), range });
                    }
                }
            }
        }
        found
    }
}

impl Run {
    fn place<'a>(&self, file: &'a str, group: u32, leaf: u32) -> Place<'a> {
        let (pages, dictionary) = (self.pages.clone(), self.dictionary.clone());
        Place { file, group, leaf, pages, dictionary, codec: self.codec }
    }
}

/// The columns of all files.
#[derive(Default)]
struct Columns {
    leaves: Vec<Leaf>,
    /// Those that some file cannot give, and why.
    refused: BTreeMap<String, String>,
    specs: BTreeMap<String, RecordSpec>,
    class_names: Option<Vec<String>>,
}

impl Columns {
    fn add(&mut self, file: &FileIndex) -> Result<()> {
        for (number, leaf) in file.leaves.iter().enumerate() {
            let twice = file.leaves[..number].iter().any(|other| other.name == leaf.name);
            let why = file.groups.iter().find_map(|group| match group.columns.get(number) {
                Some(ColumnIndex::Refused(why)) => Some(why.as_str()),
                _ => None,
            });
            if let Some(why) = why.or(twice.then_some("two columns have this name")) {
                self.refused.entry(leaf.name.clone()).or_insert_with(|| why.to_owned());
            }
            if !self.leaves.contains(leaf) {
                if self.leaves.len() == MAX_LEAVES {
                    return Err(Error::exhausted(format!("index columns: there are more than {MAX_LEAVES}")));
                }
                self.leaves.push(leaf.clone());
            }
        }
        if self.class_names.is_none() {
            self.class_names = file.notes.as_deref().and_then(class_names);
        }
        Ok(())
    }

    /// Writes into the manifest's meta how columns are read.
    fn describe(&mut self, meta: &mut serde_json::Value) -> Result<()> {
        for leaf in &self.leaves {
            let column = match (self.refused.get(&leaf.name), leaf.encoding()) {
                (Some(why), _) => Column::refused(&leaf.name, why),
                (None, Some(encoding)) => Column { name: leaf.name.clone(), encoding, bytes: None },
                (None, None) => continue,
            };
            let spec = RecordSpec::of_columns(Format::Parquet, vec![column]);
            merge(&mut self.specs, format!("{}{ENDING}", leaf.name), spec)?;
        }
        let inside = |cause| Error::internal("describe columns in a manifest").with_source(cause);
        meta[forebay_ops::record::META_KEY] = serde_json::to_value(&self.specs).map_err(inside)?;
        meta[META_KEY] = serde_json::to_value(&self.leaves).map_err(inside)?;
        if let Some(names) = &self.class_names {
            meta["class_names"] = serde_json::json!(names);
        }
        Ok(())
    }

    fn number(&self, leaf: &Leaf) -> Option<u32> {
        if self.refused.contains_key(&leaf.name) {
            return None;
        }
        self.leaves.iter().position(|known| known == leaf).map(|number| number as u32)
    }
}

/// Adds a file: itself, and of each row group the runs, the group and its rows.
fn add(builder: &mut ManifestBuilder, file: &FileIndex, columns: &Columns) -> Result<()> {
    let object = &file.object;
    let (mut number, stem) = (0u64, key_stem(&object.key));
    builder.add_object(&object.key, object.size, object.stamp)?;
    for (group_number, group) in file.groups.iter().enumerate() {
        let (group_number, mut cells) = (group_number as u32, Vec::new());
        for (leaf, column) in file.leaves.iter().zip(&group.columns) {
            let Some(leaf_number) = columns.number(leaf) else { continue };
            match column {
                ColumnIndex::Ints(values) => {
                    cells.push((builder.field(&leaf.name, FieldKind::Int)?, Cells::Ints(values.iter())));
                }
                ColumnIndex::Runs(runs) => {
                    let mut places = Vec::with_capacity(runs.len());
                    for run in runs {
                        let place = run.place(&object.key, group_number, leaf_number);
                        let size = run.lengths.iter().flatten().map(|length| u64::from(*length)).sum();
                        places.push((builder.add_object(&place.key(), size, object.stamp)?, run));
                    }
                    let name = match leaf.encoding() {
                        Some(_) => format!("{}{ENDING}", leaf.name),
                        None => leaf.name.clone(),
                    };
                    let field = builder.field(&name, FieldKind::Payload)?;
                    cells.push((field, Cells::Runs { runs: places.into_iter(), now: None }));
                }
                ColumnIndex::Refused(_) => {}
            }
        }
        builder.add_object(&group_key(&object.key, group_number), 0, object.stamp)?;
        let mut values = Vec::with_capacity(cells.len());
        for _ in 0..group.rows {
            values.clear();
            values.extend(cells.iter_mut().filter_map(|(field, cells)| Some((*field, cells.next()?))));
            builder.add_sample(&format!("{stem}/{number:08}"), &values)?;
            number += 1;
        }
    }
    Ok(())
}

/// The values of one column, row by row.
enum Cells<'a> {
    Ints(std::slice::Iter<'a, Option<i64>>),
    Runs {
        runs: std::vec::IntoIter<(u32, &'a Run)>,
        /// Object and next byte of the run that rows are in, and its lengths.
        now: Option<(u32, u64, std::slice::Iter<'a, Option<u32>>)>,
    },
}

impl Cells<'_> {
    fn next(&mut self) -> Option<Value> {
        match self {
            Self::Ints(values) => values.next().copied().flatten().map(Value::Int),
            Self::Runs { runs, now } => loop {
                if let Some((object, offset, lengths)) = now
                    && let Some(length) = lengths.next()
                {
                    let length = u64::from((*length)?);
                    let value = Value::Payload { object: Some(*object), offset: *offset, length };
                    *offset += length;
                    return Some(value);
                }
                let (object, run) = runs.next()?;
                *now = Some((object, 0, run.lengths.iter()));
            },
        }
    }
}

/// Names of classes, as Hugging Face's `datasets` notes them.
fn class_names(notes: &str) -> Option<Vec<String>> {
    let notes: serde_json::Value = serde_json::from_str(notes).ok()?;
    let features = notes.get("info")?.get("features")?.as_object()?;
    let names = features.values().find_map(|feature| feature.get("names")?.as_array())?;
    names.iter().map(|name| name.as_str().map(str::to_owned)).collect()
}
