//! Pages and the stream as readers see them, well-meaning or not.

use super::*;
use std::io::{BufRead, BufReader, Read};

const PAGES: &[Page] = &[Page { path: "/", kind: "text/html; charset=utf-8", text: "<!doctype html>page" }];

struct Counting(u64);

impl Events for Counting {
    fn state(&mut self) -> String {
        self.0 += 1;
        format!("{{\"number\":{}}}", self.0)
    }

    fn history(&self) -> String {
        format!("[{}]", self.0)
    }
}

fn shown(listen: &str, token: Option<&str>) -> Result<PageServer> {
    let options = MetricsOptions { listen: listen.into(), token: token.map(str::to_owned) };
    PageServer::start(&options, PAGES, Counting(0))
}

fn send(server: &PageServer, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

fn ask(server: &PageServer, request: &str) -> String {
    let mut answer = String::new();
    let _ = send(server, request).read_to_string(&mut answer);
    answer
}

#[test]
fn pages_are_given_with_headers_that_keep_everything_else_out() {
    let server = shown("127.0.0.1:0", None).unwrap();
    let answer = ask(&server, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && body == "<!doctype html>page", "{answer}");
    for header in ["default-src 'none'", "frame-ancestors 'none'", "nosniff", "no-store", "no-referrer"] {
        assert!(head.contains(header), "{header}: {head}");
    }
    for (request, status) in [
        ("GET /x HTTP/1.1\r\n\r\n", "404"),
        ("GET /../etc/passwd HTTP/1.1\r\n\r\n", "404"),
        ("POST / HTTP/1.1\r\n\r\n", "405"),
        ("DELETE /state HTTP/1.1\r\n\r\n", "405"),
        ("nonsense\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", "421"),
        ("GET /state HTTP/1.1\r\nHost: evil.example:80\r\n\r\n", "421"),
    ] {
        let answer = ask(&server, request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {answer}");
    }
}

#[test]
fn a_client_hears_what_was_and_then_every_new_state() {
    let server = shown("127.0.0.1:0", None).unwrap();
    let stream = send(&server, "GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    let mut lines = BufReader::new(stream).lines().map(|line| line.unwrap());
    let head: Vec<String> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
    assert!(head.iter().any(|line| line.contains("text/event-stream")), "{head:?}");
    let mut next = || {
        let event: Vec<String> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
        event.join(" ")
    };
    let history = next();
    assert!(history.starts_with("event: history data: ["), "{history}");
    let number = |event: String| -> u64 {
        let text = event.strip_prefix("event: state data: {\"number\":").unwrap().trim_end_matches('}');
        text.parse().unwrap()
    };
    let first = number(next());
    assert!(number(next()) > first);
}

#[test]
fn state_and_stream_are_for_those_who_show_the_token_and_pages_for_all() {
    let server = shown("127.0.0.1:0", Some("0123456789abcdef")).unwrap();
    let right = "Authorization: Bearer 0123456789abcdef\r\n";
    for (path, header, status) in [
        ("/", "", "200"),
        ("/state", "", "401"),
        ("/state", "Authorization: Bearer 0123456789abcdeF\r\n", "401"),
        ("/events", "", "401"),
        ("/state", right, "200"),
    ] {
        let answer = ask(&server, &format!("GET {path} HTTP/1.1\r\nHost: any.example\r\n{header}\r\n"));
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{path} {header}: {answer}");
    }
    let error = shown("0.0.0.0:0", None).unwrap_err();
    assert!(error.message().contains("others than this machine") && error.hint().is_some(), "{error}");
    assert!(shown("0.0.0.0:0", Some("short")).is_err());
    assert!(shown("0.0.0.0:0", Some("0123456789abcdef")).is_ok());
}

#[test]
fn more_followers_than_allowed_are_sent_away_and_the_end_does_not_wait_for_them() {
    let server = shown("127.0.0.1:0", None).unwrap();
    let request = "GET /events HTTP/1.1\r\n\r\n";
    let mut first: Vec<TcpStream> = (0..CLIENTS).map(|_| send(&server, request)).collect();
    for stream in &mut first {
        let mut byte = [0; 12];
        stream.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"HTTP/1.1 200");
    }
    assert!(ask(&server, request).starts_with("HTTP/1.1 503 "));
    // Those who say nothing do not keep others out for longer than a request may take.
    let silent: Vec<TcpStream> =
        (0..CONNECTIONS).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    assert!(ask(&server, "GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200 "));
    drop(silent);
    drop(first);
    drop(server);
}
