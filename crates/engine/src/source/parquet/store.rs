//! Presents runs of a Parquet dataset as what they hold: the values of their rows, one after the other.
//!
//! A run is read and expanded once for all samples that want it together, and the last ones stay for a while, up to a
//! stated bound; so samples of one block, which are neighbours, cost one expansion. Other keys pass through.

use super::place::Place;
use crate::source::blocking;
use bytes::Bytes;
use forebay_core::{Error, Facts, Result};
use forebay_ops::record::parquet::{self, Leaf, MAX_PAGE_BYTES};
use forebay_store::{ByteRange, ListPage, ObjectMeta, PagePlace, Store};
use futures::future::{BoxFuture, FutureExt};
use futures::stream::BoxStream;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::OnceCell;

/// Bytes of expanded runs that are kept for those who come next. One run is kept whatever its size.
const KEPT_BYTES: usize = 128 << 20;

/// The longest run that is read: indexing ends one at the first page behind a few megabytes.
const MAX_RUN_BYTES: u64 = 2 * MAX_PAGE_BYTES as u64;

/// A store whose Parquet runs read as values.
#[derive(Debug)]
pub(in crate::source) struct ParquetStore {
    inner: Arc<dyn Store>,
    leaves: Vec<Leaf>,
    kept: Mutex<Kept>,
}

/// Expanded runs by key; those not used for the longest time go first.
#[derive(Debug, Default)]
struct Kept {
    runs: HashMap<String, Entry>,
    bytes: usize,
    clock: u64,
}

#[derive(Debug)]
struct Entry {
    values: Arc<OnceCell<Bytes>>,
    counted: usize,
    used: u64,
}

impl ParquetStore {
    /// `leaves` are the columns that keys name by number.
    pub(in crate::source) fn new(inner: Arc<dyn Store>, leaves: Vec<Leaf>) -> Self {
        Self { inner, leaves, kept: Mutex::default() }
    }

    async fn values(&self, key: &str, place: &Place<'_>) -> Result<Bytes> {
        let slot = self.with(|kept| kept.slot(key));
        let values = slot.get_or_try_init(|| self.expand(place)).await;
        let kept = match &values {
            Ok(values) => Some(values.len()),
            Err(_) => None,
        };
        let _gone = self.with(|all| all.note(key, &slot, kept));
        values.cloned()
    }

    async fn expand(&self, place: &Place<'_>) -> Result<Bytes> {
        let wrong = |error: Error| {
            let (url, at) = (self.inner.url(place.file), place.pages.start);
            let facts = Facts { object: Some(url.clone()), offset: Some(at), ..Facts::default() };
            error.while_doing(format_args!("read pages of `{url}` at byte {at}")).with_facts(facts)
        };
        let leaf = self.leaves.get(place.leaf as usize).cloned();
        let leaf = leaf.ok_or_else(|| wrong(Error::corrupt("the manifest has no such column")))?;
        for range in [&place.pages, &place.dictionary] {
            if range.end - range.start > MAX_RUN_BYTES {
                let why =
                    format!("{} bytes of pages, at most {MAX_RUN_BYTES} are read", range.end - range.start);
                return Err(wrong(Error::exhausted(why)));
            }
        }
        let read = |range: &Range<u64>| self.inner.read(place.file, ByteRange::from(range.clone()));
        let dictionary = async {
            if place.dictionary.is_empty() { Ok(Bytes::new()) } else { read(&place.dictionary).await }
        };
        let (pages, dictionary) = futures::try_join!(read(&place.pages), dictionary)?;
        let codec = place.codec;
        let rows = blocking(move || parquet::run(&leaf, codec, Some(&dictionary), &pages)).await?;
        Ok(rows.map_err(wrong)?.data.into())
    }

    async fn parts(&self, key: &str, place: &Place<'_>, parts: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let values = self.values(key, place).await?;
        let part = |part: &Range<u64>| {
            let range = usize::try_from(part.start).ok().zip(usize::try_from(part.end).ok());
            let found = range.and_then(|(start, end)| values.get(start..end));
            // A copy, so that no payload keeps its whole run in memory.
            found.map(Bytes::copy_from_slice).ok_or_else(|| {
                Error::stale(format!(
                    "read `{}`: its values end before byte {}",
                    self.inner.url(key),
                    part.end
                ))
                .with_hint("the file changed since the manifest was built: build it again")
            })
        };
        parts.iter().map(part).collect()
    }

    fn with<T>(&self, act: impl FnOnce(&mut Kept) -> T) -> T {
        act(&mut self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Kept {
    fn slot(&mut self, key: &str) -> Arc<OnceCell<Bytes>> {
        self.clock += 1;
        let clock = self.clock;
        let new = || Entry { values: Arc::default(), counted: 0, used: clock };
        let entry = self.runs.entry(key.to_owned()).or_insert_with(new);
        entry.used = clock;
        Arc::clone(&entry.values)
    }

    /// Counts a run that was expanded, forgets one that could not be, and gives what has to go.
    fn note(&mut self, key: &str, slot: &Arc<OnceCell<Bytes>>, length: Option<usize>) -> Vec<Entry> {
        let mut gone = Vec::new();
        match (self.runs.get_mut(key).filter(|entry| Arc::ptr_eq(&entry.values, slot)), length) {
            (Some(entry), Some(length)) => {
                self.bytes = self.bytes - entry.counted + length;
                entry.counted = length;
            }
            (Some(entry), None) if entry.values.get().is_none() && Arc::strong_count(slot) <= 2 => {
                gone.extend(self.runs.remove(key));
            }
            _ => {}
        }
        while self.bytes > KEPT_BYTES {
            let idle = self.runs.iter().filter(|(other, entry)| *other != key && entry.counted > 0);
            let Some(oldest) = idle.min_by_key(|(_, entry)| entry.used).map(|(key, _)| key.clone()) else {
                break;
            };
            if let Some(entry) = self.runs.remove(&oldest) {
                self.bytes -= entry.counted;
                gone.push(entry);
            }
        }
        gone
    }
}

impl Store for ParquetStore {
    fn url(&self, key: &str) -> String {
        match Place::parse(key) {
            Some(place) => self.inner.url(place.file),
            None => self.inner.url(key),
        }
    }

    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta>> {
        let Some(place) = Place::parse(key) else { return self.inner.head(key) };
        async move {
            let stamp = self.inner.head(place.file).await?.stamp;
            let size = self.values(key, &place).await?.len() as u64;
            Ok(ObjectMeta { key: key.to_owned(), size, stamp })
        }
        .boxed()
    }

    fn read<'a>(&'a self, key: &'a str, range: ByteRange) -> BoxFuture<'a, Result<Bytes>> {
        let Some(place) = Place::parse(key) else { return self.inner.read(key, range) };
        async move {
            let size = self.values(key, &place).await?.len() as u64;
            let part = range.resolve(size)?;
            Ok(self.parts(key, &place, &[part]).await?.pop().unwrap_or_default())
        }
        .boxed()
    }

    fn read_parts<'a>(&'a self, key: &'a str, parts: &'a [Range<u64>]) -> BoxFuture<'a, Result<Vec<Bytes>>> {
        let Some(place) = Place::parse(key) else { return self.inner.read_parts(key, parts) };
        async move { self.parts(key, &place, parts).await }.boxed()
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    fn list_page<'a>(&'a self, prefix: &'a str, place: &'a PagePlace) -> BoxFuture<'a, Result<ListPage>> {
        self.inner.list_page(prefix, place)
    }

    fn lists_pages(&self) -> bool {
        self.inner.lists_pages()
    }

    fn cold(&self) -> Option<Arc<dyn Store>> {
        Some(Arc::new(Self::new(self.inner.cold()?, self.leaves.clone())))
    }

    fn is_remote(&self) -> bool {
        self.inner.is_remote()
    }

    fn runtime(&self) -> Option<tokio::runtime::Handle> {
        self.inner.runtime()
    }

    fn local_stats(&self) -> Option<forebay_store::local::LocalStats> {
        self.inner.local_stats()
    }

    fn write<'a>(&'a self, key: &'a str, bytes: Bytes) -> BoxFuture<'a, Result<()>> {
        self.inner.write(key, bytes)
    }
}
