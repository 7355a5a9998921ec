//! Counts what passes to a store, and writes down each range when asked.
//!
//! Tests of other rooms use it to show how often and where bytes were read.

use crate::{ByteRange, ListPage, ObjectMeta, PagePlace, Store};
use bytes::Bytes;
use forebay_core::Result;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{BoxStream, StreamExt};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// Passes every request on and counts it.
#[derive(Debug)]
pub struct CountingStore {
    inner: Arc<dyn Store>,
    heads: AtomicU64,
    reads: AtomicU64,
    lists: AtomicU64,
    writes: AtomicU64,
    bytes_read: AtomicU64,
    failures: AtomicU64,
    log: Option<Mutex<Vec<Access>>>,
}

/// Requests since the store was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls of `head`.
    pub heads: u64,
    /// Calls of `read` and `read_parts`: each is one, whatever its number of parts.
    pub reads: u64,
    /// Calls of `list` and `list_page`.
    pub lists: u64,
    /// Calls of `write`.
    pub writes: u64,
    /// Bytes that successful reads gave.
    pub bytes_read: u64,
    /// Calls of `head`, `read`, `read_parts` and `write` that gave an error.
    pub failures: u64,
}

/// One range that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// The object.
    pub key: String,
    /// The range as it was asked for, before the object's size was known.
    pub range: ByteRange,
}

impl CountingStore {
    /// Counts requests to `inner`.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self {
            inner,
            heads: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            lists: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            bytes_read: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            log: None,
        }
    }

    /// Counts requests to `inner` and keeps every range that was asked for, without a limit: for tests.
    pub fn with_log(inner: Arc<dyn Store>) -> Self {
        Self { log: Some(Mutex::default()), ..Self::new(inner) }
    }

    /// What was counted so far.
    pub fn counts(&self) -> Counts {
        Counts {
            heads: self.heads.load(Relaxed),
            reads: self.reads.load(Relaxed),
            lists: self.lists.load(Relaxed),
            writes: self.writes.load(Relaxed),
            bytes_read: self.bytes_read.load(Relaxed),
            failures: self.failures.load(Relaxed),
        }
    }

    /// Takes what was written down, in the order of the requests. Empty when no log is kept.
    pub fn take_log(&self) -> Vec<Access> {
        self.log.as_ref().map_or_else(Vec::new, |log| {
            std::mem::take(&mut *log.lock().unwrap_or_else(PoisonError::into_inner))
        })
    }

    fn note(&self, key: &str, ranges: impl Iterator<Item = ByteRange>) {
        if let Some(log) = &self.log {
            let accesses = ranges.map(|range| Access { key: key.to_owned(), range });
            log.lock().unwrap_or_else(PoisonError::into_inner).extend(accesses);
        }
    }

    fn seen<T>(&self, answer: Result<T>, size: impl Fn(&T) -> usize) -> Result<T> {
        match &answer {
            Ok(given) => self.bytes_read.fetch_add(size(given) as u64, Relaxed),
            Err(_) => self.failures.fetch_add(1, Relaxed),
        };
        answer
    }
}

impl Store for CountingStore {
    fn url(&self, key: &str) -> String {
        self.inner.url(key)
    }

    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta>> {
        self.heads.fetch_add(1, Relaxed);
        self.inner.head(key).map(|answer| self.seen(answer, |_| 0)).boxed()
    }

    fn read<'a>(&'a self, key: &'a str, range: ByteRange) -> BoxFuture<'a, Result<Bytes>> {
        self.reads.fetch_add(1, Relaxed);
        self.note(key, std::iter::once(range));
        self.inner.read(key, range).map(|answer| self.seen(answer, Bytes::len)).boxed()
    }

    fn read_parts<'a>(&'a self, key: &'a str, parts: &'a [Range<u64>]) -> BoxFuture<'a, Result<Vec<Bytes>>> {
        self.reads.fetch_add(1, Relaxed);
        self.note(key, parts.iter().cloned().map(ByteRange::from));
        let size = |parts: &Vec<Bytes>| parts.iter().map(Bytes::len).sum();
        self.inner.read_parts(key, parts).map(move |answer| self.seen(answer, size)).boxed()
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<ObjectMeta>> {
        self.lists.fetch_add(1, Relaxed);
        self.inner.list(prefix).boxed()
    }

    fn list_page<'a>(&'a self, prefix: &'a str, place: &'a PagePlace) -> BoxFuture<'a, Result<ListPage>> {
        self.lists.fetch_add(1, Relaxed);
        self.inner.list_page(prefix, place).boxed()
    }

    fn lists_pages(&self) -> bool {
        self.inner.lists_pages()
    }

    fn is_remote(&self) -> bool {
        self.inner.is_remote()
    }

    fn runtime(&self) -> Option<tokio::runtime::Handle> {
        self.inner.runtime()
    }

    fn write<'a>(&'a self, key: &'a str, bytes: Bytes) -> BoxFuture<'a, Result<()>> {
        self.writes.fetch_add(1, Relaxed);
        self.inner.write(key, bytes).map(|answer| self.seen(answer, |()| 0)).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryStore;

    #[tokio::test]
    async fn every_request_is_counted_and_every_range_is_written_down() {
        let memory = MemoryStore::new();
        memory.insert("a", &b"0123456789"[..]).unwrap();
        let store = CountingStore::with_log(Arc::new(memory));
        store.head("a").await.unwrap();
        store.read("a", ByteRange::Last(3)).await.unwrap();
        store.read_parts("a", &[0..2, 4..6]).await.unwrap();
        store.read("b", ByteRange::Full).await.unwrap_err();
        let counts = store.counts();
        assert_eq!((counts.heads, counts.reads, counts.bytes_read, counts.failures), (1, 3, 7, 1));
        let ranges: Vec<_> = store.take_log().into_iter().map(|access| access.range).collect();
        assert_eq!(ranges, [ByteRange::Last(3), (0..2).into(), (4..6).into(), ByteRange::Full]);
        assert!(store.take_log().is_empty());
    }
}
