//! Which members form a sample: WebDataset's rules, to the letter.
//!
//! The key is the path up to the first dot of the file name; the rest, lower-cased, is the field. Neighbouring
//! members with one key are one sample. Members without a dot and `__meta__` entries belong to no sample.

use super::tar::Member;
use forebay_core::{Error, Facts, Result};

/// One field of a sample: a member's payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupedField {
    /// The field's name: everything after the key's dot, lower-cased.
    pub name: String,
    /// Where the payload begins in the shard.
    pub offset: u64,
    /// Payload bytes.
    pub length: u64,
}

/// Neighbouring members with one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupedSample {
    /// The path up to the first dot of the file name.
    pub key: String,
    /// Where the header of the first member begins.
    pub header: u64,
    /// Its fields in the order of the shard.
    pub fields: Vec<GroupedField>,
}

/// Joins a shard's members into samples as they come.
#[derive(Debug, Default)]
pub struct Grouper {
    open: Option<GroupedSample>,
}

impl Grouper {
    /// Takes the next member and returns the sample that it ended, if it ended one.
    pub fn add(&mut self, member: &Member) -> Result<Option<GroupedSample>> {
        if is_meta(&member.name) {
            return Ok(None);
        }
        let Some((key, field)) = split_name(&member.name) else { return Ok(None) };
        let field = GroupedField { name: field.to_lowercase(), offset: member.offset, length: member.length };
        match &mut self.open {
            Some(open) if open.key == key => {
                if open.fields.iter().any(|known| known.name == field.name) {
                    return Err(duplicate_field(key, &field.name, member));
                }
                if open.fields.len() >= FIELDS_OF_A_SAMPLE {
                    return Err(too_many_fields(key, member));
                }
                open.fields.push(field);
                Ok(None)
            }
            _ => {
                let sample =
                    GroupedSample { key: key.to_string(), header: member.header, fields: vec![field] };
                Ok(self.open.replace(sample))
            }
        }
    }

    /// The last sample.
    pub fn finish(self) -> Option<GroupedSample> {
        self.open
    }
}

/// Most fields of one sample. Beyond it the names were surely not meant this way.
pub const FIELDS_OF_A_SAMPLE: usize = 256;

/// Key and field of a path, the field not yet lower-cased; `None` when it has no extension.
///
/// A file name that begins with a dot (`dir/.name`) has the key `dir/`, unless `dir` itself has a dot: that is what
/// WebDataset's pattern `((?:.*/|)[^.]+)[.]([^/]*)` gives, and files written for it must read alike.
pub fn split_name(path: &str) -> Option<(&str, &str)> {
    let base = path.rfind('/').map_or(0, |slash| slash + 1);
    let dot = base + path[base..].find('.')?;
    if dot == base {
        let folder = path[..base].strip_suffix('/')?;
        let last = folder.rsplit('/').next().unwrap_or(folder);
        if last.contains('.') {
            return None;
        }
    }
    Some((&path[..dot], &path[dot + 1..]))
}

/// Whether WebDataset skips the entry: a first path part that begins and ends with `__`.
pub fn is_meta(path: &str) -> bool {
    let (first, inside) = match path.split_once('/') {
        Some((first, _)) => (first, true),
        None => (path, false),
    };
    // `__` and `___` alone are skipped as files, but not as folders.
    first.starts_with("__") && first.ends_with("__") && (first.len() >= 4 || !inside)
}

fn facts(key: &str, field: &str, member: &Member) -> Facts {
    Facts {
        key: Some(key.to_string()),
        field: Some(field.to_string()),
        offset: Some(member.header),
        ..Facts::default()
    }
}

fn duplicate_field(key: &str, field: &str, member: &Member) -> Error {
    let (name, at) = (&member.name, member.header);
    let message = format!("tar member `{name}` at byte {at}: sample `{key}` has field `{field}` already");
    Error::corrupt(message)
        .with_facts(facts(key, field, member))
        .with_hint("fields are lower-cased, so `A.jpg` and `A.JPG` are one; give each sample its own key")
}

fn too_many_fields(key: &str, member: &Member) -> Error {
    let (name, at) = (&member.name, member.header);
    let message =
        format!("tar member `{name}` at byte {at}: sample `{key}` has more than {FIELDS_OF_A_SAMPLE} fields");
    Error::exhausted(message).with_facts(facts(key, "", member)).with_hint(
        "a key ends at the first dot of the file name: `run.0001.jpg` is field `0001.jpg` of `run`",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every row was computed with the pattern in Python.
    #[test]
    fn p018_keys_and_fields_split_as_webdataset_splits_them() {
        let rows: [(&str, Option<(&str, &str)>); 20] = [
            ("a.jpg", Some(("a", "jpg"))),
            ("a.seg.png", Some(("a", "seg.png"))),
            ("dir/a.JPG", Some(("dir/a", "JPG"))),
            ("dir.v2/a.jpg", Some(("dir.v2/a", "jpg"))),
            ("dir.v2/a.b.c", Some(("dir.v2/a", "b.c"))),
            ("./a.jpg", Some(("./a", "jpg"))),
            ("../../a.jpg", Some(("../../a", "jpg"))),
            ("/etc/a.jpg", Some(("/etc/a", "jpg"))),
            ("a", None),
            ("dir/a", None),
            ("dir.v2/a", None),
            (".hidden", None),
            ("./.hidden", None),
            ("dir/.hidden", Some(("dir/", "hidden"))),
            ("dir.v2/.hidden", None),
            ("x.y/dir/.hidden", Some(("x.y/dir/", "hidden"))),
            ("/.hidden", Some(("/", "hidden"))),
            ("a//.hidden", Some(("a//", "hidden"))),
            ("a.", Some(("a", ""))),
            ("", None),
        ];
        for (path, wanted) in rows {
            assert_eq!(split_name(path), wanted, "{path:?}");
        }
    }

    #[test]
    fn p018_meta_entries_are_those_webdataset_skips() {
        for skipped in ["__meta__", "__meta__/a.jpg", "__", "___", "____", "____/x.jpg", "__a.b__"] {
            assert!(is_meta(skipped), "{skipped}");
        }
        for kept in ["a/__meta__", "__meta__.json", "__a", "a__", "__/a.jpg", "___/a.jpg", "__a__b/x.jpg"] {
            assert!(!is_meta(kept), "{kept}");
        }
    }

    fn member(name: &str, header: u64) -> Member {
        Member { name: name.into(), header, offset: header + 512, length: 1 }
    }

    fn group(names: &[&str]) -> Result<Vec<(String, Vec<String>)>> {
        let (mut grouper, mut samples) = (Grouper::default(), Vec::new());
        for (at, name) in names.iter().enumerate() {
            samples.extend(grouper.add(&member(name, at as u64 * 1024))?);
        }
        samples.extend(grouper.finish());
        let flat = |s: GroupedSample| (s.key, s.fields.into_iter().map(|f| f.name).collect());
        Ok(samples.into_iter().map(flat).collect())
    }

    #[test]
    fn p018_neighbours_with_one_key_are_one_sample() {
        let names = ["a.jpg", "noext", "__meta__", "a.CLS", "b.x.y", "a.jpg"];
        let wanted = [("a", vec!["jpg", "cls"]), ("b", vec!["x.y"]), ("a", vec!["jpg"])];
        let wanted: Vec<_> =
            wanted.map(|(k, f)| (k.to_string(), f.into_iter().map(String::from).collect())).into();
        assert_eq!(group(&names).unwrap(), wanted);
        assert!(group(&[]).unwrap().is_empty());
    }

    #[test]
    fn p018_a_field_given_twice_is_an_error_that_names_key_field_and_offset() {
        let error = group(&["a.jpg", "a.JPG"]).unwrap_err();
        assert_eq!(error.kind(), forebay_core::ErrorKind::Corrupt);
        assert_eq!(error.facts().key.as_deref(), Some("a"));
        assert_eq!(error.facts().field.as_deref(), Some("jpg"));
        assert_eq!(error.facts().offset, Some(1024));
    }

    #[test]
    fn names_with_counters_after_a_dot_are_refused_with_a_hint() {
        let names: Vec<String> = (0..300).map(|i| format!("run.{i:04}.jpg")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let error = group(&names).unwrap_err();
        assert!(error.hint().unwrap().contains("first dot"));
    }
}
