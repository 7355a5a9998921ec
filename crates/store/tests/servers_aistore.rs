//! AIStore, the real one: runs where `FOREBAY_TEST_AIS` names the endpoint of a cluster that may be written to.
#![expect(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

#[path = "http/tar.rs"]
mod tar;

use bytes::Bytes;
use forebay_core::ErrorKind;
use forebay_store::http::{HttpClient, HttpOptions, HttpRequest, Method};
use forebay_store::{AisStore, ByteRange, ObjectRead, Store, StoreOptions, conformance};
use futures::stream::StreamExt;
use std::sync::Arc;

/// A new bucket, or `None` where there is no server. Each test has its own, named after the process.
async fn bucket(name: &str) -> Option<AisStore> {
    let endpoint = forebay_testkit::skip::server("FOREBAY_TEST_AIS")?;
    let bucket = format!("forebay-{name}-{}", std::process::id());
    let client = HttpClient::new(&HttpOptions::default()).unwrap();
    let url = url::Url::parse(&format!("{}/v1/buckets/{bucket}", endpoint.trim_end_matches('/'))).unwrap();
    for action in ["destroy-bck", "create-bck"] {
        let method = if action == "create-bck" { Method::Post } else { Method::Delete };
        let headers = [("content-type", "application/json".to_owned())];
        let body = Bytes::from(format!("{{\"action\":\"{action}\"}}"));
        let answer =
            client.send(HttpRequest { method, url: &url, headers: &headers, body, expect: 1 << 20 }).await;
        assert!(action == "destroy-bck" || answer.unwrap().status == 200, "{action}");
    }
    let words: StoreOptions = [("endpoint".to_owned(), endpoint)].into();
    Some(AisStore::open(&format!("ais://{bucket}"), &words).unwrap())
}

fn pattern(size: usize) -> Bytes {
    (0..size as u64).map(|number| forebay_core::rng::mix64(number) as u8).collect()
}

#[tokio::test]
async fn aistore_conforms() {
    let Some(store) = bucket("suite").await else { return };
    conformance::run(Arc::new(store)).await;
}

#[tokio::test]
async fn p016_ranges_equal_slices_and_beyond_is_an_error() {
    let Some(store) = bucket("ranges").await else { return };
    // Larger than what is sent unasked, so that the proxy's redirect comes before the body.
    let bytes = pattern(1_000_000);
    store.write("a", bytes.clone()).await.unwrap();
    assert_eq!(store.read("a", (10..500_000).into()).await.unwrap(), bytes.slice(10..500_000));
    assert_eq!(store.read("a", ByteRange::From(999_000)).await.unwrap(), bytes.slice(999_000..));
    assert_eq!(store.read("a", ByteRange::Last(77)).await.unwrap(), bytes.slice(999_923..));
    let error = store.read("a", (0..1_000_001).into()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error:?}");
}

#[tokio::test]
async fn p013_the_checksum_that_comes_with_an_object_is_that_of_its_bytes() {
    let Some(store) = bucket("checked").await else { return };
    let bytes = pattern(200_000);
    store.write("a", bytes.clone()).await.unwrap();
    let client = HttpClient::new(&HttpOptions::default()).unwrap();
    let endpoint = forebay_testkit::skip::server("FOREBAY_TEST_AIS").unwrap();
    let path = store.url("a").replace("ais://", "/v1/objects/");
    let mut url = url::Url::parse(&format!("{}{path}?provider=ais", endpoint.trim_end_matches('/'))).unwrap();
    let answer = loop {
        let request =
            HttpRequest { method: Method::Get, url: &url, headers: &[], body: Bytes::new(), expect: 1 << 20 };
        let answer = client.send(request).await.unwrap();
        match answer.headers.get("location") {
            Some(next) => url = url.join(next).unwrap(),
            None => break answer,
        }
    };
    assert_eq!((answer.status, answer.headers.get("ais-checksum-type")), (200, Some("xxhash2")));
    let told = format!("{:016x}", xxhash_rust::xxh64::xxh64(&bytes, 0));
    assert_eq!(answer.headers.get("ais-checksum-value"), Some(told.as_str()));
    // It is compared, and fits, however all of the object is asked for.
    for range in [ByteRange::Full, ByteRange::Whole(200_000), (0..200_000).into()] {
        assert_eq!(store.read("a", range).await.unwrap(), bytes, "{range:?}");
    }
}

#[tokio::test]
async fn p016_a_member_of_an_archive_equals_its_slice() {
    let Some(store) = bucket("members").await else { return };
    let (one, two) = (pattern(3000), Bytes::from_static(b"second"));
    let mut archive = Vec::new();
    for (name, bytes) in [("sub/1.bin", &one), ("sub/2.txt", &two)] {
        archive.extend(tar::record(name, bytes));
    }
    archive.extend([0; 1024]);
    store.write("dir/shard.tar", archive.into()).await.unwrap();
    let member = |name: &'static str, range| store.read_member("dir/shard.tar", name, range);
    assert_eq!(member("sub/1.bin", ByteRange::Full).await.unwrap(), one);
    assert_eq!(member("sub/1.bin", (5..2000).into()).await.unwrap(), one.slice(5..2000));
    assert_eq!(member("sub/1.bin", ByteRange::From(2990)).await.unwrap(), one.slice(2990..));
    assert_eq!(member("sub/2.txt", ByteRange::Last(3)).await.unwrap(), "ond");
    let kind = |error: forebay_core::Error| error.kind();
    assert_eq!(member("sub/2.txt", (0..7).into()).await.map_err(kind), Err(ErrorKind::InvalidConfig));
    assert_eq!(member("sub/3.txt", ByteRange::Full).await.map_err(kind), Err(ErrorKind::NotFound));
}

#[tokio::test]
async fn p015_many_reads_in_one_request_come_in_order_each_with_its_own_answer() {
    let Some(store) = bucket("batch").await else { return };
    let long = format!("long/{}/ü", "n".repeat(180));
    for (number, key) in ["a", "b/c", long.as_str()].into_iter().enumerate() {
        store.write(key, pattern(2000 + number)).await.unwrap();
    }
    let read = |key: &str, range: std::ops::Range<u64>| ObjectRead { key: key.to_owned(), range };
    let keys = ["a", "b/c", &long];
    let mut reads: Vec<_> = (0..250u64).map(|n| read(keys[n as usize % 3], n..1000 + 3 * n)).collect();
    assert!(store.reads_per_request() >= 250);
    let answers = store.read_many(&reads).await;
    for (read, answer) in reads.iter().zip(answers) {
        assert_eq!(answer.unwrap(), pattern(2000).slice(read.range.start as usize..read.range.end as usize));
    }
    // Missing ones, more of them than the server tolerates, ranges that reach beyond, empty ones, keys that are none.
    for number in 0..12 {
        reads.insert(number * 9, read(&format!("missing/{number}"), 0..10));
    }
    reads.extend([read("a", 1990..2010), read("a", 5..5), read("../a", 0..1), read("b/c", 0..2001)]);
    let answers = store.read_many(&reads).await;
    assert_eq!(answers.len(), reads.len());
    for (read, answer) in reads.iter().zip(answers) {
        let kind = answer.as_ref().map_err(forebay_core::Error::kind);
        match read.key.as_str() {
            key if key.starts_with("missing/") => assert_eq!(kind, Err(ErrorKind::NotFound), "{read:?}"),
            "../a" => assert_eq!(kind, Err(ErrorKind::InvalidConfig)),
            "a" if read.range.end > 2000 => assert_eq!(kind, Err(ErrorKind::InvalidConfig)),
            _ => {
                let expected = pattern(2001).slice(read.range.start as usize..read.range.end as usize);
                assert_eq!(answer.unwrap(), expected, "{read:?}");
            }
        }
    }
}

#[tokio::test]
async fn listings_go_on_behind_a_key_and_over_pages() {
    let Some(store) = bucket("pages").await else { return };
    let keys: Vec<String> = (0..1100).map(|number| format!("p/{number:05}")).collect();
    let writes = keys.iter().map(|key| store.write(key, Bytes::from_static(b"x")));
    futures::stream::iter(writes).buffer_unordered(16).for_each(|done| async { done.unwrap() }).await;
    let all: Vec<String> = store.list("p/").map(|meta| meta.unwrap().key).collect().await;
    assert_eq!(all, keys);
    let rest: Vec<String> = store.list_after("p/", "p/01049").map(|meta| meta.unwrap().key).collect().await;
    assert_eq!(rest, keys[1050..]);
}
