//! A store whose answers come later than asked for, so that others may run in between; it counts what is read.

use bytes::Bytes;
use forebay_core::Result;
use forebay_store::{ByteRange, ObjectMeta, Store};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

#[derive(Debug)]
pub(crate) struct Late {
    inner: Arc<dyn Store>,
    /// Reads of each key.
    reads: Mutex<BTreeMap<String, u64>>,
}

impl Late {
    pub(crate) fn over(inner: impl Store + 'static) -> Arc<Self> {
        Arc::new(Self { inner: Arc::new(inner), reads: Mutex::default() })
    }

    pub(crate) fn reads(&self) -> BTreeMap<String, u64> {
        self.reads.lock().unwrap().clone()
    }

    async fn wait(&self, key: &str) {
        *self.reads.lock().unwrap().entry(key.to_owned()).or_default() += 1;
        shuttle::future::yield_now().await;
    }
}

impl Store for Late {
    fn url(&self, key: &str) -> String {
        self.inner.url(key)
    }
    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta>> {
        self.inner.head(key)
    }
    fn read<'a>(&'a self, key: &'a str, range: ByteRange) -> BoxFuture<'a, Result<Bytes>> {
        Box::pin(async move {
            self.wait(key).await;
            self.inner.read(key, range).await
        })
    }
    fn read_parts<'a>(&'a self, key: &'a str, parts: &'a [Range<u64>]) -> BoxFuture<'a, Result<Vec<Bytes>>> {
        Box::pin(async move {
            self.wait(key).await;
            self.inner.read_parts(key, parts).await
        })
    }
    fn list<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }
    fn write<'a>(&'a self, key: &'a str, bytes: Bytes) -> BoxFuture<'a, Result<()>> {
        self.inner.write(key, bytes)
    }
}
