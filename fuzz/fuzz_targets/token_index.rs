//! The index beside files of tokens, in pieces of any size: documents lie inside the data, in order.
#![no_main]

use forebay_ops::record::tokens::{Documents, HEAD_BYTES, Head};
use libfuzzer_sys::fuzz_target;
use std::ops::Range;

fuzz_target!(|bytes: &[u8]| {
    let Some((piece, index)) = bytes.split_first() else { return };
    let Some(head) = index.first_chunk::<HEAD_BYTES>() else { return };
    let Ok(head) = Head::parse(head, index.len() as u64) else { return };
    let part = |range: Range<u64>| &index[range.start as usize..range.end as usize];
    // The data is as long as the index says, or not.
    let lengths = part(head.lengths(0..head.sequences)).chunks_exact(4);
    let told: u64 = lengths.map(|four| u64::from(u32::from_le_bytes(four.try_into().unwrap_or_default()))).sum();
    for tokens in [told, told.saturating_sub(1)] {
        let Ok(mut documents) = Documents::new(head, tokens * head.dtype.size() as u64) else { return };
        if documents.take_entries(part(head.documents(0..head.entries))).is_err() {
            return;
        }
        let mut at = 0;
        while at < head.sequences {
            let end = head.sequences.min(at + 1 + u64::from(*piece));
            if documents.take_sequences(part(head.lengths(at..end)), part(head.places(at..end))).is_err() {
                return;
            }
            at = end;
        }
        let Ok(places) = documents.finish() else { continue };
        assert!(places.windows(2).all(|pair| pair[0].end <= pair[1].start));
        assert!(places.iter().all(|place| place.start < place.end && place.end <= tokens));
    }
});
