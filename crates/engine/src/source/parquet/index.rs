//! What a Parquet file holds: its footer first, then every page once, in pieces, for where each row's value will lie.
//!
//! Lengths of values stand nowhere but in the pages, so opening a dataset for the first time reads it. What is kept is a
//! length for each value and the integers themselves. Columns whose values cannot be given are left out with the reason.

use crate::source::blocking;
use crate::source::records::fault;
use bytes::Bytes;
use forebay_core::{Error, ErrorKind, Result};
use forebay_ops::record::parquet::{
    self, Chunk, Footer, Head, Leaf, MAX_HEAD_BYTES, MAX_PAGE_BYTES, Pages, Rows, Stored, TAIL_BYTES,
};
use forebay_store::{ByteRange, ObjectMeta, Store};
use std::ops::Range;

/// Bytes of pages that make a run: what is read and expanded together.
const RUN_BYTES: u64 = 4 << 20;

/// Bytes of values that end a run, however little they take when stored.
const RUN_VALUE_BYTES: usize = 32 << 20;

/// Bytes that are read at a time.
const PIECE_BYTES: u64 = 8 << 20;

/// Bytes at the end of a file that are read in the hope that the footer is among them.
const FOOTER_GUESS: u64 = 64 << 10;

/// What one file holds.
#[derive(Debug)]
pub(in crate::source) struct FileIndex {
    pub(super) object: ObjectMeta,
    pub(super) leaves: Vec<Leaf>,
    pub(super) notes: Option<String>,
    pub(super) groups: Vec<GroupIndex>,
}

/// What one row group holds.
#[derive(Debug)]
pub(super) struct GroupIndex {
    pub(super) rows: u64,
    /// One for each column of the file.
    pub(super) columns: Vec<ColumnIndex>,
}

/// The values of one column in one row group.
#[derive(Debug)]
pub(super) enum ColumnIndex {
    /// Known by themselves.
    Ints(Vec<Option<i64>>),
    /// Lying in runs.
    Runs(Vec<Run>),
    /// Not offered, and why.
    Refused(String),
}

/// Some pages of a column.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) pages: Range<u64>,
    pub(super) dictionary: Range<u64>,
    pub(super) codec: u8,
    /// Bytes of each row's value; `None` is null.
    pub(super) lengths: Vec<Option<u32>>,
}

/// Reads the footer of a file.
pub(super) async fn footer(store: &dyn Store, object: &ObjectMeta) -> Result<Footer> {
    let size = object.size;
    let wrong = |error: Error| fault(store, &object.key, size.saturating_sub(TAIL_BYTES), error);
    let from = size.saturating_sub(FOOTER_GUESS);
    let end = store.read(&object.key, ByteRange::from(from..size)).await?;
    let tail = &end[end.len().saturating_sub(TAIL_BYTES as usize)..];
    let length = parquet::length(tail, size).map_err(wrong)?;
    let start = size - TAIL_BYTES - length;
    let bytes = if start >= from {
        end.slice((start - from) as usize..end.len() - TAIL_BYTES as usize)
    } else {
        store.read(&object.key, ByteRange::from(start..start + length)).await?
    };
    blocking(move || parquet::parse(&bytes, size))
        .await?
        .map_err(|error| fault(store, &object.key, start, error))
}

/// Reads every column of every row group.
pub(in crate::source) async fn index(store: &dyn Store, object: ObjectMeta) -> Result<FileIndex> {
    let footer = footer(store, &object).await?;
    let mut groups = Vec::with_capacity(footer.groups.len());
    for (number, group) in footer.groups.iter().enumerate() {
        let mut columns = Vec::with_capacity(footer.leaves.len());
        for (leaf, chunk) in footer.leaves.iter().zip(&group.chunks) {
            let found = match leaf.refusal() {
                Some(why) => Ok(ColumnIndex::Refused(why)),
                None => column(store, &object.key, leaf, chunk, group.rows).await,
            };
            columns.push(match found {
                Err(error) if error.kind() == ErrorKind::Unsupported => {
                    ColumnIndex::Refused(error.message().to_owned())
                }
                other => other.map_err(|error| {
                    let what = format!("read column `{}` of row group {number}", leaf.name);
                    fault(store, &object.key, chunk.start, error.while_doing(what))
                })?,
            });
        }
        groups.push(GroupIndex { rows: group.rows, columns });
    }
    Ok(FileIndex { object, leaves: footer.leaves, notes: footer.notes, groups })
}

async fn column(store: &dyn Store, key: &str, leaf: &Leaf, chunk: &Chunk, rows: u64) -> Result<ColumnIndex> {
    let mut state = State {
        pages: Pages::new(leaf.clone(), chunk.codec)?,
        rows: Rows::default(),
        runs: Vec::new(),
        dictionary: 0..0,
        codec: chunk.codec,
        begin: chunk.start,
    };
    let (mut at, mut want) = (chunk.start, PIECE_BYTES);
    while at < chunk.end {
        let to = chunk.end.min(at + want);
        let piece = store.read(key, ByteRange::from(at..to)).await?;
        let (next, fed) = blocking(move || {
            let fed = state.feed(&piece, at);
            (state, fed)
        })
        .await?;
        state = next;
        let (read, needed) = fed?;
        if read == 0 {
            if to == chunk.end {
                return Err(Error::corrupt(format!("a page at byte {at} is cut off")));
            }
            want = needed.max(want * 2).min((MAX_HEAD_BYTES + MAX_PAGE_BYTES) as u64);
        } else {
            want = PIECE_BYTES;
        }
        at += read;
    }
    state.rows.finish(leaf)?;
    state.end_run(chunk.end);
    let ints = std::mem::take(&mut state.rows.ints);
    let runs = state.runs;
    let found = if leaf.is_int() { ints.len() } else { runs.iter().map(|run| run.lengths.len()).sum() };
    if found as u64 != rows {
        return Err(Error::corrupt(format!("its pages have {found} rows, the row group {rows}")));
    }
    check_statistics(leaf, chunk, &ints, &runs)?;
    Ok(if leaf.is_int() { ColumnIndex::Ints(ints) } else { ColumnIndex::Runs(runs) })
}

/// A chunk that is being read.
struct State {
    pages: Pages,
    rows: Rows,
    runs: Vec<Run>,
    dictionary: Range<u64>,
    codec: u8,
    /// First byte of the run that is being read.
    begin: u64,
}

impl State {
    /// Takes every page that is whole. Gives the bytes taken, and how many the next page needs as far as that is known.
    fn feed(&mut self, piece: &Bytes, at: u64) -> Result<(u64, u64)> {
        let mut taken = 0;
        while taken < piece.len() {
            let rest = &piece[taken..];
            let Some(head) = Head::parse(rest)? else { return Ok((taken as u64, 0)) };
            let whole = head.length + head.body;
            let Some(body) = rest.get(head.length..whole) else { return Ok((taken as u64, whole as u64)) };
            let place = at + taken as u64;
            if head.is_dictionary() {
                self.pages.read_dictionary(&head, body)?;
                self.dictionary = place..place + whole as u64;
                self.begin = self.dictionary.end;
            } else if head.has_rows() {
                let (runs, begin) = (&mut self.runs, &mut self.begin);
                let (dictionary, codec) = (&self.dictionary, self.codec);
                self.rows.add(&self.pages, &head, body, |rows| {
                    if place - *begin >= RUN_BYTES || rows.data.len() >= RUN_VALUE_BYTES {
                        runs.extend(run(rows, *begin..place, dictionary.clone(), codec));
                        *begin = place;
                    }
                    Ok(())
                })?;
            }
            taken += whole;
        }
        Ok((taken as u64, 0))
    }

    fn end_run(&mut self, end: u64) {
        let pages = self.begin..end.max(self.begin);
        self.runs.extend(run(&mut self.rows, pages, self.dictionary.clone(), self.codec));
    }
}

/// The run of the rows so far, whose values are let go; `None` when there are none.
fn run(rows: &mut Rows, pages: Range<u64>, dictionary: Range<u64>, codec: u8) -> Option<Run> {
    rows.data = Vec::new();
    let places = std::mem::take(&mut rows.places);
    let length = |place: Option<Range<u64>>| place.map(|place| (place.end - place.start) as u32);
    let lengths: Vec<Option<u32>> = places.into_iter().map(length).collect();
    (!lengths.is_empty()).then_some(Run { pages, dictionary, codec, lengths })
}

/// Compares what the footer tells about values with the values.
fn check_statistics(leaf: &Leaf, chunk: &Chunk, ints: &[Option<i64>], runs: &[Run]) -> Result<()> {
    if !leaf.lists.is_empty() {
        return Ok(());
    }
    let told = &chunk.statistics;
    let nulls = if leaf.is_int() {
        ints.iter().filter(|value| value.is_none()).count()
    } else {
        runs.iter().flat_map(|run| &run.lengths).filter(|length| length.is_none()).count()
    };
    if let Some(told) = told.nulls.filter(|told| *told != nulls as u64) {
        return Err(Error::corrupt(format!("it has {nulls} nulls, its statistics tell {told}")));
    }
    let bound = |bytes: &Option<Vec<u8>>| match (leaf.stored, bytes.as_deref()?) {
        (Stored::Int32, bytes) if leaf.dtype() == Some(forebay_core::tensor::Dtype::I32) => {
            Some(i64::from(i32::from_le_bytes(bytes.try_into().ok()?)))
        }
        (Stored::Int64, bytes) => Some(i64::from_le_bytes(bytes.try_into().ok()?)),
        _ => None,
    };
    let values = || ints.iter().flatten().copied();
    if let (Some(told), Some(found)) = (bound(&told.smallest), values().min())
        && found < told
    {
        return Err(Error::corrupt(format!("it holds {found}, its statistics tell {told} as the smallest")));
    }
    if let (Some(told), Some(found)) = (bound(&told.largest), values().max())
        && found > told
    {
        return Err(Error::corrupt(format!("it holds {found}, its statistics tell {told} as the largest")));
    }
    Ok(())
}
