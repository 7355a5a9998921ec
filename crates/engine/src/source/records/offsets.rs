//! The table that MDS shards and LitData chunks begin with: how many samples there are, and where each lies.
//!
//! ```text
//! u32 count   u32 offset of each sample, and of the end of the last     (little endian)
//! ```

use super::fault;
use forebay_core::{Error, Result};
use forebay_store::{ByteRange, ObjectMeta, Store};
use std::ops::Range;

/// Most samples of one object: a table of 256 MiB.
const MAX_SAMPLES: u64 = 1 << 26;

/// Reads the table. Samples follow each other, behind the table and inside of the object.
pub(super) async fn read(store: &dyn Store, object: &ObjectMeta) -> Result<Vec<Range<u64>>> {
    let wrong = |error: Error| fault(store, &object.key, 0, error);
    if object.size < 8 {
        let why = format!("truncated, {} of 8 bytes of its head are there", object.size);
        return Err(wrong(Error::corrupt(why)));
    }
    let head = store.read(&object.key, ByteRange::from(0..8)).await?;
    let count = u64::from(head.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)));
    let end = 8 + count * 4;
    if end > object.size {
        let why = format!("truncated, or no such shard: it tells {count} samples in {} bytes", object.size);
        return Err(wrong(Error::corrupt(why)));
    }
    if count > MAX_SAMPLES {
        let why = format!("it tells {count} samples, at most {MAX_SAMPLES} are read");
        return Err(wrong(Error::exhausted(why)));
    }
    let table = store.read(&object.key, ByteRange::from(4..end)).await?;
    places(&table, end, object.size).map_err(wrong)
}

fn places(table: &[u8], begin: u64, size: u64) -> Result<Vec<Range<u64>>> {
    let mut offsets = table
        .chunks_exact(4)
        .map(|bytes| u64::from(u32::from_le_bytes(bytes.try_into().unwrap_or_default())));
    let mut from = offsets.next().unwrap_or_default();
    if from < begin {
        return Err(Error::corrupt(format!("its first sample begins at byte {from}, inside of its head")));
    }
    let mut places = Vec::with_capacity(table.len() / 4);
    for (number, to) in offsets.enumerate() {
        if to < from {
            return Err(Error::corrupt(format!("sample {number} ends before it begins")));
        }
        if to > size {
            let why = format!("truncated, sample {number} ends at byte {to} and there are {size}");
            return Err(Error::corrupt(why));
        }
        places.push(from..to);
        from = to;
    }
    Ok(places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_table_is_places_in_order_or_an_error(offsets in proptest::collection::vec(0u32..60, 1..8), size in 0u64..60) {
            let table: Vec<u8> = offsets.iter().flat_map(|offset| offset.to_le_bytes()).collect();
            if let Ok(places) = places(&table, 10, size) {
                prop_assert!(places.windows(2).all(|pair| pair[0].end == pair[1].start));
                prop_assert!(places.iter().all(|place| place.start >= 10 && place.start <= place.end && place.end <= size));
            }
        }
    }
}
