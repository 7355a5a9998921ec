//! How many payloads a cache has served since it was made: a small file that every process adds to as it closes.
//!
//! It is no more than a figure to look at: what a killed process served is not in it, and damage begins it anew.

use super::Shared;
use super::folder::{MARKER_HEAD, begins_as_ours, open_or_create, open_ours};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

pub(super) const HITS: &str = "forebay-cache.hits";
/// Longer than any such file.
const LIMIT: u64 = 4096;

/// What processes that have closed the cache had served.
pub(super) fn read(dir: &Path) -> u64 {
    open_ours(&dir.join(HITS), false).ok().and_then(|file| parse(&file)).unwrap_or_default()
}

impl Shared {
    /// Adds what was served since the last time. A folder that may not be written to keeps no figure.
    pub(super) fn store_hits(&self) {
        let hits = self.new_hits.swap(0, Relaxed);
        if hits > 0 && add(&self.dir, hits).is_err() {
            self.new_hits.fetch_add(hits, Relaxed);
        }
    }
}

fn add(dir: &Path, hits: u64) -> io::Result<()> {
    let file = open_or_create(&dir.join(HITS))?;
    file.lock()?;
    if !begins_as_ours(&file)? {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file of others has this name"));
    }
    let hits = parse(&file).unwrap_or_default().saturating_add(hits);
    // Of a fixed length, so that no digit of an earlier one is left behind it.
    file.write_all_at(format!("{MARKER_HEAD}hits {hits:020}\n").as_bytes(), 0)
}

fn parse(file: &File) -> Option<u64> {
    let length = file.metadata().ok()?.len().min(LIMIT);
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(&mut bytes, 0).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    text.strip_prefix(MARKER_HEAD)?.strip_prefix("hits ")?.trim_end().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_add_up_and_a_file_of_others_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()), 0);
        add(dir.path(), 5).unwrap();
        add(dir.path(), 7).unwrap();
        assert_eq!(read(dir.path()), 12);
        std::fs::write(dir.path().join(HITS), "forebay cache\nhits nonsense").unwrap();
        add(dir.path(), 3).unwrap();
        assert_eq!(read(dir.path()), 3);
        std::fs::write(dir.path().join(HITS), "a diary").unwrap();
        assert!(add(dir.path(), 3).is_err());
        assert_eq!(std::fs::read(dir.path().join(HITS)).unwrap(), b"a diary");
    }
}
