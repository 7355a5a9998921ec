//! A sample of an MDS shard, as MosaicML's streaming library writes it: its columns, by their encodings.

use super::columns;
use super::columns::{Column, cut_off, extents, json, list, pil, refused, tensor};
use super::value::Taken;
use crate::decode::label;
use bytes::Bytes;
use forebay_core::tensor::Dtype;
use forebay_core::{Error, Result};

/// The name of a manifest's field that holds such records.
pub const FIELD: &str = "@mds";

pub(super) fn take(record: &Bytes, columns: &[Column], names: &[&str]) -> Result<Vec<Taken>> {
    columns::take(record, columns, names, value)
}

/// A value by its encoding.
fn value(encoding: &str, data: Bytes) -> Result<Taken> {
    let (name, rest) = encoding.split_once(':').map_or((encoding, None), |(name, rest)| (name, Some(rest)));
    if name == "ndarray" {
        return array(rest.unwrap_or_default(), &data);
    }
    if rest.is_some() {
        return Err(refused(encoding));
    }
    match name {
        // Lists of images are given as they are stored: a count, sizes, images.
        "bytes" | "str" | "str_decimal" | "jpeg" | "png" | "jpeg_array" | "jpegarray" | "list[jpeg]"
        | "list[png]" | "list[pil]" => Ok(Taken::Bytes(data)),
        "int" => scalar(Dtype::I64, data),
        "str_int" => number(&data, |text| text.parse().ok().map(Taken::Int)),
        "str_float" => number(&data, |text| text.parse().ok().map(Taken::Float)),
        "json" => json(&data),
        "pil" => pil(&data),
        other => match dtype(other) {
            Some(dtype) => scalar(dtype, data),
            None => Err(refused(other)),
        },
    }
}

fn number(data: &[u8], parse: impl Fn(&str) -> Option<Taken>) -> Result<Taken> {
    let taken = std::str::from_utf8(data).ok().and_then(|text| parse(text.trim()));
    taken.ok_or_else(|| Error::corrupt("its text is no number, or one that does not fit 64 bits"))
}

/// One number.
pub(super) fn scalar(dtype: Dtype, data: Bytes) -> Result<Taken> {
    if data.len() != dtype.size() {
        let (length, name) = (data.len(), dtype.name());
        return Err(Error::corrupt(format!("{length} bytes are no number of type {name}")));
    }
    if let Some(value) = super::value::read_float(dtype, &data) {
        return Ok(Taken::Float(value));
    }
    match label::read(dtype, &data) {
        Some(value) => Ok(Taken::Int(value)),
        None => tensor(dtype, Vec::new(), data),
    }
}

/// An array, whose element type and shape stand in the encoding or before the elements.
fn array(told: &str, data: &Bytes) -> Result<Taken> {
    let (name, shape) = told.split_once(':').map_or((told, None), |(name, shape)| (name, Some(shape)));
    let mut at = 0;
    let element = if name.is_empty() {
        let number = *data.first().ok_or_else(cut_off)?;
        at = 1;
        numbered(number).ok_or_else(|| Error::corrupt(format!("its element type has number {number}")))?
    } else {
        dtype(name).ok_or_else(|| refused(name))?
    };
    let shape = if let Some(shape) = shape {
        let parsed: Option<Vec<usize>> = shape.split(',').map(|extent| extent.trim().parse().ok()).collect();
        parsed.ok_or_else(|| Error::corrupt(format!("its shape is `{shape}`")))?
    } else {
        let told = *data.get(at).ok_or_else(cut_off)?;
        let (axes, width) = (usize::from(told >> 2), 1usize << (told & 3));
        let (begin, end) = (at + 1, at + 1 + axes * width);
        at = end;
        let number = |bytes: &[u8]| {
            let mut wide = [0; 8];
            wide[..bytes.len()].copy_from_slice(bytes);
            u64::from_le_bytes(wide)
        };
        extents(data.get(begin..end).ok_or_else(cut_off)?, width, number)?
    };
    let elements = data.slice(at..);
    if shape.is_empty() { list(element, elements) } else { tensor(element, shape, elements) }
}

fn dtype(name: &str) -> Option<Dtype> {
    Some(match name {
        "uint8" => Dtype::U8,
        "int8" => Dtype::I8,
        "uint16" => Dtype::U16,
        "int16" => Dtype::I16,
        "float16" => Dtype::F16,
        "uint32" => Dtype::U32,
        "int32" => Dtype::I32,
        "float32" => Dtype::F32,
        "uint64" => Dtype::U64,
        "int64" => Dtype::I64,
        "float64" => Dtype::F64,
        _ => return None,
    })
}

fn numbered(number: u8) -> Option<Dtype> {
    dtype(match number {
        8 => "uint8",
        9 => "int8",
        16 => "uint16",
        17 => "int16",
        18 => "float16",
        32 => "uint32",
        33 => "int32",
        34 => "float32",
        64 => "uint64",
        65 => "int64",
        66 => "float64",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tensor_of(encoding: &str, data: &[u8]) -> Option<(Dtype, Vec<usize>)> {
        match value(encoding, Bytes::copy_from_slice(data)) {
            Ok(Taken::Tensor { dtype, shape, .. }) => Some((dtype, shape)),
            _ => None,
        }
    }

    #[test]
    fn arrays_tell_their_type_and_shape_in_four_ways() {
        let wanted = Some((Dtype::U16, vec![2, 1]));
        assert_eq!(tensor_of("ndarray:uint16:2,1", &[1, 0, 2, 0]), wanted);
        assert_eq!(tensor_of("ndarray:uint16", &[8, 2, 1, 1, 0, 2, 0]), wanted);
        assert_eq!(tensor_of("ndarray", &[16, 8, 2, 1, 1, 0, 2, 0]), wanted);
        assert_eq!(tensor_of("ndarray", &[16, 9, 2, 0, 1, 0, 1, 0, 2, 0]), wanted);
        assert_eq!(tensor_of("ndarray:uint16:2,1", &[1, 0, 2]), None);
        assert_eq!(tensor_of("ndarray", &[7, 8, 2, 1]), None);
    }

    #[test]
    fn pickles_are_refused_by_name() {
        let error = value("pkl", Bytes::from_static(b"\x80\x04.")).unwrap_err();
        assert_eq!(error.kind(), forebay_core::ErrorKind::Unsupported);
        assert!(error.to_string().contains("pickle"), "{error}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_values_or_an_error(
            bytes in proptest::collection::vec(any::<u8>(), 0..80),
            fixed in proptest::option::of(0u32..20),
        ) {
            let encodings = ["bytes", "int", "ndarray", "ndarray:int8", "ndarray:int8:2,2", "json", "pil", "str_int",
                "uint64", "float16", "pkl", "ndarray:x:y", "ndarray::", "str_float"];
            let record = Bytes::from(bytes);
            for encoding in encodings {
                let column = |name: &str, bytes| Column { name: name.into(), encoding: encoding.into(), bytes };
                let _ = take(&record, &[column("a", fixed), column("b", None)], &["a", "b", "c"]);
                let _ = take(&record, &[column("a", Some(record.len() as u32))], &["a"]);
            }
        }
    }
}
