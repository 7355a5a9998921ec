//! The head of an answer: status, headers, and what they say about the body that follows.
//!
//! Bytes come from outside, so the head is bounded in bytes and headers, and every number in it is checked. Where a
//! server contradicts itself (two lengths, a length and chunks) the connection is not used again or the answer refused.

use bytes::Bytes;
use std::ops::Range;

/// No head is longer.
pub const MOST_HEAD_BYTES: usize = 64 << 10;
/// No head has more headers.
pub const MOST_HEADERS: usize = 128;

/// Headers of an answer, found without regard to case. They share the bytes they came in.
#[derive(Clone, Default)]
pub struct Headers {
    bytes: Bytes,
    /// Name and value of each, as offsets.
    spans: Vec<(Range<usize>, Range<usize>)>,
}

impl Headers {
    /// The first header of that name, if its value is text.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// Every header of that name whose value is text, in order.
    pub fn all<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        let found = move |(key, value): &(Range<usize>, Range<usize>)| {
            let same = self.bytes.get(key.clone())?.eq_ignore_ascii_case(name.as_bytes());
            same.then(|| self.bytes.get(value.clone())).flatten()
        };
        self.spans.iter().filter_map(found).filter_map(|value| std::str::from_utf8(value).ok()).map(str::trim)
    }

    /// Name and value of each header whose value is text, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let text = |span: &Range<usize>| std::str::from_utf8(self.bytes.get(span.clone())?).ok();
        self.spans.iter().filter_map(move |(name, value)| Some((text(name)?, text(value)?.trim())))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The place of the body in the object: `Content-Range`.
    pub fn content_range(&self) -> Option<ContentRange> {
        ContentRange::parse(self.get("content-range")?)
    }

    /// The length in `Content-Length`, when it is a number.
    pub fn content_length(&self) -> Option<u64> {
        number(self.get("content-length")?)
    }
}

impl std::fmt::Debug for Headers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Values may be secrets (cookies, signed addresses).
        let names = self.spans.iter().filter_map(|(name, _)| self.bytes.get(name.clone()));
        f.debug_list().entries(names.map(String::from_utf8_lossy)).finish()
    }
}

/// `Content-Range`: which bytes these are, and of how many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentRange {
    /// The bytes that follow; `None` where the server only tells the size (`bytes */9`).
    pub range: Option<Range<u64>>,
    /// Size of the whole object, when it is told.
    pub total: Option<u64>,
}

impl ContentRange {
    fn parse(text: &str) -> Option<Self> {
        let (range, total) = text.strip_prefix("bytes")?.trim_start().split_once('/')?;
        let total = if total.trim() == "*" { None } else { Some(number(total.trim())?) };
        let range = match range.trim() {
            "*" => None,
            range => {
                let (first, last) = range.split_once('-')?;
                let (first, end) = (number(first.trim())?, number(last.trim())?.checked_add(1)?);
                Some(first..end)
                    .filter(|range| range.start < range.end)
                    .filter(|range| total.is_none_or(|total| range.end <= total))
                    .map(Some)?
            }
        };
        Some(Self { range, total })
    }
}

/// How the end of a body is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// So many bytes.
    Length(u64),
    /// Chunks that say their lengths.
    Chunked,
    /// Until the connection closes.
    UntilClose,
}

/// A head, read.
#[derive(Clone, Debug)]
pub struct Head {
    /// 100 to 999.
    pub status: u16,
    /// All headers.
    pub headers: Headers,
    /// How the body ends.
    pub framing: Framing,
    /// Whether the connection may carry another request.
    pub keep_alive: bool,
}

/// The length of the head at the start of `bytes`, when all of it is there. `from` is where the last search ended.
pub fn end(bytes: &[u8], from: usize) -> Option<usize> {
    let start = from.saturating_sub(3);
    let tail = bytes.get(start..)?;
    let newline = |(at, byte): (usize, &u8)| (*byte == b'\n').then_some(at);
    tail.iter().enumerate().filter_map(newline).find_map(|at| match tail.get(at + 1..) {
        Some([b'\n', ..]) => Some(start + at + 2),
        Some([b'\r', b'\n', ..]) => Some(start + at + 3),
        _ => None,
    })
}

/// Reads the head that is all of `bytes`. The error says what is wrong with it.
pub fn parse(bytes: &Bytes) -> Result<Head, String> {
    let mut slots = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut parsed = httparse::Response::new(&mut slots);
    match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return Err("its head ends early".to_owned()),
        Err(httparse::Error::TooManyHeaders) => {
            return Err(format!("it has more than {MOST_HEADERS} headers"));
        }
        Err(error) => return Err(format!("its head is not HTTP/1 ({error})")),
    }
    let status = parsed.code.filter(|code| (100..1000).contains(code)).ok_or("it has no status")?;
    let modern = parsed.version == Some(1);
    let base = bytes.as_ptr() as usize;
    let span = |part: &[u8]| {
        let start = (part.as_ptr() as usize).saturating_sub(base);
        start..start + part.len()
    };
    let spans =
        parsed.headers.iter().map(|header| (span(header.name.as_bytes()), span(header.value))).collect();
    let headers = Headers { bytes: bytes.clone(), spans };
    let (framing, certain) = framing(&headers)?;
    let says = |word: &str| {
        headers
            .all("connection")
            .flat_map(|value| value.split(','))
            .any(|part| part.trim().eq_ignore_ascii_case(word))
    };
    let keep_alive =
        certain && framing != Framing::UntilClose && !says("close") && (modern || says("keep-alive"));
    Ok(Head { status, headers, framing, keep_alive })
}

/// How the body ends, and whether the server said so without contradicting itself.
fn framing(headers: &Headers) -> Result<(Framing, bool), String> {
    let mut length = None;
    for value in headers.all("content-length") {
        let found = number(value).ok_or_else(|| format!("its Content-Length is `{}`", shorten(value)))?;
        if length.is_some_and(|length| length != found) {
            return Err("it has two different Content-Lengths".to_owned());
        }
        length = Some(found);
    }
    let mut codings = headers.all("transfer-encoding").flat_map(|value| value.split(',')).map(str::trim);
    match (codings.next(), codings.next()) {
        (None, _) => Ok((length.map_or(Framing::UntilClose, Framing::Length), true)),
        (Some(coding), None) if coding.eq_ignore_ascii_case("chunked") => {
            Ok((Framing::Chunked, length.is_none()))
        }
        (Some(coding), _) => Err(format!("its Transfer-Encoding is `{}`", shorten(coding))),
    }
}

/// Digits only: no sign, no blanks, nothing that overflows.
pub(crate) fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

fn shorten(text: &str) -> String {
    text.chars().take(40).map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<Head, String> {
        parse(&Bytes::copy_from_slice(text.as_bytes()))
    }

    #[test]
    fn what_a_head_says_about_its_body_is_found() {
        let head =
            read("HTTP/1.1 206 Partial Content\r\ncontent-LENGTH: 7\r\nContent-Range: bytes 2-8/10\r\n\r\n")
                .unwrap();
        assert_eq!((head.status, head.framing, head.keep_alive), (206, Framing::Length(7), true));
        assert_eq!(head.headers.content_range(), Some(ContentRange { range: Some(2..9), total: Some(10) }));
        let head = read("HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n").unwrap();
        assert_eq!((head.framing, head.keep_alive), (Framing::Chunked, true));
        let head =
            read("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
        assert_eq!((head.framing, head.keep_alive), (Framing::Chunked, false));
        assert!(
            !read("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: x, Close\r\n\r\n").unwrap().keep_alive
        );
        assert!(!read("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap().keep_alive);
        assert_eq!(read("HTTP/1.1 200 OK\r\n\r\n").unwrap().framing, Framing::UntilClose);
    }

    #[test]
    fn heads_that_lie_are_refused() {
        for bad in [
            "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
            "HTTP/2 200\r\n\r\n",
            "HTTP/1.1 99 Low\r\n\r\n",
            "\r\n\r\n",
        ] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
        let many = "a: b\r\n".repeat(MOST_HEADERS + 1);
        assert!(read(&format!("HTTP/1.1 200 OK\r\n{many}\r\n")).unwrap_err().contains("128"));
        for bad in [
            "bytes 5-2/10",
            "bytes 0-10/10",
            "bytes -1-2/3",
            "bytes 0-1",
            "items 0-1/2",
            "bytes 0-18446744073709551615/*",
        ] {
            assert_eq!(ContentRange::parse(bad), None, "{bad}");
        }
        assert_eq!(ContentRange::parse("bytes */7"), Some(ContentRange { range: None, total: Some(7) }));
    }

    #[test]
    fn the_end_of_a_head_is_found_wherever_the_reads_were_cut() {
        let bytes = b"HTTP/1.1 200 OK\r\na: b\r\n\r\nbody";
        for from in 0..25 {
            assert_eq!(end(bytes, from), Some(25), "{from}");
        }
        assert_eq!((end(b"a\n\nb", 0), end(b"a\r\n", 0), end(b"", 9)), (Some(3), None, None));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), from in 0usize..400) {
            let _ = end(&bytes, from);
            let _ = parse(&Bytes::from(bytes.clone()));
            let mut almost = b"HTTP/1.1 200 OK\r\nContent-Range: ".to_vec();
            almost.extend(bytes);
            almost.extend(b"\r\n\r\n");
            if let Ok(head) = parse(&Bytes::from(almost)) {
                let _ = (head.headers.content_range(), head.headers.content_length(), format!("{head:?}"));
            }
        }
    }
}
