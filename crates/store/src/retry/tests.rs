//! Promises of the retrying adapter, in virtual time.

use super::*;
use crate::flaky::{Fault, FlakyStore, When};
use crate::{CountingStore, MemoryStore};
use forebay_core::ErrorKind;

const FAIL: Fault = Fault::Fail(ErrorKind::Unavailable);

fn memory(objects: usize) -> Arc<dyn Store> {
    let memory = MemoryStore::new();
    for number in 0..objects {
        memory.insert(format!("{number:03}"), vec![number as u8; 100]).unwrap();
    }
    Arc::new(memory)
}

fn options() -> RetryOptions {
    let request_timeout = Duration::from_secs(5);
    RetryOptions { tries: 4, request_timeout, deadline: Duration::from_secs(60), ..RetryOptions::default() }
}

#[tokio::test(start_paused = true)]
async fn p013_a_store_that_fails_each_object_once_is_read_with_two_tries_per_object() {
    let flaky = FlakyStore::new(memory(100), 1).with(When::FirstOfKey(1), FAIL);
    let counting = Arc::new(CountingStore::new(Arc::new(flaky)));
    let store = RetryStore::new(Arc::clone(&counting) as Arc<dyn Store>, options());
    for number in 0..100u8 {
        let bytes = store.read(&format!("{number:03}"), ByteRange::Full).await.unwrap();
        assert_eq!(bytes, vec![number; 100]);
    }
    let counts = counting.counts();
    assert_eq!((counts.reads, counts.failures, store.retries()), (200, 100, 100));
}

#[tokio::test(start_paused = true)]
async fn p013_a_hung_request_is_an_error_with_tries_and_time_that_names_the_object() {
    let began = Instant::now();
    let hanging = FlakyStore::new(memory(1), 1).with(When::Always, Fault::Hang);
    let store = RetryStore::new(Arc::new(hanging), RetryOptions { tries: 1, ..options() });
    let error = store.read("000", (3..5).into()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(error.message(), "read `memory:000`: gave up after 1 try in 5.0 s");
    assert_eq!(error.facts().object.as_deref(), Some("memory:000"));
    assert!(began.elapsed() < Duration::from_secs(6));
}

#[tokio::test(start_paused = true)]
async fn tries_and_deadline_both_end_a_request() {
    for (tries, deadline, expected) in [(3, 60, 3), (1000, 12, 3)] {
        let hanging = Arc::new(FlakyStore::new(memory(1), 1).with(When::Always, Fault::Hang));
        let options = RetryOptions { tries, deadline: Duration::from_secs(deadline), ..options() };
        let store = RetryStore::new(Arc::clone(&hanging) as Arc<dyn Store>, options);
        let began = Instant::now();
        store.read("000", ByteRange::Full).await.unwrap_err();
        assert_eq!(hanging.requests(), expected);
        assert!(began.elapsed() <= Duration::from_secs(deadline.min(16)), "{:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn only_transient_errors_are_tried_again() {
    for kind in ErrorKind::ALL {
        let flaky = Arc::new(FlakyStore::new(memory(1), 1).with(When::Always, Fault::Fail(kind)));
        let store = RetryStore::new(Arc::clone(&flaky) as Arc<dyn Store>, options());
        assert_eq!(store.head("000").await.unwrap_err().kind(), kind);
        assert_eq!(flaky.requests(), if kind.is_transient() { 4 } else { 1 }, "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn pauses_double_up_to_the_longest_and_are_the_same_in_every_run() {
    let took = || async {
        let flaky = FlakyStore::new(memory(1), 1).with(When::Always, FAIL);
        let (first_pause, longest_pause) = (Duration::from_secs(1), Duration::from_secs(4));
        let options = RetryOptions { tries: 6, first_pause, longest_pause, ..options() };
        let began = Instant::now();
        RetryStore::new(Arc::new(flaky), options).head("000").await.unwrap_err();
        began.elapsed()
    };
    // 1 + 2 + 4 + 4 + 4 seconds, each cut by up to a half.
    let first = took().await;
    assert!((7.5..15.0).contains(&first.as_secs_f64()), "{first:?}");
    assert_eq!(first, took().await);
}

/// Breaks off the first listings after three objects.
#[derive(Debug)]
struct Breaking(Arc<dyn Store>, AtomicU64);

impl Store for Breaking {
    fn url(&self, key: &str) -> String {
        self.0.url(key)
    }
    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta>> {
        self.0.head(key)
    }
    fn read<'a>(&'a self, key: &'a str, range: ByteRange) -> BoxFuture<'a, Result<Bytes>> {
        self.0.read(key, range)
    }
    fn read_parts<'a>(&'a self, key: &'a str, parts: &'a [Range<u64>]) -> BoxFuture<'a, Result<Vec<Bytes>>> {
        self.0.read_parts(key, parts)
    }
    fn list<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<ObjectMeta>> {
        let good = 3 * (self.1.fetch_add(1, Relaxed) as usize + 1);
        let broken = stream::iter([Err(Error::unavailable("the line broke"))]);
        self.0.list(prefix).take(good).chain(broken).take(10).boxed()
    }
    fn write<'a>(&'a self, key: &'a str, bytes: Bytes) -> BoxFuture<'a, Result<()>> {
        self.0.write(key, bytes)
    }
}

#[tokio::test(start_paused = true)]
async fn a_listing_that_breaks_off_goes_on_where_it_was() {
    let store = RetryStore::new(Arc::new(Breaking(memory(10), AtomicU64::new(0))), options());
    let keys: Vec<_> = store.list("").map(|meta| meta.unwrap().key).collect().await;
    assert_eq!(keys, (0..10).map(|number| format!("{number:03}")).collect::<Vec<_>>());
    assert_eq!(store.retries(), 3);
}
