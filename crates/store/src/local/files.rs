//! The bounded set of files kept open, and what was known about each when it was opened.
//!
//! A shard is read thousands of times and opened once. A kept descriptor goes on showing the file it was opened on,
//! also after another file took its name; [`Files::fresh`] looks at the name again and lets go of what was replaced.

use super::stats::Counters;
use crate::fault;
use forebay_core::{Error, Result};
use std::collections::HashMap;
use std::fs::{File, Metadata, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// What tells one version of a file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(crate) size: u64,
    pub(super) stamp: u64,
}

impl Version {
    pub(crate) fn of(meta: &Metadata) -> Self {
        Self { device: meta.dev(), inode: meta.ino(), size: meta.size(), stamp: stamp(meta) }
    }
}

/// Modification time in nanoseconds; times before 1970 count as 0, unknown.
pub(super) fn stamp(meta: &Metadata) -> u64 {
    let seconds = u64::try_from(meta.mtime()).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(meta.mtime_nsec()).unwrap_or(0))
}

/// An open regular file.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(super) file: File,
    pub(super) path: PathBuf,
    /// As of the moment it was opened.
    pub(crate) version: Version,
    /// The same file opened past the page cache; `None` inside when that was refused.
    direct: OnceLock<Option<File>>,
}

impl OpenFile {
    /// A file under the name that messages shall use, which need not be its own.
    pub(crate) fn named(file: File, path: PathBuf) -> std::io::Result<Self> {
        let version = Version::of(&file.metadata()?);
        Ok(Self { file, path, version, direct: OnceLock::new() })
    }

    /// Opens the descriptor for direct reads on first use and says whether there is one. `refused` is called when
    /// the file system does not offer it; there is none either when the name has come to mean another file.
    pub(super) fn open_direct(&self, counters: &Counters, refused: impl FnOnce()) -> bool {
        let open = || {
            counters.opens.fetch_add(1, Relaxed);
            let opened = open_options().custom_flags(libc::O_DIRECT | libc::O_NONBLOCK).open(&self.path);
            if opened.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::InvalidInput) {
                refused();
            }
            let file = opened.ok()?;
            let found = Version::of(&file.metadata().ok()?);
            if found.device != self.version.device || found.inode != self.version.inode {
                return None;
            }
            // `io_uring` takes O_NONBLOCK at its word and gives up reads that would have to wait.
            rustix::fs::fcntl_setfl(&file, rustix::fs::OFlags::DIRECT).ok()?;
            Some(file)
        };
        self.direct.get_or_init(open).is_some()
    }

    /// What [`OpenFile::open_direct`] opened.
    pub(super) fn direct(&self) -> Option<&File> {
        self.direct.get()?.as_ref()
    }
}

/// Files kept open, least recently used first to go.
#[derive(Debug)]
pub(super) struct Files {
    limit: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    files: HashMap<String, (Arc<OpenFile>, u64)>,
    clock: u64,
    /// Grows with every [`Files::forget`]: a file opened before must not be kept after.
    forgotten: u64,
}

impl Files {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, kept: Mutex::default() }
    }

    /// The file of `key`, kept open or opened now. What it shows may have been replaced since.
    pub(super) fn kept(&self, key: &str, path: &Path, counters: &Counters) -> Result<Arc<OpenFile>> {
        self.if_open(key).map_or_else(|| self.open(key, path, counters), Ok)
    }

    /// The file of `key` when it is kept open: nothing is opened, and nobody waits.
    pub(super) fn if_open(&self, key: &str) -> Option<Arc<OpenFile>> {
        self.lock().touch(key)
    }

    /// The file that has this name now: one system call when it is kept open and was not replaced.
    pub(super) fn fresh(&self, key: &str, path: &Path, counters: &Counters) -> Result<Arc<OpenFile>> {
        let kept = self.lock().touch(key);
        if let Some(file) = kept {
            if std::fs::metadata(path).is_ok_and(|meta| Version::of(&meta) == file.version) {
                return Ok(file);
            }
            self.forget(key);
        }
        self.open(key, path, counters)
    }

    /// Lets go of the file unless it is the one of this version.
    pub(super) fn check(&self, key: &str, version: Version) {
        let mut kept = self.lock();
        if kept.files.get(key).is_some_and(|(file, _)| file.version != version) {
            kept.files.remove(key);
        }
    }

    /// Lets go of the file, also of one that somebody is opening right now.
    pub(super) fn forget(&self, key: &str) {
        let mut kept = self.lock();
        kept.forgotten += 1;
        kept.files.remove(key);
    }

    fn open(&self, key: &str, path: &Path, counters: &Counters) -> Result<Arc<OpenFile>> {
        let forgotten = self.lock().forgotten;
        let file = open_regular(path)?;
        counters.opens.fetch_add(1, Relaxed);
        let named = OpenFile::named(file, path.to_owned());
        let file =
            Arc::new(named.map_err(|error| fault::system("look at", &path.to_string_lossy(), None, error))?);
        let mut kept = self.lock();
        if self.limit > 0 && kept.forgotten == forgotten {
            kept.keep(key, Arc::clone(&file), self.limit);
        }
        drop(kept);
        Ok(file)
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn touch(&mut self, key: &str) -> Option<Arc<OpenFile>> {
        self.clock += 1;
        let (file, used) = self.files.get_mut(key)?;
        *used = self.clock;
        Some(Arc::clone(file))
    }

    fn keep(&mut self, key: &str, file: Arc<OpenFile>, limit: usize) {
        if self.files.len() >= limit && !self.files.contains_key(key) {
            // A walk over a few hundred entries costs less than the `open` that brought us here.
            let oldest = self.files.iter().min_by_key(|(_, (_, used))| *used).map(|(key, _)| key.clone());
            oldest.and_then(|key| self.files.remove(&key));
        }
        self.clock += 1;
        self.files.insert(key.to_owned(), (file, self.clock));
    }
}

/// Opens a file for reading. Directories are not objects, and neither are pipes, sockets and devices.
pub(super) fn open_regular(path: &Path) -> Result<File> {
    let name = || path.to_string_lossy();
    // Without O_NONBLOCK the open of a pipe would wait for a writer, perhaps for ever.
    let file = open_options()
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .map_err(|error| fault::system("open", &name(), None, error))?;
    let meta = file.metadata().map_err(|error| fault::system("look at", &name(), None, error))?;
    if meta.is_file() { Ok(file) } else { Err(not_regular(path)) }
}

pub(super) fn not_regular(path: &Path) -> Error {
    let name = path.to_string_lossy();
    Error::not_found(format!("open `{name}`: not a regular file")).with_facts(fault::facts(&name, None))
}

fn open_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true);
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_stay_within_the_limit_and_the_oldest_goes_first() {
        let dir = tempfile::tempdir().unwrap();
        let counters = Counters::default();
        let files = Files::new(2);
        for name in ["a", "b", "c"] {
            std::fs::write(dir.path().join(name), name).unwrap();
        }
        for name in ["a", "b", "a", "c", "a", "b"] {
            files.kept(name, &dir.path().join(name), &counters).unwrap();
        }
        assert_eq!(files.lock().files.len(), 2);
        // a, b, then c in place of b, then b again.
        assert_eq!(counters.snapshot().opens, 4);
    }

    #[test]
    fn a_replaced_file_is_opened_again_and_an_unchanged_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let counters = Counters::default();
        let files = Files::new(2);
        std::fs::write(&path, "old").unwrap();
        files.kept("a", &path, &counters).unwrap();
        assert_eq!(files.fresh("a", &path, &counters).unwrap().version.size, 3);
        std::fs::write(dir.path().join("b"), "newer").unwrap();
        std::fs::rename(dir.path().join("b"), &path).unwrap();
        assert_eq!(files.kept("a", &path, &counters).unwrap().version.size, 3);
        assert_eq!(files.fresh("a", &path, &counters).unwrap().version.size, 5);
        assert_eq!(counters.snapshot().opens, 2);
    }

    #[test]
    fn only_regular_files_are_objects() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(open_regular(dir.path()).unwrap_err().kind(), forebay_core::ErrorKind::NotFound);
        assert!(open_regular(Path::new("/dev/null")).is_err());
    }
}
