//! Records: the bytes that a format frames as one sample, and the fields that are taken out of them.
//!
//! A manifest may hold a sample as one payload, its record, in a field whose name has an `@` (`@tfrecord`, `jpg@zip`).
//! The manifest's meta says of each such field which format it has and which fields can be taken ([`RecordSpec`]).
//! Fetching and caching move records as they are; fields are taken by the thread that prepares the sample. What a value
//! becomes for a column is in [`value`], and each format has a file.
//!
//! A format checks what it can, checksums above all, before it gives a field. Records are bytes from outside: nothing
//! larger than the record or a stated limit is allocated for one.

pub mod columns;
pub mod csv;
pub mod example;
pub mod features;
pub mod json_line;
pub mod litdata;
pub mod mds;
pub mod parquet;
mod pixels;
pub mod proto;
pub mod recordio;
pub mod tfrecord;
pub mod tokens;
pub mod value;
pub mod zip_member;

pub use columns::Column;
pub use value::Taken;

use bytes::Bytes;
use forebay_core::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Key of the manifest's meta under which the record fields are described.
pub const META_KEY: &str = "records";

/// The field that is all of a record's payload, in formats that frame any bytes.
pub const WHOLE: &str = "record";

/// Most fields that one kind of record may offer: as many as a manifest may have.
pub const MAX_FIELDS: usize = 1024;

/// How one field of a manifest frames others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordSpec {
    /// What frames them.
    pub format: Format,
    /// Names of the fields that can be taken.
    pub fields: Vec<String>,
    /// The columns as they are stored, in formats whose records do not describe themselves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<Column>,
}

/// What frames a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// A frame of a TFRecord file, both checksums included; its payload may be a `tf.Example`.
    Tfrecord,
    /// A line of text that is a JSON object.
    JsonLine,
    /// A row of values separated by commas.
    Csv,
    /// A row of values separated by tabs.
    Tsv,
    /// A member of a zip archive with its local header.
    ZipMember,
    /// A record of a RecordIO file.
    Recordio,
    /// A sample of an MDS shard.
    Mds,
    /// An item of a LitData chunk.
    Litdata,
    /// A run of tokens.
    Tokens,
    /// The value of one Parquet column in one row, where it is no plain payload.
    Parquet,
}

impl Format {
    /// Whether each record names its fields itself, so that one may have some that no other has.
    pub fn is_self_described(self) -> bool {
        matches!(self, Self::Tfrecord | Self::JsonLine)
    }
}

impl RecordSpec {
    /// Records that tell by themselves where their fields are.
    pub fn new(format: Format, fields: Vec<String>) -> Self {
        Self { format, fields, columns: Vec::new() }
    }

    /// Records of columns. Columns of pickles, and those that are refused, are not offered.
    pub fn of_columns(format: Format, columns: Vec<Column>) -> Self {
        let offered = columns.iter().filter(|column| column.is_offered());
        Self { format, fields: offered.map(|column| column.name.clone()).collect(), columns }
    }

    /// Why a field that is there is not offered.
    pub fn refusal(&self, name: &str) -> Option<Error> {
        let column = self.columns.iter().find(|column| column.name == name && !column.is_offered())?;
        Some(columns::refused(&column.encoding).while_doing(format_args!("take column `{name}`")))
    }

    /// The fields with these numbers, in this order. A field that the record lacks is [`Taken::Missing`].
    pub fn take(&self, record: &Bytes, numbers: &[usize]) -> Result<Vec<Taken>> {
        let names = numbers
            .iter()
            .map(|number| self.fields.get(*number).map(String::as_str))
            .collect::<Option<Vec<_>>>()
            .ok_or_else(|| Error::internal("take a field of a record: there is no field of this number"))?;
        match self.format {
            Format::Tfrecord => tfrecord::take(record, &names),
            Format::JsonLine => json_line::take(record, &names),
            Format::Csv => csv::take(record, &self.columns, &names, b','),
            Format::Tsv => csv::take(record, &self.columns, &names, b'\t'),
            Format::ZipMember => zip_member::take(record, &names),
            Format::Recordio => recordio::take(record, &names),
            Format::Mds => mds::take(record, &self.columns, &names),
            Format::Litdata => litdata::take(record, &self.columns, &names),
            Format::Tokens => tokens::take(record, &self.columns, &names),
            Format::Parquet => parquet::take(record, &self.columns, &names),
        }
    }

    /// Every field that a record has with its name, known before or not: records that describe themselves may have some that
    /// others lack. What frames the fields is a field only where nothing can be taken out of it.
    pub fn take_every(&self, record: &Bytes) -> Result<Vec<(String, Taken)>> {
        match self.format {
            Format::Tfrecord => tfrecord::take_every(record, &self.fields),
            Format::JsonLine => json_line::take_every(record),
            format => {
                let is_frame = |name: &str| format == Format::Recordio && name == WHOLE;
                let numbers: Vec<usize> =
                    (0..self.fields.len()).filter(|number| !is_frame(&self.fields[*number])).collect();
                let taken = self.take(record, &numbers)?;
                Ok(numbers.iter().map(|number| self.fields[*number].clone()).zip(taken).collect())
            }
        }
    }

    /// Whether a record is sound: its checksums, and whether every field can be taken.
    pub fn check(&self, record: &Bytes) -> Result<()> {
        let all: Vec<usize> = (0..self.fields.len()).collect();
        self.take(record, &all)?;
        self.take_every(record).map(drop)
    }
}

/// What a manifest's meta says about records, by the name of their field.
pub fn specs(meta: &serde_json::Value) -> Result<BTreeMap<String, RecordSpec>> {
    let Some(found) = meta.get(META_KEY) else { return Ok(BTreeMap::new()) };
    let specs: BTreeMap<String, RecordSpec> = serde_json::from_value(found.clone()).map_err(|cause| {
        Error::unsupported("read a manifest: it describes records in a way that this release does not know")
            .with_source(cause)
    })?;
    if specs.values().any(|spec| spec.fields.len().max(spec.columns.len()) > MAX_FIELDS) {
        return Err(Error::corrupt(format!("read a manifest: records have more than {MAX_FIELDS} fields")));
    }
    Ok(specs)
}
