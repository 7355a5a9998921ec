//! Every store and every adapter of this crate keeps the promises of the public suite.
#![expect(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

use bytes::Bytes;
use forebay_core::Result;
use forebay_store::local::{LocalOptions, ReadMode};
use forebay_store::{
    ByteRange, CountingStore, FlakyStore, GunzipOptions, GunzipStore, LimitStore, LocalStore, MemoryStore,
    ObjectMeta, RetryOptions, RetryStore, Store, Throttle, ThrottleStore, conformance,
};
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{BoxStream, StreamExt};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

async fn check_local(read_mode: ReadMode) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let options = LocalOptions { read_mode, ..LocalOptions::default() };
    let store = LocalStore::with_options(dir.path().join("store"), &options);
    conformance::run(Arc::new(store)).await;
}

#[tokio::test]
async fn memory_conforms() {
    conformance::run(Arc::new(MemoryStore::new())).await;
}

#[tokio::test]
async fn local_conforms() {
    check_local(ReadMode::Auto).await;
}

#[tokio::test]
async fn local_buffered_conforms() {
    check_local(ReadMode::Buffered).await;
}

#[tokio::test]
async fn local_direct_conforms() {
    check_local(ReadMode::Direct).await;
}

#[tokio::test]
async fn local_conforms_on_a_file_system_that_refuses_direct_reads() {
    // tmpfs takes O_DIRECT from some kernel on and refuses it before: both must work.
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else { return };
    let options = LocalOptions { read_mode: ReadMode::Direct, ..LocalOptions::default() };
    conformance::run(Arc::new(LocalStore::with_options(dir.path().to_owned(), &options))).await;
}

#[test]
fn local_conforms_under_an_executor_that_is_not_tokio() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let store = LocalStore::new(dir.path().to_owned());
    futures::executor::block_on(conformance::run(Arc::new(store)));
}

#[tokio::test]
async fn counting_conforms() {
    conformance::run(Arc::new(CountingStore::with_log(memory()))).await;
}

#[tokio::test]
async fn limit_conforms() {
    conformance::run(Arc::new(LimitStore::new(memory(), 1))).await;
}

#[tokio::test(start_paused = true)]
async fn throttle_conforms() {
    let latency = Duration::from_millis(5);
    let throttle = Throttle { latency, bytes_per_second: Some(1 << 20), random_reads_per_second: Some(100) };
    conformance::run(Arc::new(ThrottleStore::new(memory(), throttle))).await;
}

#[tokio::test]
async fn flaky_without_rules_conforms() {
    conformance::run(Arc::new(FlakyStore::new(memory(), 0))).await;
}

#[tokio::test(start_paused = true)]
async fn retry_around_a_failing_store_conforms() {
    use forebay_core::ErrorKind::Unavailable;
    use forebay_store::flaky::{Fault, When};
    let flaky = FlakyStore::new(memory(), 3).with(When::Chance(0.4), Fault::Fail(Unavailable));
    let options = RetryOptions { tries: 30, ..RetryOptions::default() };
    conformance::run(Arc::new(RetryStore::new(Arc::new(flaky), options))).await;
}

#[tokio::test]
async fn gunzip_conforms_for_keys_that_pass_through() {
    conformance::run(Arc::new(GunzipStore::new(memory(), GunzipOptions::default()))).await;
}

#[tokio::test]
async fn gunzip_conforms_for_compressed_objects() {
    let store = GunzipStore::new(memory(), GunzipOptions::default());
    conformance::run(Arc::new(Compressed(store))).await;
}

#[tokio::test]
async fn adapters_around_adapters_conform() {
    let limited = LimitStore::new(memory(), 2);
    let retrying = RetryStore::new(Arc::new(limited), RetryOptions::default());
    conformance::run(Arc::new(CountingStore::new(Arc::new(GunzipStore::new(
        Arc::new(retrying),
        GunzipOptions::default(),
    )))))
    .await;
}

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new())
}

/// Puts `.gz` behind every key that is one, so that the suite meets compressed objects only.
#[derive(Debug)]
struct Compressed(GunzipStore);

fn compressed(key: &str) -> String {
    if forebay_store::key::check(key).is_ok() { format!("{key}.gz") } else { key.to_owned() }
}

impl Store for Compressed {
    fn url(&self, key: &str) -> String {
        self.0.url(&compressed(key))
    }

    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta>> {
        async move { Ok(ObjectMeta { key: key.to_owned(), ..self.0.head(&compressed(key)).await? }) }.boxed()
    }

    fn read<'a>(&'a self, key: &'a str, range: ByteRange) -> BoxFuture<'a, Result<Bytes>> {
        async move { self.0.read(&compressed(key), range).await }.boxed()
    }

    fn read_parts<'a>(&'a self, key: &'a str, parts: &'a [Range<u64>]) -> BoxFuture<'a, Result<Vec<Bytes>>> {
        async move { self.0.read_parts(&compressed(key), parts).await }.boxed()
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<ObjectMeta>> {
        let plain =
            |meta: ObjectMeta| ObjectMeta { key: meta.key.trim_end_matches(".gz").to_owned(), ..meta };
        self.0.list(prefix).map(move |meta| meta.map(plain)).boxed()
    }

    fn write<'a>(&'a self, key: &'a str, bytes: Bytes) -> BoxFuture<'a, Result<()>> {
        async move { self.0.write(&compressed(key), bytes).await }.boxed()
    }
}
