//! A `tf.Example` as a whole: every feature that it has, as it stands or as fields, for whoever copies samples.
//!
//! A feature with several values of bytes is as many fields, `name.0`, `name.1` and so on: each value keeps its bytes,
//! whatever they are. What is more than features is refused, because a copy would lose it.

use super::MAX_FIELDS;
use super::example::{each, list, value};
use super::proto::{Field, Message};
use super::value::Taken;
use bytes::Bytes;
use forebay_core::{Error, Result};
use std::collections::BTreeMap;

/// What can be done about an example that fields cannot say.
const WAY_OUT: &str =
    "write TFRecord, which keeps a record as it is, or take the field `record` as bytes in a recipe";

/// Every feature as it stands, by its name. A name given twice means its last feature.
pub fn stored(example: &[u8]) -> Result<BTreeMap<&str, &[u8]>> {
    for part in Message::new(example) {
        let (number, field) = part?;
        if number != 1 || !matches!(field, Field::Bytes(_)) {
            let why = format!("it has the field {number} besides features, as a tf.SequenceExample does");
            return Err(Error::unsupported(why).with_hint(WAY_OUT));
        }
    }
    let mut found = BTreeMap::new();
    each(example, |name, feature| {
        let name = std::str::from_utf8(name).map_err(|_| Error::corrupt("a feature's name is not UTF-8"))?;
        found.insert(name, feature);
        room(found.len() - 1)
    })?;
    Ok(found)
}

/// Every feature as fields, in the order of their names.
pub(super) fn take_every(example: &Bytes) -> Result<Vec<(String, Taken)>> {
    let mut taken = Vec::new();
    let stored = stored(example)?;
    for (name, feature) in &stored {
        let doing = |error: Error| error.while_doing(format_args!("read feature `{name}`"));
        let values = bytes_values(feature, taken.len()).map_err(doing)?;
        if values.len() < 2 {
            room(taken.len())?;
            taken.push(((*name).to_owned(), value(example, feature).map_err(doing)?));
            continue;
        }
        for (number, value) in values.into_iter().enumerate() {
            let field = format!("{name}.{number}");
            if stored.contains_key(field.as_str()) {
                let why = format!("its value {number} would be called as the feature `{field}` is");
                return Err(doing(Error::unsupported(why).with_hint(WAY_OUT)));
            }
            taken.push((field, Taken::Bytes(example.slice_ref(value))));
        }
    }
    Ok(taken)
}

/// The values of a list of bytes, for which there must be room after `before` fields; none for other lists.
fn bytes_values(feature: &[u8], before: usize) -> Result<Vec<&[u8]>> {
    let mut values = Vec::new();
    let Some((1, list)) = list(feature)? else { return Ok(values) };
    for part in Message::new(list) {
        if let (1, Field::Bytes(value)) = part? {
            room(before + values.len())?;
            values.push(value);
        }
    }
    Ok(values)
}

/// Whether one field more may be there.
fn room(fields: usize) -> Result<()> {
    if fields < MAX_FIELDS {
        return Ok(());
    }
    let why = format!("it is more than {MAX_FIELDS} fields, each value of a list of bytes being one");
    Err(Error::exhausted(why).with_hint(WAY_OUT))
}

#[cfg(test)]
mod tests {
    use super::super::example::{Feature, encode};
    use super::super::proto::put_bytes;
    use super::*;
    use forebay_core::ErrorKind;

    fn bytes_list(values: &[&[u8]]) -> Vec<u8> {
        let (mut list, mut feature) = (Vec::new(), Vec::new());
        for value in values {
            put_bytes(&mut list, 1, value);
        }
        put_bytes(&mut feature, 1, &list);
        feature
    }

    #[test]
    fn several_values_of_bytes_are_fields_with_numbers() {
        let names = bytes_list(&[b"dog", b"", b"\xff"]);
        let one = bytes_list(&[b"x"]);
        let features = [
            ("names", Feature::Stored(&names)),
            ("label", Feature::Ints(&[7])),
            ("one", Feature::Stored(&one)),
            ("none", Feature::Stored(b"")),
        ];
        let example: Bytes = encode(&features).into();
        let bytes = |value: &'static [u8]| Taken::Bytes(Bytes::from_static(value));
        let wanted = [
            ("label", Taken::Int(7)),
            ("names.0", bytes(b"dog")),
            ("names.1", bytes(b"")),
            ("names.2", bytes(b"\xff")),
            ("none", Taken::Missing),
            ("one", bytes(b"x")),
        ];
        assert_eq!(take_every(&example).unwrap(), wanted.map(|(name, taken)| (name.to_owned(), taken)));
        assert_eq!(stored(&example).unwrap()["names"], names);
    }

    #[test]
    fn what_fields_cannot_say_is_refused_with_a_way_out() {
        let two = bytes_list(&[b"a", b"b"]);
        let clash = encode(&[("a", Feature::Stored(&two)), ("a.1", Feature::Ints(&[1]))]);
        let mut sequence = encode(&[("a", Feature::Ints(&[1]))]);
        put_bytes(&mut sequence, 2, b"");
        let many = bytes_list(&vec![&b"x"[..]; MAX_FIELDS + 1]);
        let many = encode(&[("a", Feature::Stored(&many))]);
        let names: Vec<String> = (0..=MAX_FIELDS).map(|name| name.to_string()).collect();
        let features: Vec<_> = names.iter().map(|name| (name.as_str(), Feature::Ints(&[]))).collect();
        for (example, kind) in [
            (clash, ErrorKind::Unsupported),
            (sequence, ErrorKind::Unsupported),
            (many, ErrorKind::Exhausted),
            (encode(&features), ErrorKind::Exhausted),
        ] {
            let error = take_every(&example.into()).unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.hint().unwrap().contains("TFRecord"), "{error}");
        }
    }
}
