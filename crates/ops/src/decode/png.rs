//! PNG to pixels: every color type and depth, interlaced or not; of an animated PNG the default image.
//!
//! Values are those of Pillow's `Image.open(..).convert(mode)`, with three exceptions where Pillow departs from the
//! PNG specification. 16-bit gray gives its high byte, as 16-bit color does in both (Pillow clips gray at 255, which
//! turns most such images white). A transparent color in a gray image of 2 or 4 bits, or in an image of 16 bits, is
//! compared before the depth is changed. Color profiles and gamma are ignored, as in Pillow.
//!
//! Bytes are hostile. Size limits hold before any allocation, and an image whose data could not hold its pixels
//! even at deflate's best ratio is refused, so memory stays in proportion to the payload.

use super::{Header, exif};
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

/// Width and height from the first chunk, orientation from the EXIF chunk wherever it is.
pub fn header(payload: &[u8]) -> Result<Header> {
    let Ihdr { size, .. } = ihdr(payload)?;
    let orientation = exif(payload).map_or(1, exif::tiff_orientation);
    Ok(Header { orientation, ..size })
}

/// Decodes into `into` with the channels of `mode`. The caller has checked the size against its limit of pixels.
pub fn decode(payload: &[u8], mode: ImageMode, into: &mut Image) -> Result<()> {
    let ihdr = ihdr(payload)?;
    let Header { width, height, .. } = ihdr.size;
    check_ratio(&ihdr, payload.len())?;
    let mut decoder = Decoder::new_with_limits(Cursor::new(payload), Limits { bytes: ANCILLARY_BYTES });
    decoder.set_transformations(Transformations::EXPAND | Transformations::STRIP_16);
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    let mut reader = decoder.read_info().map_err(fault)?;
    // The decoder takes a palette as it comes, and panics on one that ends inside a color or has too many.
    if let Some(palette) = &reader.info().palette
        && (!palette.len().is_multiple_of(3) || palette.len() > 3 * 256)
    {
        return Err(Error::corrupt(format!("decode png: the palette has {} bytes", palette.len())));
    }
    let (color, depth) = reader.output_color_type();
    debug_assert!(
        depth == BitDepth::Eight && color != ColorType::Indexed,
        "both transformations see to that"
    );

    // Pixels are decoded where they will stay, and widened or narrowed there.
    let (stored, wanted) = (color.samples(), mode.channels());
    into.reshape(width, height, stored.max(wanted));
    let frame = reader.next_frame(into.pixels_mut()).map_err(fault)?;
    if (frame.width, frame.height) != (width, height) {
        return Err(Error::corrupt(format!(
            "decode png of {width}x{height}: its default image is {}x{}",
            frame.width, frame.height
        )));
    }
    channels::convert(into, stored, wanted);
    Ok(())
}

/// Refuses an image that claims more pixels than deflate could pack into its payload, before memory is taken.
fn check_ratio(ihdr: &Ihdr, payload_bytes: usize) -> Result<()> {
    let Header { width, height, .. } = ihdr.size;
    let pixels = u64::from(width) * u64::from(height);
    if pixels == 0 {
        return Err(Error::corrupt(format!("decode png: the size is {width}x{height}")));
    }
    if (pixels / 8).saturating_mul(ihdr.bits_per_pixel)
        > (payload_bytes as u64).saturating_mul(DEFLATE_MAX_RATIO)
    {
        return Err(Error::corrupt(format!(
            "decode png of {width}x{height}: {payload_bytes} bytes cannot hold so many pixels"
        )));
    }
    Ok(())
}

struct Ihdr {
    size: Header,
    bits_per_pixel: u64,
}

/// Reads signature and IHDR, which must be the first chunk.
fn ihdr(payload: &[u8]) -> Result<Ihdr> {
    let Some(rest) = payload.strip_prefix(SIGNATURE) else {
        return Err(Error::corrupt("decode png: the signature is missing"));
    };
    let (Some(chunk), Some(body)) = (rest.get(..8), rest.get(8..21)) else {
        return Err(Error::corrupt(format!(
            "decode png: cut off after {} bytes, inside the header",
            payload.len()
        )));
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
        size: Header { width: word(0), height: word(4), orientation: 1 },
        bits_per_pixel: samples * u64::from(body[8]),
    })
}

/// The body of the EXIF chunk. Chunks are stepped over by their length; their checksums are the decoder's business.
fn exif(payload: &[u8]) -> Option<&[u8]> {
    let mut rest = payload.get(SIGNATURE.len()..)?;
    loop {
        let (len, tail) = rest.split_first_chunk::<4>()?;
        let (id, tail) = tail.split_first_chunk::<4>()?;
        let (body, tail) = tail.split_at_checked(u32::from_be_bytes(*len) as usize)?;
        if id == b"eXIf" {
            return Some(body);
        }
        rest = tail.get(4..)?;
    }
}

fn fault(cause: DecodingError) -> Error {
    match cause {
        DecodingError::LimitsExceeded => {
            Error::exhausted(format!("decode png: its chunks take more than {ANCILLARY_BYTES} bytes"))
        }
        DecodingError::Parameter(_) => Error::internal("decode png").with_source(cause),
        DecodingError::IoError(_) | DecodingError::Format(_) => {
            Error::corrupt("decode png").with_source(cause)
        }
    }
}
