//! What the objects of a Parquet dataset are called: its files, their row groups, and runs of pages.
//!
//! A run's key says all that is needed to read it, so that nobody who reads has to look at a footer again:
//! `FILE@GROUP.LEAF.FIRST+BYTES.FIRST+BYTES.CODEC` with the pages, then the dictionary's page. A row group's key is
//! `FILE@GROUP`.

use std::ops::Range;

/// Some pages of one column in one row group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place<'a> {
    pub(super) file: &'a str,
    pub(super) group: u32,
    /// Number of the column in the manifest's list.
    pub(super) leaf: u32,
    pub(super) pages: Range<u64>,
    /// Empty when there is no dictionary.
    pub(super) dictionary: Range<u64>,
    pub(super) codec: u8,
}

impl<'a> Place<'a> {
    pub(super) fn key(&self) -> String {
        let range = |range: &Range<u64>| format!("{}+{}", range.start, range.end - range.start);
        let (pages, dictionary) = (range(&self.pages), range(&self.dictionary));
        format!("{}@{}.{}.{pages}.{dictionary}.{}", self.file, self.group, self.leaf, self.codec)
    }

    /// The run that a key names; `None` for other keys.
    pub(super) fn parse(key: &'a str) -> Option<Self> {
        let (file, rest) = key.rsplit_once('@')?;
        let mut parts = rest.split('.');
        let group = number(parts.next()?)?;
        let leaf = number(parts.next()?)?;
        let mut range = || {
            let (start, length) = parts.next()?.split_once('+')?;
            let start: u64 = number(start)?;
            Some(start..start.checked_add(number(length)?)?)
        };
        let (pages, dictionary) = (range()?, range()?);
        let codec = number(parts.next()?)?;
        parts.next().is_none().then_some(Self { file, group, leaf, pages, dictionary, codec })
    }
}

/// The key of a row group.
pub(super) fn group_key(file: &str, group: u32) -> String {
    format!("{file}@{group}")
}

/// The stored object that a key of a Parquet dataset is about, and whether the key is that of the object itself.
pub(in crate::source) fn stored(key: &str) -> (&str, bool) {
    if let Some(place) = Place::parse(key) {
        return (place.file, false);
    }
    match key.rsplit_once('@') {
        Some((file, group)) if number::<u32>(group).is_some() => (file, false),
        _ => (key, true),
    }
}

/// Digits alone: no sign, no space.
fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_runs_read_back_and_others_are_none() {
        let place = Place {
            file: "a@b/x.parquet",
            group: 3,
            leaf: 1,
            pages: 100..4_000_000_100,
            dictionary: 4..90,
            codec: 6,
        };
        let key = place.key();
        assert_eq!(key, "a@b/x.parquet@3.1.100+4000000000.4+86.6");
        assert_eq!(Place::parse(&key), Some(place));
        for other in
            ["x.parquet", "x@3", "x@3.1.1+2.0+0", "x@3.1.1+2.0+0.6.1", "x@3.1.+2.0+0.6", "x@-3.1.1+2.0+0.6"]
        {
            assert_eq!(Place::parse(other), None, "{other}");
        }
        assert_eq!(Place::parse("x@3.1.18446744073709551615+2.0+0.6"), None);
        assert_eq!(stored(&key), ("a@b/x.parquet", false));
        assert_eq!(stored(&group_key("x.parquet", 7)), ("x.parquet", false));
        assert_eq!(stored("mail@home.parquet"), ("mail@home.parquet", true));
    }
}
