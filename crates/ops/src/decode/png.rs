//! PNG to pixels: every color type and depth, interlaced or not; of an animated PNG the default image.
//!
//! Values are those of Pillow's `Image.open(..).convert(mode)`, with three exceptions where Pillow departs from the
//! PNG specification. 16-bit gray gives its high byte, as 16-bit color does in both (Pillow clips gray at 255, which
//! turns most such images white). A transparent color in a gray image of 2 or 4 bits, or in an image of 16 bits, is
//! compared before the depth is changed. Color profiles and gamma are ignored, as in Pillow.
//!
//! Bytes are hostile. Size limits hold before any allocation, and an image whose data could not hold its pixels
//! even at deflate's best ratio is refused, so memory stays in proportion to the payload.

use super::header::{self, ImageHeader};
use crate::image::Image;
use crate::kernels::channels;
use forebay_core::recipe::ImageMode;
use forebay_core::{Error, Result};
use png::{BitDepth, ColorType, Decoder, DecodingError, Limits, Transformations};
use std::io::Cursor;

/// The first bytes of every PNG.
pub const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";

/// Memory the decoder may take for what is neither pixels nor a row: palettes, and chunks that we do not use.
const ANCILLARY_BYTES: usize = 8 << 20;

/// No deflate stream expands by more; 258 bytes in two bits.
const DEFLATE_MAX_RATIO: u64 = 1032;

/// Width and height, from the first chunk.
pub fn header(bytes: &[u8]) -> Result<ImageHeader> {
    ihdr(bytes).map(|ihdr| ihdr.size)
}

/// Decodes into `image` with the channels of `mode`. `staging` is memory to be reused between calls.
pub fn decode(
    bytes: &[u8],
    mode: ImageMode,
    max_pixels: u64,
    staging: &mut Vec<u8>,
    image: &mut Image,
) -> Result<()> {
    let ihdr = ihdr(bytes)?;
    let ImageHeader { width, height } = ihdr.size;
    ihdr.size.check("png", max_pixels)?;
    let least = ihdr.size.pixels() * ihdr.bits_per_pixel / 8;
    if least > (bytes.len() as u64).saturating_mul(DEFLATE_MAX_RATIO) {
        let message = format!("decode png of {width}x{height}: {} bytes cannot hold so many pixels", bytes.len());
        return Err(Error::corrupt(message));
    }

    let mut decoder = Decoder::new_with_limits(Cursor::new(bytes), Limits { bytes: ANCILLARY_BYTES });
    decoder.set_transformations(Transformations::EXPAND | Transformations::STRIP_16);
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    let mut reader = decoder.read_info().map_err(fault)?;
    let (color, depth) = reader.output_color_type();
    debug_assert_eq!(depth, BitDepth::Eight, "both transformations together leave 8 bits");
    let stored = color.samples();
    let size = reader.output_buffer_size().ok_or_else(|| fault(DecodingError::LimitsExceeded))?;

    let frame = if stored == mode.channels() {
        image.reshape(width, height, stored);
        reader.next_frame(image.pixels_mut())
    } else {
        header::resize(staging, size, "png")?;
        reader.next_frame(staging)
    }
    .map_err(fault)?;
    if (frame.width, frame.height) != (width, height) || color == ColorType::Indexed {
        return Err(Error::corrupt(format!(
            "decode png of {width}x{height}: its first frame is {}x{}",
            frame.width, frame.height
        )));
    }
    if stored != mode.channels() {
        image.reshape(width, height, mode.channels());
        channels::convert(staging, stored, image.pixels_mut(), mode.channels());
    }
    Ok(())
}

struct Ihdr {
    size: ImageHeader,
    bits_per_pixel: u64,
}

/// Reads signature and IHDR, which must be the first chunk.
fn ihdr(bytes: &[u8]) -> Result<Ihdr> {
    let Some(rest) = bytes.strip_prefix(SIGNATURE) else {
        return Err(Error::corrupt("decode png: the signature is missing"));
    };
    let (Some(chunk), Some(body)) = (rest.get(..8), rest.get(8..21)) else {
        return Err(Error::corrupt(format!("decode png: cut off after {} bytes, inside the header", bytes.len())));
    };
    if chunk != b"\0\0\0\x0dIHDR" {
        return Err(Error::corrupt("decode png: the first chunk is not a header of 13 bytes"));
    }
    let word = |at: usize| u32::from_be_bytes([body[at], body[at + 1], body[at + 2], body[at + 3]]);
    let samples = match body[9] {
        0 | 3 => 1,
        4 => 2,
        2 => 3,
        6 => 4,
        other => return Err(Error::corrupt(format!("decode png: color type {other} does not exist"))),
    };
    Ok(Ihdr {
        size: ImageHeader { width: word(0), height: word(4) },
        bits_per_pixel: samples * u64::from(body[8]),
    })
}

fn fault(cause: DecodingError) -> Error {
    match cause {
        DecodingError::LimitsExceeded => {
            Error::exhausted(format!("decode png: its chunks take more than {ANCILLARY_BYTES} bytes"))
        }
        DecodingError::Parameter(_) => Error::internal("decode png").with_source(cause),
        DecodingError::IoError(_) | DecodingError::Format(_) => Error::corrupt("decode png").with_source(cause),
    }
}
