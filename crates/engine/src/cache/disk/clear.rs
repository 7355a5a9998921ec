//! Looking after a cache from outside a loader: listing, mending and clearing it.

use super::folder::{self, INDEX, LOCK, MARKER, NEW, begins_as_ours, open_ours, segment_name};
use super::hits::HITS;
use super::lock::Lock;
use super::{DiskOptions, DiskTier};
use forebay_core::cache::PayloadId;
use forebay_core::{Error, Result};
use std::io;
use std::path::Path;

/// A payload as it lies on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its name.
    pub id: PayloadId,
    /// The dataset it belongs to.
    pub group: u64,
    /// The file.
    pub file: String,
    /// Its first byte in the file.
    pub offset: u64,
    /// Its bytes.
    pub length: u64,
}

/// What clearing removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cleared {
    /// Files removed.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files and folders that are still there, because they are not the cache's.
    pub left: u64,
}

impl DiskTier {
    /// Opens a cache that is there for writing, with the limit that it has. Refused while another process writes.
    pub fn mend(dir: &Path) -> Result<Self> {
        let Some(limit) = folder::read_marker(dir)? else { return Err(no_cache(dir)) };
        let tier = Self::open_with(dir, &DiskOptions::new(limit))?;
        if tier.queue.is_none() { Err(busy("mend", dir)) } else { Ok(tier) }
    }

    /// Where every payload lies, file by file in the order of offsets. What waits to be written is not among them.
    pub fn stored(&self) -> Vec<Stored> {
        let mut found: Vec<_> = self
            .shared
            .state()
            .live
            .iter()
            .map(|(id, entry)| (entry.segment, entry.at, *id, *entry))
            .collect();
        found.sort_unstable_by_key(|(segment, at, id, _)| (*segment, *at, *id));
        let stored = found.into_iter().map(|(segment, _, id, entry)| Stored {
            id,
            group: entry.group,
            file: segment_name(segment),
            offset: entry.payload().start,
            length: u64::from(entry.length),
        });
        stored.collect()
    }

    /// Removes a cache: all files that are its own, none that is not. Refused while another process writes.
    pub fn clear(dir: &Path) -> Result<Cleared> {
        if folder::read_marker(dir)?.is_none() {
            return Err(no_cache(dir));
        }
        let Some(lock) = Lock::take(dir)? else { return Err(busy("clear", dir)) };
        let fault = |error| Error::io(format!("clear the cache `{}`", dir.display()), error);
        let mut cleared = Cleared::default();
        let (segments, _) = folder::segments(dir).map_err(fault)?;
        for number in segments.into_keys() {
            cleared.remove(&dir.join(segment_name(number))).map_err(fault)?;
        }
        // The marker goes when nothing is left that it could stand for.
        let index_new = format!("{INDEX}{NEW}");
        let marker_new = format!("{MARKER}{NEW}");
        for name in [INDEX, &index_new, HITS, &marker_new, MARKER] {
            let path = dir.join(name);
            if open_ours(&path, false).and_then(|file| begins_as_ours(&file)).unwrap_or(false) {
                cleared.remove(&path).map_err(fault)?;
            }
        }
        cleared.remove(&dir.join(LOCK)).map_err(fault)?;
        drop(lock);
        cleared.left = std::fs::read_dir(dir).map_err(fault)?.count() as u64;
        Ok(cleared)
    }
}

impl Cleared {
    fn remove(&mut self, path: &Path) -> io::Result<()> {
        // Of a link in its place the link itself would go, never what it points to.
        let bytes = std::fs::symlink_metadata(path)?.len();
        std::fs::remove_file(path)?;
        self.files += 1;
        self.bytes += bytes;
        Ok(())
    }
}

pub(super) fn no_cache(dir: &Path) -> Error {
    Error::not_found(format!("open the cache `{}`: no cache is there", dir.display()))
        .with_hint("name the directory that a loader's `cache` names as `disk`")
}

fn busy(doing: &str, dir: &Path) -> Error {
    Error::unavailable(format!("{doing} the cache `{}`: another process writes to it", dir.display()))
        .with_hint("wait until training has ended, or stop it")
}
