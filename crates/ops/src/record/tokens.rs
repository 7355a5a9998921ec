//! Tokens stored as bare integers: a record is a run of them. Beside it, the index that Megatron-LM writes with its `.bin`.
//!
//! ```text
//! "MMIDIDX\0\0"   u64 version, 1   u8 code of the element type   u64 sequences   u64 entries of documents
//! i32 tokens of each sequence      i64 first byte of each sequence      i64 sequences before each document
//! ```
//!
//! All of it little endian. Sequences follow each other in the `.bin` without a gap, and documents are runs of them. The
//! index is read in pieces, by whoever has the store: [`Head`] says what lies where, [`Documents`] puts it together. It is
//! written in pieces too, of which the head is made here.

use super::columns::Column;
use super::value::Taken;
use bytes::Bytes;
use forebay_core::tensor::Dtype;
use forebay_core::{Error, Result};
use std::ops::Range;

/// The name of a manifest's field that holds such records.
pub const FIELD: &str = "@tokens";

/// The name of the field inside.
pub const NAME: &str = "tokens";

/// What an index begins with.
pub const MAGIC: &[u8; 9] = b"MMIDIDX\0\0";

/// Bytes of the head of an index.
pub const HEAD_BYTES: usize = 34;

/// Codes of element types. Megatron-LM itself knows those up to 8.
const CODES: [(u8, Dtype); 8] = [
    (1, Dtype::U8),
    (2, Dtype::I8),
    (3, Dtype::I16),
    (4, Dtype::I32),
    (5, Dtype::I64),
    (8, Dtype::U16),
    (9, Dtype::U32),
    (10, Dtype::U64),
];

/// How a record's one column is described.
pub fn column(dtype: Dtype) -> Column {
    Column { name: NAME.into(), encoding: dtype.name().into(), bytes: None }
}

/// The element type that a column's encoding names.
pub fn dtype_of(encoding: &str) -> Result<Dtype> {
    let known =
        [Dtype::U8, Dtype::I8, Dtype::U16, Dtype::I16, Dtype::U32, Dtype::I32, Dtype::U64, Dtype::I64];
    known.into_iter().find(|dtype| dtype.name() == encoding).ok_or_else(|| {
        Error::unsupported(format!("read tokens: `{encoding}` is no type of tokens"))
            .with_hint("tokens are `u8`, `u16`, `u32`, `i32` or `i64`")
    })
}

pub(super) fn take(record: &Bytes, columns: &[Column], names: &[&str]) -> Result<Vec<Taken>> {
    let one = |name: &&str| {
        let Some(column) = columns.iter().find(|column| column.name == *name) else {
            return Ok(Taken::Missing);
        };
        let dtype = dtype_of(&column.encoding)?;
        if !record.len().is_multiple_of(dtype.size()) {
            let why = format!("{} bytes are no whole tokens of {}", record.len(), dtype.name());
            return Err(Error::corrupt(why));
        }
        Ok(Taken::Tensor { dtype, shape: vec![record.len() / dtype.size()], data: record.clone() })
    };
    names.iter().map(one).collect()
}

/// The head of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Element type of the tokens.
    pub dtype: Dtype,
    /// Number of sequences.
    pub sequences: u64,
    /// Entries of the document index: one more than there are documents.
    pub entries: u64,
}

impl Head {
    /// Reads a head; the whole index has `size` bytes, which bounds both numbers.
    pub fn parse(bytes: &[u8; HEAD_BYTES], size: u64) -> Result<Self> {
        let number =
            |at: usize| bytes[at..].first_chunk().map_or(0, |eight: &[u8; 8]| u64::from_le_bytes(*eight));
        if bytes[..9] != *MAGIC {
            return Err(Error::corrupt("it is no index of tokens: it does not begin with `MMIDIDX`"));
        }
        if number(9) != 1 {
            return Err(Error::unsupported(format!("it has version {}, version 1 is read", number(9))));
        }
        let dtype = match (bytes[17], CODES.iter().find(|(code, _)| *code == bytes[17])) {
            (_, Some((_, dtype))) => *dtype,
            (6 | 7, _) => return Err(Error::unsupported("its elements are floats, which are no tokens")),
            (code, _) => {
                return Err(Error::corrupt(format!("it tells the element type {code}, which is none")));
            }
        };
        let head = Self { dtype, sequences: number(18), entries: number(26) };
        // Some writers add a byte for each sequence, its mode, which is not needed.
        let whole = head.end();
        if whole.is_none_or(|end| end != size && end.checked_add(head.sequences) != Some(size)) {
            return Err(Error::corrupt(format!(
                "it tells {} sequences and {} entries of documents, which are no {size} bytes",
                head.sequences, head.entries
            )));
        }
        if head.entries == 0 {
            return Err(Error::corrupt("its index of documents is empty, not even its end is there"));
        }
        Ok(head)
    }

    /// A head as it is written.
    pub fn to_bytes(&self) -> Result<[u8; HEAD_BYTES]> {
        let code = CODES.iter().find(|(_, dtype)| *dtype == self.dtype).map(|(code, _)| *code);
        let code = code.ok_or_else(|| Error::internal(format!("an index of {}", self.dtype.name())))?;
        let mut bytes = [0; HEAD_BYTES];
        bytes[..9].copy_from_slice(MAGIC);
        bytes[9] = 1;
        bytes[17] = code;
        bytes[18..26].copy_from_slice(&self.sequences.to_le_bytes());
        bytes[26..].copy_from_slice(&self.entries.to_le_bytes());
        Ok(bytes)
    }

    fn end(&self) -> Option<u64> {
        let arrays = self.sequences.checked_mul(12)?.checked_add(self.entries.checked_mul(8)?)?;
        arrays.checked_add(HEAD_BYTES as u64)
    }

    /// Bytes of the index in which these sequences have their lengths.
    pub fn lengths(&self, sequences: Range<u64>) -> Range<u64> {
        let at = |sequence: u64| HEAD_BYTES as u64 + sequence * 4;
        at(sequences.start)..at(sequences.end)
    }

    /// Bytes of the index in which these sequences have their places.
    pub fn places(&self, sequences: Range<u64>) -> Range<u64> {
        let at = |sequence: u64| HEAD_BYTES as u64 + self.sequences * 4 + sequence * 8;
        at(sequences.start)..at(sequences.end)
    }

    /// Bytes of the index in which these entries of the document index lie.
    pub fn documents(&self, entries: Range<u64>) -> Range<u64> {
        let at = |entry: u64| HEAD_BYTES as u64 + self.sequences * 12 + entry * 8;
        at(entries.start)..at(entries.end)
    }
}

/// Where documents lie among the tokens, put together from pieces of an index: first all entries of documents, then
/// sequences in order.
#[derive(Clone, Debug)]
pub struct Documents {
    head: Head,
    /// Tokens of the `.bin`.
    tokens: u64,
    /// Sequences before each document, and all of them; in their place, tokens once they are known.
    ends: Vec<u64>,
    /// Sequences and tokens that were seen, and the next document whose end is not known.
    sequences: u64,
    seen: u64,
    next: usize,
}

impl Documents {
    /// Of an index whose `.bin` has `bytes` bytes.
    pub fn new(head: Head, bytes: u64) -> Result<Self> {
        let size = head.dtype.size() as u64;
        if !bytes.is_multiple_of(size) {
            let why = format!("its {bytes} bytes are no whole tokens of {}", head.dtype.name());
            return Err(Error::corrupt(why));
        }
        Ok(Self { head, tokens: bytes / size, ends: Vec::new(), sequences: 0, seen: 0, next: 0 })
    }

    /// Takes a piece of the document index.
    pub fn take_entries(&mut self, piece: &[u8]) -> Result<()> {
        for entry in piece.chunks_exact(8) {
            let entry = u64::from_le_bytes(entry.try_into().unwrap_or_default());
            let last = self.ends.last().copied();
            if entry > self.head.sequences || last.unwrap_or(0) > entry || (last.is_none() && entry != 0) {
                let why = format!(
                    "entry {} of its documents is sequence {entry}, which is out of order",
                    self.ends.len()
                );
                return Err(Error::corrupt(why));
            }
            self.ends.push(entry);
        }
        Ok(())
    }

    /// Takes the lengths and places of the next sequences.
    pub fn take_sequences(&mut self, lengths: &[u8], places: &[u8]) -> Result<()> {
        for (length, place) in lengths.chunks_exact(4).zip(places.chunks_exact(8)) {
            self.end_documents();
            let length = i32::from_le_bytes(length.try_into().unwrap_or_default());
            let place = u64::from_le_bytes(place.try_into().unwrap_or_default());
            let number = self.sequences;
            if Some(place) != self.seen.checked_mul(self.head.dtype.size() as u64) {
                let why = format!("sequence {number} begins at byte {place}, not where the one before ends");
                return Err(
                    Error::unsupported(why).with_hint("write the file again with Megatron's own builder")
                );
            }
            let end = u64::try_from(length).ok().and_then(|length| self.seen.checked_add(length));
            self.seen = end.filter(|end| *end <= self.tokens).ok_or_else(|| {
                Error::corrupt(format!(
                    "sequence {number} has {length} tokens from token {} on, and there are {}",
                    self.seen, self.tokens
                ))
            })?;
            self.sequences += 1;
        }
        Ok(())
    }

    /// Where each document lies, in tokens; documents without any are left out.
    pub fn finish(mut self) -> Result<Vec<Range<u64>>> {
        self.end_documents();
        if self.sequences != self.head.sequences || self.next != self.ends.len() {
            return Err(Error::corrupt("its documents do not end with its sequences"));
        }
        if self.seen != self.tokens {
            let why = format!("its sequences have {} tokens, the data has {}", self.seen, self.tokens);
            return Err(
                Error::corrupt(why).with_hint("data and index are of two versions, or one is cut off")
            );
        }
        if self.ends.last() != Some(&self.tokens) && self.sequences > 0 {
            return Err(Error::corrupt("sequences follow its last document"));
        }
        Ok(self.ends.windows(2).map(|pair| pair[0]..pair[1]).filter(|place| !place.is_empty()).collect())
    }

    /// Documents that end where the next sequence begins.
    fn end_documents(&mut self) {
        while let Some(end) = self.ends.get_mut(self.next).filter(|end| **end == self.sequences) {
            *end = self.seen;
            self.next += 1;
        }
    }
}

#[cfg(test)]
#[path = "tokens_tests.rs"]
mod tests;
