//! Listings from several places at once: the same keys as page after page, in a fraction of the round trips.
#![expect(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

use bytes::Bytes;
use forebay_core::{Error, ErrorKind, Result};
use forebay_store::flaky::{Fault, When};
use forebay_store::listing::{PAGES_AT_ONCE, list_all};
use forebay_store::{
    ByteRange, CountingStore, FlakyStore, ListPage, MemoryStore, ObjectMeta, PagePlace, RetryOptions,
    RetryStore, Store, Throttle, ThrottleStore,
};
use futures::future::{self, BoxFuture, FutureExt};
use futures::stream::{BoxStream, TryStreamExt};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::time::Instant;

/// One round trip.
const DELAY: Duration = Duration::from_millis(100);

fn filled(keys: impl Iterator<Item = String>) -> MemoryStore {
    let store = MemoryStore::new();
    keys.for_each(|key| store.insert(key, Bytes::new()).unwrap());
    store
}

async fn naive(store: &dyn Store, prefix: &str) -> Vec<ObjectMeta> {
    store.list(prefix).try_collect().await.unwrap()
}

/// Round trips on the critical path, in virtual time.
async fn round_trips(memory: &MemoryStore, prefix: &str) -> (Vec<ObjectMeta>, u128, u64) {
    let slow =
        ThrottleStore::new(Arc::new(memory.clone()), Throttle { latency: DELAY, ..Throttle::default() });
    let counting = Arc::new(CountingStore::new(Arc::new(slow)));
    let patient = RetryStore::new(Arc::clone(&counting) as Arc<dyn Store>, RetryOptions::default());
    let (began, told) = (Instant::now(), AtomicU64::new(0));
    let found =
        list_all(&patient, prefix, &|count| assert!(told.swap(count, Relaxed) <= count)).await.unwrap();
    assert_eq!(told.load(Relaxed), found.len() as u64, "the last report has all keys");
    (found, began.elapsed().as_millis().div_ceil(DELAY.as_millis()), counting.counts().lists)
}

#[tokio::test(start_paused = true)]
async fn a_million_keys_far_away_take_a_few_dozen_round_trips() {
    let flat = filled((0..1_000_000).map(|number| format!("train/{number:08}.jpg")));
    let (found, trips, pages) = round_trips(&flat, "train/").await;
    assert_eq!(found.len(), 1_000_000);
    assert!(found.is_sorted_by(|a, b| a.key < b.key));
    assert!(trips <= 48, "{trips} round trips; page after page it is 1,000");
    assert!(pages <= 2000, "{pages} pages were asked for; 1,000 are the least");
}

#[tokio::test(start_paused = true)]
async fn few_keys_take_one_round_trip_and_one_page() {
    for count in [0, 1, 1000] {
        let store = filled((0..count).map(|number| format!("{number:04}")));
        let (found, trips, pages) = round_trips(&store, "").await;
        assert_eq!((found.len(), trips, pages), (count, 1, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn faults_on_the_way_lose_and_double_nothing() {
    let memory = filled((0..30_000).map(|number| format!("d/{:x}/{number}", number % 97)));
    let expected = naive(&memory, "d/").await;
    let flaky =
        FlakyStore::new(Arc::new(memory), 3).with(When::Chance(0.2), Fault::Fail(ErrorKind::Unavailable));
    let patient = RetryStore::new(Arc::new(flaky), RetryOptions { tries: 20, ..RetryOptions::default() });
    assert_eq!(list_all(&patient, "d/", &|_| ()).await.unwrap(), expected);
    assert!(patient.retries() > 0);
}

#[tokio::test]
async fn what_cannot_be_read_is_said() {
    let memory = filled((0..5000).map(|number| format!("{number}")));
    let flaky = FlakyStore::new(Arc::new(memory), 3).with(When::Request(3), Fault::Fail(ErrorKind::Denied));
    assert_eq!(list_all(&flaky, "", &|_| ()).await.unwrap_err().kind(), ErrorKind::Denied);
}

/// Goes on by token, but cannot begin where it is asked to, or says that it did and did not.
#[derive(Debug)]
struct Stubborn {
    memory: MemoryStore,
    says_so: bool,
}

impl Store for Stubborn {
    fn url(&self, key: &str) -> String {
        self.memory.url(key)
    }
    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta>> {
        self.memory.head(key)
    }
    fn read<'a>(&'a self, key: &'a str, range: ByteRange) -> BoxFuture<'a, Result<Bytes>> {
        self.memory.read(key, range)
    }
    fn read_parts<'a>(&'a self, key: &'a str, parts: &'a [Range<u64>]) -> BoxFuture<'a, Result<Vec<Bytes>>> {
        self.memory.read_parts(key, parts)
    }
    fn list<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<ObjectMeta>> {
        self.memory.list(prefix)
    }
    fn list_page<'a>(&'a self, prefix: &'a str, place: &'a PagePlace) -> BoxFuture<'a, Result<ListPage>> {
        async move {
            if place.tokens.is_empty() && !place.after.is_empty() && self.says_so {
                return Err(Error::unsupported("begin behind a key"));
            }
            let after = place.tokens.first().cloned().unwrap_or_default();
            let mut page = self.memory.list_page(prefix, &PagePlace { after, tokens: Vec::new() }).await?;
            if let Some(next) = &mut page.next {
                next.tokens = vec![next.after.clone()];
            }
            Ok(page)
        }
        .boxed()
    }
    fn lists_pages(&self) -> bool {
        true
    }
    fn write<'a>(&'a self, _: &'a str, _: Bytes) -> BoxFuture<'a, Result<()>> {
        future::ready(Err(Error::unsupported("write"))).boxed()
    }
}

#[tokio::test]
async fn a_server_that_begins_elsewhere_is_listed_page_after_page() {
    for says_so in [true, false] {
        let memory = filled((0..20_000).map(|number| format!("{number:06}")));
        let expected = naive(&memory, "").await;
        let found = list_all(&Stubborn { memory, says_so }, "", &|_| ()).await.unwrap();
        assert_eq!(found, expected, "says so: {says_so}");
    }
}

#[cfg(feature = "s3")]
#[tokio::test]
async fn s3_is_listed_by_many_connections_at_once() {
    use forebay_testkit::server::{Act, BUCKET, Objects, SlowServer};
    let server = SlowServer::start(Objects::new().many(40_000, 1)).unwrap();
    server.script(|_| Act { delay: Duration::from_millis(30), ..Act::default() });
    let words =
        [("endpoint", server.url()), ("anonymous", "true".to_owned()), ("allow_http", "true".to_owned())];
    let words = words.map(|(word, value)| (word.to_owned(), value)).into();
    let store = forebay_store::remote::open(&format!("s3://{BUCKET}"), &words).unwrap();
    let found = list_all(&*store, "o/", &|_| ()).await.unwrap();
    assert_eq!(found, naive(&*store, "o/").await);
    assert_eq!(found.len(), 40_000);
    let counts = server.counts();
    assert!(counts.most_open >= 8 && counts.most_open <= PAGES_AT_ONCE as u64 + 8, "{counts:?}");
}
