//! WebP: the header never lies about what is decoded, and decoding never panics in any mode.
#![no_main]

use forebay_core::recipe::ImageMode;
use forebay_ops::Image;
use forebay_ops::decode::webp;
use libfuzzer_sys::fuzz_target;

/// Small enough for many runs a second; the limit of a recipe is checked in the same place.
const MAX_PIXELS: u64 = 1 << 18;

fuzz_target!(|payload: &[u8]| {
    let Ok(header) = webp::header(payload) else { return };
    assert!((1..=8).contains(&header.orientation));
    if u64::from(header.width) * u64::from(header.height) > MAX_PIXELS {
        return;
    }
    let mut image = Image::default();
    for mode in [ImageMode::Rgb, ImageMode::Gray, ImageMode::Rgba] {
        if webp::decode(payload, mode, &mut image).is_ok() {
            assert_eq!((image.width(), image.height()), (header.width, header.height));
            assert_eq!(image.channels(), mode.channels());
        }
    }
});
