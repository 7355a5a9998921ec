use super::*;
use crate::http::Method;
use bytes::Bytes;
use tokio::io::{AsyncReadExt, DuplexStream};
use url::Url;

const LIMITS: Limits = Limits { part: 100, whole: 100 };

/// What goes out for `request` and what comes of `answer`; the server closes afterwards if told so.
async fn run(
    request: &HttpRequest<'_>,
    answer: &[u8],
    close: bool,
) -> (String, Result<Exchanged, Unanswered>, BytesMut) {
    let (mut ours, mut theirs) = tokio::io::duplex(1 << 20);
    theirs.write_all(answer).await.unwrap();
    let mut theirs: Option<DuplexStream> = Some(theirs);
    let (mut ahead, mut into) = (BytesMut::new(), BytesMut::new());
    let silence = Duration::from_secs(30);
    let mut sent = Vec::new();
    let done = if close {
        // Closed for writing only, so that the request can still be seen.
        theirs.as_mut().unwrap().shutdown().await.unwrap();
        over(&mut ours, &mut ahead, false, request, LIMITS, silence, &mut into).await
    } else {
        over(&mut ours, &mut ahead, false, request, LIMITS, silence, &mut into).await
    };
    drop(ours);
    theirs.take().unwrap().read_to_end(&mut sent).await.unwrap();
    (String::from_utf8(sent).unwrap(), done, into)
}

fn get(url: &Url) -> HttpRequest<'_> {
    HttpRequest { method: Method::Get, url, headers: &[], body: Bytes::new(), expect: 100 }
}

#[tokio::test(start_paused = true)]
async fn a_request_is_one_head_with_host_path_and_query() {
    let url = Url::parse("http://user:secret@host:81/a%20b?c=d#e").unwrap();
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
    let (sent, done, body) = run(&get(&url), answer, false).await;
    assert!(sent.starts_with("GET /a%20b?c=d HTTP/1.1\r\nhost: host:81\r\n"), "{sent}");
    assert!(sent.ends_with("\r\n\r\n") && !sent.contains("secret") && !sent.contains("content-length"));
    let done = done.unwrap();
    assert!(done.reusable && done.cut.is_none() && body == "abc");
}

#[tokio::test(start_paused = true)]
async fn a_header_cannot_smuggle_another() {
    let url = Url::parse("http://host/").unwrap();
    for (name, value) in [("x", "a\r\nevil: b"), ("x: y", "a"), ("", "a"), ("x", "a\0")] {
        let headers = [(name, value.to_owned())];
        let request = HttpRequest { headers: &headers, ..get(&url) };
        let (sent, done, _) = run(&request, b"", false).await;
        assert_eq!(done.unwrap_err().error.kind(), forebay_core::ErrorKind::InvalidConfig);
        assert!(sent.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn interim_answers_are_passed_over_but_not_for_ever() {
    let url = Url::parse("http://host/").unwrap();
    let once = b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 204 No\r\n\r\n";
    let done = run(&get(&url), once, false).await.1.unwrap();
    assert!(done.status == 204 && done.reusable);
    let endless = "HTTP/1.1 100 Go\r\n\r\n".repeat(99);
    assert!(run(&get(&url), endless.as_bytes(), false).await.1.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_body_waits_until_the_server_wants_it() {
    let url = Url::parse("http://host/").unwrap();
    let headers = [("expect", "100-continue".to_owned())];
    let body = Bytes::from_static(b"payload");
    let request = HttpRequest { method: Method::Put, headers: &headers, body, ..get(&url) };
    let moved = b"HTTP/1.1 307 Moved\r\nLocation: /b\r\nContent-Length: 0\r\n\r\n";
    let (sent, done, _) = run(&request, moved, false).await;
    assert!(sent.contains("content-length: 7") && !sent.ends_with("payload"));
    assert!(done.is_ok_and(|done| done.status == 307 && !done.reusable));
    let wanted = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Made\r\nContent-Length: 0\r\n\r\n";
    let (sent, done, _) = run(&request, wanted, false).await;
    assert!(sent.ends_with("\r\n\r\npayload") && done.is_ok_and(|done| done.status == 201 && done.reusable));
}

#[tokio::test(start_paused = true)]
async fn a_server_without_a_word_is_given_up_after_the_time_out() {
    let url = Url::parse("http://host/").unwrap();
    let began = tokio::time::Instant::now();
    let unanswered = run(&get(&url), b"", false).await.1.unwrap_err();
    assert!(unanswered.error.message().contains("30.0 s") && !unanswered.early);
    assert_eq!(began.elapsed().as_secs(), 30);
    let unanswered = run(&get(&url), b"", true).await.1.unwrap_err();
    assert!(unanswered.early && unanswered.error.kind() == forebay_core::ErrorKind::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn a_connection_with_bytes_nobody_asked_for_is_not_used_again() {
    let url = Url::parse("http://host/").unwrap();
    let done = run(&get(&url), b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab", false).await.1.unwrap();
    assert!(!done.reusable);
    let too_long = b"HTTP/1.1 200 OK\r\nContent-Length: 101\r\n\r\n";
    assert!(run(&get(&url), too_long, false).await.1.unwrap().cut.is_some());
    // Nobody needs all of a refusal.
    let refusal = b"HTTP/1.1 404 No\r\nContent-Length: 99999999\r\n\r\nabc";
    let done = run(&get(&url), refusal, false).await.1.unwrap();
    assert!(done.cut.is_none() && !done.reusable);
}

proptest::proptest! {
    #[test]
    fn no_answer_makes_it_panic_or_give_more_than_asked(
        noise in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200),
        start in 0usize..4,
    ) {
        let starts = ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n"];
        let answer = [starts[start].as_bytes(), &noise].concat();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let url = Url::parse("http://host/").unwrap();
        let (_, _, body) = runtime.block_on(run(&get(&url), &answer, true));
        proptest::prop_assert!(body.len() <= 100);
    }
}
