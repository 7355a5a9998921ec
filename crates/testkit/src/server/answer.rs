//! Answers to the wire: a head and the right bytes in one write, or the wrong ones when the script says so.

use super::Shared;
use super::objects::{Body, Page, pattern};
use super::script::{Act, Fault};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, IoSlice, Read, Seek, SeekFrom, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Objects do not change by themselves, so one date serves all.
pub(super) const DATE: &str = "Thu, 01 Jan 2026 00:00:00 GMT";
const DATE_ISO: &str = "2026-01-01T00:00:00.000Z";

/// The head of an answer.
pub(super) struct Head {
    text: String,
}

impl Head {
    pub(super) fn new(status: u16) -> Self {
        let reason = match status {
            200 => "OK",
            204 => "No Content",
            206 => "Partial Content",
            403 => "Forbidden",
            404 => "Not Found",
            412 => "Precondition Failed",
            416 => "Range Not Satisfiable",
            429 => "Too Many Requests",
            503 => "Service Unavailable",
            _ => "Status",
        };
        Self { text: format!("HTTP/1.1 {status} {reason}\r\n") }
    }

    pub(super) fn with(mut self, name: &str, value: impl std::fmt::Display) -> Self {
        // Writing to a `String` cannot go wrong.
        let _ = write!(self.text, "{name}: {value}\r\n");
        self
    }

    fn finish(mut self, bytes: u64) -> String {
        let _ = write!(self.text, "content-length: {bytes}\r\n\r\n");
        self.text
    }
}

/// How the body shall go out.
pub(super) struct Sending<'a> {
    pub(super) shared: &'a Shared,
    pub(super) stream: &'a TcpStream,
    pub(super) act: Act,
    /// `HEAD`: the length is stated, nothing follows.
    pub(super) bodiless: bool,
}

/// Bytes written at once when a body has to be slow or wrong.
const SLOW_PIECE: usize = 16 << 10;

impl Sending<'_> {
    /// A short answer that the server wrote itself.
    pub(super) fn text(&self, head: Head, text: &str) -> io::Result<()> {
        let head = head.finish(text.len() as u64);
        let body = if self.bodiless { "" } else { text };
        self.shared.bytes.fetch_add(body.len() as u64, Relaxed);
        write_all(self.stream, head.as_bytes(), body.as_bytes())
    }

    /// Bytes `first..first + bytes` of an object.
    pub(super) fn object(&self, head: Head, body: &Body, first: u64, bytes: u64) -> io::Result<()> {
        let head = head.finish(bytes);
        if self.bodiless {
            return write_all(self.stream, head.as_bytes(), b"");
        }
        let plain = self.act.bytes_per_second == 0
            && !matches!(self.act.fault, Some(Fault::Truncate(_) | Fault::Corrupt(_)));
        match body {
            Body::File { path, .. } if plain => {
                write_all(self.stream, head.as_bytes(), b"")?;
                let mut file = File::open(path.as_path())?;
                file.seek(SeekFrom::Start(first))?;
                // The kernel copies from file to socket by itself here.
                let sent = io::copy(&mut file.take(bytes), &mut &*self.stream)?;
                self.shared.bytes.fetch_add(sent, Relaxed);
                if sent == bytes { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
            }
            _ if plain => self.pieces(head.as_bytes(), body, first, bytes, usize::MAX),
            _ => self.pieces(head.as_bytes(), body, first, bytes, SLOW_PIECE),
        }
    }

    fn pieces(&self, head: &[u8], body: &Body, first: u64, bytes: u64, most: usize) -> io::Result<()> {
        let (mut head, mut done) = (head, 0);
        let began = Instant::now();
        let end = match self.act.fault {
            Some(Fault::Truncate(at)) => at.min(bytes),
            _ => bytes,
        };
        while done < end || !head.is_empty() {
            let room = (end - done).min(most as u64) as usize;
            let changed = self.changed(body, first + done, room, done)?;
            let piece = match (&changed, body) {
                (Some(changed), _) => changed.as_slice(),
                (None, Body::Generated { start, .. }) => pattern(*start, first + done, room),
                (None, Body::Memory(kept)) => &kept[(first + done) as usize..][..room],
                (None, Body::File { .. }) => &[],
            };
            write_all(self.stream, head, piece)?;
            head = b"";
            done += piece.len() as u64;
            self.shared.bytes.fetch_add(piece.len() as u64, Relaxed);
            if self.act.bytes_per_second > 0 {
                let due = Duration::from_secs_f64(done as f64 / self.act.bytes_per_second as f64);
                if !self.shared.pause(due.saturating_sub(began.elapsed())) {
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
            }
        }
        if end < bytes { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
    }

    /// The piece as bytes of its own, when it lies in a file or one of its bytes is to be wrong.
    fn changed(&self, body: &Body, from: u64, room: usize, done: u64) -> io::Result<Option<Vec<u8>>> {
        let wrong = match self.act.fault {
            Some(Fault::Corrupt(at)) => at.checked_sub(done).filter(|at| *at < room as u64),
            _ => None,
        };
        let mut piece = match body {
            Body::File { path, .. } => {
                let mut file = File::open(path.as_path())?;
                file.seek(SeekFrom::Start(from))?;
                let mut piece = vec![0; room];
                file.read_exact(&mut piece)?;
                piece
            }
            _ if wrong.is_none() => return Ok(None),
            Body::Generated { start, .. } => pattern(*start, from, room).to_vec(),
            Body::Memory(kept) => kept[from as usize..][..room].to_vec(),
        };
        if let Some(byte) = wrong.and_then(|at| piece.get_mut(at as usize)) {
            *byte = !*byte;
        }
        Ok(Some(piece))
    }
}

fn write_all(mut stream: &TcpStream, mut head: &[u8], mut body: &[u8]) -> io::Result<()> {
    while !head.is_empty() || !body.is_empty() {
        let count = stream.write_vectored(&[IoSlice::new(head), IoSlice::new(body)])?;
        if count == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        let of_head = count.min(head.len());
        head = &head[of_head..];
        body = &body[count - of_head..];
    }
    Ok(())
}

/// The XML of one page of `ListObjectsV2`.
pub(super) fn listing(page: &Page<'_>, prefix: &str, most: usize, url_encoded: bool) -> String {
    let name = |text: &str| if url_encoded { escape_url(text) } else { escape_xml(text) };
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    xml.push_str("<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");
    let mut put = |tag: &str, value: &str| {
        let _ = write!(xml, "<{tag}>{value}</{tag}>");
    };
    put("Name", super::BUCKET);
    put("Prefix", &name(prefix));
    put("MaxKeys", &most.to_string());
    put("KeyCount", &(page.objects.len() + page.prefixes.len()).to_string());
    put("IsTruncated", if page.next.is_some() { "true" } else { "false" });
    if url_encoded {
        put("EncodingType", "url");
    }
    if let Some(next) = &page.next {
        // A token is opaque to clients; this one may hold any character, so it is made of plain ones.
        put("NextContinuationToken", &escape_url(next));
    }
    for (key, body) in &page.objects {
        let (key, tag, bytes) = (name(key), escape_xml(&body.tag()), body.bytes());
        put(
            "Contents",
            &format!(
                "<Key>{key}</Key><LastModified>{DATE_ISO}</LastModified><ETag>{tag}</ETag><Size>{bytes}</Size>\
                 <StorageClass>STANDARD</StorageClass>"
            ),
        );
    }
    for prefix in &page.prefixes {
        put("CommonPrefixes", &format!("<Prefix>{}</Prefix>", name(prefix)));
    }
    xml.push_str("</ListBucketResult>");
    xml
}

/// The XML of a refusal.
pub(super) fn refusal(code: &str, key: &str) -> String {
    let key = escape_xml(key);
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>scripted or missing</Message>\
         <Key>{key}</Key></Error>"
    )
}

fn escape_xml(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn escape_url(text: &str) -> String {
    let mut url = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~/".contains(&byte) {
            url.push(byte.into());
        } else {
            let _ = write!(url, "%{byte:02X}");
        }
    }
    url
}
