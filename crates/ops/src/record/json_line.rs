//! A line that is a JSON object: its members are the fields.

use super::MAX_FIELDS;
use super::value::Taken;
use bytes::Bytes;
use forebay_core::{Error, Result};
use serde_json::{Map, Value};

/// The name of a manifest's field that holds such records.
pub const FIELD: &str = "@jsonl";

/// Names of the members, in the order of the line.
pub fn names(line: &[u8]) -> Result<Vec<String>> {
    let object = parse(line)?;
    within_limit(&object)?;
    Ok(object.into_iter().map(|(name, _)| name).collect())
}

pub(super) fn take(line: &Bytes, names: &[&str]) -> Result<Vec<Taken>> {
    let object = parse(line)?;
    Ok(names.iter().map(|name| object.get(*name).map_or(Taken::Missing, value)).collect())
}

/// Every member that the line has, in the order of their names.
pub(super) fn take_every(line: &Bytes) -> Result<Vec<(String, Taken)>> {
    let object = parse(line)?;
    within_limit(&object)?;
    let mut taken: Vec<(String, Taken)> =
        object.iter().map(|(name, member)| (name.clone(), value(member))).collect();
    taken.sort_unstable_by(|(left, _), (right, _)| left.cmp(right));
    Ok(taken)
}

fn value(member: &Value) -> Taken {
    match member {
        Value::Null => Taken::Missing,
        Value::String(text) => Taken::Bytes(Bytes::copy_from_slice(text.as_bytes())),
        Value::Bool(flag) => Taken::Int((*flag).into()),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => Taken::Int(whole),
            None => Taken::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        other => Taken::Json(other.clone()),
    }
}

fn within_limit(object: &Map<String, Value>) -> Result<()> {
    if object.len() > MAX_FIELDS {
        return Err(Error::exhausted(format!("the line has more than {MAX_FIELDS} members")));
    }
    Ok(())
}

fn parse(line: &[u8]) -> Result<Map<String, Value>> {
    serde_json::from_slice(line)
        .map_err(|cause| Error::corrupt("the line is not a JSON object").with_source(cause))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_become_fields_by_their_kind() {
        let line = Bytes::from_static(
            br#"{"text": "h\u00e9", "y": 3, "on": true, "x": 0.5, "v": [1, 2], "n": null}"#,
        );
        assert_eq!(names(&line).unwrap().len(), 6);
        let taken = take(&line, &["text", "y", "on", "x", "v", "n", "absent"]).unwrap();
        let wanted = [
            Taken::Bytes(Bytes::from_static("hé".as_bytes())),
            Taken::Int(3),
            Taken::Int(1),
            Taken::Float(0.5),
            Taken::Json(serde_json::json!([1, 2])),
            Taken::Missing,
            Taken::Missing,
        ];
        assert_eq!(taken, wanted);
        let every: Vec<String> = take_every(&line).unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(every, ["n", "on", "text", "v", "x", "y"]);
        for bad in [&b"[1]"[..], b"{", b"", b"\xff", b"{}{}"] {
            assert!(take(&Bytes::from_static(bad), &["a"]).is_err(), "{}", bad.escape_ascii());
        }
    }
}
