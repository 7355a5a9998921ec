//! S3 against a real server: MinIO over HTTP and over HTTPS.
//!
//! `scripts/servers/with minio,minio-tls -- cargo test -p forebay-store --test servers_s3` starts both. Without them each
//! test says that it was skipped and passes.
#![cfg(feature = "s3")]
#![expect(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

use bytes::Bytes;
use forebay_core::{ErrorKind, Result};
use forebay_store::cloud::connector::Connector;
use forebay_store::cloud::store::{Bucket, no_retries};
use forebay_store::cloud::{CloudStore, s3::S3Store};
use forebay_store::{ByteRange, Store, StoreOptions, conformance};
use forebay_testkit::skip::server;
use futures::stream::{self, StreamExt, TryStreamExt};
use object_store::aws::AmazonS3Builder;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const ROOT: &str = "s3://forebay-test";
const PUBLIC: &str = "s3://forebay-public";

fn words(pairs: &[(&str, &str)]) -> StoreOptions {
    pairs.iter().map(|(word, value)| ((*word).to_owned(), (*value).to_owned())).collect()
}

fn open(root: &str, pairs: &[(&str, &str)]) -> S3Store {
    S3Store::open(root, &words(pairs)).unwrap()
}

#[tokio::test]
async fn s3_conforms_over_http() {
    let Some(endpoint) = server("FOREBAY_TEST_S3") else { return };
    conformance::run(Arc::new(open(ROOT, &[("endpoint", &endpoint)]))).await;
}

#[tokio::test]
async fn s3_conforms_over_https_with_a_ca_of_its_own() {
    let (Some(endpoint), Some(ca)) = (server("FOREBAY_TEST_S3_TLS"), server("FOREBAY_TEST_S3_CA")) else {
        return;
    };
    conformance::run(Arc::new(open(ROOT, &[("endpoint", &endpoint), ("tls_ca_file", &ca)]))).await;
}

/// Stands before a server and inverts one byte of so many answers, behind their heads.
async fn flipping(server: &str, answers: Arc<AtomicUsize>) -> String {
    const PLACE: usize = 10_000;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let server = server.trim_start_matches("http://").to_owned();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let (server, answers) = (server.clone(), Arc::clone(&answers));
            tokio::spawn(async move {
                let mut server = TcpStream::connect(server).await.unwrap();
                let (mut asked, mut said, mut place) = (vec![0; 64 << 10], vec![0; 64 << 10], 0);
                loop {
                    tokio::select! {
                        count = client.read(&mut asked) => {
                            let Some(count) = count.ok().filter(|count| *count > 0) else { return };
                            place = 0;
                            server.write_all(&asked[..count]).await.unwrap();
                        }
                        count = server.read(&mut said) => {
                            let Some(count) = count.ok().filter(|count| *count > 0) else { return };
                            let one_less = |left: usize| left.checked_sub(1);
                            if (place..place + count).contains(&PLACE)
                                && answers.fetch_update(SeqCst, SeqCst, one_less).is_ok()
                            {
                                said[PLACE - place] ^= 255;
                            }
                            place += count;
                            let _ = client.write_all(&said[..count]).await;
                        }
                    }
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn p013_a_real_server_keeps_the_checksum_and_a_changed_byte_is_found_by_it() {
    let Some(endpoint) = server("FOREBAY_TEST_S3") else { return };
    let bytes: Bytes = (0..200_000u64).map(|at| forebay_core::rng::mix64(at) as u8).collect();
    let size = bytes.len() as u64;
    open(ROOT, &[("endpoint", &endpoint)]).write("checked", bytes.clone()).await.unwrap();
    let left = Arc::new(AtomicUsize::new(0));
    let store = open(ROOT, &[("endpoint", &flipping(&endpoint, Arc::clone(&left)).await)]);
    for range in [ByteRange::Full, ByteRange::Whole(size)] {
        assert_eq!(store.read("checked", range).await.unwrap(), bytes, "{range:?}");
        left.store(2, SeqCst);
        assert_eq!(store.read("checked", range).await.unwrap(), bytes, "{range:?}");
        assert_eq!(left.load(SeqCst), 0, "two answers were changed and noticed");
        left.store(9, SeqCst);
        let error = store.read("checked", range).await.unwrap_err();
        assert_eq!((error.kind(), left.swap(0, SeqCst)), (ErrorKind::Corrupt, 6), "{error:?}");
        assert!(error.message().contains(&format!("{ROOT}/checked")), "{error:?}");
    }
    // No server tells a checksum of a part.
    left.store(1, SeqCst);
    assert_ne!(store.read("checked", (0..size).into()).await.unwrap(), bytes);
}

/// The other clouds have no server here, so what they share runs on this one. Its keys have no control characters.
#[tokio::test]
async fn the_store_of_the_other_clouds_conforms_but_for_control_characters() {
    let Some(endpoint) = server("FOREBAY_TEST_S3") else { return };
    let make = move || {
        let builder = AmazonS3Builder::from_env()
            .with_http_connector(Connector::default())
            .with_retry(no_retries())
            .with_endpoint(&endpoint)
            .with_allow_http(true)
            .with_bucket_name("forebay-public");
        Ok(Arc::new(builder.build().unwrap()) as Arc<dyn Bucket>)
    };
    let store = CloudStore::new(PUBLIC, make).unwrap();
    let store: &dyn Store = &store;
    conformance::reads_the_whole_object(store).await;
    conformance::reads_bounded_open_and_last_ranges(store).await;
    conformance::an_empty_range_is_not_an_error(store).await;
    conformance::a_range_beyond_the_object_is_an_error(store).await;
    conformance::a_missing_key_is_not_found(store).await;
    conformance::head_tells_size_and_a_stamp_that_follows_changes(store).await;
    conformance::lists_by_prefix_in_the_order_of_keys(store).await;
    conformance::parts_equal_slices_in_order(store).await;
    conformance::parts_out_of_order_are_refused(store).await;
    conformance::an_overwritten_object_is_old_or_new_never_mixed(store).await;
    conformance::an_empty_object_is_an_object(store).await;
    conformance::keys_cannot_leave_the_store(store).await;
    conformance::many_readers_at_once_read_the_same(store).await;
    let error = store.write("conformance/new\nline", Bytes::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error:?}");
}

#[tokio::test]
async fn p011_a_certificate_of_an_unknown_authority_is_refused_unless_told_so() {
    let (Some(endpoint), Some(ca)) = (server("FOREBAY_TEST_S3_TLS"), server("FOREBAY_TEST_S3_CA")) else {
        return;
    };
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let other = dir.path().join("other.pem");
    let stranger = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(&other, stranger.cert.pem()).unwrap();

    for refused in [vec![], vec![("tls_ca_file", other.to_str().unwrap())]] {
        let mut pairs = vec![("endpoint", endpoint.as_str())];
        pairs.extend(refused);
        let error = open(ROOT, &pairs).head("any").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
        assert!(error.hint().unwrap().contains("tls_ca_file"), "{error:?}");
    }
    for taken in [("tls_ca_file", ca.as_str()), ("tls_verify", "false")] {
        let error = open(ROOT, &[("endpoint", &endpoint), taken]).head("p011/absent").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{taken:?}: {error:?}");
    }
}

#[tokio::test]
async fn wrong_keys_are_denied_with_endpoint_and_reason_and_without_the_secret() {
    let Some(endpoint) = server("FOREBAY_TEST_S3") else { return };
    let key = std::env::var("AWS_ACCESS_KEY_ID").unwrap();
    let cases = [(key.as_str(), "SignatureDoesNotMatch"), ("nobody", "InvalidAccessKeyId")];
    for (key, reason) in cases {
        let store = open(ROOT, &[("endpoint", &endpoint), ("key", key), ("secret", "hush-hush")]);
        let error = store.read("any", ByteRange::Full).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
        let report = error.report();
        assert!(report.contains(&endpoint) && report.contains(reason) && report.contains(ROOT), "{report}");
        assert!(report.contains("AWS_ACCESS_KEY_ID") && !report.contains("hush-hush"), "{report}");
        let error = store.list("").try_collect::<Vec<_>>().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
        let error = store.write("any", Bytes::from_static(b"x")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
    }
}

#[tokio::test]
async fn a_public_bucket_is_read_without_keys_and_a_private_one_is_not() {
    let Some(endpoint) = server("FOREBAY_TEST_S3") else { return };
    open(PUBLIC, &[("endpoint", &endpoint)]).write("public/a", Bytes::from_static(b"abc")).await.unwrap();
    let anonymous = [("endpoint", endpoint.as_str()), ("anonymous", "true")];
    let store = open(PUBLIC, &anonymous);
    assert_eq!(store.read("public/a", (1..3).into()).await.unwrap(), "bc");
    assert_eq!(store.list("public/").count().await, 1);
    let error = open(ROOT, &anonymous).read("public/a", ByteRange::Full).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
}

#[tokio::test]
async fn a_missing_key_and_a_missing_bucket_are_told_apart() {
    let Some(endpoint) = server("FOREBAY_TEST_S3") else { return };
    let error = open(ROOT, &[("endpoint", &endpoint)]).read("absent", (0..9).into()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(error.facts().object.as_deref(), Some("s3://forebay-test/absent"));
    let nowhere = open("s3://forebay-nowhere", &[("endpoint", &endpoint)]);
    let error = nowhere.read("absent", (0..9).into()).await.unwrap_err();
    assert!(error.kind() == ErrorKind::NotFound && error.message().contains("no such bucket"), "{error:?}");
}

/// A page of the server holds a thousand keys.
#[tokio::test]
async fn a_listing_of_several_pages_is_in_order_and_goes_on_behind_any_key() {
    let Some(endpoint) = server("FOREBAY_TEST_S3") else { return };
    let store = open(ROOT, &[("endpoint", &endpoint)]);
    let keys: Vec<String> =
        (0..3000).map(|number| format!("pages/{:03}/{number:05}", number / 100)).collect();
    let (store, body) = (&store, Bytes::from_static(b"x"));
    let writes = stream::iter(&keys).map(|key| store.write(key, body.clone()));
    writes.buffer_unordered(16).try_collect::<Vec<_>>().await.unwrap();
    let listed = |metas: Result<Vec<forebay_store::ObjectMeta>>| -> Vec<String> {
        metas.unwrap().into_iter().map(|meta| meta.key).collect()
    };
    assert_eq!(listed(store.list("pages/").try_collect().await), keys);
    for at in [0, 999, 1000, 1500, 2998] {
        assert_eq!(
            listed(store.list_after("pages/", &keys[at]).try_collect().await),
            keys[at + 1..],
            "after {at}"
        );
    }
    assert_eq!(store.list_after("pages/", &keys[2999]).count().await, 0);
    // A key that is not there is as good a place to begin.
    assert_eq!(listed(store.list_after("pages/", "pages/014/01499!").try_collect().await), keys[1500..]);
    // Dropped after a few: no more pages are asked for than were looked at.
    assert_eq!(store.list("pages/").take(5).count().await, 5);
}

#[tokio::test]
async fn an_object_written_in_parts_is_one_object() {
    let Some(endpoint) = server("FOREBAY_TEST_S3") else { return };
    let store = open(ROOT, &[("endpoint", &endpoint)]);
    let size = (64 << 20) + 12_345;
    let bytes: Bytes = (0..size).map(|at: usize| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect();
    store.write("parts/large", bytes.clone()).await.unwrap();
    assert_eq!(store.head("parts/large").await.unwrap().size, size as u64);
    assert!(store.read("parts/large", ByteRange::Full).await.unwrap() == bytes);
    let edge = 16 << 20;
    let around = store.read("parts/large", (edge - 10..edge + 10).into()).await.unwrap();
    assert!(around == bytes.slice(edge as usize - 10..edge as usize + 10));
}

#[tokio::test]
async fn a_server_is_reached_by_name_too() {
    let Some(endpoint) = server("FOREBAY_TEST_S3") else { return };
    let local = endpoint.replace("127.0.0.1", "localhost");
    let path = open(ROOT, &[("endpoint", &local), ("virtual_hosted_style", "false")]);
    path.write("style/a", Bytes::from_static(b"a")).await.unwrap();
    assert_eq!(path.read("style/a", ByteRange::Full).await.unwrap(), "a");
}
