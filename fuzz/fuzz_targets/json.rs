//! JSON: the check ends for any bytes, and passes whatever a parser that builds values can read.
#![no_main]

use forebay_ops::decode::json;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|payload: &[u8]| {
    let checked = json::decode(payload).is_ok();
    if serde_json::from_slice::<serde_json::Value>(payload).is_ok() {
        assert!(checked);
    }
});
