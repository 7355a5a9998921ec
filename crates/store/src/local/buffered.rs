//! Reads through the page cache, and how parts are gathered into spans: one span, one `pread`.
//!
//! A large part gets an allocation of its own, so that it can be freed alone. Small neighbours share one: a system
//! call each would cost more than the bytes.

use super::files::OpenFile;
use super::stats::Counters;
use crate::fault;
use bytes::Bytes;
use forebay_core::{Error, Result};
use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

/// From this size on a part has its own allocation and may be read past the page cache.
pub(super) const LARGE_BYTES: u64 = 64 << 10;
/// Small parts farther apart than this are read apart.
const GAP_BYTES: u64 = 16 << 10;
/// Small parts share an allocation up to this size: it stays until the last of them is dropped.
const SHARED_BYTES: u64 = 1 << 20;

/// Neighbouring parts that are read together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// The bytes of the object.
    pub(crate) bytes: Range<u64>,
    /// Which parts lie in them.
    pub(crate) parts: Range<usize>,
}

/// Gathers parts, which ascend, into spans. Empty parts never cause a span of their own to be read.
pub(crate) fn spans(parts: &[Range<u64>]) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    for (number, part) in parts.iter().enumerate() {
        let length = part.end - part.start;
        if let Some(last) = spans.last_mut() {
            let small = length < LARGE_BYTES;
            let shared = last.parts.len() > 1 || last.bytes.end - last.bytes.start < LARGE_BYTES;
            let near =
                part.start - last.bytes.end <= GAP_BYTES && part.end - last.bytes.start <= SHARED_BYTES;
            if small && shared && near {
                last.bytes.end = part.end;
                last.parts.end = number + 1;
                continue;
            }
        }
        spans.push(Span { bytes: part.clone(), parts: number..number + 1 });
    }
    spans
}

/// Hands the bytes of a span out to its parts. `read` starts at the span's first byte.
pub(crate) fn deal(span: &Span, read: &Bytes, parts: &[Range<u64>], into: &mut [Bytes]) {
    for number in span.parts.clone() {
        let part = &parts[number];
        let start = (part.start - span.bytes.start) as usize;
        into[number] = read.slice(start..start + (part.end - part.start) as usize);
    }
}

/// Reads a span into an allocation of exactly its size.
pub(crate) fn read_span(file: &OpenFile, span: &Range<u64>, counters: &Counters) -> Result<Bytes> {
    let length = usize::try_from(span.end - span.start).unwrap_or(usize::MAX);
    let url = || file.path.to_string_lossy();
    let mut buffer = Vec::new();
    // A refusal of the allocator is an error, not an abort.
    buffer.try_reserve_exact(length).map_err(|error| {
        Error::exhausted(format!("read `{}` at offset {}: no memory for {length} bytes", url(), span.start))
            .with_source(error)
            .with_facts(fault::facts(&url(), Some(span.start)))
    })?;
    counters.buffered_reads.fetch_add(u64::from(length > 0), Relaxed);
    while buffer.len() < length {
        let offset = span.start + buffer.len() as u64;
        match rustix::io::pread(&file.file, spare_capacity(&mut buffer), offset) {
            Ok(0) => {
                counters.add_call(0);
                return Err(fault::shortened(&url(), offset, span.end - offset));
            }
            Ok(read) => counters.add_call(read),
            Err(Errno::INTR) => {}
            Err(error) => return Err(fault::system("read", &url(), Some(offset), error.into())),
        }
    }
    // The allocator may have given more room than was asked for, and `pread` fills it.
    buffer.truncate(length);
    Ok(buffer.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn large_parts_stand_alone_and_small_neighbours_share() {
        let large = LARGE_BYTES;
        let parts = [0..10, 20..30, 30..30 + large, 30 + large..40 + large, 40 + 2 * large..50 + 2 * large];
        let expected = [(0..30, 0..2), (30..30 + large, 2..3), (30 + large..40 + large, 3..4)];
        let found = spans(&parts);
        for (span, (bytes, parts)) in found.iter().zip(expected) {
            assert_eq!(span, &Span { bytes, parts });
        }
        assert_eq!(found.len(), 4, "a gap of {large} bytes is not read");
    }

    proptest! {
        #[test]
        fn spans_cover_every_part_once_in_order_and_stay_small(
            steps in prop::collection::vec((0..40_000u64, 0..200_000u64), 0..40)
        ) {
            let mut end = 0;
            let parts: Vec<_> = steps.iter().map(|(gap, length)| {
                let start = end + gap;
                end = start + length;
                start..end
            }).collect();
            let mut next = 0;
            for span in spans(&parts) {
                prop_assert_eq!(span.parts.start, next);
                prop_assert!(span.parts.end > next);
                next = span.parts.end;
                prop_assert_eq!(span.bytes.start, parts[span.parts.start].start);
                prop_assert_eq!(span.bytes.end, parts[span.parts.end - 1].end);
                if span.parts.len() > 1 {
                    prop_assert!(span.bytes.end - span.bytes.start <= SHARED_BYTES);
                    prop_assert!(parts[span.parts.clone()].iter().all(|part| part.end - part.start < LARGE_BYTES));
                }
            }
            prop_assert_eq!(next, parts.len());
        }
    }
}
