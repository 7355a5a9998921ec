//! Heads of members and records, read from a store in windows that follow how far apart they lie.

use bytes::Bytes;
use forebay_core::{Error, Result};
use forebay_store::{ByteRange, Store};
use std::ops::Range;

/// How headers are read from a store: in windows that grow while headers lie close together.
///
/// A shard of large payloads costs one small read per member; a shard of small ones, one read per many members. On
/// a store where a request is dear, a larger `smallest` turns the pass into a sequential read of the shard.
#[derive(Clone, Copy, Debug)]
pub struct HeaderReads {
    /// Bytes of the first window and of windows in shards with large payloads.
    pub smallest: u64,
    /// Bytes beyond which a window does not grow.
    pub largest: u64,
}

impl Default for HeaderReads {
    fn default() -> Self {
        // 2 KiB holds the headers around one small label member, the usual neighbour of an image.
        Self { smallest: 2 << 10, largest: 64 << 10 }
    }
}

/// The part of the shard read last.
#[derive(Debug)]
pub(crate) struct HeadWindow {
    reads: HeaderReads,
    length: u64,
    start: u64,
    bytes: Bytes,
}

impl HeadWindow {
    pub(crate) fn new(reads: HeaderReads) -> Self {
        Self { reads, length: reads.smallest, start: 0, bytes: Bytes::new() }
    }

    /// Bytes of a range: from what was read last, or by a read that may bring the next heads too.
    pub(crate) async fn bytes(
        &mut self,
        store: &dyn Store,
        key: &str,
        range: Range<u64>,
        size: u64,
    ) -> Result<Bytes> {
        let end = self.start + self.bytes.len() as u64;
        if range.start < self.start || range.end > end {
            // A header just behind the window says that a larger window would have held it.
            let near = range.start.saturating_sub(end) < self.length;
            self.length = if near { self.length * 2 } else { self.length / 2 };
            self.length = self.length.clamp(self.reads.smallest, self.reads.largest.max(self.reads.smallest));
            let stop = (range.start + self.length).max(range.end).min(size);
            self.bytes = store.read(key, ByteRange::from(range.start..stop)).await?;
            self.start = range.start;
            if (self.bytes.len() as u64) < range.end - range.start {
                return Err(Error::internal(format!(
                    "read `{}`: the store gave too few bytes",
                    store.url(key)
                )));
            }
        }
        let from = (range.start - self.start) as usize;
        Ok(self.bytes.slice(from..from + (range.end - range.start) as usize))
    }
}
