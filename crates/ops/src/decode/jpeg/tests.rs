//! Promises of the JPEG decoder.

use super::*;
use crate::encode::{self, JpegOptions, Subsampling};
use crate::image::byte_len;
use forebay_core::ErrorKind;
use proptest::prelude::*;

/// Smooth shapes with noise: every coefficient of a block is used, and color changes sharply somewhere.
fn photo(width: u32, height: u32, channels: usize) -> Image {
    let mut image = Image::new(width, height, channels);
    let mut noise = 12345u32;
    for (index, value) in image.pixels_mut().iter_mut().enumerate() {
        noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let (x, y) = ((index / channels) as u32 % width, (index / channels) as u32 / width);
        let channel = (index % channels) as f32;
        let wave = (x as f32 * 0.21 + channel).sin() * 60.0 + (y as f32 * 0.13 - channel).cos() * 50.0;
        let edge = if (x / 5 + y / 7) % 3 == channel as u32 % 3 { 40.0 } else { 0.0 };
        *value = (110.0 + wave + edge + (noise >> 28) as f32) as u8;
    }
    image
}

fn full(decoder: &mut Decoder, jpeg: &[u8], mode: ImageMode) -> Result<Image> {
    let info = decoder.info(jpeg)?;
    let whole = Rect::of_size(info.header.width, info.header.height);
    let mut image = Image::default();
    assert_eq!(decoder.decode(jpeg, &info, mode, whole, &mut image)?, whole);
    Ok(image)
}

fn subsampling() -> impl Strategy<Value = Subsampling> {
    prop_oneof![
        Just(Subsampling::S444),
        Just(Subsampling::S422),
        Just(Subsampling::S420),
        Just(Subsampling::S440),
        Just(Subsampling::S411),
        Just(Subsampling::Gray),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn a_region_equals_the_same_region_of_a_full_decode(
        (width, height) in (1u32..130, 1u32..130),
        (left, top, right, bottom) in (0.0..1.0f64, 0.0..1.0f64, 0.0..1.0f64, 0.0..1.0f64),
        subsampling in subsampling(),
        progressive: bool,
        mode in prop_oneof![Just(ImageMode::Rgb), Just(ImageMode::Gray), Just(ImageMode::Rgba)],
    ) {
        let options = JpegOptions { quality: 85, subsampling, progressive, cmyk: false };
        let jpeg = encode::jpeg_with(&photo(width, height, 3), &options).unwrap();
        let span = |a: f64, b: f64, len: u32| {
            let (a, b) = ((a * f64::from(len)) as u32, (b * f64::from(len)) as u32);
            (a.min(b), a.abs_diff(b) + 1)
        };
        let ((x, w), (y, h)) = (span(left, right, width), span(top, bottom, height));
        let region = Rect { x, y, width: w, height: h };
        let mut decoder = Decoder::new().unwrap();
        let whole = full(&mut decoder, &jpeg, mode).unwrap();
        let info = decoder.info(&jpeg).unwrap();
        let mut piece = Image::default();
        let covered = decoder.decode(&jpeg, &info, mode, region, &mut piece).unwrap();
        let inside = Rect { x: x - covered.x, y: y - covered.y, ..region };
        prop_assert_eq!(piece.cropped(inside), whole.cropped(region));

        let mut target = vec![0; byte_len(w, h, mode.channels())];
        if decoder.decode_into(&jpeg, &info, mode, region, &mut target).unwrap() {
            let expected = whole.cropped(region);
            prop_assert_eq!(target, expected.pixels());
        }
    }

    #[test]
    fn damaged_bytes_are_an_error_or_an_image_and_never_a_panic(
        at in 0usize..4000, byte: u8, cut in 2usize..4000, progressive: bool,
    ) {
        let options = JpegOptions { progressive, ..JpegOptions::default() };
        let mut jpeg = encode::jpeg_with(&photo(64, 48, 3), &options).unwrap();
        let at = at % jpeg.len();
        jpeg[at] = byte;
        jpeg.truncate(cut.min(jpeg.len()));
        let mut decoder = Decoder::new().unwrap();
        if let Ok(info) = decoder.info(&jpeg) {
            let Header { width, height, .. } = info.header;
            if u64::from(width) * u64::from(height) < 1 << 22 {
                let _ = full(&mut decoder, &jpeg, ImageMode::Rgb);
            }
        }
        let next = encode::jpeg(&photo(9, 9, 3), 90, Subsampling::S420).unwrap();
        let undisturbed = full(&mut Decoder::new().unwrap(), &next, ImageMode::Rgb).unwrap();
        prop_assert_eq!(full(&mut decoder, &next, ImageMode::Rgb).unwrap(), undisturbed);
    }
}

#[test]
fn truncated_data_is_corrupt_and_the_message_says_so() {
    let jpeg = encode::jpeg(&photo(200, 200, 3), 95, Subsampling::S420).unwrap();
    let error = full(&mut Decoder::new().unwrap(), &jpeg[..jpeg.len() / 2], ImageMode::Rgb).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.message().contains("200x200") && error.message().contains("remature"), "{error}");
}

#[test]
fn bytes_too_many_before_a_marker_are_forgiven_as_pillow_does() {
    let jpeg = encode::jpeg(&photo(64, 64, 3), 90, Subsampling::S420).unwrap();
    let mut decoder = Decoder::new().unwrap();
    let clean = full(&mut decoder, &jpeg, ImageMode::Rgb).unwrap();
    let mut padded = jpeg[..jpeg.len() - 2].to_vec();
    padded.extend([0, 0, 0, 0xFF, 0xD9]);
    assert_eq!(full(&mut decoder, &padded, ImageMode::Rgb).unwrap(), clean);
}

#[test]
fn ycck_is_converted_as_pillow_converts_cmyk() {
    let options =
        JpegOptions { quality: 100, subsampling: Subsampling::S444, progressive: false, cmyk: true };
    let mut flat = Image::new(16, 16, 4);
    // Inverted CMYK: full ink is 0.
    for pixel in flat.pixels_mut().chunks_exact_mut(4) {
        pixel.copy_from_slice(&[200, 100, 50, 220]);
    }
    let jpeg = encode::jpeg_with(&flat, &options).unwrap();
    let adobe = jpeg.windows(5).position(|word| word == b"Adobe").unwrap();
    assert_eq!(jpeg[adobe + 11], 2, "Adobe's number for YCCK; plain CMYK is among the images of Pillow");
    let mut decoder = Decoder::new().unwrap();
    let image = full(&mut decoder, &jpeg, ImageMode::Rgb).unwrap();
    // Pillow: Image.merge("CMYK", (55, 155, 205, 35)).convert("RGB").
    let expected = [173u8, 86, 43];
    assert!(
        image.pixel(8, 8).iter().zip(expected).all(|(a, b)| a.abs_diff(b) <= 2),
        "{:?}",
        image.pixel(8, 8)
    );
    assert_eq!(full(&mut decoder, &jpeg, ImageMode::Rgba).unwrap().pixel(8, 8)[3], 255);
    assert_eq!(full(&mut decoder, &jpeg, ImageMode::Gray).unwrap().channels(), 1);
}

#[test]
fn gray_is_repeated_and_color_becomes_luma() {
    let mut decoder = Decoder::new().unwrap();
    let gray = encode::jpeg(&photo(20, 20, 1), 95, Subsampling::Gray).unwrap();
    let rgb = full(&mut decoder, &gray, ImageMode::Rgb).unwrap();
    let one = full(&mut decoder, &gray, ImageMode::Gray).unwrap();
    assert!(rgb.pixels().chunks(3).zip(one.pixels()).all(|(rgb, gray)| rgb == [*gray; 3]));
    let color = encode::jpeg(&photo(20, 20, 3), 95, Subsampling::S444).unwrap();
    let rgb = full(&mut decoder, &color, ImageMode::Rgb).unwrap();
    let luma = full(&mut decoder, &color, ImageMode::Gray).unwrap();
    let [r, g, b] = *rgb.pixel(3, 4) else { panic!("three channels") };
    assert_eq!(luma.pixel(3, 4), [channels::luma(r, g, b)]);
}

/// The segments of a JPEG before its pixels, without those of one kind.
fn without(jpeg: &[u8], marker: u8) -> Vec<u8> {
    let (mut kept, mut at) = (jpeg[..2].to_vec(), 2);
    while jpeg[at + 1] != 0xDA {
        let end = at + 2 + usize::from(u16::from_be_bytes([jpeg[at + 2], jpeg[at + 3]]));
        if jpeg[at + 1] != marker {
            kept.extend(&jpeg[at..end]);
        }
        at = end;
    }
    kept.extend(&jpeg[at..]);
    kept
}

#[test]
fn an_image_without_tables_never_borrows_those_of_the_one_before() {
    let bare = without(&encode::jpeg(&photo(40, 40, 3), 90, Subsampling::S420).unwrap(), 0xC4);
    // Progressive files bring tables of their own making.
    let options = JpegOptions { progressive: true, ..JpegOptions::default() };
    let before = encode::jpeg_with(&photo(64, 64, 3), &options).unwrap();
    let mut used = Decoder::new().unwrap();
    full(&mut used, &before, ImageMode::Rgb).unwrap();
    let fresh = full(&mut Decoder::new().unwrap(), &bare, ImageMode::Rgb);
    assert_eq!(full(&mut used, &bare, ImageMode::Rgb).ok(), fresh.ok());
}

#[test]
fn a_flood_of_scans_is_refused() {
    let options = JpegOptions { progressive: true, ..JpegOptions::default() };
    let jpeg = encode::jpeg_with(&photo(8, 8, 3), &options).unwrap();
    // The last scan, header and data, many times over.
    let last = jpeg.windows(2).rposition(|pair| pair == [0xFF, 0xDA]).unwrap();
    let mut flood = jpeg[..jpeg.len() - 2].to_vec();
    for _ in 0..600 {
        flood.extend(&jpeg[last..jpeg.len() - 2]);
    }
    flood.extend([0xFF, 0xD9]);
    let error = full(&mut Decoder::new().unwrap(), &flood, ImageMode::Rgb).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
}
