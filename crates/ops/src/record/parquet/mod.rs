//! Parquet: what its footers, pages and values say. Where they are read from is the engine's business.
//!
//! A file holds row groups, a group one chunk of pages for each column. [`parse`] reads a [`Footer`]; [`Pages`] and
//! [`Rows`] turn the pages of one column into one value for each row. A *run* is some pages of one chunk that begin and
//! end with whole rows: [`run`] reads it alone, with the chunk's dictionary, and without the rest of its group.
//!
//! The reader is our own: what arrives is hostile until proven otherwise, and needs neither Arrow nor a code generator.
//! Brotli, LZO, encryption and times of 96 bits are refused by name.

mod footer;
mod packed;
mod page;
mod rows;
mod schema;
mod thrift;
mod values;

pub use footer::{Chunk, Footer, Group, MAX_FOOTER_BYTES, Statistics, TAIL_BYTES, length, parse};
pub use page::{Head, MAX_HEAD_BYTES, MAX_PAGE_BYTES, Pages};
pub use rows::Rows;
pub use schema::{Leaf, Meaning, Stored};

use super::columns::{self, Column};
use super::mds::scalar;
use super::value::Taken;
use bytes::Bytes;
use forebay_core::tensor::Dtype;
use forebay_core::{Error, Result};

/// What the name of a manifest's field ends with that holds records of a column.
pub const ENDING: &str = "@parquet";

/// Element types that columns have.
const DTYPES: [Dtype; 8] =
    [Dtype::U8, Dtype::I32, Dtype::I64, Dtype::U32, Dtype::U64, Dtype::F16, Dtype::F32, Dtype::F64];

/// The rows of some pages that follow each other, behind an optional dictionary's page.
pub fn run(leaf: &Leaf, codec: u8, dictionary: Option<&[u8]>, bytes: &[u8]) -> Result<Rows> {
    let mut pages = Pages::new(leaf.clone(), codec)?;
    let mut rows = Rows::default();
    for part in [dictionary.unwrap_or_default(), bytes] {
        let mut at = 0;
        while at < part.len() {
            let rest = &part[at..];
            let cut_off = || Error::corrupt("a page is cut off");
            let head = Head::parse(rest)?.ok_or_else(cut_off)?;
            let end = head.length + head.body;
            let body = rest.get(head.length..end).ok_or_else(cut_off)?;
            if head.is_dictionary() {
                pages.read_dictionary(&head, body)?;
            } else if head.has_rows() {
                rows.add(&pages, &head, body, |_| Ok(()))?;
            }
            at += end;
        }
    }
    rows.finish(leaf)?;
    Ok(rows)
}

/// Fields out of records: numbers, and lists.
pub(super) fn take(record: &Bytes, columns: &[Column], names: &[&str]) -> Result<Vec<Taken>> {
    let one = |name: &&str| match columns.iter().find(|column| column.name == *name) {
        None => Ok(Taken::Missing),
        Some(column) => value(&column.encoding, record)
            .map_err(|error| error.while_doing(format_args!("take column `{name}`"))),
    };
    names.iter().map(one).collect()
}

fn value(encoding: &str, record: &Bytes) -> Result<Taken> {
    let dtype = |name: &str| {
        DTYPES.into_iter().find(|dtype| dtype.name() == name).ok_or_else(|| columns::refused(encoding))
    };
    let Some(name) = encoding.strip_prefix("list:") else {
        return scalar(dtype(encoding)?, record.clone());
    };
    match record.first() {
        Some(&rows::JSON) => columns::json(&record[1..]),
        Some(&rows::ELEMENTS) if name != "json" => columns::list(dtype(name)?, record.slice(1..)),
        _ => Err(Error::corrupt("it is no list")),
    }
}

#[cfg(test)]
mod tests;
