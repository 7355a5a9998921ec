//! Segments: files that hold payloads one behind the other, each with a header in front.
//!
//! A segment begins with a header of one unit (64 bytes). Records follow without gaps: one unit of header, the
//! payload, zeros up to the next unit. So the bytes that a payload takes on disk depend on its length alone, and a
//! direct read of it touches at most one block more than it has to. The header's checksum covers where the record
//! lies, so that a payload that looks like a record is none. `docs/design/cache-disk.md` draws it.

use crate::cache::Payload;
use forebay_core::cache::{PayloadId, Rank};
use std::ops::Range;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Everything in a cache's files is a multiple of this.
pub(super) const UNIT: u64 = 64;
/// The format that this code writes. Files of a newer one are refused.
pub(super) const FORMAT: u32 = 1;
/// Longest payload: its length is a field of four bytes.
pub(super) const MAX_LENGTH: u64 = u32::MAX as u64;
/// Longest segment: the place of a record is a count of units in four bytes.
pub(super) const MAX_SEGMENT: u64 = 64 << 30;

const SEGMENT_MAGIC: &[u8; 8] = b"FBCSEGM\n";
const RECORD_MAGIC: &[u8; 4] = b"FBCR";

/// One unit of bytes.
pub(super) type Unit = [u8; UNIT as usize];

/// Where one payload lies and what is known about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) rank: Rank,
    pub(super) group: u64,
    /// Hash of the payload's bytes.
    pub(super) hash: u64,
    pub(super) length: u32,
    /// The segment's number, from 1 on.
    pub(super) segment: u32,
    /// Where the record begins, in units.
    pub(super) at: u32,
    /// When it was kept, in seconds since 1970.
    pub(super) seconds: u32,
}

impl Entry {
    /// The entry of a payload that is about to be written at byte `start` of a segment.
    pub(super) fn new(payload: &Payload, bytes: &[u8], segment: u32, start: u64, seconds: u32) -> Self {
        Self {
            rank: payload.rank,
            group: payload.group,
            hash: xxh3_64(bytes),
            length: bytes.len() as u32,
            segment,
            at: (start / UNIT) as u32,
            seconds,
        }
    }

    /// The first byte of the record.
    pub(super) fn start(&self) -> u64 {
        u64::from(self.at) * UNIT
    }

    /// The first byte behind the record.
    pub(super) fn end(&self) -> u64 {
        self.start() + self.size()
    }

    /// Bytes of the record.
    pub(super) fn size(&self) -> u64 {
        record_size(u64::from(self.length))
    }

    /// Where in the segment the payload lies.
    pub(super) fn payload(&self) -> Range<u64> {
        let start = self.start() + UNIT;
        start..start + u64::from(self.length)
    }

    /// Whether these are the bytes that were kept.
    pub(super) fn matches(&self, bytes: &[u8]) -> bool {
        bytes.len() as u64 == u64::from(self.length) && xxh3_64(bytes) == self.hash
    }
}

/// Bytes that a payload of this length takes in a segment.
pub(super) fn record_size(length: u64) -> u64 {
    UNIT + length.next_multiple_of(UNIT)
}

/// The first unit of a segment: nothing but its number varies.
pub(super) fn segment_head(number: u32) -> Unit {
    let mut head = [0; UNIT as usize];
    head[..8].copy_from_slice(SEGMENT_MAGIC);
    head[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    head[12..16].copy_from_slice(&number.to_le_bytes());
    seal(&mut head, 0);
    head
}

/// The unit in front of a payload.
pub(super) fn record_head(id: PayloadId, entry: &Entry) -> Unit {
    let mut head = [0; UNIT as usize];
    head[..4].copy_from_slice(RECORD_MAGIC);
    head[4..8].copy_from_slice(&entry.length.to_le_bytes());
    head[8..24].copy_from_slice(&id.0.to_le_bytes());
    head[24..32].copy_from_slice(&entry.rank.0.to_le_bytes());
    head[32..40].copy_from_slice(&entry.group.to_le_bytes());
    head[40..48].copy_from_slice(&entry.hash.to_le_bytes());
    head[48..52].copy_from_slice(&entry.seconds.to_le_bytes());
    seal(&mut head, place(entry.segment, entry.at));
    head
}

/// Reads the unit in front of a payload that lies at a place.
pub(super) fn read_record_head(head: &Unit, segment: u32, at: u32) -> Option<(PayloadId, Entry)> {
    if &head[..4] != RECORD_MAGIC || !is_sealed(head, place(segment, at)) {
        return None;
    }
    let entry = Entry {
        rank: Rank(u64_at(head, 24)),
        group: u64_at(head, 32),
        hash: u64_at(head, 40),
        length: u32_at(head, 4),
        segment,
        at,
        seconds: u32_at(head, 48),
    };
    Some((PayloadId(u128_at(head, 8)), entry))
}

/// Walks over the records of a segment of `length` bytes; `read` gives the unit at an offset. Ends at the first
/// header that is not sound: what lies behind it cannot be told from payloads that look like records.
pub(super) fn walk(
    number: u32,
    length: u64,
    mut read: impl FnMut(u64) -> Option<Unit>,
    mut found: impl FnMut(PayloadId, Entry),
) {
    let mut start = UNIT;
    while start + UNIT <= length && start < MAX_SEGMENT {
        let Some(head) = read(start) else { return };
        let Some((id, entry)) = read_record_head(&head, number, (start / UNIT) as u32) else { return };
        if entry.end() > length {
            return;
        }
        start = entry.end();
        found(id, entry);
    }
}

/// Puts a checksum of the first 56 bytes into the last 8.
pub(super) fn seal(unit: &mut Unit, seed: u64) {
    let sum = xxh3_64_with_seed(&unit[..56], seed);
    unit[56..].copy_from_slice(&sum.to_le_bytes());
}

pub(super) fn is_sealed(unit: &Unit, seed: u64) -> bool {
    u64_at(unit, 56) == xxh3_64_with_seed(&unit[..56], seed)
}

fn place(segment: u32, at: u32) -> u64 {
    u64::from(segment) << 32 | u64::from(at)
}

pub(super) fn u32_at(unit: &Unit, at: usize) -> u32 {
    unit[at..at + 4].iter().rev().fold(0, |sum, byte| sum << 8 | u32::from(*byte))
}

pub(super) fn u64_at(unit: &Unit, at: usize) -> u64 {
    unit[at..at + 8].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

pub(super) fn u128_at(unit: &Unit, at: usize) -> u128 {
    unit[at..at + 16].iter().rev().fold(0, |sum, byte| sum << 8 | u128::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(payloads: &[&[u8]]) -> Vec<u8> {
        let mut bytes = segment_head(3).to_vec();
        for (number, payload) in payloads.iter().enumerate() {
            let id = PayloadId(number as u128);
            let meta = Payload {
                id,
                rank: Rank(number as u64),
                length: payload.len() as u64,
                group: number as u64 % 2,
            };
            let entry = Entry::new(&meta, payload, 3, bytes.len() as u64, 77);
            bytes.extend(record_head(id, &entry));
            bytes.extend_from_slice(payload);
            bytes.resize(entry.end() as usize, 0);
        }
        bytes
    }

    fn walked(bytes: &[u8]) -> Vec<(PayloadId, Entry)> {
        let mut found = Vec::new();
        let read = |at: u64| bytes.get(at as usize..)?.first_chunk().copied();
        walk(3, bytes.len() as u64, read, |id, entry| found.push((id, entry)));
        found
    }

    #[test]
    fn records_are_found_again_and_a_cut_one_is_not() {
        let payloads: [&[u8]; 4] = [b"", b"a", &[7; 64], &[9; 65]];
        let bytes = segment(&payloads);
        let found = walked(&bytes);
        assert_eq!(found.len(), 4);
        for ((id, entry), (number, payload)) in found.iter().zip(payloads.iter().enumerate()) {
            assert_eq!((id.0, entry.rank.0, entry.seconds), (number as u128, number as u64, 77));
            let range = entry.payload();
            assert!(entry.matches(&bytes[range.start as usize..range.end as usize]));
            assert_eq!(entry.size(), record_size(payload.len() as u64));
        }
        for cut in 0..bytes.len() {
            let whole = found.iter().filter(|(_, entry)| entry.end() <= cut as u64).count();
            assert_eq!(walked(&bytes[..cut]).len(), whole, "cut at {cut}");
        }
    }

    #[test]
    fn a_record_inside_a_payload_or_at_another_place_is_none() {
        let inner = segment(&[b"hostile"]);
        let bytes = segment(&[&inner]);
        assert_eq!(walked(&bytes).len(), 1);
        let head: Unit = *inner[64..].first_chunk().unwrap();
        assert!(read_record_head(&head, 3, 1).is_some());
        assert!(read_record_head(&head, 3, 3).is_none() && read_record_head(&head, 4, 1).is_none());
    }

    #[test]
    fn every_flipped_bit_of_a_header_is_noticed() {
        let bytes = segment(&[b"payload"]);
        for bit in 0..UNIT as usize * 8 {
            let mut head: Unit = *bytes[64..].first_chunk().unwrap();
            head[bit / 8] ^= 1 << (bit % 8);
            assert!(read_record_head(&head, 3, 1).is_none(), "bit {bit}");
        }
    }
}
