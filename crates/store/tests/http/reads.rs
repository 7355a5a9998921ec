//! Reads by ranges: what is asked for comes whole, from servers that cut, shift, forget or change it.

use crate::server::{Answer, Server, objects, ranged};
use crate::store;
use bytes::Bytes;
use forebay_core::ErrorKind;
use forebay_store::{ByteRange, Store, conformance, remote};
use futures::stream::StreamExt;

fn pattern(size: usize) -> Vec<u8> {
    (0..size as u64).map(|number| forebay_core::rng::mix64(number) as u8).collect()
}

#[tokio::test]
async fn http_conforms_but_for_listing() {
    let server = objects().await;
    let store = store(&server.root());
    conformance::reads_the_whole_object(&store).await;
    conformance::a_whole_object_of_another_size_is_stale(&store).await;
    conformance::reads_bounded_open_and_last_ranges(&store).await;
    conformance::an_empty_range_is_not_an_error(&store).await;
    conformance::a_range_beyond_the_object_is_an_error(&store).await;
    conformance::a_missing_key_is_not_found(&store).await;
    conformance::head_tells_size_and_a_stamp_that_follows_changes(&store).await;
    conformance::parts_equal_slices_in_order(&store).await;
    conformance::parts_out_of_order_are_refused(&store).await;
    conformance::an_overwritten_object_is_old_or_new_never_mixed(&store).await;
    conformance::an_empty_object_is_an_object(&store).await;
    conformance::keys_cannot_leave_the_store(&store).await;
    conformance::many_readers_at_once_read_the_same(&store).await;
}

#[tokio::test]
async fn keys_of_any_characters_survive_the_way_into_a_url_and_back() {
    let server = objects().await;
    for key in
        ["a b", "a%20b", "a+b", "q?x=1&y#z", "back\\slash", "quo'te\"d", "naïve/日本語", "...", "new\nline"]
    {
        let body = Bytes::from(key.to_owned());
        store(&server.root()).write(key, body.clone()).await.unwrap();
        assert_eq!(store(&server.root()).read(key, ByteRange::Full).await.unwrap(), body, "{key:?}");
        let address = remote::address(&store(&server.root()).url(key)).unwrap().unwrap();
        assert_eq!(address.key, key);
        let opened = remote::open(&address.root, &crate::words(&[])).unwrap();
        assert!(opened.is_remote() && opened.runtime().is_some());
        assert_eq!(opened.head(&address.key).await.unwrap().size, body.len() as u64);
    }
}

#[tokio::test]
async fn p016_ranges_equal_slices_open_ends_included_and_beyond_is_an_error() {
    let server = objects().await;
    let (store, bytes) = (store(&server.root()), pattern(10_000));
    store.write("a", bytes.clone().into()).await.unwrap();
    let cases = [
        (ByteRange::from(0..1), 0..1),
        ((9_999..10_000).into(), 9_999..10_000),
        (ByteRange::From(1), 1..10_000),
        (ByteRange::From(10_000), 10_000..10_000),
        (ByteRange::Last(10_000), 0..10_000),
        (ByteRange::Last(3), 9_997..10_000),
    ];
    for (range, slice) in cases {
        assert_eq!(store.read("a", range).await.unwrap(), bytes[slice], "{range:?}");
    }
    for range in
        [(0..10_001).into(), (10_000..10_001).into(), ByteRange::From(10_001), ByteRange::Last(10_001)]
    {
        let error = store.read("a", range).await.unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidConfig && error.message().contains("10000"), "{error:?}");
    }
}

/// Sends at most 1000 bytes of each body and then closes.
fn cutting(etag: &'static str) -> impl Fn(&crate::server::Request) -> Answer + Send + Sync {
    move |request| {
        let bytes = pattern(3500);
        let first: usize = request
            .header("range")
            .strip_prefix("bytes=")
            .map_or(0, |range| range.split('-').next().unwrap().parse().unwrap());
        let end = (first + 1000).min(bytes.len());
        let etag =
            if etag == "changing" { format!("ETag: \"{}\"\r\n", request.number) } else { etag.to_owned() };
        if request.header("range").is_empty() {
            return Answer::claiming(200, &etag, bytes.len(), &bytes[..end]).and_close();
        }
        let place = format!("{etag}Content-Range: bytes {first}-{}/{}\r\n", bytes.len() - 1, bytes.len());
        Answer::claiming(206, &place, bytes.len() - first, &bytes[first..end]).and_close()
    }
}

#[tokio::test]
async fn p013_a_read_that_is_cut_goes_on_at_its_offset() {
    let server = Server::start(cutting("ETag: \"1\"\r\n")).await;
    assert_eq!(store(&server.root()).read("a", ByteRange::Full).await.unwrap(), pattern(3500));
    let asked = server.requests();
    let ranges: Vec<&str> = asked.iter().map(|request| request.header("range")).collect();
    assert_eq!(ranges, ["", "bytes=1000-3499", "bytes=2000-3499", "bytes=3000-3499"]);
    assert!(asked[1..].iter().all(|request| request.header("if-range") == "\"1\""));
}

#[tokio::test]
async fn p013_a_cut_read_of_an_object_that_changed_is_stale() {
    let server = Server::start(cutting("changing")).await;
    let error = store(&server.root()).read("a", ByteRange::From(1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stale, "{error:?}");
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn without_a_version_or_progress_a_cut_read_is_left_to_a_retry() {
    let server = Server::start(cutting("")).await;
    let error = store(&server.root()).read("a", ByteRange::Full).await.unwrap_err();
    assert_eq!((error.kind(), server.requests().len()), (ErrorKind::Unavailable, 1));
    let stuck = Server::start(|_| Answer::claiming(200, "ETag: \"1\"\r\n", 9, b"").and_close()).await;
    let error = store(&stuck.root()).read("a", ByteRange::Full).await.unwrap_err();
    assert_eq!((error.kind(), stuck.requests().len()), (ErrorKind::Unavailable, 1));
}

#[tokio::test]
async fn other_bytes_than_asked_for_are_never_taken() {
    let place = |place: &str| format!("Content-Range: bytes {place}\r\n");
    let cases = [
        (Answer::new(206, &place("1-4/10"), b"1234"), ErrorKind::Corrupt),
        (Answer::new(206, &place("0-3/*"), b"012"), ErrorKind::Unavailable),
        (Answer::new(206, &place("0-3/10"), b"01234"), ErrorKind::Corrupt),
        (Answer::new(206, "", b"0123"), ErrorKind::Corrupt),
        (Answer::new(206, &place("9-2/10"), b"0123"), ErrorKind::Corrupt),
        (Answer::new(206, &place("0-2/3"), b"012"), ErrorKind::InvalidConfig),
        (Answer::new(204, "", b""), ErrorKind::Corrupt),
        (Answer::new(200, "", b"012"), ErrorKind::InvalidConfig),
    ];
    for (answer, kind) in cases {
        let shown = format!("{answer:?}");
        let server = Server::start(move |_| answer.clone()).await;
        let error = store(&server.root()).read("a", (0..4).into()).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{shown} gave {error:?}");
    }
}

#[tokio::test]
async fn a_server_without_ranges_serves_small_objects_and_says_why_not_large_ones() {
    let server = Server::start(|_| Answer::new(200, "", &pattern(1000))).await;
    assert_eq!(store(&server.root()).read("a", (10..20).into()).await.unwrap(), pattern(1000)[10..20]);
    assert_eq!(store(&server.root()).read("a", ByteRange::Last(5)).await.unwrap(), pattern(1000)[995..]);
    let server = Server::start(|_| Answer::claiming(200, "", (64 << 20) + 1, b"abc")).await;
    let error = store(&server.root()).read("a", (10..20).into()).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Unsupported && error.hint().is_some(), "{error:?}");
}

#[tokio::test]
async fn chunked_answers_are_put_together() {
    let body = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n3;x\r\nefg\r\n0\r\n\r\n";
    let server = Server::start(move |_| Answer::raw(body)).await;
    let store = store(&server.root());
    for _ in 0..3 {
        assert_eq!(store.read("a", ByteRange::Full).await.unwrap(), "abcdefg");
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn near_parts_come_in_one_request_and_far_ones_in_several() {
    let server = objects().await;
    let (store, bytes) = (store(&server.root()), pattern(2 << 20));
    store.write("a", bytes.clone().into()).await.unwrap();
    let parts = [0..10, 5000..6000, 100_000..100_001];
    let found = store.read_parts("a", &parts).await.unwrap();
    assert!(
        parts.iter().zip(&found).all(|(part, found)| found == &bytes[part.start as usize..part.end as usize])
    );
    assert_eq!(server.requests().len(), 2);
    assert_eq!(
        store.read_parts("a", &[0..10, 1 << 20..(1 << 20) + 1]).await.unwrap()[1],
        bytes[1 << 20..][..1]
    );
    assert_eq!(server.requests().len(), 4);
}

#[tokio::test]
async fn the_size_is_found_where_head_is_not_allowed() {
    let server = Server::start(|request| match request.method.as_str() {
        "HEAD" => Answer::new(405, "", b""),
        _ => ranged(request, &pattern(77), "Last-Modified: Mon, 16 Nov 2026 00:00:00 GMT\r\n"),
    })
    .await;
    let meta = store(&server.root()).head("a").await.unwrap();
    assert!(meta.size == 77 && meta.stamp != 0);
}

#[tokio::test]
async fn listing_says_what_to_do_instead() {
    let store = store("http://127.0.0.1:1");
    let error = store.list("train/").next().await.unwrap().unwrap_err();
    assert!(error.kind() == ErrorKind::Unsupported && error.hint().unwrap().contains('{'));
}
