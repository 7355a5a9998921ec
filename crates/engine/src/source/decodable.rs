//! Whether a payload can be decoded, judged by the ending of its field's name: the usual check of `verify`.

use bytes::Bytes;
use forebay_core::recipe::{ImageMode, Orientation, default_max_pixels, default_max_samples};
use forebay_core::{ErrorKind, Result};
use forebay_ops::decode::audio::Audio;
use forebay_ops::decode::image::Decoder;
use forebay_ops::decode::{json, label, npy, text};
use forebay_ops::image::{Image, Rect};
use std::cell::RefCell;

/// Decodes the payload and throws the result away. Fields of unknown kind are taken as sound.
pub fn decodable(field: &str, payload: &[u8]) -> Result<()> {
    let ending = field.rsplit('.').next().unwrap_or(field);
    match ending.to_ascii_lowercase().as_str() {
        "jpg" | "jpeg" | "png" | "webp" => image(payload),
        "wav" | "flac" | "mp3" | "ogg" | "opus" => audio(payload),
        "npy" => npy::decode(payload).map(drop),
        "json" => json::decode(payload).map(drop),
        "cls" | "cls2" => label::decode(payload).map(drop),
        "txt" => text::decode(payload).map(drop),
        _ => Ok(()),
    }
}

/// Audio of a kind that is known and not offered is nobody's damage.
fn audio(payload: &[u8]) -> Result<()> {
    let payload = Bytes::copy_from_slice(payload);
    match Audio::open(&payload).and_then(|audio| audio.decode(default_max_samples())) {
        Err(error) if error.kind() != ErrorKind::Unsupported => Err(error),
        _ => Ok(()),
    }
}

fn image(payload: &[u8]) -> Result<()> {
    thread_local! {
        /// Handles and pixels are used again for the payloads of one batch.
        static KEPT: RefCell<Option<(Decoder, Image)>> = const { RefCell::new(None) };
    }
    KEPT.with_borrow_mut(|kept| {
        let (decoder, pixels) = match kept {
            Some(kept) => kept,
            None => kept.insert((Decoder::new()?, Image::default())),
        };
        let info = decoder.info(payload, Orientation::Ignore, default_max_pixels())?;
        let whole = Rect::of_size(info.width, info.height);
        decoder.decode(payload, &info, ImageMode::Rgb, whole, pixels).map(drop)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_testkit::made::noise_jpeg;

    #[test]
    fn sound_payloads_pass_and_broken_ones_do_not() {
        let jpeg = noise_jpeg(1, 40, 30);
        decodable("jpg", &jpeg).unwrap();
        decodable("left.jpg", &jpeg).unwrap();
        assert!(decodable("jpg", b"not an image").is_err());
        assert!(decodable("jpg", &jpeg[..20]).is_err());
        assert!(decodable("json", b"{").is_err());
        assert!(decodable("cls", b"seven").is_err());
        decodable("cls", b"7").unwrap();
        decodable("bin", b"anything").unwrap();
        assert!(decodable("wav", b"RIFF\x04\0\0\0WAVE").is_err());
        decodable("flac", b"FORM of another kind").unwrap();
        let cut = [b"OggS\0\x02", &[0; 20][..], b"\x01\x13OpusHead"].concat();
        assert!(decodable("opus", &cut).is_err());
    }
}
