//! One request and its answer on one connection.
//!
//! Nothing here knows about pools, redirects or retries: it writes a head and a body, reads a head and a body, and
//! says how far it came when that breaks.

use super::body::{Cut, HeadCut, Source};
use super::client::HttpRequest;
use super::connection::{Connection, Stream, broken, ended_early, no_answer};
use super::head::{self, Framing, Head, Headers};
use bytes::BytesMut;
use forebay_core::{Error, Result};
use std::fmt::Write;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

/// Of an answer that is no success; what is longer is not read.
const MOST_ERROR_BYTES: u64 = 64 << 10;
/// A body of this size goes out in one write with its head.
const JOINED_BYTES: usize = 16 << 10;
/// How long a server may think about `Expect: 100-continue`; afterwards the body is sent unasked.
const CONTINUE_WAIT: Duration = Duration::from_secs(1);
/// Interim answers before the real one.
const MOST_INTERIM: usize = 16;

/// How many bytes of a body are taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Of 206: the range asked for.
    pub(crate) part: u64,
    /// Of other successes.
    pub(crate) whole: u64,
}

/// What came back. The body is in the buffer that was given.
#[derive(Debug)]
pub(crate) struct Exchanged {
    pub(crate) status: u16,
    pub(crate) headers: Headers,
    /// Why the body is not whole.
    pub(crate) cut: Option<Error>,
    /// Whether the connection can carry another request.
    pub(crate) reusable: bool,
}

/// There was no answer.
#[derive(Debug)]
pub(crate) struct Unanswered {
    pub(crate) error: Error,
    /// Not a byte came back: an idle connection that the server had closed looks like this.
    pub(crate) early: bool,
}

/// Sends `request` and appends the body of the answer to `into`.
pub(crate) async fn exchange(
    connection: &mut Connection,
    request: &HttpRequest<'_>,
    limits: Limits,
    silence: Duration,
    into: &mut BytesMut,
) -> Result<Exchanged, Unanswered> {
    let is_tls = matches!(connection.stream, Stream::Tls(_));
    over(&mut connection.stream, &mut connection.ahead, is_tls, request, limits, silence, into).await
}

async fn over<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    ahead: &mut BytesMut,
    is_tls: bool,
    request: &HttpRequest<'_>,
    limits: Limits,
    silence: Duration,
    into: &mut BytesMut,
) -> Result<Exchanged, Unanswered> {
    let mut text = head_of(request).map_err(|error| Unanswered { error, early: false })?;
    let waits = request.header("expect").is_some();
    let mut rest: &[u8] = &request.body;
    if !waits && rest.len() <= JOINED_BYTES {
        text.extend_from_slice(rest);
        rest = &[];
    }
    let mut written = write(stream, &text, silence).await;
    let mut source = Source { stream, ahead, silence, is_tls };
    let mut answer = None;
    if waits && written.is_ok() && !rest.is_empty() {
        answer = may_go_on(&mut source).await?;
        if answer.is_some() {
            rest = &[];
            written = Err(io::ErrorKind::Interrupted.into());
        }
    }
    if written.is_ok() && !rest.is_empty() {
        written = write(source.stream, rest, silence).await;
    }
    // A server may answer, and refuse, before it has read everything: so its answer counts even if writing broke.
    let head = match answer {
        Some(head) => head,
        None => match final_head(&mut source).await {
            Ok(head) => head,
            Err(unanswered) => match written {
                Err(error) if unanswered.early => {
                    return Err(Unanswered {
                        error: ended_early("send the request".to_owned(), error),
                        early: true,
                    });
                }
                _ => return Err(unanswered),
            },
        },
    };
    let sent = written.is_ok();
    let bodyless = request.method.is_head() || matches!(head.status, 204 | 304);
    let framing = if bodyless { Framing::Length(0) } else { head.framing };
    let success = (200..300).contains(&head.status);
    let limit = match head.status {
        206 => limits.part,
        200..300 => limits.whole,
        _ => MOST_ERROR_BYTES,
    };
    let body = source.body(framing, limit, into).await;
    let reusable = sent && body.is_ok() && (head.keep_alive || bodyless && !says_close(&head.headers));
    let reusable = reusable && source.ahead.is_empty();
    // The body of a refusal is only good for a message: half of it will do.
    let cut = body.err().filter(|_| success).map(|cut| describe(cut, limit));
    Ok(Exchanged { status: head.status, headers: head.headers, cut, reusable })
}

/// After `Expect: 100-continue`: the final answer, if the server does not want the body.
async fn may_go_on<S: AsyncRead + Unpin>(source: &mut Source<'_, S>) -> Result<Option<Head>, Unanswered> {
    for _ in 0..MOST_INTERIM {
        let Ok(head) = timeout(CONTINUE_WAIT, source.head()).await else { return Ok(None) };
        match parsed(head)? {
            head if head.status == 100 => return Ok(None),
            head if head.status >= 200 => return Ok(Some(head)),
            _ => {}
        }
    }
    Err(malformed("it never ends its interim answers"))
}

async fn final_head<S: AsyncRead + Unpin>(source: &mut Source<'_, S>) -> Result<Head, Unanswered> {
    for _ in 0..MOST_INTERIM {
        let head = parsed(source.head().await)?;
        if head.status >= 200 {
            return Ok(head);
        }
        if head.status == 101 {
            return Err(malformed("it changes the protocol unasked"));
        }
    }
    Err(malformed("it never ends its interim answers"))
}

fn parsed(head: Result<bytes::Bytes, HeadCut>) -> Result<Head, Unanswered> {
    match head {
        Ok(bytes) => head::parse(&bytes).map_err(|why| malformed(&why)),
        Err(HeadCut::Early(error)) => {
            let message = "the connection ended before the answer".to_owned();
            Err(Unanswered { error: ended_early(message, error), early: true })
        }
        Err(HeadCut::Cut(Cut::Silent(after))) => {
            Err(Unanswered { error: Error::unavailable(no_answer(after)), early: false })
        }
        Err(HeadCut::Cut(Cut::Broken(error))) => {
            let message = "the connection ended inside the head of the answer".to_owned();
            Err(Unanswered { error: broken(message, error), early: false })
        }
        Err(HeadCut::Cut(_)) => Err(malformed("its head makes no sense")),
        Err(HeadCut::Endless) => {
            Err(malformed(&format!("its head is longer than {} bytes", head::MOST_HEAD_BYTES)))
        }
    }
}

fn malformed(why: &str) -> Unanswered {
    Unanswered { error: Error::corrupt(format!("the answer makes no sense: {why}")), early: false }
}

fn describe(cut: Cut, limit: u64) -> Error {
    match cut {
        Cut::Broken(error) => broken("the connection ended inside the body".to_owned(), error),
        Cut::Silent(after) => {
            Error::unavailable(format!("no byte in {:.1} s, in the middle of the body", after.as_secs_f64()))
        }
        Cut::TooLong(Some(length)) => {
            Error::corrupt(format!("the server sends {length} bytes where at most {limit} were asked for"))
        }
        Cut::TooLong(None) => {
            Error::corrupt(format!("the server sends more than the {limit} bytes asked for"))
        }
        Cut::Malformed(why) => Error::corrupt(format!("the body makes no sense: {why}")),
    }
}

fn says_close(headers: &Headers) -> bool {
    headers.all("connection").any(|value| value.to_ascii_lowercase().contains("close"))
}

/// The head as bytes. Names and values that would end a line and begin another are refused.
fn head_of(request: &HttpRequest<'_>) -> Result<Vec<u8>> {
    let url = request.url;
    let mut text = String::with_capacity(512);
    let _ = write!(text, "{} {}", request.method.name(), url.path());
    if let Some(query) = url.query() {
        let _ = write!(text, "?{query}");
    }
    text.push_str(" HTTP/1.1\r\n");
    if request.header("host").is_none() {
        let _ = write!(text, "host: {}", url.host_str().unwrap_or_default());
        if let Some(port) = url.port() {
            let _ = write!(text, ":{port}");
        }
        text.push_str("\r\n");
    }
    if request.header("user-agent").is_none() {
        text.push_str(concat!("user-agent: forebay/", env!("CARGO_PKG_VERSION"), "\r\n"));
    }
    for (name, value) in request.headers {
        if name.eq_ignore_ascii_case("content-length") {
            continue;
        }
        let plain = |byte: u8| byte == b'\t' || (byte >= 0x20 && byte != 0x7f);
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':') {
            return Err(Error::invalid_config(format!("send header `{}`: not a name", name.escape_debug())));
        }
        if !value.bytes().all(plain) {
            return Err(Error::invalid_config(format!(
                "send header `{name}`: its value has control characters"
            )));
        }
        let _ = write!(text, "{name}: {value}\r\n");
    }
    if !request.body.is_empty() || request.method.has_body() {
        let _ = write!(text, "content-length: {}\r\n", request.body.len());
    }
    text.push_str("\r\n");
    Ok(text.into_bytes())
}

/// Writes everything; no progress for `silence` is a failure.
async fn write<S: AsyncWrite + Unpin>(stream: &mut S, mut bytes: &[u8], silence: Duration) -> io::Result<()> {
    let stuck = || io::Error::new(io::ErrorKind::TimedOut, "the server takes no bytes");
    while !bytes.is_empty() {
        let taken = timeout(silence, stream.write(bytes)).await.map_err(|_| stuck())??;
        if taken == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        bytes = &bytes[taken..];
    }
    timeout(silence, stream.flush()).await.map_err(|_| stuck())?
}

#[cfg(test)]
mod tests;
