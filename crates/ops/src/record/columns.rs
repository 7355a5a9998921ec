//! Records of columns: the sizes of those that vary, then the values. MDS shards and LitData chunks hold samples so.
//!
//! ```text
//! u32 size of each column whose size is not fixed     the values, one after the other     (little endian)
//! ```
//!
//! What a value is follows from the column's encoding: `mds` and `litdata`. Here is what both share: arrays, raw
//! pixels, JSON.

use super::value::Taken;
use bytes::Bytes;
use forebay_core::tensor::Dtype;
use forebay_core::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::ops::Range;

/// One column of such records, in the order in which they are stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    /// The field that it is.
    pub name: String,
    /// How its values are stored, in the words of the format.
    pub encoding: String,
    /// Bytes of every value; without it each record tells the size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u32>,
}

impl Column {
    /// Whether its values are Python's pickles, which run code when they are read and are never taken.
    pub fn is_pickle(&self) -> bool {
        matches!(self.encoding.as_str(), "pkl" | "pickle" | "graph" | "graph:pickle")
    }

    /// A column that cannot be given, and why.
    pub fn refused(name: &str, why: &str) -> Self {
        Self { name: name.to_owned(), encoding: format!("{REFUSED}{why}"), bytes: None }
    }

    /// Whether its values may be taken.
    pub fn is_offered(&self) -> bool {
        !self.is_pickle() && !self.encoding.starts_with(REFUSED)
    }
}

/// What the encoding of a column begins with that cannot be given; the reason follows.
const REFUSED: &str = "refused: ";

/// Most axes of an array.
const MAX_AXES: usize = 63;

/// The values of `names`; `value` knows the encodings.
pub(super) fn take(
    record: &Bytes,
    columns: &[Column],
    names: &[&str],
    value: fn(&str, Bytes) -> Result<Taken>,
) -> Result<Vec<Taken>> {
    let places = places(record, columns)?;
    let one = |name: &&str| match columns.iter().position(|column| column.name == *name) {
        None => Ok(Taken::Missing),
        Some(at) => value(&columns[at].encoding, record.slice(places[at].clone()))
            .map_err(|error| error.while_doing(format_args!("take column `{name}`"))),
    };
    names.iter().map(one).collect()
}

fn places(record: &[u8], columns: &[Column]) -> Result<Vec<Range<usize>>> {
    let head = columns.iter().filter(|column| column.bytes.is_none()).count() * 4;
    let mut at = head;
    let mut sizes = record.get(..head).ok_or_else(cut_off)?.chunks_exact(4).map(word);
    let mut places = Vec::with_capacity(columns.len());
    for column in columns {
        let size = column.bytes.or_else(|| sizes.next()).unwrap_or_default() as usize;
        let end = at.checked_add(size).filter(|end| *end <= record.len()).ok_or_else(cut_off)?;
        places.push(at..end);
        at = end;
    }
    if at != record.len() {
        return Err(Error::corrupt("bytes follow its last column"));
    }
    Ok(places)
}

/// Numbers of one type; as many as the shape says.
pub(super) fn tensor(dtype: Dtype, shape: Vec<usize>, data: Bytes) -> Result<Taken> {
    let elements = shape.iter().try_fold(1usize, |product, extent| product.checked_mul(*extent));
    if elements.and_then(|count| count.checked_mul(dtype.size())) != Some(data.len()) {
        let (length, name) = (data.len(), dtype.name());
        return Err(Error::corrupt(format!("{length} bytes are no {name} of shape {shape:?}")));
    }
    Ok(Taken::Tensor { dtype, shape, data })
}

/// As many numbers as there are.
pub(super) fn list(dtype: Dtype, data: Bytes) -> Result<Taken> {
    let shape = vec![data.len() / dtype.size()];
    tensor(dtype, shape, data)
}

/// The extents of an array, `width` bytes each; a multiple of `width` is given.
pub(super) fn extents(bytes: &[u8], width: usize, number: impl Fn(&[u8]) -> u64) -> Result<Vec<usize>> {
    if bytes.len() / width.max(1) > MAX_AXES {
        return Err(Error::corrupt(format!("an array has more than {MAX_AXES} axes")));
    }
    let extent = |bytes| usize::try_from(number(bytes)).map_err(|_| Error::corrupt("an axis is too long"));
    bytes.chunks_exact(width.max(1)).map(extent).collect()
}

/// Pixels as Pillow holds them: width, height, length of the mode, mode, rows.
pub(super) fn pil(data: &Bytes) -> Result<Taken> {
    let head: Vec<usize> =
        data.get(..12).ok_or_else(cut_off)?.chunks_exact(4).map(|bytes| word(bytes) as usize).collect();
    let (width, height) = (head[0], head[1]);
    let begin = head[2].checked_add(12).filter(|begin| *begin <= data.len()).ok_or_else(cut_off)?;
    let (mode, pixels) = (&data[12..begin], data.slice(begin..));
    let (dtype, shape) = match mode {
        b"L" | b"P" => (Dtype::U8, vec![height, width]),
        b"LA" | b"PA" => (Dtype::U8, vec![height, width, 2]),
        b"RGB" | b"YCbCr" | b"LAB" | b"HSV" => (Dtype::U8, vec![height, width, 3]),
        b"RGBA" | b"CMYK" | b"RGBX" => (Dtype::U8, vec![height, width, 4]),
        b"I;16" => (Dtype::U16, vec![height, width]),
        b"I" => (Dtype::I32, vec![height, width]),
        b"F" => (Dtype::F32, vec![height, width]),
        other => {
            let mode = String::from_utf8_lossy(other).chars().take(20).collect::<String>();
            return Err(Error::unsupported(format!("its pixels have mode `{mode}`"))
                .with_hint("store images as `RGB` or `L`, or as `png`"));
        }
    };
    tensor(dtype, shape, pixels)
}

/// A value of JSON: numbers and text as such.
pub(super) fn json(data: &[u8]) -> Result<Taken> {
    let value = serde_json::from_slice(data)
        .map_err(|cause| Error::corrupt("its value is not JSON").with_source(cause))?;
    Ok(match value {
        Value::Null => Taken::Missing,
        Value::String(text) => Taken::Bytes(text.into()),
        Value::Bool(flag) => Taken::Int(flag.into()),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => Taken::Int(whole),
            None => Taken::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        other => Taken::Json(other),
    })
}

/// What a record says that cannot be taken: a pickle, or something unknown.
pub(super) fn refused(encoding: &str) -> Error {
    let shown: String = encoding.chars().take(40).collect();
    if matches!(encoding, "pkl" | "pickle" | "graph" | "graph:pickle") {
        return Error::unsupported(format!(
            "its values are pickles (`{shown}`), which run code when they are read"
        ))
        .with_hint("write the column as `json`, `bytes` or an array");
    }
    match encoding.strip_prefix(REFUSED) {
        Some(why) => Error::unsupported(why.chars().take(200).collect::<String>()),
        None => Error::unsupported(format!("values stored as `{shown}` are not offered")),
    }
}

pub(super) fn word(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes.try_into().unwrap_or_default())
}

pub(super) fn cut_off() -> Error {
    Error::corrupt("it is cut off")
}
