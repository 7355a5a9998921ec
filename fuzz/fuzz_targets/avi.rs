//! AVI: any bytes give frames that lie inside them, no more than there are chunks, or are refused.
#![no_main]

use forebay_ops::decode::avi;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|payload: &[u8]| {
    let Ok(found) = avi::open(payload) else { return };
    assert!(!found.frames.is_empty() && found.frames.len() <= payload.len() / 8);
    assert!(found.frames.iter().all(|frame| payload.get(frame.clone()).is_some_and(|bytes| !bytes.is_empty())));
});
