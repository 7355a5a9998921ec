//! Reads one file of rows, once and in pieces: where each row lies, and what its columns hold as far as the manifest
//! needs it.

use super::links::file_columns;
use crate::source::records::fault;
use crate::source::shards;
use crate::source::table::CLASS_COLUMNS;
use forebay_core::{Error, Result};
use forebay_ops::record::MAX_FIELDS;
use forebay_ops::record::csv::{self, FIELD, Scanner, cells, integer, number, on_line, without_line_end};
use forebay_store::{ByteRange, ObjectMeta, Store};
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

/// Bytes that are read at a time.
const PIECE_BYTES: u64 = 8 << 20;

/// The longest row that is taken.
const MAX_ROW_BYTES: usize = 64 << 20;

/// A column with more different names than this holds text and no classes.
const MAX_CLASSES: usize = 1 << 16;

/// Called for a row that is broken, with its first byte. Without it the first such row is the error.
pub(in crate::source) type Broken<'a> = &'a mut (dyn FnMut(u64, Error) + Send);

/// A file that was read.
#[derive(Debug)]
pub(in crate::source) struct Table {
    /// As the reading store sees it.
    pub(in crate::source) object: ObjectMeta,
    pub(super) separator: u8,
    /// Names of the columns.
    pub(super) names: Vec<String>,
    pub(in crate::source) rows: Vec<Row>,
    pub(super) columns: Vec<Cells>,
}

/// Where a row lies.
#[derive(Debug)]
pub(in crate::source) struct Row {
    pub(in crate::source) range: Range<u64>,
    pub(in crate::source) line: u64,
}

/// The cells of a column, as far as they are needed later.
#[derive(Debug)]
pub(super) enum Cells {
    /// Names of files, as written.
    Files(Vec<Option<String>>),
    Values {
        /// As long as every cell is one.
        ints: Option<Vec<Option<i64>>>,
        /// Whether every cell was a number.
        numbers: bool,
        /// The cells that are no integers any more, in a column that may hold classes.
        words: Option<Words>,
    },
}

/// Cells of few different values.
#[derive(Debug, Default)]
pub(super) struct Words {
    numbers: HashMap<String, u32>,
    names: Vec<String>,
    rows: Vec<Option<u32>>,
}

/// Reads all of `object`. The error of a broken row names its line and its column.
pub(in crate::source) async fn index(
    store: &Arc<dyn Store>,
    object: &ObjectMeta,
    mut broken: Option<Broken<'_>>,
) -> Result<Table> {
    let object = shards::expanded(store.as_ref(), object).await?;
    let name = object.key.to_ascii_lowercase();
    let tabs = [".tsv", ".tsv.gz", ".tsv.zst", ".tsv.zstd"].iter().any(|ending| name.ends_with(ending));
    let separator = if tabs { b'\t' } else { b',' };
    let mut reading = Reading { separator, names: Vec::new(), rows: Vec::new(), columns: Vec::new() };
    let mut scanner = Scanner::new(separator);
    // The bytes of the row that is open, where they begin, and how many of them were looked at.
    let (mut held, mut begin, mut line) = (Vec::new(), 0u64, 1);
    let mut at = 0;
    let mut take = |row: &[u8], begin: u64, line: u64, reading: &mut Reading| {
        let taken = reading.row(row, begin, line);
        let header = reading.names.is_empty();
        match (taken.map_err(|error| error.while_doing(on_line(line))), &mut broken) {
            (Err(error), Some(broken)) if !header => {
                broken(begin, error);
                Ok(())
            }
            (taken, _) => taken.map_err(|error| fault(store.as_ref(), &object.key, begin, error)),
        }
    };
    while at < object.size {
        let end = object.size.min(at + PIECE_BYTES);
        let piece = store.read(&object.key, ByteRange::from(at..end)).await?;
        let mut looked = held.len();
        held.extend_from_slice(&piece);
        if at == 0 && held.starts_with("\u{feff}".as_bytes()) {
            held.drain(..3);
            begin = 3;
        }
        let mut from = 0;
        while let Some(length) = scanner.row_end(&held[looked..]) {
            looked += length;
            take(&held[from..looked], begin + from as u64, line, &mut reading)?;
            (from, line) = (looked, scanner.line());
        }
        held.drain(..from);
        begin += from as u64;
        if held.len() > MAX_ROW_BYTES {
            let quote = scanner.open_quote();
            let why = quote.map_or(String::new(), |line| format!(", inside the quote opened on line {line}"));
            let error =
                Error::exhausted(format!("line {line}: the row has more than {MAX_ROW_BYTES} bytes{why}"));
            return Err(fault(store.as_ref(), &object.key, begin, error));
        }
        at = end;
    }
    if !held.is_empty() {
        take(&held, begin, line, &mut reading)?;
    }
    if reading.names.is_empty() {
        let why = "it is empty, and its first line must name the columns";
        return Err(fault(store.as_ref(), &object.key, 0, Error::corrupt(why)));
    }
    let Reading { names, rows, columns, .. } = reading;
    Ok(Table { object, separator, names, rows, columns })
}

/// A table that is being read.
struct Reading {
    separator: u8,
    names: Vec<String>,
    rows: Vec<Row>,
    columns: Vec<Cells>,
}

impl Reading {
    fn row(&mut self, row: &[u8], begin: u64, line: u64) -> Result<()> {
        let row = without_line_end(row);
        if row.is_empty() {
            return Ok(());
        }
        if row.len() > MAX_ROW_BYTES {
            return Err(Error::exhausted(format!("the row has more than {MAX_ROW_BYTES} bytes")));
        }
        let cells = cells(row, self.separator)?;
        let cells =
            cells.iter().enumerate().map(|(at, cell)| self.text(at, cell)).collect::<Result<Vec<_>>>()?;
        if self.names.is_empty() {
            return self.header(&cells);
        }
        let (have, want) = (cells.len(), self.names.len());
        if have != want {
            let which = match self.names.get(have) {
                Some(name) => format!("column {} (`{name}`) is missing", have + 1),
                None => format!("column {} has no name there", want + 1),
            };
            return Err(Error::corrupt(format!("the row has {have} cells, the header has {want}: {which}")));
        }
        for (cells, cell) in self.columns.iter_mut().zip(&cells) {
            cells.take(cell, self.rows.len());
        }
        self.rows.push(Row { range: begin..begin + row.len() as u64, line });
        Ok(())
    }

    fn text<'a>(&self, at: usize, cell: &'a [u8]) -> Result<&'a str> {
        std::str::from_utf8(cell).map_err(|error| {
            let name = self.names.get(at).map_or(String::new(), |name| format!(" (`{name}`)"));
            let byte = error.valid_up_to();
            Error::corrupt(format!("column {}{name}: byte {byte} of the cell is not UTF-8", at + 1))
        })
    }

    fn header(&mut self, cells: &[&str]) -> Result<()> {
        if cells.len() > MAX_FIELDS {
            return Err(Error::exhausted(format!("the header has more than {MAX_FIELDS} columns")));
        }
        let names: Vec<String> = cells.iter().map(|name| name.trim().to_owned()).collect();
        for (at, name) in names.iter().enumerate() {
            let why = if name == FIELD {
                format!("`{FIELD}` is what the row itself is called")
            } else if !name.is_empty() && names[..at].contains(name) {
                format!("another column is called `{name}` already")
            } else {
                continue;
            };
            return Err(Error::corrupt(format!("column {}: {why}", at + 1)));
        }
        if names.iter().all(String::is_empty) {
            return Err(Error::corrupt("the header names no column"));
        }
        let files = file_columns(&names);
        let column = |(at, name): (usize, &String)| {
            if files.contains(&at) {
                return Cells::Files(Vec::new());
            }
            let classes = CLASS_COLUMNS.contains(&name.to_lowercase().as_str());
            let words = classes.then(Words::default);
            Cells::Values { ints: Some(Vec::new()), numbers: true, words }
        };
        self.columns = names.iter().enumerate().map(column).collect();
        self.names = names;
        Ok(())
    }
}

impl Cells {
    /// Takes the cell of one more row, after so many.
    fn take(&mut self, cell: &str, rows: usize) {
        let empty = cell.trim().is_empty();
        match self {
            Self::Files(files) => files.push((!empty).then(|| cell.trim().to_owned())),
            Self::Values { ints, numbers, words } => {
                let value = integer(cell.as_bytes());
                if let Some(known) = ints.as_mut().filter(|_| empty || value.is_some()) {
                    known.push(value);
                    return;
                }
                *numbers &= empty || number(cell.as_bytes()).is_some();
                if let Some(known) = words {
                    // What was an integer so far is a name among names.
                    for value in ints.take().into_iter().flatten() {
                        known.add(value.map(|value| value.to_string()));
                    }
                    known.add((!empty).then(|| cell.trim().to_owned()));
                    if known.names.len() > MAX_CLASSES {
                        *words = None;
                    }
                }
                debug_assert!(words.as_ref().is_none_or(|words| words.rows.len() == rows + 1));
                *ints = None;
            }
        }
    }

    pub(super) fn is_file(&self) -> bool {
        matches!(self, Self::Files(_))
    }

    pub(super) fn is_int(&self) -> bool {
        matches!(self, Self::Values { ints: Some(_), .. })
    }

    pub(super) fn is_number(&self) -> bool {
        matches!(self, Self::Values { numbers: true, .. })
    }

    /// The name of a file, as it is written in a row.
    pub(super) fn file(&self, row: usize) -> Option<&str> {
        match self {
            Self::Files(files) => files.get(row)?.as_deref(),
            Self::Values { .. } => None,
        }
    }

    pub(super) fn int(&self, row: usize) -> Option<i64> {
        match self {
            Self::Values { ints: Some(ints), .. } => *ints.get(row)?,
            _ => None,
        }
    }

    /// The name of a class, which may look like an integer.
    pub(super) fn word(&self, row: usize) -> Option<Cow<'_, str>> {
        match self {
            Self::Values { ints: Some(_), .. } => self.int(row).map(|value| value.to_string().into()),
            Self::Values { words: Some(words), .. } => {
                words.rows.get(row)?.map(|at| words.names[at as usize].as_str().into())
            }
            _ => None,
        }
    }
}

impl Words {
    fn add(&mut self, word: Option<String>) {
        let number = word.map(|word| {
            let next = self.names.len() as u32;
            *self.numbers.entry(word).or_insert_with_key(|word| {
                self.names.push(word.clone());
                next
            })
        });
        self.rows.push(number);
    }

    /// The different names of a column in all files, sorted. `None` when some file holds text in it.
    pub(super) fn of_all<'a>(all: impl Iterator<Item = &'a Cells>) -> Option<Vec<String>> {
        let mut names = BTreeSet::new();
        for cells in all {
            match cells {
                Cells::Values { words: Some(words), ints: None, .. } => {
                    names.extend(words.names.iter().cloned());
                }
                Cells::Values { words: Some(_), ints: Some(ints), .. } => {
                    names.extend(ints.iter().flatten().map(i64::to_string));
                }
                _ => return None,
            }
        }
        (names.len() <= MAX_CLASSES).then(|| names.into_iter().collect())
    }
}

/// Every name of a file that a table has: row, column, and what is written.
impl Table {
    pub(in crate::source) fn files(&self) -> impl Iterator<Item = (usize, usize, &str)> {
        self.columns.iter().enumerate().flat_map(|(column, cells)| {
            (0..self.rows.len()).filter_map(move |row| Some((row, column, cells.file(row)?)))
        })
    }

    /// How faults name a cell.
    pub(in crate::source) fn place(&self, row: usize, column: usize) -> String {
        format!("{}, column {} (`{}`)", csv::on_line(self.rows[row].line), column + 1, self.names[column])
    }
}
