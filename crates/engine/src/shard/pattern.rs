//! Names of shards with a counter in them, and which of them are in a folder.

use super::form::Format;
use super::writer::ShardWriterOptions;
use forebay_core::{Error, Result};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// `before`, a counter of at least `width` digits, `after`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    before: String,
    width: usize,
    after: String,
    pub(super) format: Format,
}

impl Pattern {
    pub(super) fn parse(pattern: &str) -> Result<Self> {
        let found = ["%0", "{:0"].into_iter().find_map(|open| {
            let close = if open == "%0" { 'd' } else { '}' };
            let (before, rest) = pattern.split_once(open)?;
            let (digits, after) = rest.split_once(close)?;
            let width = digits.parse().ok().filter(|width| (1..=20).contains(width))?;
            Some(Self { before: before.into(), width, after: after.into(), format: Format::of(after)? })
        });
        match found {
            Some(found) if !found.after.contains('/') => Ok(found),
            _ => Err(Error::invalid_config(format!(
                "write shards by pattern `{pattern}`: it needs one counter in its file name and must end in `.tar`, `.tfrecord` or `.tfrecord.gz`"
            ))
            .with_hint("for example `out/train-%06d.tar`")),
        }
    }

    pub(super) fn name(&self, number: u64) -> String {
        format!("{}{number:0width$}{}", self.before, self.after, width = self.width)
    }

    /// The number of the shard that a file of this name is.
    fn number(&self, file: &str) -> Option<u64> {
        let begins = self.before.rsplit('/').next().unwrap_or_default();
        let number = file.strip_prefix(begins)?.strip_suffix(&self.after)?.parse().ok()?;
        (self.name(number).rsplit('/').next() == Some(file)).then_some(number)
    }
}

/// What a folder has of the shards of a pattern.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Numbers of whole shards, counted from the first.
    pub(crate) shards: BTreeSet<u64>,
    /// Shards that some process has not finished.
    pub(crate) parts: Vec<PathBuf>,
}

impl ShardWriterOptions {
    /// Looks which shards are there.
    pub(crate) fn found(&self) -> Result<Found> {
        let pattern = Pattern::parse(&self.pattern)?;
        let first = PathBuf::from(pattern.name(self.first));
        let folder = folder_of(&first);
        let doing = |e| Error::io(format!("look for shards in `{}`", folder.display()), e);
        let number = |name: &str| pattern.number(name)?.checked_sub(self.first);
        let mut found = Found::default();
        for entry in fs::read_dir(folder).map_err(doing)? {
            let entry = entry.map_err(doing)?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            match of_temporary(name) {
                Some(shard) => found.parts.extend(number(shard).map(|_| entry.path())),
                None => found.shards.extend(number(name)),
            }
        }
        Ok(found)
    }
}

/// Where a shard is until it is whole. The process id keeps two writers apart.
pub(super) fn temporary(shard: &Path) -> PathBuf {
    let name = shard.file_name().unwrap_or_default().to_string_lossy();
    folder_of(shard).join(format!(".tmp-{name}-{}", std::process::id()))
}

/// The name of the shard that [`temporary`] gave this name.
fn of_temporary(name: &str) -> Option<&str> {
    let (shard, process) = name.strip_prefix(".tmp-")?.rsplit_once('-')?;
    process.bytes().all(|digit| digit.is_ascii_digit()).then_some(shard)
}

pub(super) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_of_the_counter_are_understood() {
        for pattern in ["out/train-%06d.tar", "out/train-{:06}.tar"] {
            assert_eq!(Pattern::parse(pattern).unwrap().name(7), "out/train-000007.tar");
        }
        assert_eq!(Pattern::parse("s-%02d.tar").unwrap().name(123), "s-123.tar");
        let pattern = Pattern::parse("out/t-%03d.tar").unwrap();
        for (file, number) in [("t-007.tar", 7), ("t-1234.tar", 1234)] {
            assert_eq!(pattern.number(file), Some(number));
        }
        for other in ["t-07.tar", "t-0007.tar", "t-+07.tar", "t-007.tar.gz", "at-007.tar", "t-.tar"] {
            assert_eq!(pattern.number(other), None, "{other}");
        }
        assert_eq!(Pattern::parse("out/%03d.tar").unwrap().number("7.tar"), None);
        for bad in ["train.tar", "train-%06d", "%06d/train.tar", "train-%0xd.tar", "train-%099d.tar", ""] {
            assert!(Pattern::parse(bad).is_err(), "{bad}");
        }
    }
}
