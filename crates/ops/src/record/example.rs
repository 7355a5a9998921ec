//! `tf.Example`: named lists of bytes, floats or integers, as a protocol buffer.
//!
//! ```text
//! Example  { Features features = 1 }              BytesList { repeated bytes value = 1 }
//! Features { map<string, Feature> feature = 1 }   FloatList { repeated float value = 1 }
//! Feature  { one of bytes_list = 1, float_list = 2, int64_list = 3 }   Int64List { repeated int64 value = 1 }
//! ```
//!
//! Numbers are read packed and unpacked. A name given twice means its last feature, as in every reader of the format.

use super::MAX_FIELDS;
use super::proto::{Field, Message, put_bytes, put_varint, varint};
use super::value::Taken;
use bytes::Bytes;
use forebay_core::tensor::Dtype;
use forebay_core::{Error, Result};
use std::borrow::Cow;

/// A feature to be written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Feature<'a> {
    /// One value of bytes.
    Bytes(&'a [u8]),
    /// A list of floats.
    Floats(&'a [f32]),
    /// A list of integers.
    Ints(&'a [i64]),
    /// A feature as it stands in another example.
    Stored(&'a [u8]),
}

/// Names of all features, sorted.
pub fn names(example: &[u8]) -> Result<Vec<String>> {
    let mut names = Vec::new();
    each(example, |name, _| {
        let name = std::str::from_utf8(name).map_err(|_| Error::corrupt("a feature's name is not UTF-8"))?;
        if !names.iter().any(|known| known == name) {
            if names.len() == MAX_FIELDS {
                return Err(Error::exhausted(format!("it has more than {MAX_FIELDS} features")));
            }
            names.push(name.to_owned());
        }
        Ok(())
    })?;
    names.sort_unstable();
    Ok(names)
}

/// The named features, in this order.
pub fn take(example: &Bytes, names: &[&str]) -> Result<Vec<Taken>> {
    let mut found: Vec<Option<&[u8]>> = vec![None; names.len()];
    each(example, |name, feature| {
        for (wanted, found) in names.iter().zip(&mut found) {
            if wanted.as_bytes() == name {
                *found = Some(feature);
            }
        }
        Ok(())
    })?;
    let value = |(name, feature): (&&str, Option<&[u8]>)| match feature {
        None => Ok(Taken::Missing),
        Some(feature) => {
            value(example, feature).map_err(|error| error.while_doing(format_args!("read feature `{name}`")))
        }
    };
    names.iter().zip(found).map(value).collect()
}

/// An example with these features in this order.
pub fn encode(features: &[(&str, Feature<'_>)]) -> Vec<u8> {
    let mut map = Vec::new();
    for (name, feature) in features {
        let (feature, mut entry) = (message(feature), Vec::new());
        put_bytes(&mut entry, 1, name.as_bytes());
        put_bytes(&mut entry, 2, &feature);
        put_bytes(&mut map, 1, &entry);
    }
    let mut example = Vec::with_capacity(map.len() + 8);
    put_bytes(&mut example, 1, &map);
    example
}

fn message<'a>(feature: &Feature<'a>) -> Cow<'a, [u8]> {
    let mut list = Vec::new();
    let number = match feature {
        Feature::Bytes(bytes) => {
            put_bytes(&mut list, 1, bytes);
            1
        }
        Feature::Floats(floats) => {
            let packed: Vec<u8> = floats.iter().flat_map(|value| value.to_le_bytes()).collect();
            put_bytes(&mut list, 1, &packed);
            2
        }
        Feature::Ints(ints) => {
            let mut packed = Vec::new();
            ints.iter().for_each(|value| put_varint(&mut packed, *value as u64));
            put_bytes(&mut list, 1, &packed);
            3
        }
        Feature::Stored(message) => return Cow::Borrowed(message),
    };
    let mut message = Vec::with_capacity(list.len() + 8);
    put_bytes(&mut message, number, &list);
    Cow::Owned(message)
}

/// Every feature with its name, as they stand there.
pub(super) fn each<'a>(
    example: &'a [u8],
    mut visit: impl FnMut(&'a [u8], &'a [u8]) -> Result<()>,
) -> Result<()> {
    for features in Message::new(example) {
        let (1, Field::Bytes(features)) = features? else { continue };
        for entry in Message::new(features) {
            let (1, Field::Bytes(entry)) = entry? else { continue };
            let (mut name, mut feature): (&[u8], &[u8]) = (&[], &[]);
            for part in Message::new(entry) {
                match part? {
                    (1, Field::Bytes(found)) => name = found,
                    (2, Field::Bytes(found)) => feature = found,
                    _ => {}
                }
            }
            visit(name, feature)?;
        }
    }
    Ok(())
}

/// The list that a feature is, and of which kind: 1 is bytes, 2 floats, 3 integers.
pub(super) fn list(feature: &[u8]) -> Result<Option<(u64, &[u8])>> {
    let mut list = None;
    for part in Message::new(feature) {
        if let (kind @ 1..=3, Field::Bytes(found)) = part? {
            list = Some((kind, found));
        }
    }
    Ok(list)
}

pub(super) fn value(example: &Bytes, feature: &[u8]) -> Result<Taken> {
    match list(feature)? {
        None => Ok(Taken::Missing),
        Some((1, list)) => bytes_value(example, list),
        Some((2, list)) => {
            let data = floats(list)?;
            let shape = vec![data.len() / Dtype::F32.size()];
            Ok(Taken::Tensor { dtype: Dtype::F32, shape, data: data.into() })
        }
        Some((_, list)) => {
            let ints = ints(list)?;
            if let [only] = ints.as_slice() {
                return Ok(Taken::Int(*only));
            }
            let data: Vec<u8> = ints.iter().flat_map(|value| value.to_le_bytes()).collect();
            Ok(Taken::Tensor { dtype: Dtype::I64, shape: vec![ints.len()], data: data.into() })
        }
    }
}

/// The one value of a list of bytes, where it lies.
fn bytes_value(example: &Bytes, list: &[u8]) -> Result<Taken> {
    let (mut only, mut count) = (None, 0u64);
    for part in Message::new(list) {
        if let (1, Field::Bytes(value)) = part? {
            only = Some(value);
            count += 1;
        }
    }
    match (only, count) {
        (Some(value), 1) => Ok(Taken::Bytes(example.slice_ref(value))),
        (None, _) => Ok(Taken::Missing),
        _ => Err(Error::unsupported(format!("it is a list of {count} values of bytes, one can be taken"))
            .with_hint("take the field `record` as bytes and parse it in a function of your own")),
    }
}

fn floats(list: &[u8]) -> Result<Vec<u8>> {
    let mut data = Vec::new();
    for part in Message::new(list) {
        match part? {
            (1, Field::Bytes(packed)) if packed.len().is_multiple_of(4) => data.extend_from_slice(packed),
            (1, Field::Bytes(packed)) => {
                return Err(Error::corrupt(format!("floats take {} bytes", packed.len())));
            }
            (1, Field::Fixed32(value)) => data.extend_from_slice(&value),
            _ => {}
        }
    }
    Ok(data)
}

fn ints(list: &[u8]) -> Result<Vec<i64>> {
    let mut ints = Vec::new();
    for part in Message::new(list) {
        match part? {
            (1, Field::Bytes(mut packed)) => {
                while !packed.is_empty() {
                    ints.push(varint(&mut packed)? as i64);
                }
            }
            (1, Field::Varint(value)) => ints.push(value as i64),
            _ => {}
        }
    }
    Ok(ints)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn p021_features_of_each_kind_read_back() {
        let features = [
            ("image/encoded", Feature::Bytes(b"\xff\xd8jpeg")),
            ("box", Feature::Floats(&[0.5, -1.0])),
            ("label", Feature::Ints(&[-7])),
            ("tokens", Feature::Ints(&[1, i64::MIN, 3])),
            ("none", Feature::Ints(&[])),
        ];
        let example: Bytes = encode(&features).into();
        assert_eq!(names(&example).unwrap(), ["box", "image/encoded", "label", "none", "tokens"]);
        let taken = take(&example, &["label", "image/encoded", "box", "tokens", "none", "absent"]).unwrap();
        let tensor = |dtype, shape: usize, data: Vec<u8>| Taken::Tensor {
            dtype,
            shape: vec![shape],
            data: data.into(),
        };
        let floats: Vec<u8> = [0.5f32, -1.0].iter().flat_map(|value| value.to_le_bytes()).collect();
        let ints: Vec<u8> = [1, i64::MIN, 3].iter().flat_map(|value| value.to_le_bytes()).collect();
        let wanted = [
            Taken::Int(-7),
            Taken::Bytes(Bytes::from_static(b"\xff\xd8jpeg")),
            tensor(Dtype::F32, 2, floats),
            tensor(Dtype::I64, 3, ints),
            tensor(Dtype::I64, 0, Vec::new()),
            Taken::Missing,
        ];
        assert_eq!(taken, wanted);
    }

    #[test]
    fn numbers_that_are_not_packed_are_read_too() {
        let mut list = Vec::new();
        for value in [5u64, 300] {
            put_varint(&mut list, 1 << 3);
            put_varint(&mut list, value);
        }
        assert_eq!(ints(&list).unwrap(), [5, 300]);
        let mut list = vec![1 << 3 | 5];
        list.extend_from_slice(&1.5f32.to_le_bytes());
        assert_eq!(floats(&list).unwrap(), 1.5f32.to_le_bytes());
    }

    #[test]
    fn several_values_of_bytes_are_refused_with_a_way_out() {
        let mut list = Vec::new();
        put_bytes(&mut list, 1, b"a");
        put_bytes(&mut list, 1, b"b");
        let error = bytes_value(&Bytes::from(list.clone()), &list).unwrap_err();
        assert!(error.hint().unwrap().contains("`record`"), "{error}");
    }

    proptest! {
        #[test]
        fn hostile_examples_are_values_or_errors(
            bytes in proptest::collection::vec(any::<u8>(), 0..40),
            at: prop::sample::Index,
            cut: prop::sample::Index,
            value: u8,
        ) {
            let features = [("a", Feature::Bytes(&bytes)), ("b", Feature::Ints(&[1, 2])), ("c", Feature::Floats(&[1.0]))];
            let mut example = encode(&features);
            let at = at.index(example.len());
            example[at] = value;
            example.truncate(cut.index(example.len()) + 1);
            let _ = names(&example);
            let _ = take(&example.into(), &["a", "b", "c"]);
        }
    }
}
