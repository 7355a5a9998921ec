//! What is taken out of a record, and what it becomes for a column.
//!
//! A value comes as its format holds it; a column wants bytes, an integer or an array in `.npy` form. Numbers take the
//! element type that the recipe asks for when they fit it, and lists the shape that it asks for when it has as many
//! elements.

use super::pixels;
use crate::decode::{label, npy};
use crate::npy as npy_form;
use crate::value::Input;
use bytes::Bytes;
use forebay_core::recipe::{Decode, FieldRecipe};
use forebay_core::tensor::Dtype;
use forebay_core::{Error, Result};
use half::{bf16, f16};
use serde_json::Value;

/// A field's value as its record holds it.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Taken {
    /// Bytes or text.
    Bytes(Bytes),
    /// An integer.
    Int(i64),
    /// A number that is no integer.
    Float(f64),
    /// Numbers of one type, in C order and little endian.
    Tensor {
        /// Element type.
        dtype: Dtype,
        /// Extent of each axis.
        shape: Vec<usize>,
        /// The elements.
        data: Bytes,
    },
    /// A list or an object of JSON.
    Json(Value),
    /// The record does not have it.
    #[default]
    Missing,
}

impl Taken {
    /// What a column is given.
    pub fn into_input(self, column: &FieldRecipe) -> Result<Input> {
        match &column.decode {
            Decode::Npy { shape } => self.array(column.dtype, shape.as_deref()),
            Decode::Label {} => self.integer(),
            Decode::Tokens { .. } => self.array(None, None),
            Decode::Image { .. } => self.picture(),
            Decode::Audio { .. }
            | Decode::Video { .. }
            | Decode::Json {}
            | Decode::Text {}
            | Decode::Bytes {}
            | Decode::Boxes(_) => Ok(self.text()),
        }
    }

    /// What somebody is given who does not say what for: bytes as they are, integers, arrays, JSON.
    pub fn plain(self) -> Result<Input> {
        match self {
            Self::Int(value) => Ok(Input::Int(value)),
            Self::Tensor { .. } => self.array(None, None),
            other => Ok(other.text()),
        }
    }

    /// Pixels are given as a PNG, which is what an image column decodes; anything else as it is.
    fn picture(self) -> Result<Input> {
        match &self {
            Self::Tensor { dtype: Dtype::U8, shape, data } => pixels::png(shape, data).map(Input::Payload),
            _ => Ok(self.text()),
        }
    }

    fn array(self, dtype: Option<Dtype>, shape: Option<&[usize]>) -> Result<Input> {
        let (found, own_shape, data) = match self {
            Self::Missing => return Ok(Input::Missing),
            Self::Bytes(bytes) => {
                // What is no `.npy` may be the elements alone, when the recipe says which and how many.
                let elements: Option<usize> = shape.map(|shape| shape.iter().product());
                match (dtype, elements, shape) {
                    (Some(dtype), Some(count), Some(shape))
                        if !bytes.starts_with(npy::SIGNATURE)
                            && count.checked_mul(dtype.size()) == Some(bytes.len()) =>
                    {
                        return form(dtype, shape, &bytes);
                    }
                    _ => return Ok(Input::Payload(bytes)),
                }
            }
            Self::Tensor { dtype, shape, data } => (dtype, shape, data),
            Self::Int(value) => (Dtype::I64, Vec::new(), Bytes::copy_from_slice(&value.to_le_bytes())),
            Self::Float(value) => (Dtype::F64, Vec::new(), Bytes::copy_from_slice(&value.to_le_bytes())),
            Self::Json(value) => numbers(&value)?,
        };
        let asked = dtype.unwrap_or(found);
        let data = if asked == found { data } else { converted(found, asked, &data)?.into() };
        let shape = match shape {
            Some(shape) if shape.iter().product::<usize>() == own_shape.iter().product::<usize>() => shape,
            _ => &own_shape,
        };
        form(asked, shape, &data)
    }

    fn integer(self) -> Result<Input> {
        let refused = |what: String| Error::corrupt(format!("take a label: the field holds {what}"));
        match self {
            Self::Int(value) => Ok(Input::Int(value)),
            Self::Float(value) if value.fract() == 0.0 && value.abs() < (1u64 << 53) as f64 => {
                Ok(Input::Int(value as i64))
            }
            Self::Float(value) => Err(refused(value.to_string())),
            Self::Tensor { dtype, data, .. } => match label::read(dtype, &data) {
                Some(value) if data.len() == dtype.size() => Ok(Input::Int(value)),
                _ => Err(refused(format!("{} numbers of {}", data.len() / dtype.size(), dtype.name()))
                    .with_hint("take it as an array")),
            },
            Self::Json(_) => Err(refused("a list or an object".into())),
            Self::Bytes(bytes) => Ok(Input::Payload(bytes)),
            Self::Missing => Ok(Input::Missing),
        }
    }

    fn text(self) -> Input {
        let text = match self {
            Self::Bytes(bytes) => return Input::Payload(bytes),
            Self::Missing => return Input::Missing,
            Self::Int(value) => value.to_string(),
            Self::Float(value) => value.to_string(),
            Self::Json(value) => value.to_string(),
            Self::Tensor { dtype, data, .. } => {
                let element = |bytes: &[u8]| match read_float(dtype, bytes) {
                    Some(value) => serde_json::json!(value),
                    None => serde_json::json!(label::read(dtype, bytes)),
                };
                data.chunks_exact(dtype.size()).map(element).collect::<Value>().to_string()
            }
        };
        Input::Payload(text.into())
    }
}

fn form(dtype: Dtype, shape: &[usize], data: &[u8]) -> Result<Input> {
    let mut array = Vec::with_capacity(data.len() + 128);
    npy_form::write(&mut array, dtype, shape, data)
        .map_err(|cause| Error::unsupported("take an array out of a record").with_source(cause))?;
    Ok(Input::Payload(array.into()))
}

/// Elements in another type, if every one fits.
fn converted(from: Dtype, to: Dtype, data: &[u8]) -> Result<Vec<u8>> {
    let count = data.len() / from.size();
    let mut made = vec![0; count * to.size()];
    for (element, row) in data.chunks_exact(from.size()).zip(made.chunks_exact_mut(to.size())) {
        match (read_float(from, element), is_float(to)) {
            (Some(value), true) => write_float(value, to, row),
            (Some(value), false) => {
                let why = format!("take {value} as {}: it is no integer", to.name());
                return Err(Error::corrupt(why).with_hint("ask for `f32` or `f64`"));
            }
            (None, true) => {
                let value = label::read(from, element).unwrap_or_default();
                write_float(value as f64, to, row);
            }
            (None, false) => {
                let value = label::read(from, element).ok_or_else(|| {
                    Error::corrupt(format!("take a number as {}: it does not fit", to.name()))
                })?;
                label::write(value, to, row)?;
            }
        }
    }
    Ok(made)
}

fn is_float(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::F16 | Dtype::Bf16 | Dtype::F32 | Dtype::F64)
}

pub(super) fn read_float(dtype: Dtype, element: &[u8]) -> Option<f64> {
    match dtype {
        Dtype::F16 => Some(f16::from_le_bytes(element.try_into().ok()?).to_f64()),
        Dtype::Bf16 => Some(bf16::from_le_bytes(element.try_into().ok()?).to_f64()),
        Dtype::F32 => Some(f32::from_le_bytes(element.try_into().ok()?).into()),
        Dtype::F64 => Some(f64::from_le_bytes(element.try_into().ok()?)),
        _ => None,
    }
}

fn write_float(value: f64, dtype: Dtype, row: &mut [u8]) {
    match dtype {
        Dtype::F16 => row.copy_from_slice(&f16::from_f64(value).to_le_bytes()),
        Dtype::Bf16 => row.copy_from_slice(&bf16::from_f64(value).to_le_bytes()),
        Dtype::F32 => row.copy_from_slice(&(value as f32).to_le_bytes()),
        _ => row.copy_from_slice(&value.to_le_bytes()),
    }
}

/// Most axes of a list of lists.
const MAX_AXES: usize = 32;

/// Lists of numbers, of lists of one length, and so on: integers when all are.
fn numbers(value: &Value) -> Result<(Dtype, Vec<usize>, Bytes)> {
    let mut shape = Vec::new();
    let mut inner = value;
    while let Value::Array(list) = inner {
        shape.push(list.len());
        match list.first() {
            Some(first) if shape.len() < MAX_AXES => inner = first,
            _ => break,
        }
    }
    let mut found = Vec::new();
    flatten(value, &shape, &mut found)?;
    let whole: Option<Vec<i64>> = found.iter().map(|number| number.as_i64()).collect();
    if let Some(whole) = whole {
        return Ok((Dtype::I64, shape, whole.iter().flat_map(|value| value.to_le_bytes()).collect()));
    }
    let floats = found.iter().map(|number| number.as_f64().unwrap_or(f64::NAN));
    Ok((Dtype::F64, shape, floats.flat_map(f64::to_le_bytes).collect()))
}

fn flatten<'a>(value: &'a Value, shape: &[usize], found: &mut Vec<&'a serde_json::Number>) -> Result<()> {
    match (value, shape) {
        (Value::Number(number), []) => {
            found.push(number);
            Ok(())
        }
        (Value::Array(list), [length, inner @ ..]) if list.len() == *length => {
            list.iter().try_for_each(|value| flatten(value, inner, found))
        }
        _ => Err(Error::corrupt(
            "take an array out of JSON: it is no list of numbers, or its lists differ in length",
        )
        .with_hint("take it as json")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(text: &str) -> FieldRecipe {
        serde_json::from_str(text).unwrap()
    }

    fn array(input: Input) -> (Dtype, Vec<usize>, Vec<u8>) {
        let Input::Payload(bytes) = input else { panic!("{input:?} is no payload") };
        let found = npy::parse(&bytes).unwrap();
        (found.spec.dtype, found.spec.shape, bytes[found.data].to_vec())
    }

    #[test]
    fn numbers_take_the_type_and_the_shape_that_the_recipe_asks_for() {
        let npy = column(r#"{"field": "v", "decode": {"kind": "npy", "shape": [2, 1]}, "dtype": "f32"}"#);
        let two: Vec<u8> = [1.0f32, 2.0].iter().flat_map(|value| value.to_le_bytes()).collect();
        let list = Taken::Json(serde_json::json!([1, 2]));
        assert_eq!(array(list.into_input(&npy).unwrap()), (Dtype::F32, vec![2, 1], two.clone()));
        let raw = Taken::Bytes(two.clone().into());
        assert_eq!(array(raw.into_input(&npy).unwrap()), (Dtype::F32, vec![2, 1], two.clone()));
        let tensor = Taken::Tensor { dtype: Dtype::F32, shape: vec![2], data: two.clone().into() };
        assert_eq!(array(tensor.into_input(&npy).unwrap()), (Dtype::F32, vec![2, 1], two));
        let any = column(r#"{"field": "v", "decode": {"kind": "npy"}}"#);
        assert_eq!(array(Taken::Int(5).into_input(&any).unwrap()).1, Vec::<usize>::new());
        let nested = Taken::Json(serde_json::json!([[1.5, 2], [3, 4], [5, 6]]));
        assert_eq!(array(nested.into_input(&any).unwrap()).1, [3, 2]);
        for bad in [serde_json::json!([[1], [2, 3]]), serde_json::json!(["a"]), serde_json::json!({"a": 1})] {
            assert!(Taken::Json(bad).into_input(&any).is_err());
        }
        let small = column(r#"{"field": "v", "decode": {"kind": "npy"}, "dtype": "u8"}"#);
        assert!(Taken::Int(256).into_input(&small).is_err());
        assert!(Taken::Float(0.5).into_input(&small).is_err());
    }

    #[test]
    fn labels_and_texts_are_given_as_far_as_they_are_some() {
        let label = column(r#"{"field": "y", "decode": {"kind": "label"}}"#);
        assert!(matches!(Taken::Int(7).into_input(&label).unwrap(), Input::Int(7)));
        assert!(matches!(Taken::Float(7.0).into_input(&label).unwrap(), Input::Int(7)));
        assert!(Taken::Float(7.5).into_input(&label).is_err());
        let two = Taken::Tensor { dtype: Dtype::U8, shape: vec![2], data: Bytes::from_static(b"\x01\x02") };
        assert!(two.clone().into_input(&label).is_err());
        let text = |taken: Taken| match taken.text() {
            Input::Payload(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
            other => panic!("{other:?}"),
        };
        assert_eq!(text(two), "[1,2]");
        assert_eq!(text(Taken::Float(0.5)), "0.5");
        assert_eq!(text(Taken::Json(serde_json::json!({"a": [1]}))), r#"{"a":[1]}"#);
    }
}
