//! Frames on a stream: a body into a buffer that is used again, a payload into one of its own.

use super::{MAX_BODY, Message};
use bytes::{Buf, Bytes};
use forebay_core::{Error, Result};
use forebay_store::spare;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Writes a message and its payload, without putting them together first.
pub(crate) async fn write<W: AsyncWrite + Unpin>(
    to: &mut W,
    request: u64,
    message: &Message,
    tail: Bytes,
) -> std::io::Result<()> {
    debug_assert_eq!(message.tail(), tail.len() as u64, "the payload is as long as was said");
    let mut frame = message.encode(request).chain(tail);
    to.write_all_buf(&mut frame).await?;
    to.flush().await
}

/// The next message; `None` when the other side has closed between two.
pub(crate) async fn read<R: AsyncRead + Unpin>(
    from: &mut R,
    body: &mut Vec<u8>,
) -> Result<Option<(u64, Message)>> {
    let mut length = [0; 4];
    let first = from.read(&mut length).await.map_err(lost)?;
    if first == 0 {
        return Ok(None);
    }
    from.read_exact(&mut length[first..]).await.map_err(lost)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_BODY {
        return Err(Error::corrupt(format!(
            "read a message of a shared cache: it claims {length} bytes, more than messages may have"
        )));
    }
    body.resize(length, 0);
    from.read_exact(body).await.map_err(lost)?;
    Message::decode(body).map(Some)
}

/// The payload of a message that was just read.
pub(crate) async fn read_tail<R: AsyncRead + Unpin>(from: &mut R, length: u64) -> Result<Bytes> {
    // `decode` has checked the length against `MAX_TAIL`. Payloads come and go: the memory of the last ones is used.
    let mut bytes = spare::take(length as usize);
    let mut from = from.take(length);
    while (bytes.len() as u64) < length {
        if from.read_buf(&mut bytes).await.map_err(lost)? == 0 {
            return Err(lost(std::io::ErrorKind::UnexpectedEof.into()));
        }
    }
    Ok(spare::share(bytes))
}

fn lost(error: std::io::Error) -> Error {
    Error::unavailable("read from a shared cache: the connection was lost").with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::cache::{PayloadId, Place, Rank};
    use forebay_engine::cache::Payload;

    #[tokio::test]
    async fn frames_follow_each_other_and_the_end_is_no_error() {
        let (mut near, mut far) = tokio::io::duplex(64);
        let payload = Payload { id: PayloadId(5), rank: Rank(1), length: 1000, group: 2 };
        let place = Place { memory: true, disk: false };
        let writing = tokio::spawn(async move {
            write(&mut near, 1, &Message::Keep(payload, place), vec![7; 1000].into()).await.unwrap();
            write(&mut near, 2, &Message::View, Bytes::new()).await.unwrap();
        });
        let mut body = Vec::new();
        let (request, message) = read(&mut far, &mut body).await.unwrap().unwrap();
        assert_eq!((request, &message), (1, &Message::Keep(payload, place)));
        assert_eq!(read_tail(&mut far, message.tail()).await.unwrap(), vec![7; 1000]);
        assert_eq!(read(&mut far, &mut body).await.unwrap(), Some((2, Message::View)));
        assert_eq!(read(&mut far, &mut body).await.unwrap(), None);
        writing.await.unwrap();
    }

    #[tokio::test]
    async fn a_cut_frame_and_one_that_is_too_long_are_errors() {
        let frame = Message::View.encode(1);
        for bytes in [&frame[..2], &frame[..8], &[0xff, 0xff, 0xff, 0xff, 0]] {
            assert!(read(&mut &bytes[..], &mut Vec::new()).await.is_err());
        }
        assert!(read_tail(&mut &b"abc"[..], 4).await.is_err());
    }
}
