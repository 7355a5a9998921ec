//! Chunked bodies: never more than was asked for, whatever the chunks say. The first byte is how much is asked for.
#![no_main]

use forebay_store::fuzzing::chunked_body;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((limit, bytes)) = bytes.split_first() else { return };
    let limit = u64::from(*limit) * 16;
    let body = chunked_body(bytes, limit);
    assert!(body.len() as u64 <= limit && body.len() <= bytes.len());
});
