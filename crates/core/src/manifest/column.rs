//! Columns of integers with one width for all values, read in place.
//!
//! A value is `base + stored`, where `base` is the smallest value and `stored` takes 0, 1, 2, 4 or 8 bytes: a column
//! whose values are all equal takes none. In a nullable column the largest stored number means that the value is
//! missing. Signed numbers are shifted into unsigned ones first, so there is one kind of column.

use super::format::{Section, corrupt};
use crate::Result;
use std::ops::Range;

/// The value that a nullable column cannot hold.
pub(super) const RESERVED: u64 = u64::MAX;

/// Where a column lies and how its values are read. Holds no bytes.
#[derive(Clone, Debug)]
pub(super) struct Column {
    range: Range<usize>,
    count: u64,
    width: u8,
    nullable: bool,
    base: u64,
}

impl Column {
    /// Checks that `section` is a column of `count` values.
    pub(super) fn new(section: Section, count: u64) -> Result<Self> {
        let Section { width, nullable, base, range, .. } = section;
        if !matches!(width, 0 | 1 | 2 | 4 | 8) || (width == 0 && nullable) {
            return Err(corrupt(format!("a column has values of {width} bytes")));
        }
        if u64::from(width).checked_mul(count) != Some(range.len() as u64) {
            return Err(corrupt(format!(
                "a column of {count} values of {width} bytes has {} bytes",
                range.len()
            )));
        }
        Ok(Self { range, count, width, nullable, base })
    }

    /// The value at `index`; `None` when it is missing, beyond the column or no 64-bit number.
    #[inline]
    pub(super) fn get(&self, bytes: &[u8], index: u64) -> Option<u64> {
        if index >= self.count {
            return None;
        }
        let at = self.range.start + index as usize * self.width as usize;
        let (stored, largest) = match self.width {
            0 => (0, 0),
            1 => (u64::from(*bytes.get(at)?), u64::from(u8::MAX)),
            2 => (u64::from(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?)), u64::from(u16::MAX)),
            4 => (u64::from(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?)), u64::from(u32::MAX)),
            _ => (u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?), u64::MAX),
        };
        if self.nullable && stored == largest { None } else { self.base.checked_add(stored) }
    }

    /// Whether the values never fall, all being present and at most `limit`.
    pub(super) fn is_ascending(&self, bytes: &[u8], limit: u64) -> bool {
        let mut last = 0;
        (0..self.count).all(|index| {
            let value = self.get(bytes, index);
            value.is_some_and(|value| value >= std::mem::replace(&mut last, value) && value <= limit)
        })
    }

    /// Whether every value takes bytes of the file, so that the file's length bounds how many there are.
    pub(super) fn takes_bytes(&self) -> bool {
        self.width > 0 || self.count <= 1
    }
}

/// A signed number as a column value. The smallest signed number becomes [`RESERVED`], the order of the rest is kept.
pub(super) fn from_signed(value: i64) -> u64 {
    (value as u64 ^ (1 << 63)).wrapping_sub(1)
}

/// The inverse of [`from_signed`].
pub(super) fn to_signed(value: u64) -> i64 {
    (value.wrapping_add(1) ^ (1 << 63)) as i64
}

/// A finished column: the numbers of its table row and its bytes.
pub(super) struct ColumnBody {
    pub(super) width: u8,
    pub(super) nullable: bool,
    pub(super) base: u64,
    pub(super) bytes: Vec<u8>,
}

/// Collects a column. Values never pushed, before the first and after the last, are missing.
#[derive(Debug, Default)]
pub(super) struct ColumnBuilder {
    first: u64,
    values: Vec<u64>,
    nullable: bool,
}

impl ColumnBuilder {
    /// A column in which every value is present and may be any number.
    pub(super) fn required() -> Self {
        Self::default()
    }

    /// A column whose values may be missing and must not be [`RESERVED`].
    pub(super) fn nullable() -> Self {
        Self { nullable: true, ..Self::default() }
    }

    /// Whether no value was pushed.
    pub(super) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Appends a value to a required column.
    pub(super) fn push(&mut self, value: u64) {
        self.values.push(value);
    }

    /// Sets the value at `index`, which lies behind every index set before.
    pub(super) fn set(&mut self, index: u64, value: u64) {
        if self.values.is_empty() {
            self.first = index;
        }
        self.values.resize((index - self.first) as usize, RESERVED);
        self.values.push(value);
    }

    /// Chooses base and width and writes `count` values.
    pub(super) fn finish(self, count: u64) -> ColumnBody {
        let Self { first, values, nullable } = self;
        let missing = |value: &u64| nullable && *value == RESERVED;
        let present = values.iter().filter(|value| !missing(value));
        let base = present.clone().min().copied().unwrap_or(0);
        let spread = present.max().map_or(0, |largest| largest - base);
        // A column is nullable in the file only when a value is in fact missing: the others get all numbers.
        let nullable = nullable && (values.len() as u64 != count || values.iter().any(missing));
        let width = match spread {
            0 if !nullable => 0,
            _ if fits(spread, u64::from(u8::MAX), nullable) => 1,
            _ if fits(spread, u64::from(u16::MAX), nullable) => 2,
            _ if fits(spread, u64::from(u32::MAX), nullable) => 4,
            _ => 8,
        };
        let mut bytes = Vec::with_capacity(width * count as usize);
        bytes.resize(width * first.min(count) as usize, 0xFF);
        for value in &values {
            // `RESERVED` cut to any width is all ones, which is how a missing value is stored.
            let stored = if nullable && *value == RESERVED { RESERVED } else { value - base };
            bytes.extend_from_slice(&stored.to_le_bytes()[..width]);
        }
        bytes.resize(width * count as usize, 0xFF);
        ColumnBody { width: width as u8, nullable, base, bytes }
    }
}

fn fits(spread: u64, largest: u64, nullable: bool) -> bool {
    if nullable { spread < largest } else { spread <= largest }
}
