//! Connections: kept, bounded, given up; statuses and redirects.

use crate::server::{Answer, Server, objects, ranged};
use crate::{store, words};
use bytes::Bytes;
use forebay_core::ErrorKind;
use forebay_store::http::{HttpClient, HttpOptions, HttpRequest, Method};
use forebay_store::{ByteRange, HttpStore, Store};
use futures::future::join_all;
use std::time::Duration;

#[tokio::test]
async fn a_connection_is_used_again() {
    let server = objects().await;
    let store = store(&server.root());
    store.write("a", Bytes::from_static(b"abc")).await.unwrap();
    for _ in 0..20 {
        assert_eq!(store.read("a", ByteRange::Full).await.unwrap(), "abc");
        assert!(store.read("missing", ByteRange::Full).await.is_err());
        store.head("a").await.unwrap();
    }
    assert_eq!((server.requests().len(), server.connections()), (61, 1));
}

#[tokio::test]
async fn there_are_never_more_connections_than_allowed() {
    let server = objects().await;
    let store = HttpStore::open(&server.root(), &words(&[("connections", "3")])).unwrap();
    store.write("a", vec![7; 300_000].into()).await.unwrap();
    let reads = join_all((0..64).map(|_| store.read("a", ByteRange::Full))).await;
    assert!(reads.iter().all(|bytes| bytes.as_ref().unwrap().len() == 300_000));
    assert!(server.connections() <= 3, "{} connections", server.connections());
}

#[tokio::test]
async fn a_request_on_a_kept_connection_that_died_is_sent_again_once() {
    let server = Server::start(|request| match request.number {
        1 => Answer::raw("").and_close(),
        _ => Answer::new(200, "", b"abc"),
    })
    .await;
    let store = store(&server.root());
    for _ in 0..2 {
        assert_eq!(store.read("a", ByteRange::Full).await.unwrap(), "abc");
    }
    assert_eq!((server.requests().len(), server.connections()), (3, 2));
}

#[tokio::test]
async fn a_fresh_connection_that_dies_is_an_error_that_may_pass() {
    let server = Server::start(|_| Answer::raw("").and_close()).await;
    let error = store(&server.root()).read("a", ByteRange::Full).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_post_is_never_sent_twice() {
    let server = Server::start(|request| match request.number {
        1 => Answer::raw("").and_close(),
        _ => Answer::new(200, "", b""),
    })
    .await;
    let client = HttpClient::new(&HttpOptions::default()).unwrap();
    let url = url::Url::parse(&server.root()).unwrap();
    let post = |body: &'static [u8]| HttpRequest {
        method: Method::Post,
        url: &url,
        headers: &[],
        body: Bytes::from_static(body),
        expect: 10,
    };
    assert_eq!(client.send(post(b"one")).await.unwrap().status, 200);
    assert_eq!(client.send(post(b"two")).await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn a_throttling_server_says_how_long_to_wait() {
    let server = Server::start(|_| Answer::new(429, "Retry-After: 7\r\n", b"slow down")).await;
    let error = store(&server.root()).read("a", ByteRange::Full).await.unwrap_err();
    assert_eq!((error.kind(), error.throttled()), (ErrorKind::Unavailable, Some(Duration::from_secs(7))));
}

#[tokio::test]
async fn statuses_become_kinds_and_name_the_object() {
    use ErrorKind::{Denied, InvalidConfig, NotFound, Unavailable};
    for (status, kind) in
        [(404, NotFound), (403, Denied), (401, Denied), (400, InvalidConfig), (500, Unavailable)]
    {
        let server = Server::start(move |_| Answer::new(status, "", b"")).await;
        let store = store(&server.root());
        let error = store.read("dir/a b", (0..1).into()).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{status}");
        assert_eq!(error.facts().object.as_deref(), Some(store.url("dir/a b").as_str()));
    }
}

#[tokio::test]
async fn redirects_are_followed_without_taking_credentials_along() {
    let target = Server::start(|request| ranged(request, b"0123456789", "ETag: \"1\"\r\n")).await;
    let location = format!("Location: {}/moved\r\n", target.root());
    let server = Server::start(move |_| Answer::new(302, &location, b"this way")).await;
    let store = HttpStore::open(&server.root(), &words(&[("token", "secret")])).unwrap();
    assert_eq!(store.read("a", (2..5).into()).await.unwrap(), "234");
    assert_eq!(store.head("a").await.unwrap().size, 10);
    assert!(server.requests().iter().all(|request| request.header("authorization") == "Bearer secret"));
    let arrived = target.requests();
    assert_eq!((arrived[0].path.as_str(), arrived[0].header("range")), ("/moved", "bytes=2-4"));
    assert!(arrived.iter().all(|request| request.header("authorization").is_empty()));
}

#[tokio::test]
async fn redirects_in_a_circle_end() {
    let server = Server::start(|_| Answer::new(307, "Location: /again\r\n", b"")).await;
    let error = store(&server.root()).read("a", ByteRange::Full).await.unwrap_err();
    assert!(error.message().contains("10 times"), "{error:?}");
    let server = Server::start(|_| Answer::new(302, "Location: file:///etc/hostname\r\n", b"")).await;
    assert_eq!(store(&server.root()).read("a", ByteRange::Full).await.unwrap_err().kind(), ErrorKind::Denied);
}

#[tokio::test]
async fn answers_that_make_no_sense_are_errors_and_never_a_panic() {
    let long = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(70_000));
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(200));
    let heads = [
        long.as_str(),
        many.as_str(),
        "HTTP/1.1 200 OK\r\nno colon here\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcde",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
        "HTTP/1.1 101 Switching\r\n\r\n",
        "SSH-2.0-OpenSSH_9\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\na",
    ];
    for head in heads {
        let bytes = head.as_bytes().to_vec();
        let server = Server::start(move |_| Answer::raw(bytes.clone()).and_close()).await;
        let error = store(&server.root()).read("a", ByteRange::Full).await.unwrap_err();
        let kinds =
            [ErrorKind::Corrupt, ErrorKind::Unavailable, ErrorKind::Exhausted, ErrorKind::Unsupported];
        assert!(kinds.contains(&error.kind()), "{error:?}");
    }
}

#[tokio::test]
async fn a_host_that_does_not_exist_is_named() {
    // A label of 64 characters is refused before any name server is asked.
    let host = format!("{}.test", "x".repeat(64));
    let error = store(&format!("http://{host}")).read("a", ByteRange::Full).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.message().contains(&host), "{error:?}");
    // Nobody listens where a listener has just been.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let error = store(&format!("http://127.0.0.1:{port}")).read("a", ByteRange::Full).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Unavailable && error.message().contains(&port.to_string()));
}
