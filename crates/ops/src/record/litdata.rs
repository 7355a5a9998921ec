//! An item of a LitData chunk: its leaves, by the names of LitData's serializers.
//!
//! Arrays tell element types by numbers of LitData's own tables. Tensors had their header in little endian once and have
//! it in big endian now; both are read.

use super::columns;
use super::columns::{Column, cut_off, extents, json, list, pil, refused, tensor, word};
use super::mds::scalar;
use super::value::Taken;
use bytes::Bytes;
use forebay_core::tensor::Dtype;
use forebay_core::{Error, Result};

/// The name of a manifest's field that holds such records.
pub const FIELD: &str = "@litdata";

/// Bytes of an array's header before its shape: type and number of axes.
const HEAD_BYTES: usize = 8;

pub(super) fn take(record: &Bytes, columns: &[Column], names: &[&str]) -> Result<Vec<Taken>> {
    columns::take(record, columns, names, value)
}

/// A value by the name of its serializer.
fn value(encoding: &str, data: Bytes) -> Result<Taken> {
    let (name, rest) = encoding.split_once(':').map_or((encoding, ""), |(name, rest)| (name, rest));
    match name {
        // Files and images are given as they are stored, and so is a list of JPEG: a count, sizes, images.
        "str" | "text" | "bytes" | "jpeg" | "jpeg_array" | "image" | "file" | "video" | "audio"
        | "tifffile" | "tiff" | "nifti" | "mesh" | "pdf" => Ok(Taken::Bytes(data)),
        "int" => scalar(Dtype::I64, data),
        "float" => scalar(Dtype::F64, data),
        "bool" | "boolean" => scalar(Dtype::U8, data).map(truth),
        "pil" => pil(&data),
        "numpy" => {
            let (number, axes) = (word(&head(&data)?[..4]), word(&head(&data)?[4..]));
            array(numpy(number)?, axes, &data, false)
        }
        "tensor" => {
            let head = head(&data)?;
            // Numbers of types and of axes are small: in the wrong byte order they are not.
            let is_big = head[..3] == [0; 3] && head[4..7] == [0; 3];
            let told = |at: usize| if is_big { big(&head[at..at + 4]) } else { word(&head[at..at + 4]) };
            array(torch(told(0))?, told(4), &data, is_big)
        }
        "no_header_numpy" => list(numpy(number(rest)?)?, data),
        "no_header_tensor" => list(torch(number(rest)?)?, data),
        // Newer writers hold JSON in a form of their own, which begins otherwise.
        "json" => json(&data).map_err(|_| refused("json")),
        _ => Err(refused(encoding)),
    }
}

fn truth(taken: Taken) -> Taken {
    match taken {
        Taken::Int(value) => Taken::Int((value != 0).into()),
        other => other,
    }
}

fn head(data: &[u8]) -> Result<&[u8]> {
    data.get(..HEAD_BYTES).ok_or_else(cut_off)
}

fn array(dtype: Dtype, axes: u32, data: &Bytes, is_big: bool) -> Result<Taken> {
    let begin = (axes as usize).checked_mul(4).and_then(|bytes| bytes.checked_add(HEAD_BYTES));
    let begin = begin.filter(|begin| *begin <= data.len()).ok_or_else(cut_off)?;
    let extent = |bytes: &[u8]| u64::from(if is_big { big(bytes) } else { word(bytes) });
    let shape = extents(&data[HEAD_BYTES..begin], 4, extent)?;
    tensor(dtype, shape, data.slice(begin..))
}

fn big(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes.try_into().unwrap_or_default())
}

fn number(text: &str) -> Result<u32> {
    text.parse().map_err(|_| refused(text))
}

fn torch(number: u32) -> Result<Dtype> {
    Ok(match number {
        0 | 1 => Dtype::F32,
        2 | 3 => Dtype::F64,
        8 | 9 => Dtype::F16,
        10 => Dtype::Bf16,
        11 => Dtype::U8,
        12 => Dtype::I8,
        13 | 14 => Dtype::I16,
        15 | 16 => Dtype::I32,
        17 | 18 => Dtype::I64,
        19 => Dtype::Bool,
        20 => Dtype::U16,
        other => return Err(strange("torch", other)),
    })
}

fn numpy(number: u32) -> Result<Dtype> {
    Ok(match number {
        0 => Dtype::I8,
        1 => Dtype::I16,
        2 => Dtype::I32,
        3 => Dtype::I64,
        4 => Dtype::U8,
        5 => Dtype::U16,
        6 => Dtype::U32,
        7 => Dtype::U64,
        8 => Dtype::F16,
        9 => Dtype::F32,
        10 => Dtype::F64,
        13 => Dtype::Bool,
        other => return Err(strange("numpy", other)),
    })
}

fn strange(whose: &str, number: u32) -> Error {
    Error::unsupported(format!("its array has {whose} element type {number}, which is none that is offered"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tensors_are_read_in_both_byte_orders() {
        let wanted = Taken::Tensor { dtype: Dtype::U8, shape: vec![2, 1], data: Bytes::from_static(&[7, 8]) };
        let big = [0, 0, 0, 11, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 1, 7, 8];
        let little = [11, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 7, 8];
        assert_eq!(value("tensor", Bytes::copy_from_slice(&big)).unwrap(), wanted);
        assert_eq!(value("tensor", Bytes::copy_from_slice(&little)).unwrap(), wanted);
        let huge = [0, 0, 0, 11, 0xff, 0xff, 0xff, 0xff, 7, 8];
        assert!(value("tensor", Bytes::copy_from_slice(&huge)).is_err());
        assert!(value("pickle", Bytes::new()).unwrap_err().to_string().contains("pickle"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_values_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..80), low in 0u8..25) {
            let mut bytes = bytes;
            for at in [0, 3, 4, 7].iter().take(bytes.len() / 8 * 4) {
                bytes[*at] = low;
            }
            let record = Bytes::from(bytes);
            for encoding in ["str", "int", "float", "bool", "pil", "numpy", "tensor", "no_header_numpy:2",
                "no_header_tensor:99", "json", "pickle", "image:jpg"] {
                let column = |name: &str, bytes| Column { name: name.into(), encoding: encoding.into(), bytes };
                let _ = take(&record, &[column("a", None), column("b", None)], &["a", "b"]);
                let _ = take(&record, &[column("a", Some(record.len() as u32))], &["a"]);
            }
        }
    }
}
