//! CSV and TSV files into a manifest: rows as samples, columns as fields.
//!
//! A cell of a column that names files is a payload: all of the object that it names. Integers and classes stand in the
//! manifest; text and other numbers are taken out of the row, which is a record ([`forebay_ops::record::csv`]). What a
//! column holds follows from its name and from every cell of it in all files. [`index`] reads a file, [`links`] finds what
//! cells name, the store that all is read through is in [`store`].

mod index;
mod links;
mod store;

pub(super) use index::{Table, index};
pub(super) use links::{Links, changed};
pub(super) use store::{Home, LinkedStore, META_KEY, asking_store, reading_store, tables};

use super::inventory::Inventory;
use super::options::{OpenOptions, Progress};
use super::records::key_stem;
use super::shards;
use forebay_core::manifest::{FieldKind, ManifestBuilder, Value};
use forebay_core::{Error, Result};
use forebay_ops::record::csv::{FIELD, FLOAT, IN_MANIFEST, TEXT};
use forebay_ops::record::{self, Column, Format, RecordSpec};
use forebay_store::Store;
use futures::{StreamExt, TryStreamExt, stream};
use index::Words;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What the fields of one column are.
enum Kind {
    /// It has no name.
    Unnamed,
    File,
    Int,
    /// Numbers of the sorted names.
    Class(Vec<String>),
    Float,
    Text,
}

/// Indexes every file of the inventory. `store` holds them, and what lies beside them.
pub(super) async fn build(
    store: &Arc<dyn Store>,
    home: Home<'_>,
    inventory: &Inventory,
    options: &OpenOptions,
    mut meta: serde_json::Value,
    notes: &mut Vec<String>,
) -> Result<Vec<u8>> {
    let mut progress = Progress { objects_total: inventory.objects.len() as u64, ..Progress::default() };
    options.report(progress);
    let keys = inventory.objects.iter().map(|object| object.key.as_str());
    let expanded = shards::reading_store(store, keys);
    let found = stream::iter(&inventory.objects).map(|object| index(&expanded, object, None));
    let mut found = found.buffered(options.parallel.max(1));
    let mut tables: Vec<Table> = Vec::new();
    while let Some(table) = found.try_next().await? {
        if let Some(first) = tables.first().filter(|first| first.names != table.names) {
            let (first, other) = (store.url(&first.object.key), store.url(&table.object.key));
            let message = format!("index rows: `{first}` and `{other}` differ in their columns");
            return Err(
                Error::unsupported(message).with_hint("open them as datasets of their own and mix those")
            );
        }
        progress.samples += table.rows.len() as u64;
        progress.bytes += table.object.size;
        progress.objects_done += 1;
        options.report(progress);
        tables.push(table);
    }
    if progress.samples == 0 {
        let count = inventory.objects.len();
        return Err(Error::not_found(format!("index {count} objects as `csv`: they hold no row")));
    }
    let mut links = Links::new(&tables, home)?;
    let told = links.told(&tables);
    let linked = LinkedStore::new(store, &told, home, true)?;
    links.find(&linked, options).await?;
    links.check(&linked, &tables)?;

    let names = tables.first().map(|table| table.names.clone()).unwrap_or_default();
    let kinds: Vec<Kind> = (0..names.len()).map(|column| kind(&tables, column)).collect();
    let unnamed = kinds.iter().filter(|kind| matches!(kind, Kind::Unnamed)).count();
    if unnamed > 0 {
        notes.push(format!("{unnamed} columns without a name are left out"));
    }
    meta[record::META_KEY] = serde_json::json!(BTreeMap::from([(FIELD, spec(&tables, &names, &kinds))]));
    meta[META_KEY] = serde_json::json!(told);
    let classes =
        kinds.iter().find_map(|kind| if let Kind::Class(names) = kind { Some(names) } else { None });
    if let Some(classes) = classes {
        meta["class_names"] = serde_json::json!(classes);
    }
    let mut builder = ManifestBuilder::new(Vec::new(), meta);
    // What cells name comes first: samples belong to the object added last before them.
    for (key, object) in links.found() {
        builder.add_object(key, object.size, object.stamp)?;
    }
    let row_field = builder.field(FIELD, FieldKind::Payload)?;
    let mut fields = Vec::with_capacity(names.len());
    for (name, kind) in names.iter().zip(&kinds) {
        fields.push(match kind {
            Kind::File => Some(builder.field(name, FieldKind::Payload)?),
            Kind::Int | Kind::Class(_) => Some(builder.field(name, FieldKind::Int)?),
            Kind::Unnamed | Kind::Float | Kind::Text => None,
        });
    }
    for table in &tables {
        let (object, stem) = (&table.object, key_stem(&table.object.key));
        builder.add_object(&object.key, object.size, object.stamp)?;
        for (number, row) in table.rows.iter().enumerate() {
            let (offset, length) = (row.range.start, row.range.end - row.range.start);
            let mut values = vec![(row_field, Value::Payload { object: None, offset, length })];
            for (column, (field, kind)) in fields.iter().zip(&kinds).enumerate() {
                let Some(field) = *field else { continue };
                let value = match kind {
                    Kind::File => table.columns[column].file(number).and_then(|cell| {
                        let (object, length) = links.of(&links::key(&object.key, cell, home).ok()?)?;
                        Some(Value::Payload { object: Some(object), offset: 0, length })
                    }),
                    Kind::Class(names) => {
                        let word = table.columns[column].word(number);
                        let at =
                            word.and_then(|word| names.binary_search_by(|name| (**name).cmp(&word)).ok());
                        at.map(|at| Value::Int(at as i64))
                    }
                    _ => table.columns[column].int(number).map(Value::Int),
                };
                values.extend(value.map(|value| (field, value)));
            }
            builder.add_sample(&format!("{stem}/{number:08}"), &values)?;
        }
    }
    builder.finish()
}

/// What a column holds, in all files together.
fn kind(tables: &[Table], column: usize) -> Kind {
    let Some(first) = tables.first() else { return Kind::Text };
    if first.names[column].is_empty() {
        return Kind::Unnamed;
    }
    let all = || tables.iter().map(|table| &table.columns[column]);
    if all().any(index::Cells::is_file) {
        return Kind::File;
    }
    if all().all(index::Cells::is_int) {
        return Kind::Int;
    }
    if all().all(index::Cells::is_number) {
        return Kind::Float;
    }
    match Words::of_all(all()) {
        Some(names) => Kind::Class(names),
        None => Kind::Text,
    }
}

/// How rows are read again, when a sample is prepared.
fn spec(tables: &[Table], names: &[String], kinds: &[Kind]) -> RecordSpec {
    let tabs = tables.first().is_some_and(|table| table.separator == b'\t');
    let encoding = |kind: &Kind| match kind {
        Kind::Text => TEXT,
        Kind::Float => FLOAT,
        _ => IN_MANIFEST,
    };
    let columns: Vec<Column> = names
        .iter()
        .zip(kinds)
        .map(|(name, kind)| Column { name: name.clone(), encoding: encoding(kind).into(), bytes: None })
        .collect();
    let offered = columns.iter().filter(|column| column.encoding != IN_MANIFEST);
    let fields = offered.map(|column| column.name.clone()).collect();
    RecordSpec { format: if tabs { Format::Tsv } else { Format::Csv }, fields, columns }
}
