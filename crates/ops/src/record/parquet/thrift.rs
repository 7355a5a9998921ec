//! Thrift's compact protocol, as far as Parquet's footers and page heads need it: fields are visited, nothing is built.
//!
//! Every length is compared with what is there before anything is taken, and nesting is bounded, so hostile bytes cost
//! no more than their own length.

use forebay_core::{Error, Result};

/// Deepest nesting that is passed over.
const MAX_DEPTH: usize = 32;

/// Kinds of values, by their numbers in the protocol.
pub(super) const TRUE: u8 = 1;
pub(super) const FALSE: u8 = 2;
pub(super) const LIST: u8 = 9;
pub(super) const STRUCT: u8 = 12;
const I8: u8 = 3;
const I16: u8 = 4;
const I32: u8 = 5;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const SET: u8 = 10;
const MAP: u8 = 11;

/// Bytes that are read from front to back.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// How many bytes were read.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Visits every field of a struct. `visit` is given its number and kind, and says whether it read the value; what it
    /// did not read is passed over.
    pub(super) fn fields(&mut self, mut visit: impl FnMut(&mut Self, i64, u8) -> Result<bool>) -> Result<()> {
        let mut number = 0i64;
        loop {
            let head = self.byte()?;
            if head == 0 {
                return Ok(());
            }
            number = match head >> 4 {
                0 => self.int()?,
                step => number.saturating_add(i64::from(step)),
            };
            let kind = head & 15;
            if !visit(self, number, kind)? {
                self.pass(kind, 0)?;
            }
        }
    }

    /// Kind and number of the values of a list. There are never more of them than bytes.
    pub(super) fn list(&mut self) -> Result<(u8, usize)> {
        let head = self.byte()?;
        let count = match head >> 4 {
            15 => usize::try_from(self.varint()?).map_err(|_| damaged())?,
            count => usize::from(count),
        };
        if count > self.bytes.len() - self.at {
            return Err(damaged());
        }
        Ok((head & 15, count))
    }

    /// Visits every struct of a list.
    pub(super) fn structs(&mut self, mut visit: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        let (kind, count) = self.list()?;
        if kind != STRUCT && count > 0 {
            return Err(damaged());
        }
        (0..count).try_for_each(|_| visit(self))
    }

    /// An integer of any width.
    pub(super) fn int(&mut self) -> Result<i64> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// A number that counts something.
    pub(super) fn count(&mut self) -> Result<u64> {
        u64::try_from(self.int()?).map_err(|_| Error::corrupt("its description has a negative count"))
    }

    /// Text or bytes.
    pub(super) fn binary(&mut self) -> Result<&'a [u8]> {
        let length = usize::try_from(self.varint()?).map_err(|_| damaged())?;
        let end = self.at.checked_add(length).filter(|end| *end <= self.bytes.len()).ok_or_else(cut_off)?;
        let found = &self.bytes[self.at..end];
        self.at = end;
        Ok(found)
    }

    /// Text; what is no UTF-8 is shown as it can be.
    pub(super) fn text(&mut self) -> Result<String> {
        Ok(String::from_utf8_lossy(self.binary()?).into_owned())
    }

    fn byte(&mut self) -> Result<u8> {
        let byte = *self.bytes.get(self.at).ok_or_else(cut_off)?;
        self.at += 1;
        Ok(byte)
    }

    fn varint(&mut self) -> Result<u64> {
        let mut value = 0;
        for shift in (0..70).step_by(7) {
            let byte = self.byte()?;
            if shift < 64 {
                value |= u64::from(byte & 127) << shift;
            }
            if byte < 128 {
                return Ok(value);
            }
        }
        Err(damaged())
    }

    fn pass(&mut self, kind: u8, depth: usize) -> Result<()> {
        if depth > MAX_DEPTH {
            return Err(Error::exhausted(format!("its description is nested deeper than {MAX_DEPTH}")));
        }
        match kind {
            TRUE | FALSE => Ok(()),
            I8 => self.byte().map(drop),
            I16 | I32 | I64 => self.varint().map(drop),
            DOUBLE => (0..8).try_for_each(|_| self.byte().map(drop)),
            BINARY => self.binary().map(drop),
            LIST | SET => {
                let (kind, count) = self.list()?;
                (0..count).try_for_each(|_| self.pass_element(kind, depth + 1))
            }
            MAP => {
                let count = self.varint()?;
                if count == 0 {
                    return Ok(());
                }
                if count > (self.bytes.len() - self.at) as u64 {
                    return Err(damaged());
                }
                let kinds = self.byte()?;
                (0..count).try_for_each(|_| {
                    self.pass_element(kinds >> 4, depth + 1)?;
                    self.pass_element(kinds & 15, depth + 1)
                })
            }
            STRUCT => loop {
                let head = self.byte()?;
                if head == 0 {
                    return Ok(());
                }
                if head >> 4 == 0 {
                    self.varint()?;
                }
                self.pass(head & 15, depth + 1)?;
            },
            _ => Err(damaged()),
        }
    }

    /// Inside of lists a truth value takes a byte.
    fn pass_element(&mut self, kind: u8, depth: usize) -> Result<()> {
        match kind {
            TRUE | FALSE => self.byte().map(drop),
            other => self.pass(other, depth),
        }
    }
}

/// The mark of bytes that end too early, which more bytes may cure.
pub(super) const CUT_OFF: &str = "it is cut off";

fn cut_off() -> Error {
    Error::corrupt(CUT_OFF)
}

fn damaged() -> Error {
    Error::corrupt("its description is damaged")
}
