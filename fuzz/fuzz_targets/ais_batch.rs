//! Archives that answer a batched read: entries lie inside the answer and come to an end.
#![no_main]

use bytes::Bytes;
use forebay_store::fuzzing::batch_entries;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let entries = batch_entries(Bytes::copy_from_slice(bytes));
    assert!(entries.len() * 512 <= bytes.len());
    assert!(entries.iter().map(|(_, payload)| payload.len()).sum::<usize>() <= bytes.len());
});
