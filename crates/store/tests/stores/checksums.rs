//! Bytes that change on the way: found where the server tells a checksum of the object, read again, and in the end an
//! error that names the object.
#![expect(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

use bytes::Bytes;
use forebay_core::ErrorKind;
use forebay_store::{ByteRange, Store, StoreOptions, conformance, remote};
use forebay_testkit::server::{Act, BUCKET, Fault, Objects, SlowServer};
use std::sync::Arc;

const BYTES: &[u8] = b"123456789";
/// Headers with the values that the definitions of the checksums give for [`BYTES`].
const TOLD: &[(&str, &str)] = &[
    ("x-goog-hash", "crc32c=4waSgw==,md5=JfnnlDI7RTiF9RgfGNLUfw=="),
    ("digest", "crc32c=4waSgw=="),
    ("repr-digest", "sha-256=:FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU=:"),
];

fn words(pairs: &[(&str, &str)]) -> StoreOptions {
    pairs.iter().map(|(word, value)| ((*word).to_owned(), (*value).to_owned())).collect()
}

/// The server behind HTTP, all checksums compared.
fn web(server: &SlowServer, checksums: &str) -> Arc<dyn Store> {
    remote::open(&server.url(), &words(&[("checksums", checksums)])).unwrap()
}

/// The first `times` answers for an object have a wrong byte.
fn corrupting(server: &SlowServer, times: u64) {
    let before = server.attempts("a");
    server.script(move |seen| {
        let wrong = seen.attempt - before <= times && seen.method == "GET";
        if wrong { Act::fault(Fault::Corrupt(4)) } else { Act::default() }
    });
}

#[tokio::test]
async fn p013_a_byte_changed_on_the_way_is_found_and_the_object_read_again() {
    let server = SlowServer::start(Objects::new().with("a", BYTES)).unwrap();
    for (name, value) in TOLD {
        server.set_header("a", name, value);
        for range in [ByteRange::Full, ByteRange::Whole(9), (0..9).into(), ByteRange::From(0)] {
            corrupting(&server, 2);
            assert_eq!(web(&server, "all").read("a", range).await.unwrap(), BYTES, "{name} {range:?}");
        }
        corrupting(&server, 9);
        let error = web(&server, "all").read("a", ByteRange::Full).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
        let url = format!("{}/a", server.url());
        assert!(error.message().contains(&url) && error.hint().is_some(), "{error:?}");
        assert_eq!(error.facts().object.as_deref(), Some(url.as_str()));
        // Nobody told what these bytes should be.
        assert_eq!(web(&server, "all").read("a", (0..8).into()).await.unwrap().len(), 8);
        assert_ne!(web(&server, "off").read("a", ByteRange::Full).await.unwrap(), BYTES);
    }
    // What costs as much as the rest of a read has to be asked for.
    corrupting(&server, 9);
    assert_ne!(web(&server, "fast").read("a", ByteRange::Full).await.unwrap(), BYTES);
}

#[cfg(feature = "s3")]
#[tokio::test]
async fn p013_what_is_written_to_s3_is_checked_when_it_is_read() {
    let server = SlowServer::start(Objects::new()).unwrap();
    let options = [("endpoint", server.url()), ("anonymous", "true".to_owned())];
    let options = options.map(|(word, value)| (word.to_owned(), value)).into();
    let store = remote::open(&format!("s3://{BUCKET}"), &options).unwrap();
    let bytes: Bytes = (0..300_000u64).map(|at| forebay_core::rng::mix64(at) as u8).collect();
    store.write("a", bytes.clone()).await.unwrap();
    for range in [ByteRange::Full, ByteRange::Whole(300_000)] {
        corrupting(&server, 2);
        assert_eq!(store.read("a", range).await.unwrap(), bytes, "{range:?}");
        corrupting(&server, 9);
        let error = store.read("a", range).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
        assert!(error.message().contains(&format!("s3://{BUCKET}/a")), "{error:?}");
    }
    // S3 tells nothing about a part.
    corrupting(&server, 9);
    assert_ne!(store.read("a", (0..300_000).into()).await.unwrap(), bytes);
}

#[tokio::test]
async fn a_wrong_checksum_does_not_hide_that_the_object_changed() {
    let server = SlowServer::start(Objects::new().with("a", BYTES)).unwrap();
    server.set_header("a", "digest", "crc32c=AAAAAA==");
    for expected in [8, 10] {
        let error = web(&server, "fast").read("a", ByteRange::Whole(expected)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Stale, "{error:?}");
    }
    conformance::a_whole_object_of_another_size_is_stale(&*web(&server, "fast")).await;
}
