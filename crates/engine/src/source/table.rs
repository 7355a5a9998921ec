//! A folder of files and a table of labels into a manifest: one row, one file, one sample.

use super::inventory::Inventory;
use super::labels::{Cell, Rows};
use super::options::field_name;
use forebay_core::manifest::{FieldKind, ManifestBuilder, Value};
use forebay_core::{Error, Result};
use std::collections::{BTreeSet, HashMap};

/// Column names that say which file a row is about.
const FILE_COLUMNS: [&str; 7] = ["file", "filename", "file_name", "path", "key", "image", "image_path"];

/// Column names whose text is a class name.
pub(super) const CLASS_COLUMNS: [&str; 7] =
    ["label", "cls", "class", "class_name", "category", "target", "y"];

/// How many faults of one kind are named.
const NAMED: usize = 20;

/// The manifest of a folder with labels, or of a plain folder when there are none.
pub(super) fn build(
    inventory: &Inventory,
    labels: Option<(&str, Rows)>,
    mut meta: serde_json::Value,
    notes: &mut Vec<String>,
) -> Result<Vec<u8>> {
    let table = match labels {
        Some((name, rows)) => {
            let table = Table::new(name, &rows, inventory, notes)?;
            if let (Some(meta), Some(names)) = (meta.as_object_mut(), table.class_names()) {
                meta.insert("class_names".into(), serde_json::json!(names));
            }
            Some(table)
        }
        None => None,
    };
    let mut builder = ManifestBuilder::new(Vec::new(), meta);
    for (at, object) in inventory.objects.iter().enumerate() {
        let row = match &table {
            Some(table) => match table.row_of[at] {
                Some(row) => Some((table, row)),
                None => continue,
            },
            None => None,
        };
        builder.add_object(&object.key, object.size, object.stamp)?;
        let payload = builder.field(&field_name(&object.key), FieldKind::Payload)?;
        let mut values = vec![(payload, Value::Payload { object: None, offset: 0, length: object.size })];
        for column in row.iter().flat_map(|(table, _)| &table.columns) {
            let index = builder.field(&column.name, FieldKind::Int)?;
            let value = row.and_then(|(_, row)| column.values[row]);
            values.extend(value.map(|value| (index, Value::Int(value))));
        }
        builder.add_sample(&object.key, &values)?;
    }
    builder.finish()
}

/// Rows matched to objects, columns turned into integers.
struct Table {
    columns: Vec<Column>,
    /// For each object of the inventory, its row.
    row_of: Vec<Option<usize>>,
}

struct Column {
    name: String,
    values: Vec<Option<i64>>,
    classes: Option<Vec<String>>,
}

impl Table {
    fn new(name: &str, rows: &Rows, inventory: &Inventory, notes: &mut Vec<String>) -> Result<Self> {
        let file =
            rows.columns.iter().position(|column| FILE_COLUMNS.contains(&column.to_lowercase().as_str()));
        let file = file.ok_or_else(|| {
            let have = rows.columns.join("`, `");
            Error::invalid_config(format!(
                "read labels `{name}`: no column names the file; there are `{have}`"
            ))
            .with_hint(format!("name it one of {}", FILE_COLUMNS.join(", ")))
        })?;
        let row_of = match_rows(name, rows, file, inventory, notes)?;
        let mut columns = Vec::new();
        for (at, column) in rows.columns.iter().enumerate().filter(|(at, _)| *at != file) {
            let cells = rows.rows.iter().map(|(_, row)| &row[at]);
            match Column::new(column, cells) {
                Some(column) => columns.push(column),
                None => notes.push(format!(
                    "column `{column}` of `{name}` holds no integers and no classes: left out"
                )),
            }
        }
        Ok(Self { columns, row_of })
    }

    fn class_names(&self) -> Option<&[String]> {
        self.columns.iter().find_map(|column| column.classes.as_deref())
    }
}

impl Column {
    /// Integers as they are; text of a class column numbered by sorted name. `None` when it is neither.
    fn new<'a>(name: &str, cells: impl Iterator<Item = &'a Cell> + Clone) -> Option<Self> {
        let name = name.to_string();
        if cells.clone().all(|cell| matches!(cell, Cell::Int(_) | Cell::Missing)) {
            let value = |cell: &Cell| if let Cell::Int(value) = cell { Some(*value) } else { None };
            return Some(Self { name, values: cells.map(value).collect(), classes: None });
        }
        if !CLASS_COLUMNS.contains(&name.to_lowercase().as_str())
            || cells.clone().any(|cell| *cell == Cell::Other)
        {
            return None;
        }
        // Among names, `7` is a name too.
        let text = |cell: &Cell| match cell {
            Cell::Text(text) => Some(text.trim().to_string()),
            Cell::Int(value) => Some(value.to_string()),
            Cell::Missing | Cell::Other => None,
        };
        let classes: BTreeSet<String> = cells.clone().filter_map(text).collect();
        let classes: Vec<String> = classes.into_iter().collect();
        let number = |name: String| classes.binary_search(&name).ok().map(|number| number as i64);
        let values = cells.map(|cell| text(cell).and_then(number)).collect();
        Some(Self { name, values, classes: Some(classes) })
    }
}

/// Finds each row's file, by its path below the folder or by that path without its extension, and reports every
/// row that has none or that another row took, all at once.
fn match_rows(
    name: &str,
    rows: &Rows,
    file: usize,
    inventory: &Inventory,
    notes: &mut Vec<String>,
) -> Result<Vec<Option<usize>>> {
    let mut by_name = HashMap::new();
    let mut by_stem: HashMap<&str, Option<usize>> = HashMap::new();
    for (at, object) in inventory.objects.iter().enumerate() {
        let inside = &object.key[inventory.prefix.len()..];
        by_name.insert(inside, at);
        let stem = inside.rsplit_once('.').map_or(inside, |(stem, _)| stem);
        // Two files with one stem: the stem alone names neither.
        by_stem.entry(stem).and_modify(|known| *known = None).or_insert(Some(at));
    }
    let mut row_of: Vec<Option<usize>> = vec![None; inventory.objects.len()];
    let mut faults = Faults::default();
    for (row, (line, cells)) in rows.rows.iter().enumerate() {
        let wanted = match &cells[file] {
            Cell::Text(text) => text.trim().trim_start_matches("./").to_string(),
            Cell::Int(number) => number.to_string(),
            Cell::Missing | Cell::Other => {
                faults.add(|| format!("line {line} names no file"));
                continue;
            }
        };
        let found =
            by_name.get(wanted.as_str()).copied().or_else(|| by_stem.get(wanted.as_str()).copied().flatten());
        match found.map(|at| (at, row_of[at])) {
            None => faults.add(|| format!("line {line}: no file `{wanted}`")),
            Some((_, Some(before))) => {
                faults.add(|| format!("line {line}: `{wanted}` is on line {} already", rows.rows[before].0));
            }
            Some((at, None)) => row_of[at] = Some(row),
        }
    }
    faults.check(name)?;
    let unlisted =
        inventory.objects.iter().zip(&row_of).filter(|(_, row)| row.is_none()).map(|(object, _)| &object.key);
    let count = unlisted.clone().count();
    if count > 0 {
        let named: Vec<_> = unlisted.take(NAMED).map(|key| format!("`{key}`")).collect();
        notes.push(format!("{count} files have no row in `{name}` and are left out: {}", named.join(", ")));
    }
    Ok(row_of)
}

/// Faults of one kind, of which the first are named.
#[derive(Debug, Default)]
pub(super) struct Faults {
    named: Vec<String>,
    count: usize,
}

impl Faults {
    pub(super) fn add(&mut self, fault: impl FnOnce() -> String) {
        self.count += 1;
        if self.named.len() < NAMED {
            self.named.push(fault());
        }
    }

    /// All in a sentence; nothing when there are none.
    pub(super) fn list(&self) -> Option<String> {
        let more = match self.count - self.named.len() {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        (self.count > 0).then(|| format!("{}{more}", self.named.join("; ")))
    }

    fn check(self, name: &str) -> Result<()> {
        let Some(list) = self.list() else { return Ok(()) };
        let message = format!("read labels `{name}`: {} rows fit no file: {list}", self.count);
        Err(Error::invalid_config(message)
            .with_hint("files are named by their path below the folder, with or without extension"))
    }
}
