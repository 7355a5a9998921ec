//! Presents compressed objects as what they hold: keys that end in `.gz`, `.tgz`, `.zst` or `.zstd` read as decompressed
//! bytes, and so do those that end in `.zstd.bin`, as LitData names compressed chunks.
//!
//! Neither can be entered in the middle, so an object is expanded once, in a stream, into a temporary file without a
//! name, and ranges are read from there. Expanded files are kept up to a bound and the least recently used go
//! first (`kept`); how bytes are expanded, and where a bomb is stopped, is in `expand`. Other keys pass through.

mod expand;
mod kept;

use crate::local::buffered;
use crate::local::pool::Pool;
use crate::local::stats::Counters;
use crate::{ByteRange, ObjectMeta, Store, fault, key, range};
use bytes::Bytes;
use expand::{Expansion, Packing};
use forebay_core::{Error, Result};
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{BoxStream, StreamExt};
use kept::{Expanded, Kept};
use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Bytes of the compressed object that are fetched and expanded at a time.
const CHUNK_BYTES: u64 = 4 << 20;

/// How often an object may be replaced while it is expanded before that is an error.
const CHANGES: usize = 8;

/// Bounds of a [`GunzipStore`].
#[derive(Clone, Debug)]
pub struct GunzipOptions {
    /// Where expanded files lie: a disk, since a `tmpfs` is memory. They have no name and vanish with the process.
    pub directory: PathBuf,
    /// Bytes that all expanded files together may take.
    pub kept_bytes: u64,
    /// Bytes that one object may expand to.
    pub object_bytes: u64,
    /// How many times its size an object may expand to, once it is beyond 64 MiB: what text and pixels never reach.
    pub ratio: u64,
}

impl Default for GunzipOptions {
    fn default() -> Self {
        Self { directory: std::env::temp_dir(), kept_bytes: 64 << 30, object_bytes: 32 << 30, ratio: 200 }
    }
}

/// A store whose compressed objects read as decompressed bytes; what is written under such keys is compressed.
///
/// Sizes are those of the decompressed bytes, so `head` and `list` expand objects not seen before. As with
/// [`crate::LocalStore`], ranges with fixed ends are read from the version that was expanded first; `head`, open-ended
/// reads and writes through this store look whether it changed.
#[derive(Debug)]
pub struct GunzipStore {
    inner: Arc<dyn Store>,
    options: GunzipOptions,
    kept: Arc<Kept>,
    /// One lock per object that is being expanded, so that readers who come together expand it once.
    expanding: Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>,
    pool: Pool,
    counters: Arc<Counters>,
}

impl GunzipStore {
    /// Presents the compressed objects of `inner` as what they hold.
    pub fn new(inner: Arc<dyn Store>, options: GunzipOptions) -> Self {
        let kept = Arc::new(Kept::new(options.kept_bytes));
        let pool = Pool::new("forebay-gunzip", 4);
        Self { inner, options, kept, expanding: Mutex::default(), pool, counters: Arc::default() }
    }

    /// Whether the object of this key is presented decompressed.
    pub fn applies_to(key: &str) -> bool {
        Packing::of(key).is_some()
    }

    /// How many times an object was expanded.
    pub fn expansions(&self) -> u64 {
        self.kept.expansions()
    }

    /// The expanded object: as kept, or as it is now when `fresh` is asked for.
    async fn expanded(&self, key: &str, fresh: bool) -> Result<Arc<Expanded>> {
        key::check(key)?;
        if !fresh && let Some(kept) = self.kept.get(key) {
            return Ok(kept);
        }
        let lock = self.lock_of(key);
        let _alone = lock.lock().await;
        if !fresh && let Some(kept) = self.kept.get(key) {
            return Ok(kept);
        }
        let moment = self.kept.moment();
        let mut meta = self.inner.head(key).await?;
        for _ in 0..CHANGES {
            if let Some(kept) = self.kept.get(key).filter(|kept| kept.is_of(&meta)) {
                return Ok(kept);
            }
            self.kept.forget(key);
            let expanded = self.expand(&meta).await;
            // One piece with a right checksum is one version. Several pieces may be of two, and a piece that looks
            // corrupt may come from an object that was replaced after its size was learnt.
            let sure = expanded.is_ok() && meta.size <= CHUNK_BYTES;
            let now = if sure { meta.clone() } else { self.inner.head(key).await? };
            if now == meta {
                let expanded = Arc::new(expanded?);
                self.kept.insert(key, &expanded, moment);
                return Ok(expanded);
            }
            meta = now;
        }
        let url = self.inner.url(key);
        Err(Error::stale(format!("expand `{url}`: it was replaced {CHANGES} times meanwhile"))
            .with_facts(fault::facts(&url, None)))
    }

    async fn expand(&self, meta: &ObjectMeta) -> Result<Expanded> {
        let url = self.inner.url(&meta.key);
        let mut expansion = Expansion::start(&self.options, Arc::clone(&self.kept), meta, url)?;
        let mut at = 0;
        while at < meta.size {
            let end = meta.size.min(at + CHUNK_BYTES);
            let chunk = self.inner.read(&meta.key, (at..end).into()).await?;
            at = end;
            expansion = self.pool.run(move || expansion.feed(&chunk)).await?;
        }
        self.pool.run(move || expansion.finish()).await
    }

    fn lock_of(&self, key: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut expanding = self.expanding.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lock) = expanding.get(key).and_then(Weak::upgrade) {
            return lock;
        }
        expanding.retain(|_, lock| lock.strong_count() > 0);
        let lock = Arc::default();
        expanding.insert(key.to_owned(), Arc::downgrade(&lock));
        lock
    }

    async fn meta(&self, key: &str) -> Result<ObjectMeta> {
        let expanded = self.expanded(key, true).await?;
        Ok(ObjectMeta { key: key.to_owned(), size: expanded.size(), stamp: expanded.stamp() })
    }

    /// Reads parts of an expanded object, which a short read of the temporary file would betray as our own fault.
    async fn parts_of(&self, expanded: Arc<Expanded>, parts: Vec<Range<u64>>) -> Result<Vec<Bytes>> {
        let counters = Arc::clone(&self.counters);
        let read = move || {
            let mut answer = vec![Bytes::new(); parts.len()];
            for span in buffered::spans(&parts) {
                let bytes = buffered::read_span(expanded.file(), &span.bytes, &counters)?;
                buffered::deal(&span, &bytes, &parts, &mut answer);
            }
            Ok(answer)
        };
        self.pool.run(read).await
    }

    fn outside(&self, key: &str, error: Error) -> Error {
        fault::located(error, "read", &self.inner.url(key), None)
    }
}

impl Store for GunzipStore {
    fn url(&self, key: &str) -> String {
        self.inner.url(key)
    }

    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta>> {
        if Self::applies_to(key) { self.meta(key).boxed() } else { self.inner.head(key) }
    }

    fn read<'a>(&'a self, key: &'a str, range: ByteRange) -> BoxFuture<'a, Result<Bytes>> {
        if !Self::applies_to(key) {
            return self.inner.read(key, range);
        }
        async move {
            let fresh = !matches!(range, ByteRange::Bounded { .. } | ByteRange::Whole(_));
            let expanded = self.expanded(key, fresh).await?;
            let part = range.resolve(expanded.size()).map_err(|error| self.outside(key, error))?;
            Ok(self.parts_of(expanded, vec![part]).await?.pop().unwrap_or_default())
        }
        .boxed()
    }

    fn read_parts<'a>(&'a self, key: &'a str, parts: &'a [Range<u64>]) -> BoxFuture<'a, Result<Vec<Bytes>>> {
        if !Self::applies_to(key) {
            return self.inner.read_parts(key, parts);
        }
        async move {
            let expanded = self.expanded(key, false).await?;
            range::check_parts(parts, expanded.size()).map_err(|error| self.outside(key, error))?;
            self.parts_of(expanded, parts.to_vec()).await
        }
        .boxed()
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<ObjectMeta>> {
        let sized = move |meta: Result<ObjectMeta>| async move {
            match meta {
                Ok(meta) if Self::applies_to(&meta.key) => self.meta(&meta.key).await,
                other => other,
            }
        };
        self.inner.list(prefix).then(sized).boxed()
    }

    fn local_stats(&self) -> Option<crate::local::LocalStats> {
        self.inner.local_stats()
    }

    fn is_remote(&self) -> bool {
        self.inner.is_remote()
    }

    fn runtime(&self) -> Option<tokio::runtime::Handle> {
        self.inner.runtime()
    }

    fn write<'a>(&'a self, key: &'a str, bytes: Bytes) -> BoxFuture<'a, Result<()>> {
        if !Self::applies_to(key) {
            return self.inner.write(key, bytes);
        }
        async move {
            key::check_for_write(key)?;
            let packing = Packing::of(key).unwrap_or(Packing::Gzip);
            let compressed = self.pool.run(move || expand::compress(packing, &bytes)).await?;
            let written = self.inner.write(key, compressed.into()).await;
            self.kept.replaced(key);
            written
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests;
