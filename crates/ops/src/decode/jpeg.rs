//! JPEG to pixels with libjpeg-turbo: baseline and progressive, gray, color, CMYK and YCCK, all of it or a region.
//!
//! The decoder is a thin owner of the C library's handle. A handle keeps Huffman and quantization tables, and lends
//! them to a later image that has none of its own; so every image gets a new one, which costs nothing that can be
//! measured, and a result never depends on what was decoded before. Values are those of Pillow, which uses the same library
//! with the same settings (accurate DCT, smooth chroma). A region equals the same region of a full decode exactly:
//! the library is asked for more columns than are wanted, because its outermost ones lack a neighbour to
//! interpolate color from. Rows below the region are not decoded, so damage there goes unseen.

mod handle;

use self::handle::Handle;
use super::Header;
use super::exif;
use crate::image::{Image, Rect};
use crate::kernels::channels;
use forebay_core::recipe::ImageMode;
use forebay_core::{Error, Result};
use std::ffi::c_int;
use turbojpeg_sys as tj;

/// The first bytes of every JPEG.
pub const SIGNATURE: &[u8] = b"\xFF\xD8\xFF";

/// Columns of interpolation context decoded beyond a region.
const CONTEXT: u32 = 2;

/// Warnings after which the pixels are whole: the file has bytes too many, or says odd things about itself.
const HARMLESS: [&str; 3] = ["extraneous bytes before marker", "Unknown Adobe color transform", "JFIF"];

/// The library with the memory it reuses from image to image.
#[derive(Debug)]
pub struct Decoder {
    handle: Handle,
    staging: Image,
}

/// What a JPEG says about itself before its pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Size and orientation.
    pub header: Header,
    /// Columns of a minimum coded unit; `None` when the library cannot cut this image.
    unit_width: Option<u32>,
    color: Color,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Color {
    Gray,
    Rgb,
    Cmyk,
}

impl Decoder {
    /// A decoder, or an error when there is no memory for one.
    pub fn new() -> Result<Self> {
        Ok(Self { handle: Handle::new()?, staging: Image::default() })
    }

    /// Reads the header.
    pub fn info(&mut self, payload: &[u8]) -> Result<Info> {
        let handle = Handle::new()?;
        let (width, height) = handle
            .read_header(payload)
            .map_err(|said| Error::corrupt(format!("read jpeg header: {said}")))?;
        let precision = handle.get(tj::TJPARAM_TJPARAM_PRECISION);
        if precision > 8 {
            return Err(Error::unsupported(format!("decode jpeg: {precision} bits a channel")));
        }
        let colorspace = handle.get(tj::TJPARAM_TJPARAM_COLORSPACE);
        let color = if colorspace == tj::TJCS_TJCS_GRAY as c_int {
            Color::Gray
        } else if colorspace == tj::TJCS_TJCS_CMYK as c_int || colorspace == tj::TJCS_TJCS_YCCK as c_int {
            Color::Cmyk
        } else {
            Color::Rgb
        };
        let lossless = handle.get(tj::TJPARAM_TJPARAM_LOSSLESS) != 0;
        let unit_width = unit_width(handle.get(tj::TJPARAM_TJPARAM_SUBSAMP)).filter(|_| !lossless);
        let orientation = exif::jpeg_orientation(payload);
        self.handle = handle;
        Ok(Info { header: Header { width, height, orientation }, unit_width, color })
    }

    /// Decodes at least `region` into `into`, with the channels of `mode`, and says which pixels it holds. The caller
    /// has checked the size against its limit.
    ///
    /// # Panics
    /// When `region` reaches outside.
    pub fn decode(
        &mut self,
        payload: &[u8],
        info: &Info,
        mode: ImageMode,
        region: Rect,
        into: &mut Image,
    ) -> Result<Rect> {
        let covered = info.covered(region);
        let Rect { width, height, .. } = covered;
        match (info.color, mode) {
            (Color::Cmyk, _) => {
                let mut staging = std::mem::take(&mut self.staging);
                staging.reshape(width, height, 4);
                let made = self.pixels(payload, info, covered, tj::TJPF_TJPF_CMYK, staging.pixels_mut());
                // Three channels hold every result on its way; alpha is added to them.
                into.reshape(width, height, mode.channels().max(3));
                cmyk_to_rgb(staging.pixels(), into.pixels_mut());
                self.staging = staging;
                made?;
                channels::convert(into, 3, mode.channels());
            }
            (Color::Rgb, ImageMode::Gray) => {
                into.reshape(width, height, 3);
                self.pixels(payload, info, covered, tj::TJPF_TJPF_RGB, into.pixels_mut())?;
                channels::convert(into, 3, 1);
            }
            _ => {
                into.reshape(width, height, mode.channels());
                self.pixels(payload, info, covered, format_of(mode), into.pixels_mut())?;
            }
        }
        Ok(covered)
    }

    /// Decodes exactly `region` into `target` when the library can do that without a detour, or says that it cannot.
    ///
    /// # Panics
    /// When `region` reaches outside or `target` is not of its size.
    pub fn decode_into(
        &mut self,
        payload: &[u8],
        info: &Info,
        mode: ImageMode,
        region: Rect,
        target: &mut [u8],
    ) -> Result<bool> {
        let direct = match info.color {
            Color::Cmyk => false,
            Color::Rgb => mode != ImageMode::Gray,
            Color::Gray => true,
        };
        if !direct || info.covered(region) != region {
            return Ok(false);
        }
        self.pixels(payload, info, region, format_of(mode), target).map(|()| true)
    }

    fn pixels(
        &mut self,
        payload: &[u8],
        info: &Info,
        region: Rect,
        format: c_int,
        target: &mut [u8],
    ) -> Result<()> {
        let Header { width, height, .. } = info.header;
        let size = (width, height);
        self.handle.set(tj::TJPARAM_TJPARAM_STOPONWARNING, 1)?;
        let Err(mut said) = self.handle.decompress(payload, size, region, format, target) else {
            return Ok(());
        };
        let harmless = !self.handle.is_fatal() && HARMLESS.iter().any(|text| said.contains(text));
        self.handle = Handle::new()?;
        if harmless {
            // The library tells of its first warning only. Once that one is forgiven, so are later ones, as in Pillow.
            match self.handle.decompress(payload, size, region, format, target) {
                Err(fault) if self.handle.is_fatal() => said = fault,
                _ => return Ok(()),
            }
        }
        Err(Error::corrupt(format!("decode jpeg of {width}x{height}: {said}")))
    }
}

impl Info {
    /// The smallest region the library can decode of which `region` comes out right.
    fn covered(&self, region: Rect) -> Rect {
        let Header { width, height, .. } = self.header;
        covered(self.unit_width, (width, height), region)
    }

    /// Columns of a minimum coded unit; `None` when the library cannot cut this image.
    pub fn unit_width(&self) -> Option<u32> {
        self.unit_width
    }
}

/// The smallest region of an image of this size, with coded units of this width, of which `region` comes out right.
pub(crate) fn covered(unit: Option<u32>, (width, height): (u32, u32), region: Rect) -> Rect {
    let Some(unit) = unit else { return Rect::of_size(width, height) };
    let x = region.x.saturating_sub(CONTEXT) / unit * unit;
    let right = (region.right() + CONTEXT).next_multiple_of(unit).min(width);
    Rect { x, width: right - x, ..region }
}

fn format_of(mode: ImageMode) -> c_int {
    match mode {
        ImageMode::Gray => tj::TJPF_TJPF_GRAY,
        ImageMode::Rgb => tj::TJPF_TJPF_RGB,
        ImageMode::Rgba => tj::TJPF_TJPF_RGBA,
    }
}

/// Columns of a minimum coded unit.
fn unit_width(subsampling: c_int) -> Option<u32> {
    match subsampling {
        tj::TJSAMP_TJSAMP_444 | tj::TJSAMP_TJSAMP_GRAY | tj::TJSAMP_TJSAMP_440 | tj::TJSAMP_TJSAMP_441 => {
            Some(8)
        }
        tj::TJSAMP_TJSAMP_422 | tj::TJSAMP_TJSAMP_420 => Some(16),
        tj::TJSAMP_TJSAMP_411 => Some(32),
        _ => None,
    }
}

/// Converts inverted CMYK (as Adobe writes it and everyone has since) to the first three bytes of each pixel, with
/// Pillow's arithmetic. Pixels of the target without gaps, three bytes each.
fn cmyk_to_rgb(source: &[u8], target: &mut [u8]) {
    let (source, _) = source.as_chunks::<4>();
    let (target, _) = target.as_chunks_mut::<3>();
    for (to, &[c, m, y, black]) in target.iter_mut().zip(source) {
        *to = [c, m, y].map(|ink| black - mul_div_255(255 - ink, black));
    }
}

/// `a * b / 255`, rounded to nearest.
fn mul_div_255(a: u8, b: u8) -> u8 {
    let product = u32::from(a) * u32::from(b) + 128;
    ((product + (product >> 8)) >> 8) as u8
}

#[cfg(test)]
mod tests;
