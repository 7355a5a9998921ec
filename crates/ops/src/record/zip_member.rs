//! A member of a zip archive: its local header, its bytes as stored or deflated, and what may follow them.
//!
//! The record goes from the member's local header to the next one (or to the central directory), so that nothing but the
//! directory is read to index an archive. The member's CRC-32 is compared whenever it is read.

use super::value::Taken;
use bytes::Bytes;
use crc_fast::CrcAlgorithm;
use flate2::{Decompress, FlushDecompress, Status};
use forebay_core::{Error, Result};

/// What a manifest's field that holds such records ends with: `jpg@zip` holds the field `jpg`.
pub const ENDING: &str = "@zip";

/// Bytes of a local header before the name.
const HEAD_BYTES: usize = 30;

/// The most that one member may hold.
pub const MAX_MEMBER_BYTES: u64 = 4 << 30;

/// The flag for sizes and checksum that follow the bytes.
const STREAMED: u16 = 1 << 3;

pub(super) fn take(record: &Bytes, names: &[&str]) -> Result<Vec<Taken>> {
    let payload = payload(record)?;
    Ok(names.iter().map(|_| Taken::Bytes(payload.clone())).collect())
}

/// The member's bytes, once its checksum agrees.
pub fn payload(record: &Bytes) -> Result<Bytes> {
    let head = Head::parse(record)?;
    let body = record.slice(head.body..);
    let (payload, sum) = match (head.method, head.streamed) {
        (0, false) => (cut(&body, head.packed)?, head.sum),
        (0, true) => stored_stream(&body)?,
        (8, false) => {
            let (payload, _) = inflate(&cut(&body, head.packed)?, Some(head.size))?;
            (payload.into(), head.sum)
        }
        (8, true) => {
            let (payload, taken) = inflate(&body, None)?;
            let descriptor = Descriptor::parse(&body[taken..], taken as u64, payload.len() as u64)?;
            (payload.into(), descriptor)
        }
        (method, _) => {
            return Err(Error::unsupported(format!("it is compressed by method {method}"))
                .with_hint("write the archive with stored or deflated members"));
        }
    };
    let found = crc_fast::checksum(CrcAlgorithm::Crc32IsoHdlc, &payload) as u32;
    if found != sum {
        return Err(Error::corrupt(format!("its checksum is {found:08x}, the archive says {sum:08x}")));
    }
    Ok(payload)
}

struct Head {
    method: u16,
    streamed: bool,
    sum: u32,
    packed: u64,
    size: u64,
    /// Where the bytes begin.
    body: usize,
}

impl Head {
    fn parse(record: &[u8]) -> Result<Self> {
        let cut_off = || Error::corrupt("its local header is cut off");
        if record.len() < HEAD_BYTES {
            return Err(cut_off());
        }
        if !record.starts_with(b"PK\x03\x04") {
            return Err(Error::corrupt("no local header begins here"));
        }
        let short = |at: usize| u16::from_le_bytes([record[at], record[at + 1]]);
        let long =
            |at: usize| u32::from_le_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]]);
        let (flags, name, extra) = (short(6), usize::from(short(26)), usize::from(short(28)));
        if flags & 1 != 0 {
            return Err(
                Error::unsupported("it is encrypted").with_hint("write the archive without a password")
            );
        }
        let body = HEAD_BYTES + name + extra;
        let extra = record.get(HEAD_BYTES + name..body).ok_or_else(cut_off)?;
        let (mut size, mut packed) = (u64::from(long(22)), u64::from(long(18)));
        if size == u64::from(u32::MAX) || packed == u64::from(u32::MAX) {
            // The true sizes stand in an extra field, first that of what is packed.
            let wide = extra_field(extra, 1).filter(|wide| wide.len() >= 16);
            let wide =
                wide.ok_or_else(|| Error::corrupt("its sizes are said to stand elsewhere and do not"))?;
            size = u64::from_le_bytes(wide[..8].try_into().unwrap_or_default());
            packed = u64::from_le_bytes(wide[8..16].try_into().unwrap_or_default());
        }
        if size > MAX_MEMBER_BYTES {
            return Err(too_large());
        }
        Ok(Self { method: short(8), streamed: flags & STREAMED != 0, sum: long(14), packed, size, body })
    }
}

/// A checksum and sizes that follow the bytes of a member, with or without a signature, narrow or wide.
struct Descriptor;

impl Descriptor {
    fn parse(bytes: &[u8], packed: u64, size: u64) -> Result<u32> {
        let bytes = bytes.strip_prefix(b"PK\x07\x08").unwrap_or(bytes);
        let number = |from: usize, width: usize| {
            let mut wide = [0; 8];
            wide[..width].copy_from_slice(bytes.get(from..from + width)?);
            Some(u64::from_le_bytes(wide))
        };
        let agrees =
            |width: usize| number(4, width) == Some(packed) && number(4 + width, width) == Some(size);
        match number(0, 4) {
            Some(sum) if agrees(4) || agrees(8) => Ok(sum as u32),
            _ => Err(Error::corrupt("what follows its bytes does not tell their number")),
        }
    }
}

/// Bytes that were stored while their number was not known: the descriptor at the end tells it.
fn stored_stream(body: &Bytes) -> Result<(Bytes, u32)> {
    for tail in [16, 24, 12, 20] {
        if let Some(length) = body.len().checked_sub(tail)
            && let Ok(sum) = Descriptor::parse(&body[length..], length as u64, length as u64)
        {
            return Ok((body.slice(..length), sum));
        }
    }
    Err(Error::unsupported("it was stored as a stream, and what follows does not tell its length")
        .with_hint("write the archive to a file that can be sought in"))
}

fn cut(body: &Bytes, length: u64) -> Result<Bytes> {
    match usize::try_from(length) {
        Ok(length) if length <= body.len() => Ok(body.slice(..length)),
        _ => Err(Error::corrupt(format!("{} of its {length} bytes are there", body.len()))),
    }
}

/// What deflated bytes hold, and how many of them it took. `size` is what they should hold, where that is known.
fn inflate(packed: &[u8], size: Option<u64>) -> Result<(Vec<u8>, usize)> {
    let most = size.unwrap_or(MAX_MEMBER_BYTES);
    // A size is believed only as far as deflate can reach it: a thousand times what is there.
    let likely = most.min((packed.len() as u64).saturating_mul(1032)).min(64 << 20);
    let mut held = Vec::with_capacity(if size.is_some() { likely as usize } else { packed.len() * 2 });
    let mut state = Decompress::new(false);
    loop {
        let before = state.total_out();
        let rest = &packed[state.total_in() as usize..];
        let status = state
            .decompress_vec(rest, &mut held, FlushDecompress::Finish)
            .map_err(|cause| Error::corrupt("its deflated bytes are damaged").with_source(cause))?;
        if state.total_out() > most {
            return Err(if size.is_some() { wrong_size(most) } else { too_large() });
        }
        match status {
            Status::StreamEnd => break,
            _ if held.len() < held.capacity() && state.total_out() == before => {
                return Err(Error::corrupt("its deflated bytes are cut off"));
            }
            _ => held.reserve((held.len() / 2).clamp(4 << 10, 64 << 20)),
        }
    }
    if size.is_some_and(|size| size != held.len() as u64) {
        return Err(wrong_size(most));
    }
    Ok((held, state.total_in() as usize))
}

/// The extra field with this number.
pub fn extra_field(mut extra: &[u8], number: u16) -> Option<&[u8]> {
    while let [low, high, short, long, rest @ ..] = extra {
        let length = usize::from(u16::from_le_bytes([*short, *long]));
        let (field, next) = rest.split_at_checked(length)?;
        if u16::from_le_bytes([*low, *high]) == number {
            return Some(field);
        }
        extra = next;
    }
    None
}

fn wrong_size(size: u64) -> Error {
    Error::corrupt(format!("it does not expand to the {size} bytes that it tells"))
}

fn too_large() -> Error {
    Error::exhausted(format!("it holds more than {MAX_MEMBER_BYTES} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compress, Compression, FlushCompress};
    use proptest::prelude::*;

    fn deflate(bytes: &[u8]) -> Vec<u8> {
        let mut packed = Vec::with_capacity(bytes.len() + 64);
        Compress::new(Compression::default(), false)
            .compress_vec(bytes, &mut packed, FlushCompress::Finish)
            .unwrap();
        packed
    }

    /// One member as archives hold it.
    fn member(payload: &[u8], deflated: bool, streamed: bool) -> Vec<u8> {
        let packed = if deflated { deflate(payload) } else { payload.to_vec() };
        let sum = crc_fast::checksum(CrcAlgorithm::Crc32IsoHdlc, payload) as u32;
        let mut told = sum.to_le_bytes().to_vec();
        told.extend((packed.len() as u32).to_le_bytes());
        told.extend((payload.len() as u32).to_le_bytes());
        let mut record = b"PK\x03\x04\x14\0".to_vec();
        record.extend((if streamed { STREAMED } else { 0 }).to_le_bytes());
        record.extend((if deflated { 8u16 } else { 0 }).to_le_bytes());
        record.extend([0; 4]);
        record.extend(if streamed { &[0; 12][..] } else { &told[..] });
        record.extend([1, 0, 0, 0, b'a']);
        record.extend(&packed);
        if streamed {
            record.extend(b"PK\x07\x08");
            record.extend(&told);
        }
        record
    }

    proptest! {
        #[test]
        fn members_of_each_form_read_back_and_flipped_bits_are_found(
            bytes in proptest::collection::vec(0u8..4, 0..400),
            deflated: bool,
            streamed: bool,
            at: prop::sample::Index,
        ) {
            let record = member(&bytes, deflated, streamed);
            prop_assert_eq!(&payload(&record.clone().into()).unwrap()[..], &bytes[..]);
            let mut bad = record.clone();
            let at = at.index(bad.len());
            bad[at] ^= 1;
            // Flags and dates may change without harm; the payload never does.
            if let Ok(found) = payload(&bad.into()) {
                prop_assert_eq!(&found[..], &bytes[..]);
            }
        }

        #[test]
        fn any_bytes_are_a_payload_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200), method in 0u8..10, flags in 0u8..16) {
            let mut record = b"PK\x03\x04\x14\0".to_vec();
            record.extend([flags, 0, method, 0]);
            record.extend(bytes);
            let _ = payload(&record.into());
        }
    }

    #[test]
    fn a_member_that_expands_beyond_what_it_tells_is_stopped() {
        let mut record = member(&vec![0; 1 << 20], true, false);
        record[22..26].copy_from_slice(&100u32.to_le_bytes());
        assert!(payload(&record.into()).unwrap_err().to_string().contains("100 bytes"));
    }
}
