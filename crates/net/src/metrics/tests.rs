//! The endpoint as a reader sees it, well-meaning or not.

use super::*;
use std::io::{Read, Write};
use std::sync::atomic::AtomicU64;

fn shown(token: Option<&str>) -> MetricsServer {
    let asked = AtomicU64::new(0);
    let show: Show = Arc::new(move || format!("asked_total {}\n", asked.fetch_add(1, Ordering::Relaxed) + 1));
    let options = MetricsOptions { listen: "127.0.0.1:0".into(), token: token.map(str::to_owned) };
    MetricsServer::start(&options, show).unwrap()
}

fn ask(server: &MetricsServer, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    // One that is refused early may not read to the end.
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

#[test]
fn figures_are_made_anew_for_every_question() {
    let server = shown(None);
    for number in 1..4 {
        let answer = ask(&server, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("version=0.0.4"), "{head}");
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
        assert_eq!(body, format!("asked_total {number}\n"));
    }
    let answer = ask(&server, b"HEAD /metrics?x=1 HTTP/1.0\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\n\r\n"), "{answer}");
}

#[test]
fn nothing_else_is_answered_and_nonsense_costs_one_connection() {
    let server = shown(None);
    let long = [b"GET /metrics HTTP/1.1\r\nX: ".as_slice(), &vec![b'a'; 20_000]].concat();
    for (request, status) in [
        (b"GET / HTTP/1.1\r\n\r\n".as_slice(), "404"),
        (b"GET /metrics/.. HTTP/1.1\r\n\r\n", "404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
        (b"GET /metrics\r\n\r\n", "400"),
        (b"GET /metrics SPDY/3\r\n\r\n", "400"),
        (b"\r\n\r\n", "400"),
    ] {
        let answer = ask(&server, request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
    // What is not read to the end may be answered by a broken connection; the next one is answered all the same.
    for request in [long.as_slice(), b"\xff\xfe\r\n\r\n", b"GET /met"] {
        let answer = ask(&server, request);
        assert!(!answer.contains("asked_total"), "{answer}");
    }
    assert!(ask(&server, b"GET /metrics HTTP/1.1\r\n\r\n").ends_with("asked_total 1\n"));
}

#[test]
fn with_a_token_only_those_who_show_it_are_answered() {
    let server = shown(Some("0123456789abcdef"));
    for (header, status) in [
        ("", "401"),
        ("Authorization: Bearer 0123456789abcdeF\r\n", "401"),
        ("Authorization: Basic 0123456789abcdef\r\n", "401"),
        ("authorization: Bearer 0123456789abcdef\r\n", "200"),
    ] {
        let answer = ask(&server, format!("GET /metrics HTTP/1.1\r\n{header}\r\n").as_bytes());
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{header}: {answer}");
    }
}

#[test]
fn beyond_this_machine_a_token_is_asked_for_and_short_ones_are_refused() {
    let start = |listen: &str, token: Option<&str>| {
        let options = MetricsOptions { listen: listen.into(), token: token.map(str::to_owned) };
        let show: Show = Arc::new(String::new);
        MetricsServer::start(&options, show).map(drop).map_err(|error| error.report())
    };
    assert!(start("0.0.0.0:0", None).unwrap_err().contains("token"));
    assert!(start("127.0.0.1:0", Some("short")).unwrap_err().contains("16"));
    assert!(start("nonsense", None).unwrap_err().contains("`nonsense`"));
    assert_eq!(start("0.0.0.0:0", Some("0123456789abcdef")), Ok(()));
}

#[test]
fn ranks_of_a_host_listen_side_by_side() {
    let read = |text: &str, offset| {
        let value = serde_json::from_str(text).unwrap();
        FigureOptions::from_json(&value, offset).map(|options| options.shown.unwrap())
    };
    assert_eq!(read(r#""127.0.0.1:9464""#, 3).unwrap().listen, "127.0.0.1:9467");
    assert_eq!(read(r#"{"listen": "[::1]:0"}"#, 3).unwrap().listen, "[::1]:0");
    for (text, part) in [
        (r#""127.0.0.1""#, "no address"),
        (r#""127.0.0.1:65535""#, "no port is left"),
        (r#"{"port": 3}"#, "read `metrics`"),
        (r#"{"listen": "127.0.0.1:0", "token_file": "/nowhere/token"}"#, "/nowhere/token"),
    ] {
        let error = read(text, 1).unwrap_err().report();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn it_ends_when_it_is_dropped() {
    let server = shown(None);
    let address = server.address();
    drop(server);
    assert!(TcpStream::connect(address).is_err());
}
