//! The bytes behind a head: read into one buffer, never more of them than were asked for.
//!
//! A body of known length goes from the socket into the buffer that its reader keeps. Chunks are put together in the
//! same way. What came before a cut stays in the buffer, so that a read can go on where it broke off.

use super::head::{self, Framing};
use crate::spare;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;

/// Reserved at once for a body of unknown or unbelievable length; it grows from there as bytes come.
const FIRST_BYTES: u64 = 64 << 20;
/// Of one read from a TLS stream, which clears the room it is given before it writes into it.
const TLS_READ_BYTES: usize = 64 << 10;
/// A line between two chunks, extensions included.
const MOST_LINE_BYTES: usize = 4 << 10;
/// All trailers of a chunked body together.
const MOST_TRAILER_BYTES: usize = 16 << 10;

/// Why a body is not whole.
#[derive(Debug)]
pub(crate) enum Cut {
    /// The connection ended or broke first.
    Broken(io::Error),
    /// No byte came for so long.
    Silent(Duration),
    /// There is more than was asked for: so many bytes, when the server said how many.
    TooLong(Option<u64>),
    /// The chunks make no sense.
    Malformed(&'static str),
}

/// Reads from one connection, with the bytes that came along with the last head still to be used first.
pub(crate) struct Source<'a, S> {
    pub(crate) stream: &'a mut S,
    /// Read from the connection, not used yet.
    pub(crate) ahead: &'a mut BytesMut,
    /// No byte for so long is a failure.
    pub(crate) silence: Duration,
    pub(crate) is_tls: bool,
}

impl<S: AsyncRead + Unpin> Source<'_, S> {
    /// Reads more into `ahead`; the end of the connection is an error.
    pub(crate) async fn fill(&mut self) -> Result<(), Cut> {
        self.ahead.reserve(4 << 10);
        let read = self.stream.read_buf(self.ahead);
        match timeout(self.silence, read).await {
            Ok(Ok(0)) => Err(Cut::Broken(io::ErrorKind::UnexpectedEof.into())),
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(Cut::Broken(error)),
            Err(_) => Err(Cut::Silent(self.silence)),
        }
    }

    /// Appends the body to `into`, at most `limit` bytes of it.
    pub(crate) async fn body(
        &mut self,
        framing: Framing,
        limit: u64,
        into: &mut BytesMut,
    ) -> Result<(), Cut> {
        match framing {
            Framing::Length(length) if length > limit => Err(Cut::TooLong(Some(length))),
            Framing::Length(length) => self.exactly(length, into).await,
            Framing::Chunked => self.chunks(limit, into).await,
            Framing::UntilClose => self.rest(limit, into).await,
        }
    }

    /// Appends exactly `length` bytes.
    async fn exactly(&mut self, length: u64, into: &mut BytesMut) -> Result<(), Cut> {
        let first = length.min(FIRST_BYTES) as usize;
        if into.is_empty() && into.capacity() < first {
            *into = spare::take(first);
        }
        into.reserve(first);
        let ready = length.min(self.ahead.len() as u64);
        into.put_slice(&self.ahead[..ready as usize]);
        self.ahead.advance(ready as usize);
        let mut left = length - ready;
        while left > 0 {
            if into.capacity() == into.len() {
                into.reserve(left.min(into.len() as u64) as usize);
            }
            let most = if self.is_tls { left.min(TLS_READ_BYTES as u64) } else { left };
            let mut room = (&mut *into).limit(most as usize);
            match timeout(self.silence, self.stream.read_buf(&mut room)).await {
                Ok(Ok(0)) => return Err(Cut::Broken(io::ErrorKind::UnexpectedEof.into())),
                Ok(Ok(read)) => left -= (read as u64).min(left),
                Ok(Err(error)) => return Err(Cut::Broken(error)),
                Err(_) => return Err(Cut::Silent(self.silence)),
            }
        }
        Ok(())
    }

    async fn chunks(&mut self, limit: u64, into: &mut BytesMut) -> Result<(), Cut> {
        let mut left = limit;
        loop {
            let line = self.line().await?;
            let digits = line[..].split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
            let size = hexadecimal(digits).ok_or(Cut::Malformed("the length of a chunk is no number"))?;
            if size == 0 {
                break;
            }
            if size > left {
                return Err(Cut::TooLong(None));
            }
            left -= size;
            self.exactly(size, into).await?;
            if !self.line().await?.is_empty() {
                return Err(Cut::Malformed("a chunk is longer than it says"));
            }
        }
        let mut trailers = 0;
        loop {
            let line = self.line().await?.len();
            trailers += line;
            if line == 0 {
                return Ok(());
            }
            if trailers > MOST_TRAILER_BYTES {
                return Err(Cut::Malformed("the trailers do not end"));
            }
        }
    }

    /// One line without its end.
    async fn line(&mut self) -> Result<BytesMut, Cut> {
        let mut seen = 0;
        loop {
            if let Some(at) = self.ahead[seen..].iter().position(|byte| *byte == b'\n') {
                let mut line = self.ahead.split_to(seen + at + 1);
                line.truncate(line.len() - 1);
                if line.last() == Some(&b'\r') {
                    line.truncate(line.len() - 1);
                }
                return Ok(line);
            }
            seen = self.ahead.len();
            if seen > MOST_LINE_BYTES {
                return Err(Cut::Malformed("the length of a chunk does not end"));
            }
            self.fill().await?;
        }
    }

    async fn rest(&mut self, limit: u64, into: &mut BytesMut) -> Result<(), Cut> {
        let mut left = limit;
        loop {
            let length = self.ahead.len() as u64;
            if length > left {
                return Err(Cut::TooLong(None));
            }
            left -= length;
            into.extend_from_slice(self.ahead);
            self.ahead.clear();
            match self.fill().await {
                Ok(()) => {}
                Err(Cut::Broken(error)) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                Err(cut) => return Err(cut),
            }
        }
    }

    /// The next head, which is not the body's but stands here because it reads from the same place.
    pub(crate) async fn head(&mut self) -> Result<Bytes, HeadCut> {
        let mut seen = 0;
        loop {
            if let Some(end) = head::end(self.ahead, seen) {
                if end <= head::MOST_HEAD_BYTES {
                    return Ok(self.ahead.split_to(end).freeze());
                }
                return Err(HeadCut::Endless);
            }
            seen = self.ahead.len();
            if seen >= head::MOST_HEAD_BYTES {
                return Err(HeadCut::Endless);
            }
            match self.fill().await {
                Ok(()) => {}
                Err(Cut::Broken(error)) if seen == 0 => return Err(HeadCut::Early(error)),
                Err(cut) => return Err(HeadCut::Cut(cut)),
            }
        }
    }
}

/// What a chunked body holds, at most `limit` bytes of it, up to where it ends or breaks.
pub(crate) async fn chunked(mut bytes: &[u8], limit: u64) -> Vec<u8> {
    let (mut ahead, mut into) = (BytesMut::new(), BytesMut::new());
    let silence = Duration::from_secs(1);
    let mut source = Source { stream: &mut bytes, ahead: &mut ahead, silence, is_tls: false };
    let _ = source.body(Framing::Chunked, limit, &mut into).await;
    into.to_vec()
}

/// Why there is no head.
#[derive(Debug)]
pub(crate) enum HeadCut {
    /// The connection ended before its first byte.
    Early(io::Error),
    /// Or in the middle of it.
    Cut(Cut),
    /// It is longer than any head.
    Endless,
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 15 {
        return None;
    }
    digits
        .iter()
        .try_fold(0u64, |value, digit| Some(value << 4 | u64::from(char::from(*digit).to_digit(16)?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    async fn read(bytes: &[u8], framing: Framing, limit: u64) -> (Result<(), Cut>, BytesMut, usize) {
        let (mut stream, mut ahead, mut into) = (bytes, BytesMut::new(), BytesMut::new());
        let silence = Duration::from_secs(1);
        let mut source = Source { stream: &mut stream, ahead: &mut ahead, silence, is_tls: false };
        let done = source.body(framing, limit, &mut into).await;
        let left = ahead.len() + stream.len();
        (done, into, left)
    }

    #[tokio::test]
    async fn chunks_are_put_together_and_what_follows_them_is_left() {
        let bytes = b"3\r\nabc\r\nA;x=1\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\nnext";
        let (done, body, left) = read(bytes, Framing::Chunked, 13).await;
        done.unwrap();
        assert_eq!((&body[..], left), (&b"abc0123456789"[..], 4));
        let (done, body, _) = read(bytes, Framing::Chunked, 12).await;
        assert!(matches!(done, Err(Cut::TooLong(None))) && body == "abc");
        for bad in [&b"-3\r\nabc"[..], b"zz\r\n", b"\r\n", b"3\r\nabcd\r\n", b"ffffffffffffffffff\r\n"] {
            let (done, _, _) = read(bad, Framing::Chunked, 1 << 30).await;
            assert!(matches!(done, Err(Cut::Malformed(_) | Cut::TooLong(_))), "{bad:?} {done:?}");
        }
    }

    #[tokio::test]
    async fn what_came_before_a_cut_is_kept() {
        let (done, body, _) = read(b"abc", Framing::Length(5), 5).await;
        assert!(matches!(done, Err(Cut::Broken(_))) && body == "abc");
        let (done, body, left) = read(b"abcdef", Framing::Length(5), 5).await;
        assert!(done.is_ok() && body == "abcde" && left == 1);
        let (done, body, _) = read(b"abc", Framing::UntilClose, 3).await;
        assert!(done.is_ok() && body == "abc");
        assert!(matches!(read(b"abc", Framing::UntilClose, 2).await.0, Err(Cut::TooLong(None))));
        assert!(matches!(read(b"", Framing::Length(u64::MAX), 9).await.0, Err(Cut::TooLong(Some(_)))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_falls_silent_is_given_up() {
        let (mut ours, _theirs) = tokio::io::duplex(16);
        let (mut ahead, mut into) = (BytesMut::from("ab"), BytesMut::new());
        let silence = Duration::from_secs(30);
        let mut source = Source { stream: &mut ours, ahead: &mut ahead, silence, is_tls: false };
        let done = source.body(Framing::Length(5), 5, &mut into).await;
        assert!(matches!(done, Err(Cut::Silent(after)) if after == silence));
        assert_eq!(into, "ab");
    }

    proptest! {
        #[test]
        fn no_chunks_make_it_panic_or_give_more_than_asked(bytes in "[0-9a-f;\r\n]{0,60}", limit in 0u64..40) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            let (_, body, _) = runtime.block_on(read(bytes.as_bytes(), Framing::Chunked, limit));
            prop_assert!(body.len() as u64 <= limit);
        }
    }
}
