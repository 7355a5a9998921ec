//! Messages as frames on a stream: `u32 length | u8 kind | postcard`, numbers in little endian.
//!
//! The length counts what follows it. A frame's memory grows with the bytes that arrive, never by what its length
//! claims, and each direction has its own limit. What follows a `ToClient::Batch` is in [`super::codec`].

use super::message::{ToClient, ToWorker};
use forebay_core::{Error, Result};
use forebay_engine::feed::MAX_SPEC_BYTES;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{ErrorKind, Read};

/// The only kind of frame there is.
const MESSAGE: u8 = 0;

/// Memory for frames that is kept between two of them.
const KEPT_BYTES: usize = 1 << 20;

/// What crosses in one direction.
pub trait Message: Serialize + DeserializeOwned {
    /// Most bytes of one frame.
    const MAX_BYTES: usize;

    /// Shared memory that is no longer looked at, when that is what it says.
    fn released(&self) -> Option<&[u64]> {
        None
    }
}

impl Message for ToWorker {
    // A feed's spec is the largest thing a client says.
    const MAX_BYTES: usize = MAX_SPEC_BYTES + (1 << 20);

    fn released(&self) -> Option<&[u64]> {
        match self {
            Self::Release { memory } => Some(memory),
            _ => None,
        }
    }
}

impl Message for ToClient {
    // Ids and lengths of the largest batch that can be named.
    const MAX_BYTES: usize = 16 << 20;
}

/// Puts a message as a frame at the end of `frame`.
pub(crate) fn put<M: Message>(message: &M, frame: &mut Vec<u8>) -> Result<()> {
    let start = frame.len();
    frame.extend([0, 0, 0, 0, MESSAGE]);
    let filled = postcard::to_extend(message, std::mem::take(frame))
        .map_err(|cause| Error::internal("write a message").with_source(cause))?;
    *frame = filled;
    let length = frame.len() - start - 4;
    if length > M::MAX_BYTES {
        let why = format!("write a message: it has {length} bytes, at most {} are allowed", M::MAX_BYTES);
        return Err(Error::exhausted(why));
    }
    frame[start..start + 4].copy_from_slice(&(length as u32).to_le_bytes());
    Ok(())
}

/// How long the next frame is; `None` when the other side ended between two.
pub(crate) fn read_length<M: Message>(from: &mut impl Read, peer: &str) -> Result<Option<usize>> {
    let mut length = [0; 4];
    if !fill(from, &mut length).map_err(|error| lost(peer, error))? {
        return Ok(None);
    }
    let length = u32::from_le_bytes(length) as usize;
    if length == 0 || length > M::MAX_BYTES {
        let why = format!("it claims {length} bytes, 1 to {} are allowed", M::MAX_BYTES);
        return Err(Error::corrupt(format!("read a message from {peer}: {why}")));
    }
    Ok(Some(length))
}

/// The message of a frame that is so long.
pub(crate) fn read_message<M: Message>(
    from: &mut impl Read,
    length: usize,
    peer: &str,
    kept: &mut Vec<u8>,
) -> Result<M> {
    let corrupt = |why: String| Error::corrupt(format!("read a message from {peer}: {why}"));
    kept.clear();
    kept.shrink_to(KEPT_BYTES);
    let count = from.take(length as u64).read_to_end(kept).map_err(|error| lost(peer, error))?;
    if count < length {
        return Err(lost(peer, ErrorKind::UnexpectedEof.into()));
    }
    if kept[0] != MESSAGE {
        return Err(corrupt(format!("{} is no kind of frame", kept[0])));
    }
    match postcard::take_from_bytes(&kept[1..]) {
        Ok((message, [])) => Ok(message),
        Ok((_, rest)) => Err(corrupt(format!("{} bytes are left over", rest.len()))),
        Err(cause) => Err(corrupt("it is none".into()).with_source(cause)),
    }
}

/// Fills `bytes`; false when the stream ends before the first of them.
fn fill(from: &mut impl Read, mut bytes: &mut [u8]) -> std::io::Result<bool> {
    let wanted = bytes.len();
    while !bytes.is_empty() {
        match from.read(bytes) {
            Ok(0) if bytes.len() == wanted => return Ok(false),
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => bytes = &mut bytes[count..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// The other side is gone.
pub(crate) fn lost(peer: &str, error: std::io::Error) -> Error {
    Error::unavailable(format!("talk to {peer}: the connection was lost")).with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::ErrorKind;
    use forebay_core::feed::BatchName;

    fn take(request: u64) -> ToWorker {
        ToWorker::Take { request, name: BatchName { epoch: 3, runs: Vec::new() } }
    }

    fn read(from: &mut &[u8]) -> Result<Option<ToWorker>> {
        let Some(length) = read_length::<ToWorker>(from, "a test")? else { return Ok(None) };
        read_message(from, length, "a test", &mut Vec::new()).map(Some)
    }

    fn read_one(mut bytes: &[u8]) -> Result<Option<ToWorker>> {
        read(&mut bytes)
    }

    #[test]
    fn frames_follow_each_other_and_the_end_is_no_error() {
        let mut frames = Vec::new();
        put(&take(1), &mut frames).unwrap();
        put(&take(2), &mut frames).unwrap();
        let mut from = &frames[..];
        assert_eq!(read(&mut from).unwrap(), Some(take(1)));
        assert_eq!(read(&mut from).unwrap(), Some(take(2)));
        assert_eq!(read(&mut from).unwrap(), None);
    }

    #[test]
    fn every_cut_is_a_lost_connection_and_every_nonsense_is_corrupt() {
        let mut frame = Vec::new();
        put(&take(77), &mut frame).unwrap();
        for cut in 1..frame.len() {
            assert_eq!(read_one(&frame[..cut]).unwrap_err().kind(), ErrorKind::Unavailable, "{cut}");
        }
        let mut other_kind = frame.clone();
        other_kind[4] = 1;
        let mut left_over = frame.clone();
        left_over[0] += 1;
        left_over.push(0);
        for bytes in [&other_kind[..], &left_over, &[0, 0, 0, 0, 0], &[0xff; 64], &[2, 0, 0, 0, 0, 99]] {
            assert_eq!(read_one(bytes).unwrap_err().kind(), ErrorKind::Corrupt, "{bytes:?}");
        }
    }

    #[test]
    fn a_message_beyond_its_limit_is_not_sent() {
        let long = ToWorker::Release { memory: vec![u64::MAX; 1 << 20] };
        assert_eq!(put(&long, &mut Vec::new()).unwrap_err().kind(), ErrorKind::Exhausted);
    }
}
