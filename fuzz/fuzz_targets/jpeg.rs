//! JPEG: any bytes decode to an image of the size the header says, whole and in part, or are refused.
#![no_main]

use forebay_core::recipe::ImageMode;
use forebay_ops::decode::jpeg::Decoder;
use forebay_ops::{Image, Rect};
use libfuzzer_sys::fuzz_target;

const MAX_PIXELS: u64 = 1 << 18;

fuzz_target!(|payload: &[u8]| {
    let Ok(mut decoder) = Decoder::new() else { return };
    let Ok(info) = decoder.info(payload) else { return };
    let (width, height) = (info.header.width, info.header.height);
    if width == 0 || height == 0 || u64::from(width) * u64::from(height) > MAX_PIXELS {
        return;
    }
    let part = Rect { x: width / 3, y: height / 3, width: width.div_ceil(3), height: height.div_ceil(3) };
    let mut image = Image::default();
    for region in [Rect::of_size(width, height), part] {
        for mode in [ImageMode::Rgb, ImageMode::Gray, ImageMode::Rgba] {
            if let Ok(covered) = decoder.decode(payload, &info, mode, region, &mut image) {
                assert!(
                    covered.x <= region.x && covered.right() >= region.right() && covered.right() <= width
                );
                assert!(
                    covered.y <= region.y
                        && covered.bottom() >= region.bottom()
                        && covered.bottom() <= height
                );
                assert_eq!((image.width(), image.height()), (covered.width, covered.height));
                assert_eq!(image.channels(), mode.channels());
            }
        }
    }
});
