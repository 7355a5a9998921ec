//! WebP to pixels: lossy, lossless, with alpha; of an animation the first frame on its canvas.
//!
//! Values are those of Pillow's `Image.open(..).convert(mode)`, that is of libwebp: alpha is dropped for `rgb`, not
//! blended. Color profiles are ignored.
//!
//! Bytes are hostile, and a WebP states its size in up to three places: the canvas, the frame and the bitstream.
//! The container is walked here first and all of them must agree and stay below the limit, because the decoder
//! believes the bitstream when it takes memory.

use super::{Header, exif};
use crate::image::Image;
use crate::kernels::channels;
use forebay_core::recipe::ImageMode;
use forebay_core::{Error, Result};
use image_webp::{DecodingError, WebPDecoder};
use std::io::Cursor;

/// Canvases with more pixels overflow the decoder's 32-bit sizes.
const CANVAS_MAX_PIXELS: u64 = 1 << 29;

/// Whether these are the first bytes of a WebP.
pub fn has_signature(payload: &[u8]) -> bool {
    payload.starts_with(b"RIFF") && payload.get(8..12) == Some(b"WEBP")
}

/// Width and height of the canvas, after checking that the bitstream says the same, and orientation.
pub fn header(payload: &[u8]) -> Result<Header> {
    if !has_signature(payload) {
        return Err(Error::corrupt("decode webp: the signature is missing"));
    }
    let mut chunks = Chunks { rest: &payload[12..] };
    let first = chunks.next().ok_or_else(|| cut_off("before the first chunk"))?;
    if &first.id != b"VP8X" {
        return bitstream_size(first);
    }
    let exif = chunks.clone().find(|chunk| &chunk.id == b"EXIF").map(|chunk| chunk.body);
    // Some writers keep the prefix that only JPEG needs.
    let exif = exif.map(|body| body.strip_prefix(b"Exif\0\0").unwrap_or(body));
    Ok(Header { orientation: exif.map_or(1, exif::tiff_orientation), ..extended_size(first, chunks)? })
}

/// Decodes into `into` with the channels of `mode`. The caller has checked the size against its limit of pixels.
pub fn decode(payload: &[u8], mode: ImageMode, into: &mut Image) -> Result<()> {
    let size = header(payload)?;
    let Header { width, height, .. } = size;
    let pixels = u64::from(width) * u64::from(height);
    if pixels == 0 || pixels > CANVAS_MAX_PIXELS {
        return Err(Error::unsupported(format!(
            "decode webp of {width}x{height}: 1 to {CANVAS_MAX_PIXELS} pixels"
        )));
    }
    let mut decoder = WebPDecoder::new(Cursor::new(payload)).map_err(fault)?;
    if decoder.dimensions() != (width, height) {
        let (width, height) = decoder.dimensions();
        return Err(disagree(size, size_of(width, height)));
    }
    // Pixels are decoded where they will stay, and widened or narrowed there.
    let (stored, wanted) = (if decoder.has_alpha() { 4 } else { 3 }, mode.channels());
    into.reshape(width, height, stored.max(wanted));
    let target = &mut into.pixels_mut()[..pixels as usize * stored];
    decoder.read_image(target).map_err(fault)?;
    channels::convert(into, stored, wanted);
    Ok(())
}

/// Size of the canvas of an extended file.
fn extended_size(first: Chunk<'_>, chunks: Chunks<'_>) -> Result<Header> {
    let body: &[u8; 10] = first.body.first_chunk().ok_or_else(|| cut_off("inside the extended header"))?;
    let canvas = size_of(1 + le24(&body[4..7]), 1 + le24(&body[7..10]));
    let animated = body[0] & 0b10 != 0;
    for chunk in chunks {
        match &chunk.id {
            b"ANMF" if animated => return check_frame(canvas, chunk.body),
            b"VP8 " | b"VP8L" if !animated => {
                let stored = bitstream_size(chunk)?;
                return if stored == canvas { Ok(canvas) } else { Err(disagree(canvas, stored)) };
            }
            _ => {}
        }
    }
    Err(Error::corrupt("decode webp: there is no image in the file"))
}

/// Checks the first frame of an animation: inside the canvas, and its bitstream of the frame's size.
fn check_frame(canvas: Header, body: &[u8]) -> Result<Header> {
    let head: &[u8; 16] = body.first_chunk().ok_or_else(|| cut_off("inside the first frame"))?;
    let (x, y) = (2 * le24(&head[0..3]), 2 * le24(&head[3..6]));
    let frame = size_of(1 + le24(&head[6..9]), 1 + le24(&head[9..12]));
    // None of these is above 2^25, so the sums do not wrap.
    if x + frame.width > canvas.width || y + frame.height > canvas.height {
        return Err(Error::corrupt("decode webp: the first frame reaches outside the canvas"));
    }
    let image = Chunks { rest: &body[16..] }
        .find(|chunk| matches!(&chunk.id, b"VP8 " | b"VP8L"))
        .ok_or_else(|| Error::corrupt("decode webp: there is no image in the first frame"))?;
    let stored = bitstream_size(image)?;
    if stored == frame { Ok(canvas) } else { Err(disagree(frame, stored)) }
}

/// Size as the first bytes of a lossy or lossless bitstream state it.
fn bitstream_size(chunk: Chunk<'_>) -> Result<Header> {
    match (&chunk.id, chunk.body) {
        (b"VP8 ", [_, _, _, 0x9d, 0x01, 0x2a, w0, w1, h0, h1, ..]) => {
            // The two highest bits ask a player to scale, which no decoder does.
            let side = |low, high| u32::from(u16::from_le_bytes([low, high]) & 0x3fff);
            Ok(size_of(side(*w0, *w1), side(*h0, *h1)))
        }
        (b"VP8L", [0x2f, bits @ ..]) if bits.len() >= 4 => {
            let bits = u32::from_le_bytes([bits[0], bits[1], bits[2], bits[3]]);
            Ok(size_of(1 + (bits & 0x3fff), 1 + (bits >> 14 & 0x3fff)))
        }
        (b"VP8 " | b"VP8L", _) => Err(Error::corrupt("decode webp: the image does not begin as one")),
        (id, _) => {
            let id = id.escape_ascii();
            Err(Error::corrupt(format!("decode webp: chunk `{id}` stands where the image should be")))
        }
    }
}

#[derive(Clone, Copy)]
struct Chunk<'a> {
    id: [u8; 4],
    body: &'a [u8],
}

/// The chunks of a RIFF list. A last chunk that is cut off is given as far as it goes.
#[derive(Clone)]
struct Chunks<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Chunks<'a> {
    type Item = Chunk<'a>;

    fn next(&mut self) -> Option<Chunk<'a>> {
        let (&id, rest) = self.rest.split_first_chunk::<4>()?;
        let (&len, rest) = rest.split_first_chunk::<4>()?;
        let len = u32::from_le_bytes(len) as usize;
        let body = &rest[..len.min(rest.len())];
        // Bodies of odd length are followed by one byte of padding.
        self.rest = rest.get(len + len % 2..).unwrap_or_default();
        Some(Chunk { id, body })
    }
}

fn le24(bytes: &[u8]) -> u32 {
    u32::from(bytes[0]) | u32::from(bytes[1]) << 8 | u32::from(bytes[2]) << 16
}

fn size_of(width: u32, height: u32) -> Header {
    Header { width, height, orientation: 1 }
}

fn cut_off(place: &str) -> Error {
    Error::corrupt(format!("decode webp: cut off {place}"))
}

fn disagree(outer: Header, inner: Header) -> Error {
    Error::corrupt(format!(
        "decode webp of {}x{}: the image inside is {}x{}",
        outer.width, outer.height, inner.width, inner.height
    ))
}

fn fault(cause: DecodingError) -> Error {
    match cause {
        DecodingError::UnsupportedFeature(_) => Error::unsupported("decode webp").with_source(cause),
        DecodingError::MemoryLimitExceeded => Error::exhausted("decode webp").with_source(cause),
        _ => Error::corrupt("decode webp").with_source(cause),
    }
}
