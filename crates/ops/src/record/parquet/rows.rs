//! Rows out of pages: the value of one column in each row, one after the other.
//!
//! Text and bytes stand as they are, numbers as their bytes. A value inside of lists is a record: a byte that says how it
//! is written, then its elements (`0`) or a JSON array (`1`), for lists in lists, of text, or with nulls.

use super::page::{Head, Page, Pages};
use super::schema::{Leaf, Meaning, Stored};
use forebay_core::{Error, Result};
use half::f16;
use std::ops::Range;

/// How a list is written: elements side by side, or JSON.
pub(super) const ELEMENTS: u8 = 0;
pub(super) const JSON: u8 = 1;

/// Most bytes that the values of one run may take.
const MAX_RUN_BYTES: usize = 1 << 30;

/// The values of a column in rows that follow each other.
#[derive(Debug, Default)]
pub struct Rows {
    /// Values as they are given, one after the other; empty for columns of integers.
    pub data: Vec<u8>,
    /// Where each row's value lies; `None` is null.
    pub places: Vec<Option<Range<u64>>>,
    /// The integers of a column of integers.
    pub ints: Vec<Option<i64>>,
    /// A row inside of lists that may go on in the next page.
    open: Option<Open>,
}

/// Levels and values of a row that is being gathered.
#[derive(Debug, Default)]
struct Open {
    levels: Vec<(u8, u8)>,
    values: Vec<u8>,
    ends: Vec<usize>,
}

impl Rows {
    /// Rows that are whole.
    pub fn len(&self) -> usize {
        self.places.len().max(self.ints.len())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a page. `cut` is asked before the first row that begins in it, when that is where the page begins: what it
    /// answers `true` to ends the rows so far, which are given to it.
    pub fn add(
        &mut self,
        pages: &Pages,
        head: &Head,
        body: &[u8],
        mut cut: impl FnMut(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let page = pages.read(head, body)?;
        let leaf = pages.leaf();
        if page.repeated.first().is_none_or(|level| *level == 0) {
            self.finish(leaf)?;
            cut(self)?;
        }
        if leaf.is_int() {
            return self.add_ints(&page, leaf);
        }
        if leaf.lists.is_empty() {
            return self.add_values(&page, leaf);
        }
        self.add_lists(&page, leaf)
    }

    /// Ends the last row.
    pub fn finish(&mut self, leaf: &Leaf) -> Result<()> {
        match self.open.take() {
            Some(open) => self.close(&open, leaf),
            None => Ok(()),
        }
    }

    fn add_ints(&mut self, page: &Page, leaf: &Leaf) -> Result<()> {
        let mut next = 0;
        for row in 0..page.count {
            let there = page.defined.get(row).is_none_or(|level| *level == u32::from(leaf.defined));
            let value = if there {
                next += 1;
                let value = integer(leaf, page.values.get(next - 1)?);
                if value == Some(i64::MIN) {
                    return Err(Error::unsupported(format!("it holds {}", i64::MIN)));
                }
                value
            } else {
                None
            };
            self.ints.push(value);
        }
        Ok(())
    }

    fn add_values(&mut self, page: &Page, leaf: &Leaf) -> Result<()> {
        let mut next = 0;
        for row in 0..page.count {
            if page.defined.get(row).is_some_and(|level| *level != u32::from(leaf.defined)) {
                self.places.push(None);
                continue;
            }
            let start = self.data.len() as u64;
            let value = page.values.get(next)?;
            next += 1;
            match leaf.meaning {
                Meaning::Decimal(scale) => self.data.extend(decimal(leaf.stored, value, scale)?.into_bytes()),
                _ => self.data.extend_from_slice(value),
            }
            self.bounded()?;
            self.places.push(Some(start..self.data.len() as u64));
        }
        Ok(())
    }

    fn add_lists(&mut self, page: &Page, leaf: &Leaf) -> Result<()> {
        let mut next = 0;
        for (row, repeated) in page.repeated.iter().enumerate() {
            let defined = page.defined.get(row).copied().unwrap_or_default();
            if *repeated == 0 {
                self.finish(leaf)?;
                self.open = Some(Open::default());
            }
            let open = self.open.as_mut().ok_or_else(|| Error::corrupt("a list goes on that never began"))?;
            open.levels.push((*repeated as u8, defined as u8));
            if defined == u32::from(leaf.defined) {
                open.values.extend_from_slice(page.values.get(next)?);
                open.ends.push(open.values.len());
                next += 1;
                if open.values.len() > MAX_RUN_BYTES {
                    return Err(too_long());
                }
            }
        }
        Ok(())
    }

    fn close(&mut self, open: &Open, leaf: &Leaf) -> Result<()> {
        let start = self.data.len() as u64;
        let outer = leaf.lists.first().copied().unwrap_or_default();
        let first = open.levels.first().map_or(0, |(_, defined)| *defined);
        if first.saturating_add(1) < outer {
            self.places.push(None);
            return Ok(());
        }
        let all_there = open.levels.iter().all(|(_, defined)| *defined == leaf.defined);
        let empty = first < outer;
        if leaf.dtype().is_some() && leaf.lists.len() == 1 && (all_there || empty) {
            self.data.push(ELEMENTS);
            self.data.extend_from_slice(&open.values);
        } else {
            self.data.push(JSON);
            json(open, leaf, &mut self.data)?;
        }
        self.bounded()?;
        self.places.push(Some(start..self.data.len() as u64));
        Ok(())
    }

    fn bounded(&self) -> Result<()> {
        if self.data.len() > MAX_RUN_BYTES { Err(too_long()) } else { Ok(()) }
    }
}

fn too_long() -> Error {
    Error::exhausted(format!("a page gives more than {MAX_RUN_BYTES} bytes of values"))
        .with_hint("write smaller pages, or without a dictionary for this column")
}

/// Lists as JSON. Levels say for each value at which list it goes on, and how much of it is there.
fn json(open: &Open, leaf: &Leaf, to: &mut Vec<u8>) -> Result<()> {
    let (mut depth, mut next, mut start) = (0usize, 0usize, 0usize);
    for (number, (repeated, defined)) in open.levels.iter().enumerate() {
        let repeated = usize::from(*repeated);
        if number > 0 {
            if repeated > depth {
                return Err(Error::corrupt("a list goes on that never began"));
            }
            to.extend(std::iter::repeat_n(b']', depth - repeated));
            depth = repeated;
            to.push(b',');
        }
        let mut whole = true;
        for level in &leaf.lists[depth.min(leaf.lists.len())..] {
            if defined >= level {
                to.push(b'[');
                depth += 1;
                continue;
            }
            to.extend_from_slice(if defined.saturating_add(1) == *level { b"[]" } else { b"null" });
            whole = false;
            break;
        }
        if whole && *defined == leaf.defined {
            let end = *open.ends.get(next).ok_or_else(|| Error::corrupt("a list has too few values"))?;
            element(leaf, &open.values[start..end], to)?;
            (next, start) = (next + 1, end);
        } else if whole {
            to.extend_from_slice(b"null");
        }
    }
    to.extend(std::iter::repeat_n(b']', depth));
    Ok(())
}

fn element(leaf: &Leaf, value: &[u8], to: &mut Vec<u8>) -> Result<()> {
    let number = match (leaf.meaning, leaf.stored, value) {
        (Meaning::Int | Meaning::Unsigned, ..) => serde_json::json!(integer(leaf, value)),
        (Meaning::Wide, _, value) => {
            serde_json::json!(value.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)))
        }
        (Meaning::Float, Stored::Float, value) => {
            serde_json::json!(value.first_chunk().map(|bytes| f32::from_le_bytes(*bytes)))
        }
        (Meaning::Float, Stored::Double, value) => {
            serde_json::json!(value.first_chunk().map(|bytes| f64::from_le_bytes(*bytes)))
        }
        (Meaning::Float, _, value) => {
            serde_json::json!(value.first_chunk().map(|bytes| f16::from_le_bytes(*bytes).to_f32()))
        }
        (Meaning::Decimal(scale), ..) => {
            to.extend(decimal(leaf.stored, value, scale)?.into_bytes());
            return Ok(());
        }
        (Meaning::Text | Meaning::Bytes, ..) => {
            let text = std::str::from_utf8(value).map_err(|_| Error::corrupt("its text is not UTF-8"))?;
            serde_json::json!(text)
        }
    };
    to.extend(number.to_string().into_bytes());
    Ok(())
}

fn integer(leaf: &Leaf, value: &[u8]) -> Option<i64> {
    match (leaf.stored, value) {
        (Stored::Boolean, [flag, ..]) => Some(i64::from(*flag)),
        (Stored::Int32, value) => {
            let value = i32::from_le_bytes(*value.first_chunk()?);
            Some(if leaf.meaning == Meaning::Unsigned { i64::from(value as u32) } else { value.into() })
        }
        (_, value) => Some(i64::from_le_bytes(*value.first_chunk()?)),
    }
}

/// A number with `scale` decimals, as text. Those in bytes have the larger end first.
fn decimal(stored: Stored, value: &[u8], scale: u32) -> Result<String> {
    let wide = match (stored, value) {
        (Stored::Int32, [a, b, c, d]) => i128::from(i32::from_le_bytes([*a, *b, *c, *d])),
        (Stored::Int64, value) if value.len() == 8 => {
            i128::from(value.first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes)))
        }
        (_, value) if (1..=16).contains(&value.len()) => {
            let sign = if value[0] >= 128 { -1i128 } else { 0 };
            value.iter().fold(sign, |all, byte| all << 8 | i128::from(*byte))
        }
        _ => return Err(Error::unsupported("its decimals are longer than 16 bytes")),
    };
    // A schema's scale is bounded when it is read; one out of a manifest is bounded here.
    let scale = scale.min(64);
    let digits = format!("{:0>width$}", wide.unsigned_abs(), width = scale as usize + 1);
    let (whole, part) = digits.split_at(digits.len() - scale as usize);
    let (sign, point) = (if wide < 0 { "-" } else { "" }, if scale > 0 { "." } else { "" });
    Ok(format!("{sign}{whole}{point}{part}"))
}
