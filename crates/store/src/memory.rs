//! Objects in memory: the store of tests, and the model that other stores are compared with.

use crate::{ByteRange, ListPage, ObjectMeta, PagePlace, Store, fault, key, range};
use bytes::Bytes;
use forebay_core::Result;
use futures::future::{self, BoxFuture, FutureExt};
use futures::stream::{self, BoxStream, StreamExt};
use std::collections::BTreeMap;
use std::ops::{Bound, Range};
use std::sync::{Arc, PoisonError, RwLock};

/// Keys of one page of a listing, as servers have it.
const PAGE_KEYS: usize = 1000;

/// A map of objects; clones share it. Every future is ready at once.
#[derive(Clone, Default)]
pub struct MemoryStore {
    shared: Arc<RwLock<Shared>>,
}

#[derive(Default)]
struct Shared {
    objects: BTreeMap<String, (Bytes, u64)>,
    writes: u64,
}

impl MemoryStore {
    /// A store without objects.
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts an object in place, over one of the same key.
    pub fn insert(&self, key: impl Into<String>, bytes: impl Into<Bytes>) -> Result<()> {
        let key = key.into();
        key::check_for_write(&key)?;
        let mut shared = self.shared.write().unwrap_or_else(PoisonError::into_inner);
        shared.writes += 1;
        let stamp = shared.writes;
        shared.objects.insert(key, (bytes.into(), stamp));
        Ok(())
    }

    /// Takes an object away; says whether there was one.
    pub fn remove(&self, key: &str) -> bool {
        self.shared.write().unwrap_or_else(PoisonError::into_inner).objects.remove(key).is_some()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.shared.read().unwrap_or_else(PoisonError::into_inner).objects.len()
    }

    /// Whether there is no object.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn get(&self, doing: &str, key: &str) -> Result<(Bytes, u64)> {
        key::check(key)?;
        let shared = self.shared.read().unwrap_or_else(PoisonError::into_inner);
        shared.objects.get(key).cloned().ok_or_else(|| fault::missing(doing, &self.url(key)))
    }

    fn slices(&self, key: &str, parts: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let (bytes, _) = self.get("read", key)?;
        range::check_parts(parts, bytes.len() as u64).map_err(|error| {
            fault::located(error, "read", &self.url(key), parts.first().map(|part| part.start))
        })?;
        Ok(parts.iter().map(|part| bytes.slice(part.start as usize..part.end as usize)).collect())
    }

    /// The first object after `last` (from the beginning of `prefix` when there is none) that has the prefix.
    fn next(&self, prefix: &str, last: Option<&str>) -> Option<ObjectMeta> {
        let shared = self.shared.read().unwrap_or_else(PoisonError::into_inner);
        let from = last.map_or(Bound::Included(prefix), Bound::Excluded);
        let (key, (bytes, stamp)) = shared.objects.range::<str, _>((from, Bound::Unbounded)).next()?;
        let meta = ObjectMeta { key: key.clone(), size: bytes.len() as u64, stamp: *stamp };
        key.starts_with(prefix).then_some(meta)
    }
}

impl std::fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryStore").field("objects", &self.len()).finish()
    }
}

impl Store for MemoryStore {
    fn url(&self, key: &str) -> String {
        format!("memory:{key}")
    }

    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta>> {
        let found = self.get("look at", key);
        future::ready(found.map(|(bytes, stamp)| ObjectMeta {
            key: key.to_owned(),
            size: bytes.len() as u64,
            stamp,
        }))
        .boxed()
    }

    fn read<'a>(&'a self, key: &'a str, range: ByteRange) -> BoxFuture<'a, Result<Bytes>> {
        let slice = self.get("read", key).and_then(|(bytes, _)| match range.resolve(bytes.len() as u64) {
            Ok(range) => Ok(bytes.slice(range.start as usize..range.end as usize)),
            Err(error) => Err(fault::located(error, "read", &self.url(key), None)),
        });
        future::ready(slice).boxed()
    }

    fn read_parts<'a>(&'a self, key: &'a str, parts: &'a [Range<u64>]) -> BoxFuture<'a, Result<Vec<Bytes>>> {
        future::ready(self.slices(key, parts)).boxed()
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<ObjectMeta>> {
        // Found again from the last key each time, so that no lock is held between two items.
        stream::unfold(None, move |last: Option<String>| {
            let meta = self.next(prefix, last.as_deref());
            future::ready(meta.map(|meta| (Ok(meta.clone()), Some(meta.key))))
        })
        .boxed()
    }

    fn list_page<'a>(&'a self, prefix: &'a str, place: &'a PagePlace) -> BoxFuture<'a, Result<ListPage>> {
        let shared = self.shared.read().unwrap_or_else(PoisonError::into_inner);
        let from = if place.after.as_str() < prefix {
            Bound::Included(prefix)
        } else {
            Bound::Excluded(&*place.after)
        };
        let rest = shared.objects.range::<str, _>((from, Bound::Unbounded));
        let mut rest = rest.take_while(|(key, _)| key.starts_with(prefix)).map(|(key, (bytes, stamp))| {
            ObjectMeta { key: key.clone(), size: bytes.len() as u64, stamp: *stamp }
        });
        let objects: Vec<_> = rest.by_ref().take(PAGE_KEYS).collect();
        let last = objects.last().map(|meta| meta.key.clone());
        let next = rest.next().and(last.clone()).map(|after| PagePlace { after, tokens: Vec::new() });
        future::ready(Ok(ListPage { objects, last, next })).boxed()
    }

    fn lists_pages(&self) -> bool {
        true
    }

    fn write<'a>(&'a self, key: &'a str, bytes: Bytes) -> BoxFuture<'a, Result<()>> {
        future::ready(self.insert(key, bytes)).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn clones_share_objects_and_a_removed_object_is_missing() {
        let store = MemoryStore::new();
        let clone = store.clone();
        store.insert("a", &b"abc"[..]).unwrap();
        assert_eq!(clone.read("a", ByteRange::Full).await.unwrap(), "abc");
        assert!(clone.remove("a") && !clone.remove("a"));
        let error = store.head("a").await.unwrap_err();
        assert_eq!(error.facts().object.as_deref(), Some("memory:a"));
    }
}
