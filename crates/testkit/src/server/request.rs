//! Requests from the wire: heads within a limit, percent signs undone, ranges understood.

use std::io::{self, Read};
use std::net::TcpStream;

/// Longest head of a request.
const HEAD_BYTES: usize = 16 << 10;
/// Longest body of a `PUT`.
const BODY_BYTES: u64 = 256 << 20;

/// Says that the checksum of the object is wanted.
pub(super) const CHECKSUM_MODE: &str = "x-amz-checksum-mode";

/// A request without its body.
#[derive(Debug, Default)]
pub(super) struct Request {
    pub(super) method: String,
    /// The path without its first slash, percent signs undone.
    pub(super) path: String,
    pub(super) query: Vec<(String, String)>,
    pub(super) range: Option<String>,
    /// The checksum that comes with an object of S3, as a header, or [`CHECKSUM_MODE`], which asks for it.
    pub(super) checksum: Option<(String, String)>,
    pub(super) body_bytes: u64,
    pub(super) only_new: bool,
    pub(super) expects: bool,
    pub(super) closes: bool,
}

impl Request {
    pub(super) fn word(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(word, _)| word == name).map(|(_, value)| value.as_str())
    }
}

/// Reads one request; `None` when the client is done. Bytes behind the head stay in `buffer`.
pub(super) fn read(mut stream: &TcpStream, buffer: &mut Vec<u8>) -> io::Result<Option<Request>> {
    loop {
        if let Some((request, head)) = parse(buffer)? {
            buffer.drain(..head);
            return Ok(Some(request));
        }
        if buffer.len() >= HEAD_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the head of a request is too long"));
        }
        let known = buffer.len();
        buffer.resize(known + (4 << 10), 0);
        let count = stream.read(&mut buffer[known..]);
        buffer.truncate(known + count.as_ref().copied().unwrap_or(0));
        if count? == 0 {
            return Ok(None);
        }
    }
}

/// Reads the body that belongs to `request`.
pub(super) fn body(mut stream: &TcpStream, buffer: &mut Vec<u8>, request: &Request) -> io::Result<Vec<u8>> {
    if request.body_bytes > BODY_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the body of a request is too long"));
    }
    let mut body: Vec<u8> = buffer.drain(..buffer.len().min(request.body_bytes as usize)).collect();
    let missing = request.body_bytes - body.len() as u64;
    (&mut stream).take(missing).read_to_end(&mut body)?;
    if body.len() as u64 == request.body_bytes { Ok(body) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

fn parse(buffer: &[u8]) -> io::Result<Option<(Request, usize)>> {
    let wrong = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_string());
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut head = httparse::Request::new(&mut headers);
    let length = match head.parse(buffer).map_err(|fault| wrong(&fault.to_string()))? {
        httparse::Status::Complete(length) => length,
        httparse::Status::Partial => return Ok(None),
    };
    let (path, query) = head.path.unwrap_or("/").split_once('?').unwrap_or((head.path.unwrap_or("/"), ""));
    let query = query.split('&').filter(|word| !word.is_empty());
    let mut request = Request {
        method: head.method.unwrap_or_default().into(),
        path: unescape(path.trim_start_matches('/'), false),
        query: query
            .map(|word| word.split_once('=').unwrap_or((word, "")))
            .map(|(name, value)| (unescape(name, true), unescape(value, true)))
            .collect(),
        closes: head.version == Some(0),
        ..Request::default()
    };
    for header in head.headers.iter() {
        let value = std::str::from_utf8(header.value).map_err(|_| wrong("a header is not text"))?.trim();
        match header.name.to_ascii_lowercase().as_str() {
            name if name.starts_with("x-amz-checksum-") => {
                request.checksum = Some((name.into(), value.into()));
            }
            "range" => request.range = Some(value.into()),
            "content-length" => {
                request.body_bytes = value.parse().map_err(|_| wrong("the length of a body is no number"))?;
            }
            "if-none-match" => request.only_new = value == "*",
            "expect" => request.expects = true,
            "connection" => request.closes = value.eq_ignore_ascii_case("close"),
            "transfer-encoding" => return Err(wrong("bodies need a stated length")),
            _ => {}
        }
    }
    Ok(Some((request, length)))
}

/// First and last byte that a `Range` header asks for. `None` serves the whole object, as HTTP wants for what is not
/// understood; `Err` is a range behind the end.
pub(super) fn range(header: &str, bytes: u64) -> Result<Option<(u64, u64)>, ()> {
    let Some((first, last)) = header.strip_prefix("bytes=").and_then(|range| range.split_once('-')) else {
        return Ok(None);
    };
    let (first, last) = (first.trim(), last.trim());
    if first.is_empty() {
        return match last.parse::<u64>() {
            Ok(0) => Err(()),
            Ok(_) if bytes == 0 => Err(()),
            Ok(suffix) => Ok(Some((bytes.saturating_sub(suffix), bytes - 1))),
            Err(_) => Ok(None),
        };
    }
    let Ok(first) = first.parse::<u64>() else { return Ok(None) };
    if first >= bytes {
        return Err(());
    }
    let last = if last.is_empty() { Ok(u64::MAX) } else { last.parse::<u64>() };
    Ok(last.ok().filter(|last| *last >= first).map(|last| (first, last.min(bytes - 1))))
}

/// A continuation token as `listing` made it.
pub(super) fn unescape_token(token: &str) -> String {
    unescape(token, false)
}

fn unescape(text: &str, plus_is_space: bool) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind;
        let digits = behind.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        match (byte, digits.and_then(|two| u8::from_str_radix(two, 16).ok())) {
            (b'%', Some(value)) => {
                bytes.push(value);
                rest = &behind[2..];
            }
            (b'+', _) if plus_is_space => bytes.push(b' '),
            _ => bytes.push(*byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_http_wants() {
        assert_eq!(range("bytes=0-0", 10), Ok(Some((0, 0))));
        assert_eq!(range("bytes=3-", 10), Ok(Some((3, 9))));
        assert_eq!(range("bytes=-4", 10), Ok(Some((6, 9))));
        assert_eq!(range("bytes=-40", 10), Ok(Some((0, 9))));
        assert_eq!(range("bytes=8-99", 10), Ok(Some((8, 9))));
        assert_eq!(range("bytes=10-", 10), Err(()));
        assert_eq!(range("bytes=-0", 10), Err(()));
        for odd in ["bytes=5-2", "bytes=0-1,4-5", "lines=1-2", "bytes=x-y"] {
            assert_eq!(range(odd, 10), Ok(None), "{odd}");
        }
    }

    #[test]
    fn paths_and_queries_lose_their_percent_signs() {
        let head = b"GET /bucket/a%20b%2Fc+d?prefix=x%2By+z&list-type=2&flag HTTP/1.1\r\nHost: h\r\n\r\nrest";
        let (request, length) = parse(head).unwrap().unwrap();
        assert_eq!(&head[length..], b"rest");
        assert_eq!(request.path, "bucket/a b/c+d");
        assert_eq!(request.word("prefix"), Some("x+y z"));
        assert_eq!((request.word("flag"), request.word("none")), (Some(""), None));
        assert_eq!(unescape("%zz%4", false), "%zz%4", "what is no escape stays");
        assert!(parse(b"\x00\x01\x02\r\n\r\n").is_err());
    }
}
