//! Small requests over HTTP/1.1, for figures and pages: where one may listen, who is let in, heads of bounded size, answers.
//!
//! Beyond this machine only those are answered who show a token. On this machine without a token, a browser that was talked into
//! asking under another name (DNS rebinding) is refused by its `Host`. No body is ever read.

use crate::MetricsOptions;
use forebay_core::{Error, Result};
use ring::hmac;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// Time for one request, from its first byte to the last of the answer.
pub(crate) const REQUEST_TIME: Duration = Duration::from_secs(1);
/// Bytes of a request's head.
const HEAD_BYTES: usize = 8 << 10;
/// Shortest token: what is shorter is guessed.
const SHORTEST_TOKEN: usize = 16;

const TOKEN_PROOF: &[u8] = b"forebay metrics";

/// Listens where it is allowed: beyond this machine with a token alone. `doing` is for errors.
pub(crate) fn bind(options: &MetricsOptions, doing: &str) -> Result<(TcpListener, SocketAddr)> {
    let listen = &options.listen;
    let mut addresses = listen
        .to_socket_addrs()
        .map_err(|error| Error::invalid_config(doing.to_owned()).with_source(error))?;
    let address = addresses.next();
    let address = address.ok_or_else(|| Error::invalid_config(format!("{doing}: no such address")))?;
    match &options.token {
        None if !address.ip().is_loopback() => {
            let why = format!("{doing}: others than this machine could read them");
            return Err(Error::invalid_config(why)
                .with_hint("listen on 127.0.0.1, or give a file with a token that readers must show"));
        }
        Some(token) if token.len() < SHORTEST_TOKEN => {
            let why = format!("{doing}: the token has {} bytes, give at least {SHORTEST_TOKEN}", token.len());
            return Err(Error::invalid_config(why));
        }
        _ => {}
    }
    let listener = TcpListener::bind(address).map_err(|error| Error::io(doing.to_owned(), error))?;
    let address = listener.local_addr().map_err(|error| Error::io(doing.to_owned(), error))?;
    Ok((listener, address))
}

/// Wakes whoever waits for a connection at `address`; whether that went well.
pub(crate) fn wake(address: SocketAddr) -> bool {
    let ip = match address.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    TcpStream::connect_timeout(&(ip, address.port()).into(), REQUEST_TIME).is_ok()
}

/// Who is let in.
#[derive(Clone)]
pub(crate) struct Guard(Option<hmac::Key>);

impl Guard {
    /// Those who show the token; without one everybody.
    pub(crate) fn new(token: Option<&str>) -> Self {
        Self(token.map(|token| hmac::Key::new(hmac::HMAC_SHA256, token.as_bytes())))
    }

    /// Whether a token is asked for.
    pub(crate) fn asks(&self) -> bool {
        self.0.is_some()
    }

    /// Whether this request may be answered.
    pub(crate) fn lets_in(&self, request: &Request<'_>) -> bool {
        let Some(key) = &self.0 else { return true };
        let shown = request.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
        // Compared by keyed hashes: how long that takes tells nothing about the token.
        let expected = hmac::sign(key, TOKEN_PROOF);
        shown.is_some_and(|token| {
            let theirs = hmac::Key::new(hmac::HMAC_SHA256, token.trim().as_bytes());
            hmac::verify(&theirs, TOKEN_PROOF, expected.as_ref()).is_ok()
        })
    }
}

/// The head of a request.
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    /// Without what follows a question mark.
    pub(crate) path: &'a str,
    headers: &'a str,
}

impl<'a> Request<'a> {
    /// None when it is no request of HTTP/1.
    pub(crate) fn read(head: &'a str) -> Option<Self> {
        let (line, headers) = head.split_once("\r\n").unwrap_or((head, ""));
        let mut words = line.split(' ');
        let (method, target, version) = (words.next()?, words.next()?, words.next()?);
        let fine = words.next().is_none() && version.starts_with("HTTP/1.");
        fine.then(|| Self { method, path: target.split('?').next().unwrap_or_default(), headers })
    }

    /// The first header of that name.
    pub(crate) fn header(&self, name: &str) -> Option<&'a str> {
        let mut lines = self.headers.split("\r\n").filter_map(|line| line.split_once(':'));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    /// Whether it was asked of this machine by a name that nobody else can give it.
    pub(crate) fn is_for_loopback(&self) -> bool {
        let Some(host) = self.header("host") else { return true };
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        };
        let name = name.trim_start_matches('[').trim_end_matches(']');
        name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }
}

/// The head without its last empty line; `None` when it is too long or not text.
pub(crate) fn read_head(stream: &mut TcpStream, until: Instant) -> std::io::Result<Option<String>> {
    let mut head = Vec::with_capacity(512);
    let mut part = [0; 1024];
    loop {
        if let Some(end) = head.windows(4).position(|four| four == b"\r\n\r\n") {
            head.truncate(end);
            return Ok(String::from_utf8(head).ok());
        }
        if head.len() >= HEAD_BYTES {
            return Ok(None);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut part)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            read => head.extend(&part[..read]),
        }
    }
}

/// An answer with all its body, after which the connection ends. `more` are further headers, each with its line end.
pub(crate) fn write_answer(
    stream: &mut TcpStream,
    status: &str,
    (kind, more): (&str, &str),
    body: &str,
    with_body: bool,
) -> std::io::Result<()> {
    let challenge = if status.starts_with("401") { "WWW-Authenticate: Bearer\r\n" } else { "" };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{challenge}{more}Connection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    if with_body {
        stream.write_all(body.as_bytes())?;
    }
    stream.flush()
}

/// What is answered to a head that was too long or no text.
pub(crate) const TOO_LONG: &str = "431 Request Header Fields Too Large";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_or_refused() {
        let request = Request::read("GET /a?b=c HTTP/1.1\r\nHost: x\r\nX-Y:  z ").unwrap();
        assert_eq!((request.method, request.path), ("GET", "/a"));
        assert_eq!(
            (request.header("x-y"), request.header("host"), request.header("q")),
            (Some("z"), Some("x"), None)
        );
        for nonsense in ["", "GET /", "GET / SPDY/3", "GET / HTTP/1.1 more"] {
            assert!(Request::read(nonsense).is_none(), "{nonsense}");
        }
    }

    #[test]
    fn only_names_of_this_machine_are_its_own() {
        let own =
            |host: &str| Request::read(&format!("GET / HTTP/1.1\r\nHost: {host}")).unwrap().is_for_loopback();
        for host in ["localhost", "LOCALHOST:80", "127.0.0.1:9", "127.9.9.9", "[::1]:80", "[::1]"] {
            assert!(own(host), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:9464",
            "10.0.0.1",
            "localhost.evil.example",
            "",
            "127.0.0.1.nip.io:80",
        ] {
            assert!(!own(host), "{host}");
        }
        assert!(Request::read("GET / HTTP/1.0").unwrap().is_for_loopback());
    }
}
