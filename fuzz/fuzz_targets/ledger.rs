//! Files of a ledger: what is read is no longer than the file, and checking it comes to an end.
#![no_main]

use forebay_core::ledger::{parse, streams};
use libfuzzer_sys::fuzz_target;

/// Positions of an epoch that are walked: hostile heads may name billions.
const MAX_POSITIONS: u64 = 1 << 12;

fuzz_target!(|bytes: &[u8]| {
    let Ok(parsed) = parse(bytes) else { return };
    assert!(parsed.whole_bytes <= bytes.len() as u64);
    let small = parsed.sections.into_iter().filter(|section| {
        section.head.positions <= MAX_POSITIONS && section.head.samples <= MAX_POSITIONS && section.head.world_size <= 64
    });
    for stream in streams(small) {
        let _ = stream.check(None, 4);
    }
});
