//! PNG and WebP of every kind decode to the pixels that Pillow gives for them.
//!
//! `tests/data/{png,webp}` holds each image beside the concatenated pixels of Pillow's `RGB`, `L` and `RGBA`
//! conversions; `tests/data/make.py` made both.
#![expect(clippy::unwrap_used, reason = "a test that cannot read its data fails")]

use forebay_core::Result;
use forebay_core::recipe::ImageMode;
use forebay_ops::Image;
use forebay_ops::decode::{Header, png, webp};
use std::path::{Path, PathBuf};

/// Largest difference in levels over all files and modes, and the number of files.
fn compare(
    kind: &str,
    header: impl Fn(&[u8]) -> Result<Header>,
    decode: impl Fn(&[u8], ImageMode, &mut Image) -> Result<()>,
) -> (u8, usize) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(kind);
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == kind));
    let mut worst = 0;
    // One image for all: what an earlier sample left in it must not show.
    let mut image = Image::default();
    for path in &files {
        let payload = std::fs::read(path).unwrap();
        let expected = std::fs::read(path.with_extension("raw")).unwrap();
        let size = header(&payload).unwrap();
        let pixels = (size.width * size.height) as usize;
        assert_eq!(expected.len(), pixels * 8, "{}", path.display());
        let (rgb, rest) = expected.split_at(pixels * 3);
        let (gray, rgba) = rest.split_at(pixels);
        for (mode, expected) in [(ImageMode::Rgb, rgb), (ImageMode::Gray, gray), (ImageMode::Rgba, rgba)] {
            decode(&payload, mode, &mut image)
                .unwrap_or_else(|error| panic!("{}: {error:?}", path.display()));
            assert_eq!((image.width(), image.height()), (size.width, size.height));
            assert_eq!(image.pixels().len(), expected.len(), "{} {mode:?}", path.display());
            let off = image.pixels().iter().zip(expected).map(|(a, b)| a.abs_diff(*b)).max().unwrap();
            assert!(off <= 1, "{} as {mode:?} is off by {off}", path.display());
            worst = worst.max(off);
        }
    }
    (worst, files.len())
}

#[test]
fn orientation_is_found_in_both_formats() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let read = |name| std::fs::read(folder.join(name)).unwrap();
    assert_eq!(png::header(&read("png/exif.png")).unwrap().orientation, 6);
    assert_eq!(webp::header(&read("webp/exif.webp")).unwrap().orientation, 6);
    assert_eq!(png::header(&read("png/rgb8.png")).unwrap().orientation, 1);
    assert_eq!(webp::header(&read("webp/lossy_alpha.webp")).unwrap().orientation, 1);
}

#[test]
fn p033_png_equals_pillow() {
    assert_eq!(compare("png", png::header, png::decode), (0, 22));
}

#[test]
fn p033_webp_equals_pillow() {
    assert_eq!(compare("webp", webp::header, webp::decode), (0, 7));
}
