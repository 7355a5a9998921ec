//! EXIF: the orientation of any bytes is 1 to 8.
#![no_main]

use forebay_ops::decode::exif;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    assert!((1..=8).contains(&exif::tiff_orientation(bytes)));
    assert!((1..=8).contains(&exif::jpeg_orientation(bytes)));
});
