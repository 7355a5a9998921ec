//! Payloads that attack a decoder are refused: an error that says why, no panic, no memory out of proportion.
//!
//! `tests/data/attacks` holds one attack a file, named for what it tries; `tests/data/make.py` made them. What
//! fuzzing finds is kept there too.

use bytes::Bytes;
use forebay_core::recipe::{ImageMode, Orientation, default_max_pixels};
use forebay_core::{ErrorKind, Result};
use forebay_ops::decode::audio::Audio;
use forebay_ops::decode::{avi, image, json, label, npy, text};
use forebay_ops::{Image, Rect};
use std::path::Path;

/// Decodes a payload the way a recipe would, by the format that its name says.
fn decode(extension: &str, payload: &[u8], pixels: &mut Image) -> Result<()> {
    match extension {
        "jpg" | "png" | "webp" => {
            let mut decoder = image::Decoder::new()?;
            let info = decoder.info(payload, Orientation::Apply, default_max_pixels())?;
            let whole = Rect::of_size(info.width, info.height);
            decoder.decode(payload, &info, ImageMode::Rgb, whole, pixels).map(drop)
        }
        "npy" => npy::decode(payload).map(drop),
        "json" => json::decode(payload).map(drop),
        "txt" => text::decode(payload).map(drop),
        "cls" => label::decode(payload).map(drop),
        "wav" | "flac" | "mp3" | "ogg" | "opus" => {
            Audio::open(&Bytes::copy_from_slice(payload))?.decode(1 << 20).map(drop)
        }
        "avi" => avi::open(payload).map(drop),
        other => panic!("no decoder for `.{other}`"),
    }
}

#[test]
fn p079_every_attack_is_refused_with_a_reason() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/attacks");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let payload = std::fs::read(&path).unwrap();
        let mut pixels = Image::default();
        let refused = decode(path.extension().unwrap().to_str().unwrap(), &payload, &mut pixels);
        let error = refused.expect_err(&name);
        let kinds = [ErrorKind::Corrupt, ErrorKind::Unsupported, ErrorKind::Exhausted];
        assert!(kinds.contains(&error.kind()), "{name}: {error:?}");
        assert!(error.report().len() > 12, "{name}: {error:?}");
        assert!(
            pixels.pixels().len() <= 1 << 20,
            "{name}: {} bytes were taken for it",
            pixels.pixels().len()
        );
        seen += 1;
    }
    assert!(seen >= 50, "{seen} attacks were found");
}

#[test]
fn p079_an_image_cut_anywhere_is_an_error_or_its_first_part() {
    for (kind, name) in
        [("png", "rgb8"), ("png", "palette8_trns"), ("webp", "lossy_alpha"), ("webp", "animated")]
    {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(kind);
        let payload = std::fs::read(folder.join(format!("{name}.{kind}"))).unwrap();
        let mut pixels = Image::default();
        for len in 0..payload.len() {
            // Metadata after the pixels may be missing, so the last cuts may still decode.
            if decode(kind, &payload[..len], &mut pixels).is_ok() {
                assert!(
                    len > payload.len() / 2,
                    "{name}.{kind} decodes from {len} of {} bytes",
                    payload.len()
                );
            }
        }
    }
}
