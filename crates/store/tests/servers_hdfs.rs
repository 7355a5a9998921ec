//! The store against a real HDFS: the whole suite, and what only HDFS does. `FOREBAY_TEST_HDFS` (host:port of its
//! NameNode) names it; without it there is nothing to do.
#![cfg(feature = "hdfs")]

use bytes::Bytes;
use forebay_core::ErrorKind;
use forebay_store::{ByteRange, HdfsStore, Store, StoreOptions, conformance, remote};
use forebay_testkit::skip::server;
use futures::stream::StreamExt;
use std::sync::Arc;

fn words(pairs: &[(&str, &str)]) -> StoreOptions {
    pairs.iter().map(|(word, value)| ((*word).to_owned(), (*value).to_owned())).collect()
}

fn pattern(size: usize) -> Bytes {
    (0..size as u64).map(|at| forebay_core::rng::mix64(at) as u8).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn hdfs_conforms() {
    let Some(server) = server("FOREBAY_TEST_HDFS") else { return };
    let store = HdfsStore::open(&format!("hdfs://{server}"), &words(&[("user", "forebay")])).unwrap();
    conformance::run(Arc::new(store)).await;
}

#[tokio::test]
async fn files_of_many_blocks_are_read_by_url_from_any_place() {
    let Some(server) = server("FOREBAY_TEST_HDFS") else { return };
    let address = remote::address(&format!("hdfs://{server}/many/blocks.bin")).unwrap().unwrap();
    assert_eq!(
        (address.root.as_str(), address.key.as_str()),
        (format!("hdfs://{server}").as_str(), "many/blocks.bin")
    );
    let store = remote::open(&address.root, &StoreOptions::new()).unwrap();
    // Blocks of the test server have 1 MiB.
    let bytes = pattern((5 << 20) + 77);
    store.write(&address.key, bytes.clone()).await.unwrap();
    assert_eq!(store.read(&address.key, ByteRange::Full).await.unwrap(), bytes);
    for range in [0..1, 1_048_575..1_048_577, 1_000_000..4_000_000, 5_242_880..5_242_957u64] {
        let slice = bytes.slice(range.start as usize..range.end as usize);
        assert_eq!(store.read(&address.key, range.clone().into()).await.unwrap(), slice, "{range:?}");
    }
    let parts = store.read_parts(&address.key, &[0..9, 2_097_150..2_097_160]).await.unwrap();
    assert_eq!(parts, [bytes.slice(0..9), bytes.slice(2_097_150..2_097_160)]);
    let below: Vec<_> = store.list("many/").map(|meta| meta.unwrap().key).collect().await;
    assert_eq!(below, ["many/blocks.bin"], "nothing is left of the write");
}

#[tokio::test]
async fn what_hdfs_refuses_is_said_with_the_name_of_the_file() {
    let Some(server) = server("FOREBAY_TEST_HDFS") else { return };
    let store = HdfsStore::open(&format!("hdfs://{server}"), &StoreOptions::new()).unwrap();
    let error = store.write("a:b", Bytes::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error:?}");
    assert!(error.message().contains(&format!("hdfs://{server}/a:b")), "{error:?}");
    store.write("folder/file", Bytes::from_static(b"x")).await.unwrap();
    assert!(store.write("folder", Bytes::new()).await.is_err(), "a folder has this name");
    assert!(store.write("folder/file/below", Bytes::new()).await.is_err(), "a file is no folder");
    assert_eq!(store.read("folder/file", ByteRange::Full).await.unwrap(), "x");
}

#[tokio::test]
async fn a_name_node_that_is_not_there_is_unavailable_by_name() {
    // A port that was free a moment ago: whoever takes it meanwhile does not speak for Hadoop, which is as good.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let store = HdfsStore::open(&format!("hdfs://127.0.0.1:{port}"), &StoreOptions::new()).unwrap();
    let error = store.read("key", ByteRange::Full).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.message().contains(&format!("hdfs://127.0.0.1:{port}/key")), "{error:?}");
    assert!(HdfsStore::open("hdfs://a", &words(&[("users", "x")])).is_err());
}
