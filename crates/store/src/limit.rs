//! Bounds how many requests a store sees at once.

use crate::{ByteRange, ListPage, ObjectMeta, PagePlace, Store};
use bytes::Bytes;
use forebay_core::{Error, Result};
use futures::future::{BoxFuture, FutureExt};
use futures::stream::BoxStream;
use std::ops::Range;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Lets at most a given number of requests through at once; others wait their turn, first come first served.
///
/// Listings pass freely: whoever reads objects while listing them would otherwise wait for itself.
#[derive(Debug)]
pub struct LimitStore {
    inner: Arc<dyn Store>,
    permits: Semaphore,
}

impl LimitStore {
    /// At most `in_flight` requests at once, and no fewer than one.
    pub fn new(inner: Arc<dyn Store>, in_flight: usize) -> Self {
        Self { inner, permits: Semaphore::new(in_flight.clamp(1, Semaphore::MAX_PERMITS)) }
    }

    async fn wait<'a, T>(&'a self, request: impl FnOnce() -> BoxFuture<'a, Result<T>> + Send) -> Result<T> {
        let _permit =
            self.permits.acquire().await.map_err(|_| Error::internal("the limit of requests was closed"))?;
        request().await
    }
}

impl Store for LimitStore {
    fn url(&self, key: &str) -> String {
        self.inner.url(key)
    }

    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta>> {
        self.wait(|| self.inner.head(key)).boxed()
    }

    fn read<'a>(&'a self, key: &'a str, range: ByteRange) -> BoxFuture<'a, Result<Bytes>> {
        self.wait(move || self.inner.read(key, range)).boxed()
    }

    fn read_parts<'a>(&'a self, key: &'a str, parts: &'a [Range<u64>]) -> BoxFuture<'a, Result<Vec<Bytes>>> {
        self.wait(|| self.inner.read_parts(key, parts)).boxed()
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    fn list_page<'a>(&'a self, prefix: &'a str, place: &'a PagePlace) -> BoxFuture<'a, Result<ListPage>> {
        self.wait(move || self.inner.list_page(prefix, place)).boxed()
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
        self.wait(move || self.inner.write(key, bytes)).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryStore;
    use crate::throttle::{Throttle, ThrottleStore};
    use futures::future::join_all;
    use std::time::Duration;
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn requests_beyond_the_limit_wait_their_turn() {
        let memory = MemoryStore::new();
        memory.insert("a", &b"abc"[..]).unwrap();
        let latency = Duration::from_secs(1);
        let slow = ThrottleStore::new(Arc::new(memory), Throttle { latency, ..Throttle::default() });
        let store = LimitStore::new(Arc::new(slow), 4);
        let start = Instant::now();
        join_all((0..10).map(|_| store.read("a", ByteRange::Full))).await;
        assert_eq!(start.elapsed().as_secs(), 3, "10 requests, 4 at a time, 1 s each");
    }
}
