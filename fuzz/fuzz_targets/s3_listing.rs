//! Pages of S3 listings: keys are keys, and no page has more objects than it has bytes for.
#![no_main]

use forebay_store::{fuzzing::s3_listing, key};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(objects) = s3_listing(bytes) else { return };
    assert!(objects.len() * "<Contents></Contents>".len() <= bytes.len());
    assert!(objects.iter().all(|object| key::check_for_write(&object.key).is_ok()));
});
