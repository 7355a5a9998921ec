//! Any image: tells formats apart, knows the upright size before decoding, and decodes what is needed of it.

use super::{Header, jpeg, png, webp};
use crate::image::{Image, Rect};
use crate::kernels::orient;
use forebay_core::recipe::{ImageMode, Orientation};
use forebay_core::{Error, Result};

/// Columns or rows of an image. Filters take memory in proportion to a side, whatever the other one is.
const MAX_SIDE: u32 = 1 << 20;

/// Decoders of all formats with the memory they reuse.
#[derive(Debug)]
pub struct Decoder {
    jpeg: jpeg::Decoder,
    stored: Image,
}

/// What is known of an image before its pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Columns of the upright image.
    pub width: u32,
    /// Rows of the upright image.
    pub height: u32,
    /// How the stored pixels must be turned; 1 when they stay as they are.
    orientation: u8,
    stored: Header,
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Jpeg(jpeg::Info),
    Png,
    WebP,
}

impl Info {
    /// Columns that are decoded together, when a region can be decoded without the rest.
    pub fn unit_width(&self) -> Option<u32> {
        match &self.format {
            Format::Jpeg(jpeg) if self.orientation == 1 => jpeg.unit_width(),
            _ => None,
        }
    }
}

impl Decoder {
    /// New handles.
    pub fn new() -> Result<Self> {
        Ok(Self { jpeg: jpeg::Decoder::new()?, stored: Image::default() })
    }

    /// Reads the header and refuses images of more than `max_pixels`.
    pub fn info(&mut self, payload: &[u8], orientation: Orientation, max_pixels: u64) -> Result<Info> {
        let (format, stored) = if payload.starts_with(jpeg::SIGNATURE) {
            let info = self.jpeg.info(payload)?;
            (Format::Jpeg(info), info.header)
        } else if payload.starts_with(png::SIGNATURE) {
            (Format::Png, png::header(payload)?)
        } else if webp::has_signature(payload) {
            (Format::WebP, webp::header(payload)?)
        } else {
            return Err(unknown(payload));
        };
        let Header { width, height, .. } = stored;
        if width == 0 || height == 0 {
            return Err(Error::corrupt(format!("read image header: the size is {width}x{height}")));
        }
        let pixels = u64::from(width) * u64::from(height);
        if pixels > max_pixels {
            let message = format!("decode an image of {width}x{height}: more than max_pixels = {max_pixels}");
            return Err(Error::exhausted(message).with_hint("raise `max_pixels` if images may be so large"));
        }
        if width.max(height) > MAX_SIDE {
            return Err(Error::exhausted(format!(
                "decode an image of {width}x{height}: a side is above {MAX_SIDE}"
            )));
        }
        let orientation = match orientation {
            Orientation::Ignore => 1,
            Orientation::Apply => stored.orientation,
        };
        let (width, height) = if orient::is_turned(orientation) { (height, width) } else { (width, height) };
        Ok(Info { width, height, orientation, stored, format })
    }

    /// Decodes at least `region` of the upright image into `into` and says which pixels it holds.
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
        if info.orientation == 1 {
            return self.decode_stored(payload, info, mode, region, into);
        }
        let whole = Rect::of_size(info.stored.width, info.stored.height);
        let mut stored = std::mem::take(&mut self.stored);
        let made = self.decode_stored(payload, info, mode, whole, &mut stored);
        if made.is_ok() {
            orient::upright(stored.as_ref(), info.orientation, into);
        }
        self.stored = stored;
        made.map(|_| Rect::of_size(info.width, info.height))
    }

    /// Decodes exactly `region` into `target` when that needs no detour, or says that it does.
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
        match &info.format {
            Format::Jpeg(jpeg) if info.orientation == 1 => {
                self.jpeg.decode_into(payload, jpeg, mode, region, target)
            }
            _ => Ok(false),
        }
    }

    fn decode_stored(
        &mut self,
        payload: &[u8],
        info: &Info,
        mode: ImageMode,
        region: Rect,
        into: &mut Image,
    ) -> Result<Rect> {
        match &info.format {
            Format::Jpeg(jpeg) => return self.jpeg.decode(payload, jpeg, mode, region, into),
            Format::Png => png::decode(payload, mode, into)?,
            Format::WebP => webp::decode(payload, mode, into)?,
        }
        Ok(Rect::of_size(into.width(), into.height()))
    }
}

fn unknown(payload: &[u8]) -> Error {
    let start: Vec<String> = payload.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let message = match start.as_slice() {
        [] => "decode an image: the payload is empty".to_owned(),
        bytes => {
            format!("decode an image: it begins with `{}`, which is no JPEG, PNG or WebP", bytes.join(" "))
        }
    };
    Error::corrupt(message)
}
