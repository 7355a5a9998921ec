//! What S3 reads make of answers that no real server gives on demand: cut, misplaced, throttled, of another region.
//!
//! The server here is a script: each request gets the next answer, and what was asked is kept.
#![cfg(feature = "s3")]
#![expect(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

use forebay_core::{Error, ErrorKind};
use forebay_store::{ByteRange, Store, StoreOptions, remote};
use futures::stream::TryStreamExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// Answers requests in order, one connection each; gives back the heads of the requests.
async fn scripted(answers: Vec<String>) -> (String, tokio::task::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let serve = tokio::spawn(async move {
        let mut asked = Vec::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            asked.push(String::from_utf8(head).unwrap().to_ascii_lowercase());
            stream.write_all(answer.as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
        }
        asked
    });
    (endpoint, serve)
}

fn store(endpoint: &str, more: &[(&str, &str)]) -> Arc<dyn Store> {
    let pairs = [("endpoint", endpoint), ("region", "us-east-1"), ("virtual_hosted_style", "false")];
    let words: StoreOptions =
        pairs.iter().chain(more).map(|(word, value)| ((*word).to_owned(), (*value).to_owned())).collect();
    remote::open("s3://data", &words).unwrap()
}

fn anonymous(endpoint: &str) -> Arc<dyn Store> {
    store(endpoint, &[("anonymous", "true")])
}

fn answer(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n{headers}\r\n{body}", body.len())
}

/// 206 of an object of 20 bytes, of whose body only the beginning comes.
fn part(first: u64, last: u64, etag: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 206 Partial Content\r\nContent-Length: {}\r\nContent-Range: bytes {first}-{last}/20\r\n\
         ETag: \"{etag}\"\r\n\r\n{body}",
        last - first + 1
    )
}

async fn read(answers: Vec<String>, range: ByteRange) -> (Result<bytes::Bytes, Error>, Vec<String>) {
    let (endpoint, server) = scripted(answers).await;
    let read = anonymous(&endpoint).read("a b/c", range).await;
    server.abort();
    let asked = server.await.unwrap_or_default();
    (read, asked)
}

#[tokio::test]
async fn p013_a_cut_body_is_gone_on_with_at_its_offset() {
    let answers = vec![part(5, 14, "v1", "fghi"), part(9, 14, "v1", "jk"), part(11, 14, "v1", "lmno")];
    let (endpoint, server) = scripted(answers).await;
    assert_eq!(anonymous(&endpoint).read("a b/c", (5..15).into()).await.unwrap(), "fghijklmno");
    let asked = server.await.unwrap();
    assert!(asked[0].starts_with("get /data/a%20b/c http/1.1\r\n"), "{}", asked[0]);
    for (asked, range) in asked.iter().zip(["range: bytes=5-14", "range: bytes=9-14", "range: bytes=11-14"]) {
        assert!(asked.contains(range), "{asked}");
    }
    assert!(
        !asked[0].contains("if-match")
            && asked[1].contains("if-match: \"v1\"")
            && asked[2].contains("if-match: \"v1\"")
    );
}

#[tokio::test]
async fn p013_the_rest_of_another_version_is_never_joined() {
    let changed =
        [part(9, 14, "v2", "jklmno"), answer("412 Precondition Failed", "", ""), answer("200 OK", "", "x")];
    for rest in changed {
        let (read, _) = read(vec![part(5, 14, "v1", "fghi"), rest], (5..15).into()).await;
        assert_eq!(read.unwrap_err().kind(), ErrorKind::Stale);
    }
    let (read, _) = read(vec![part(5, 14, "v1", "")], (5..15).into()).await;
    assert_eq!(read.unwrap_err().kind(), ErrorKind::Unavailable, "nothing came, so whoever retries decides");
}

#[tokio::test]
async fn bytes_that_were_not_asked_for_are_an_error() {
    for wrong in [part(4, 13, "v1", "efghijklmn"), answer("206 Partial Content", "", "fghijklmno")] {
        let (read, _) = read(vec![wrong], (5..15).into()).await;
        let error = read.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        assert_eq!(error.facts().object.as_deref(), Some("s3://data/a b/c"));
    }
    // A server without ranges sends all of it.
    let (read, _) = read(vec![answer("200 OK", "", "abcdefghijklmnopqrst")], (5..15).into()).await;
    assert_eq!(read.unwrap(), "fghijklmno");
}

#[tokio::test]
async fn throttling_and_refusals_say_what_can_be_done() {
    let body = "<?xml version=\"1.0\"?><Error><Code>SlowDown</Code><Message>Reduce &lt;your&gt; rate</Message></Error>";
    let (busy, _) = read(vec![answer("503 Slow Down", "Retry-After: 7\r\n", body)], ByteRange::Full).await;
    let error = busy.unwrap_err();
    assert_eq!((error.kind(), error.throttled()), (ErrorKind::Unavailable, Some(Duration::from_secs(7))));
    assert!(error.message().contains("Reduce <your> rate"), "{error:?}");

    let (failed, _) = read(vec![answer("500 Internal Server Error", "", "")], ByteRange::Full).await;
    let error = failed.unwrap_err();
    assert_eq!((error.kind(), error.throttled()), (ErrorKind::Unavailable, None));

    let elsewhere = answer("301 Moved Permanently", "x-amz-bucket-region: eu-west-3\r\n", "");
    let (moved, _) = read(vec![elsewhere], ByteRange::Full).await;
    let error = moved.unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidConfig && error.hint().unwrap().contains("region=eu-west-3"));

    let (denied, _) = read(vec![answer("403 Forbidden", "", "")], ByteRange::Full).await;
    let error = denied.unwrap_err();
    assert!(error.kind() == ErrorKind::Denied && error.hint().unwrap().contains("anonymous=true"));
}

#[tokio::test]
async fn requests_are_signed_unless_anonymous_and_never_show_the_secret() {
    let (endpoint, server) = scripted(vec![answer("200 OK", "", "abc")]).await;
    let signed = store(&endpoint, &[("key", "me"), ("secret", "hush"), ("token", "session")]);
    assert!(!format!("{signed:?}").contains("hush"));
    assert_eq!(signed.read("a", ByteRange::Full).await.unwrap(), "abc");
    let asked = server.await.unwrap().remove(0);
    assert!(asked.contains("authorization: aws4-hmac-sha256 credential=me/"), "{asked}");
    assert!(asked.contains("x-amz-security-token: session") && !asked.contains("hush"), "{asked}");

    let (endpoint, server) = scripted(vec![answer("200 OK", "", "abc")]).await;
    assert_eq!(anonymous(&endpoint).read("a", ByteRange::Full).await.unwrap(), "abc");
    assert!(!server.await.unwrap().remove(0).contains("authorization"));
}

#[tokio::test]
async fn a_listing_out_of_order_or_that_is_none_is_refused() {
    let page = |keys: &str| {
        let objects: Vec<String> =
            keys.chars().map(|key| format!("<Contents><Key>{key}</Key><Size>1</Size></Contents>")).collect();
        let objects = objects.concat();
        answer(
            "200 OK",
            "",
            &format!("<ListBucketResult><IsTruncated>false</IsTruncated>{objects}</ListBucketResult>"),
        )
    };
    for (body, kind) in
        [(page("ba"), ErrorKind::Unsupported), (answer("200 OK", "", "<html>"), ErrorKind::Corrupt)]
    {
        let (endpoint, _server) = scripted(vec![body]).await;
        let listed = anonymous(&endpoint).list("").try_collect::<Vec<_>>().await;
        assert_eq!(listed.unwrap_err().kind(), kind);
    }
    let (endpoint, _server) = scripted(vec![page("ab")]).await;
    assert_eq!(anonymous(&endpoint).list("").try_collect::<Vec<_>>().await.unwrap().len(), 2);
}
