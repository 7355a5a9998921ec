//! Objects as files below a directory.
//!
//! [`LocalStore`] checks keys, keeps files open (`files`), and does all blocking work on a small pool of its own
//! (`pool`), so it runs under any executor. Bytes come through the page cache or past it (`read`); listing and
//! writing have a file each, and so has mapping a whole file into memory ([`map`]). Symlinks are
//! followed, also out of the root: whoever may place links in the tree is trusted.

mod block;
pub(crate) mod buffered;
mod direct;
pub(crate) mod files;
mod list;
pub mod map;
pub(crate) mod pool;
mod read;
mod region;
pub(crate) mod stats;
mod write;

pub use read::ReadMode;
pub use stats::LocalStats;

use crate::{ByteRange, ObjectMeta, ObjectRead, Store, fault, key};
use bytes::Bytes;
use files::{Files, Version};
use forebay_core::Result;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{self, BoxStream, StreamExt};
use list::Walk;
use pool::Pool;
use read::{Direct, Wanted};
use stats::Counters;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// How many objects one step of a listing looks at.
const LIST_STEP: usize = 256;

/// Settings of a [`LocalStore`].
#[derive(Clone, Debug)]
pub struct LocalOptions {
    /// Through the page cache or past it.
    pub read_mode: ReadMode,
    /// How many threads may block in reads at once. More help cold reads of a slow disk.
    pub threads: usize,
    /// How many files are kept open, each by one descriptor, or two when it is also read past the page cache. More
    /// help when more shards than this are read in turn.
    pub open_files: usize,
}

impl Default for LocalOptions {
    fn default() -> Self {
        Self { read_mode: ReadMode::Auto, threads: 8, open_files: 256 }
    }
}

/// Objects as files below a root directory; clones share threads, open files and counters.
///
/// A range with fixed ends is read from the file that was opened first, also after another took its name, until
/// [`Store::head`], an open-ended read or a write through this store looks again. So one object read in pieces is
/// one version of it.
#[derive(Clone, Debug)]
pub struct LocalStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    root: PathBuf,
    files: Files,
    counters: Arc<Counters>,
    direct: Direct,
    pool: Pool,
}

impl LocalStore {
    /// A store of the files below `root`. Nothing is opened and no thread starts before the first request.
    pub fn new(root: PathBuf) -> Self {
        Self::with_options(root, &LocalOptions::default())
    }

    /// As [`LocalStore::new`], with other settings.
    pub fn with_options(root: PathBuf, options: &LocalOptions) -> Self {
        let inner = Inner {
            root,
            files: Files::new(options.open_files),
            counters: Arc::default(),
            direct: Direct::new(options.read_mode),
            pool: Pool::new("forebay-local", options.threads),
        };
        Self { inner: Arc::new(inner) }
    }

    /// The directory that keys are relative to.
    pub fn root(&self) -> &Path {
        &self.inner.root
    }

    /// What was counted since the store was made.
    pub fn stats(&self) -> LocalStats {
        self.inner.counters.snapshot()
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let inner = Arc::clone(&self.inner);
        self.inner.pool.run(move || work(&inner)).await
    }
}

impl Store for LocalStore {
    fn local_stats(&self) -> Option<LocalStats> {
        Some(self.stats())
    }

    fn cold(&self) -> Option<Arc<dyn Store>> {
        let options = LocalOptions { read_mode: ReadMode::Direct, ..LocalOptions::default() };
        Some(Arc::new(Self::with_options(self.inner.root.clone(), &options)))
    }

    fn url(&self, key: &str) -> String {
        format!("{}/{key}", self.inner.root.display())
    }

    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta>> {
        async move {
            key::check(key)?;
            let key = key.to_owned();
            self.run(move |inner| inner.look(key)).await
        }
        .boxed()
    }

    fn read<'a>(&'a self, key: &'a str, range: ByteRange) -> BoxFuture<'a, Result<Bytes>> {
        async move {
            key::check(key)?;
            self.inner.counters.requests.fetch_add(1, Relaxed);
            Ok(self.fetch(key, Wanted::Range(range)).await?.pop().unwrap_or_default())
        }
        .boxed()
    }

    fn read_parts<'a>(&'a self, key: &'a str, parts: &'a [Range<u64>]) -> BoxFuture<'a, Result<Vec<Bytes>>> {
        async move {
            key::check(key)?;
            self.inner.counters.requests.fetch_add(1, Relaxed);
            self.fetch(key, Wanted::Parts(parts.to_vec())).await
        }
        .boxed()
    }

    fn read_many<'a>(&'a self, reads: &'a [ObjectRead]) -> BoxFuture<'a, Vec<Result<Bytes>>> {
        self.fetch_many(reads).boxed()
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<ObjectMeta>> {
        let walk = Walk::new(self.inner.root.clone(), prefix);
        stream::unfold(Some(walk), move |walk| async move {
            let mut walk = walk?;
            let step = self.run(move |_| {
                let found = walk.next_objects(LIST_STEP)?;
                Ok((found, walk))
            });
            match step.await {
                Ok((found, _)) if found.is_empty() => None,
                Ok((found, walk)) => {
                    Some((stream::iter(found.into_iter().map(Ok)).left_stream(), Some(walk)))
                }
                Err(error) => Some((stream::iter([Err(error)]).right_stream(), None)),
            }
        })
        .flatten()
        .boxed()
    }

    fn write<'a>(&'a self, key: &'a str, bytes: Bytes) -> BoxFuture<'a, Result<()>> {
        async move {
            key::check_for_write(key)?;
            let key = key.to_owned();
            self.run(move |inner| {
                let written = write::write_whole(&inner.path(&key), &bytes);
                inner.files.forget(&key);
                written
            })
            .await
        }
        .boxed()
    }
}

impl Inner {
    /// `key` has passed [`key::check`], so the path lies below the root but for symlinks.
    fn path(&self, key: &str) -> PathBuf {
        self.root.join(key)
    }

    fn look(&self, key: String) -> Result<ObjectMeta> {
        let path = self.path(&key);
        let meta = std::fs::metadata(&path).map_err(|error| {
            self.files.forget(&key);
            fault::system("look at", &path.to_string_lossy(), None, error)
        })?;
        if !meta.is_file() {
            return Err(files::not_regular(&path));
        }
        let version = Version::of(&meta);
        self.files.check(&key, version);
        Ok(ObjectMeta { key, size: version.size, stamp: version.stamp })
    }
}
