//! A table of keys in file order, front-coded: a key stores how many bytes it shares with the one before it and the
//! rest. Every sixteenth key is stored whole and its place kept in a column, so one key costs at most sixteen steps.

use super::column::{Column, ColumnBuilder};
use super::format::{Frame, Kind, Writer, corrupt};
use crate::{Error, Result};
use std::borrow::Cow;
use std::ops::Range;

/// Keys from one whole key to the next.
pub(super) const RESTART_EVERY: u64 = 16;
/// Longest key. Object stores allow 1 KiB and file systems 4 KiB; the rest is room for row keys.
pub(super) const MAX_KEY_BYTES: usize = 64 << 10;

/// Where a key table lies. Holds no bytes.
#[derive(Clone, Debug)]
pub(super) struct KeyTable {
    restarts: Column,
    text: Range<usize>,
    count: u64,
}

impl KeyTable {
    /// Takes the two sections of a table of `count` keys.
    pub(super) fn take(frame: &mut Frame, bytes: &[u8], kinds: (Kind, Kind), count: u64) -> Result<Self> {
        let restarts = Column::new(frame.take(kinds.0, 0)?, count.div_ceil(RESTART_EVERY))?;
        let text = frame.take(kinds.1, 0)?.range;
        // A key takes two bytes or more, so a header cannot promise more keys than the file has room for; and
        // blocks that never fall back make a walk over all keys linear in the file.
        if count.checked_mul(2).is_none_or(|least| least > text.len() as u64)
            || !restarts.takes_bytes()
            || !restarts.is_ascending(bytes, text.len() as u64)
        {
            return Err(corrupt(format!("a table of {count} keys does not fit its {} bytes", text.len())));
        }
        Ok(Self { restarts, text, count })
    }

    /// The key at `index`, empty when it is beyond the table or was written wrongly.
    pub(super) fn get<'a>(&self, bytes: &'a [u8], index: u64) -> Cow<'a, str> {
        self.find_in_block(bytes, index).unwrap_or_default()
    }

    /// The first index whose key is `wanted`: a walk over the whole table.
    pub(super) fn position(&self, bytes: &[u8], wanted: &str) -> Option<u64> {
        let mut key = Vec::new();
        for block in 0..self.count.div_ceil(RESTART_EVERY) {
            let mut text = self.block(bytes, block)?;
            key.clear();
            let first = block * RESTART_EVERY;
            for index in first..self.count.min(first + RESTART_EVERY) {
                if step(&mut text, &mut key).is_none() {
                    break;
                }
                if key == wanted.as_bytes() {
                    return Some(index);
                }
            }
        }
        None
    }

    fn find_in_block<'a>(&self, bytes: &'a [u8], index: u64) -> Option<Cow<'a, str>> {
        if index >= self.count {
            return None;
        }
        let mut text = self.block(bytes, index / RESTART_EVERY)?;
        if index.is_multiple_of(RESTART_EVERY) {
            let (shared, suffix) = entry(&mut text)?;
            return (shared == 0).then(|| std::str::from_utf8(suffix).ok().map(Cow::Borrowed))?;
        }
        let mut key = Vec::new();
        for _ in 0..=index % RESTART_EVERY {
            step(&mut text, &mut key)?;
        }
        String::from_utf8(key).ok().map(Cow::Owned)
    }

    fn block<'a>(&self, bytes: &'a [u8], block: u64) -> Option<&'a [u8]> {
        let text = bytes.get(self.text.clone())?;
        let start = self.restarts.get(bytes, block)? as usize;
        let end = self.restarts.get(bytes, block + 1).map_or(text.len(), |end| end as usize);
        text.get(start..end)
    }
}

/// Takes one entry off `text`: bytes shared with the key before, and the rest of the key.
fn entry<'a>(text: &mut &'a [u8]) -> Option<(usize, &'a [u8])> {
    let shared = varint(text)?;
    let length = varint(text)?;
    let (suffix, rest) = text.split_at_checked(length)?;
    *text = rest;
    (shared.checked_add(length)? <= MAX_KEY_BYTES).then_some((shared, suffix))
}

/// Turns `key` into the key after it.
fn step(text: &mut &[u8], key: &mut Vec<u8>) -> Option<()> {
    let (shared, suffix) = entry(text)?;
    if shared > key.len() {
        return None;
    }
    key.truncate(shared);
    key.extend_from_slice(suffix);
    Some(())
}

/// Seven bits a byte, low ones first; at most three bytes, since no key is longer than 2^21.
fn varint(text: &mut &[u8]) -> Option<usize> {
    let mut value = 0;
    for shift in [0, 7, 14] {
        let (byte, rest) = text.split_first()?;
        *text = rest;
        value |= usize::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Collects a key table.
pub(super) struct KeyTableBuilder {
    text: Vec<u8>,
    restarts: ColumnBuilder,
    last: Vec<u8>,
    count: u64,
}

impl KeyTableBuilder {
    pub(super) fn new() -> Self {
        Self { text: Vec::new(), restarts: ColumnBuilder::required(), last: Vec::new(), count: 0 }
    }

    /// The key pushed last.
    pub(super) fn last(&self) -> &[u8] {
        &self.last
    }

    /// Appends a key.
    pub(super) fn push(&mut self, key: &str) -> Result<()> {
        if key.len() > MAX_KEY_BYTES {
            return Err(Error::unsupported(format!(
                "add key of {} bytes to a manifest: keys have at most {MAX_KEY_BYTES} bytes",
                key.len()
            )));
        }
        let key = key.as_bytes();
        let whole = self.count.is_multiple_of(RESTART_EVERY);
        if whole {
            self.restarts.push(self.text.len() as u64);
        }
        let shared =
            if whole { 0 } else { self.last.iter().zip(key).take_while(|(last, new)| last == new).count() };
        write_varint(&mut self.text, shared);
        write_varint(&mut self.text, key.len() - shared);
        self.text.extend_from_slice(&key[shared..]);
        self.last.truncate(shared);
        self.last.extend_from_slice(&key[shared..]);
        self.count += 1;
        Ok(())
    }

    /// Writes the two sections.
    pub(super) fn finish(self, writer: &mut Writer, kinds: (Kind, Kind)) {
        writer.column(kinds.0, 0, self.restarts, self.count.div_ceil(RESTART_EVERY));
        writer.bytes(kinds.1, self.text);
    }
}

fn write_varint(text: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        text.push(value as u8 | 0x80);
        value >>= 7;
    }
    text.push(value as u8);
}
