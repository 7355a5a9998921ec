//! NumPy's `.npy` arrays, format versions 1 to 3: the header is read, the elements stay where they are.
//!
//! Little endian and C order only, because then the stored bytes are the tensor and one copy delivers it. Arrays of
//! objects are pickles; they are refused and nothing here ever runs one.

use crate::buffer::Buffer;
use crate::value::Tensor;
use forebay_core::tensor::{Dtype, TensorSpec};
use forebay_core::{Error, Result};
use std::ops::Range;

/// The first bytes of every `.npy` file.
pub const SIGNATURE: &[u8] = b"\x93NUMPY";

/// NumPy's own limit on headers that are not trusted.
const HEADER_MAX_BYTES: usize = 10_000;

/// NumPy has had no more axes than this.
const MAX_AXES: usize = 64;

// Elements are handed over as they are stored.
const _: () =
    assert!(cfg!(target_endian = "little"), "arrays would have to be turned on a big-endian machine");

/// An array inside a payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array {
    /// Element type and shape.
    pub spec: TensorSpec,
    /// Where the elements lie in the payload; `spec.bytes()` long.
    pub data: Range<usize>,
}

/// The array as a tensor of its own.
pub fn decode(payload: &[u8]) -> Result<Tensor> {
    let Array { spec, data } = parse(payload)?;
    let mut buffer = Buffer::alone(data.len());
    buffer.as_mut_slice().copy_from_slice(&payload[data]);
    Ok(Tensor { spec, data: buffer })
}

/// Whether an array of `found` may be taken as `asked`. NumPy has no `bf16`: its bits are stored as `u16`.
pub(crate) fn holds(found: Dtype, asked: Dtype) -> bool {
    found == asked || (found == Dtype::U16 && asked == Dtype::Bf16)
}

/// Copies the elements to `row`, when the array is of the form that the batch has.
///
/// # Panics
/// When `row` is not `spec.bytes()` long.
pub fn decode_into(payload: &[u8], spec: &TensorSpec, row: &mut [u8]) -> Result<()> {
    let array = parse(payload)?;
    if array.spec.shape != spec.shape || !holds(array.spec.dtype, spec.dtype) {
        let (found, wanted) = (&array.spec, spec);
        return Err(Error::corrupt(format!(
            "decode npy of {} {:?}: the recipe says {} {:?}",
            found.dtype.name(),
            found.shape,
            wanted.dtype.name(),
            wanted.shape
        ))
        .with_hint("leave `shape` out of the recipe to take arrays of any shape"));
    }
    row.copy_from_slice(&payload[array.data]);
    Ok(())
}

/// Reads the header and checks that the payload holds all elements. Bytes after them are ignored, as NumPy does.
pub fn parse(bytes: &[u8]) -> Result<Array> {
    let (text, start) = header_text(bytes)?;
    let header = Header::parse(text)?;
    let dtype = dtype(&header.descr)?;
    if header.fortran_order && header.shape.iter().filter(|extent| **extent > 1).count() > 1 {
        return Err(Error::unsupported("decode npy: the array is in Fortran order")
            .with_hint("store it in C order: `np.save(path, np.ascontiguousarray(array))`"));
    }
    let spec = TensorSpec { dtype, shape: header.shape };
    // Empty axes count as one here, so that no order of multiplying the others overflows later.
    let most = spec.shape.iter().try_fold(dtype.size(), |bytes, extent| bytes.checked_mul((*extent).max(1)));
    match most.and_then(|_| start.checked_add(spec.bytes())) {
        Some(end) if end <= bytes.len() => Ok(Array { spec, data: start..end }),
        _ => Err(Error::corrupt(format!(
            "decode npy of {} {:?}: {} bytes follow the header, too few for its elements",
            dtype.name(),
            spec.shape,
            bytes.len() - start
        ))),
    }
}

/// The header's text, and where the elements begin.
fn header_text(bytes: &[u8]) -> Result<(&str, usize)> {
    let cut_off =
        || Error::corrupt(format!("decode npy: cut off after {} bytes, inside the header", bytes.len()));
    let Some(rest) = bytes.strip_prefix(SIGNATURE) else {
        return Err(Error::corrupt("decode npy: the signature is missing"));
    };
    let (&[major, minor], rest) = rest.split_first_chunk::<2>().ok_or_else(cut_off)?;
    let (len, rest) = match (major, minor) {
        (1, 0) => {
            let (len, rest) = rest.split_first_chunk::<2>().ok_or_else(cut_off)?;
            (usize::from(u16::from_le_bytes(*len)), rest)
        }
        (2 | 3, 0) => {
            let (len, rest) = rest.split_first_chunk::<4>().ok_or_else(cut_off)?;
            (u32::from_le_bytes(*len) as usize, rest)
        }
        _ => {
            let message =
                format!("decode npy: format version {major}.{minor}, only 1.0, 2.0 and 3.0 are known");
            return Err(Error::unsupported(message));
        }
    };
    if len > HEADER_MAX_BYTES {
        let message = format!("decode npy: a header of {len} bytes, more than {HEADER_MAX_BYTES}");
        return Err(Error::unsupported(message));
    }
    let text = rest.get(..len).ok_or_else(cut_off)?;
    let text = std::str::from_utf8(text).map_err(|_| Error::corrupt("decode npy: the header is not text"))?;
    Ok((text, bytes.len() - rest.len() + len))
}

/// The element type of a NumPy type string such as `<f4`.
fn dtype(descr: &str) -> Result<Dtype> {
    let (order, kind) = descr.split_at_checked(1).unwrap_or(("", descr));
    let dtype = match kind {
        "b1" => Dtype::Bool,
        "u1" => Dtype::U8,
        "u2" => Dtype::U16,
        "u4" => Dtype::U32,
        "u8" => Dtype::U64,
        "i1" => Dtype::I8,
        "i2" => Dtype::I16,
        "i4" => Dtype::I32,
        "i8" => Dtype::I64,
        "f2" => Dtype::F16,
        "f4" => Dtype::F32,
        "f8" => Dtype::F64,
        _ if kind.starts_with('O') => {
            return Err(Error::unsupported(
                "decode npy: the array holds Python objects, which are stored as a pickle",
            )
            .with_hint("pickles can run any code: store numbers, or json, instead"));
        }
        _ => {
            return Err(Error::unsupported(format!("decode npy: element type `{descr}`"))
                .with_hint("store booleans, integers of 8 to 64 bits, or floats of 16 to 64 bits"));
        }
    };
    match order {
        "<" => Ok(dtype),
        "|" | ">" if dtype.size() == 1 => Ok(dtype),
        ">" => Err(Error::unsupported(format!("decode npy: element type `{descr}` is big endian"))
            .with_hint("store it in little endian: `array.astype(array.dtype.newbyteorder(\"<\"))`")),
        _ => Err(Error::corrupt(format!("decode npy: element type `{descr}` has no byte order"))),
    }
}

#[derive(Debug, PartialEq)]
struct Header {
    descr: String,
    fortran_order: bool,
    shape: Vec<usize>,
}

impl Header {
    /// Reads the Python dict that NumPy writes. Only its three keys are known, each exactly once.
    fn parse(text: &str) -> Result<Self> {
        let mut text = Text { rest: text };
        let (mut descr, mut fortran_order, mut shape) = (None, None, None);
        text.expect('{')?;
        while !text.accept('}') {
            let key = text.string()?;
            text.expect(':')?;
            let fresh = match key {
                "descr" if text.peek() == Some('[') => {
                    return Err(Error::unsupported("decode npy: the array has named fields")
                        .with_hint("store each field as an array of its own"));
                }
                "descr" => descr.replace(text.string()?.to_owned()).is_none(),
                "fortran_order" => fortran_order.replace(text.boolean()?).is_none(),
                "shape" => shape.replace(text.tuple()?).is_none(),
                _ => return Err(text.fault("its keys are descr, fortran_order and shape")),
            };
            if !fresh {
                return Err(text.fault("a key is given twice"));
            }
            if !text.accept(',') && text.peek() != Some('}') {
                return Err(text.fault("a comma is missing"));
            }
        }
        if text.peek().is_some() {
            return Err(text.fault("there is more after the closing brace"));
        }
        match (descr, fortran_order, shape) {
            (Some(descr), Some(fortran_order), Some(shape)) => Ok(Self { descr, fortran_order, shape }),
            _ => Err(text.fault("one of descr, fortran_order and shape is missing")),
        }
    }
}

/// What is left of the header, read token by token; spaces between tokens mean nothing.
struct Text<'a> {
    rest: &'a str,
}

impl<'a> Text<'a> {
    fn peek(&mut self) -> Option<char> {
        self.rest = self.rest.trim_ascii_start();
        self.rest.chars().next()
    }

    fn accept(&mut self, token: char) -> bool {
        let found = self.peek() == Some(token);
        if found {
            self.rest = &self.rest[token.len_utf8()..];
        }
        found
    }

    fn expect(&mut self, token: char) -> Result<()> {
        if self.accept(token) { Ok(()) } else { Err(self.fault(&format!("`{token}` is missing"))) }
    }

    fn string(&mut self) -> Result<&'a str> {
        let quote = if self.accept('\'') {
            '\''
        } else if self.accept('"') {
            '"'
        } else {
            return Err(self.fault("a quoted word is missing"));
        };
        let (word, rest) = self.rest.split_once(quote).ok_or_else(|| self.fault("a quote is not closed"))?;
        self.rest = rest;
        Ok(word)
    }

    fn boolean(&mut self) -> Result<bool> {
        self.peek();
        for (word, value) in [("True", true), ("False", false)] {
            if let Some(rest) = self.rest.strip_prefix(word) {
                self.rest = rest;
                return Ok(value);
            }
        }
        Err(self.fault("True or False is missing"))
    }

    fn tuple(&mut self) -> Result<Vec<usize>> {
        let mut shape = Vec::new();
        self.expect('(')?;
        while !self.accept(')') {
            self.peek();
            let digits = self.rest.len() - self.rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let (number, rest) = self.rest.split_at(digits);
            shape.push(number.parse().map_err(|_| self.fault("the shape is not made of numbers"))?);
            // Python 2 wrote long integers as `3L`.
            self.rest = rest.strip_prefix('L').unwrap_or(rest);
            if shape.len() > MAX_AXES {
                return Err(self.fault("the shape has more than 64 axes"));
            }
            if !self.accept(',') && self.peek() != Some(')') {
                return Err(self.fault("a comma is missing"));
            }
        }
        Ok(shape)
    }

    fn fault(&self, why: &str) -> Error {
        let near: String = self.rest.chars().take(24).collect();
        Error::corrupt(format!("decode npy: read the header at `{}`: {why}", near.escape_debug()))
    }
}

#[cfg(test)]
#[path = "npy_tests.rs"]
mod tests;
