//! An image column done in two halves: pixels that are kept between them, and where pixels come from.
//!
//! Kept pixels carry a header of 32 bytes, all numbers little endian: `FBPX`, version 1, ops already done, columns,
//! rows, channels, the width of the units in which a JPEG was stored (0: none), zero. The width matters to the bit: a
//! resampler is given the same columns as if the JPEG were decoded for it, so that its arithmetic is the same.

use super::{ImagePath, ImageScratch, in_decode};
use crate::buffer::BufferPool;
use crate::decode::image::{Decoder, Info};
use crate::decode::jpeg;
use crate::geometry::Geometry;
use crate::image::{Image, ImageRef, Rect, byte_len};
use crate::image_path::settle::{Act, Step};
use crate::value::{SampleContext, Slot};
use forebay_core::recipe::ImageMode;
use forebay_core::{Error, Result, SampleId};

/// Bytes before the pixels.
pub(crate) const HEADER_BYTES: usize = 32;

const MAGIC: [u8; 4] = *b"FBPX";
const VERSION: u32 = 1;

/// Where the pixels of a sample come from.
pub(super) enum Source<'a> {
    /// From the payload.
    Payload(&'a [u8], Info),
    /// From what an earlier half left.
    Pixels(Pixels<'a>),
}

/// What an earlier half left.
pub(super) struct Pixels<'a> {
    done: usize,
    unit: Option<u32>,
    image: ImageRef<'a>,
}

impl ImagePath {
    /// Does the first `ops` ops and returns the pixels with their header.
    pub(crate) fn prepare_until(
        &self,
        ops: usize,
        payload: &[u8],
        scratch: &mut ImageScratch,
    ) -> Result<Vec<u8>> {
        let info = self.settle_until(ops, payload, scratch)?;
        let untouched = is_untouched(scratch, &info);
        let mirror = self.pixels(&Source::Payload(payload, info), scratch)?;
        for step in self.tail.iter().filter(|step| step.at < ops) {
            if let Step { act: Act::Delay(time), .. } = step {
                std::thread::sleep(*time);
            }
        }
        if !mirror.is_none() {
            return Err(Error::internal(format!("prepare an image until op {ops}: a mirror is left over")));
        }
        let image = scratch.current.as_ref();
        let unit = info.unit_width().filter(|_| untouched).unwrap_or(0);
        let mut made = Vec::with_capacity(HEADER_BYTES + image.pixels.len());
        made.extend(MAGIC);
        for number in [VERSION, ops as u32, image.width, image.height, image.channels as u32, unit, 0] {
            made.extend(number.to_le_bytes());
        }
        made.extend_from_slice(image.pixels);
        Ok(made)
    }

    /// Bytes that [`Self::prepare_until`] would return, from the header alone.
    pub(crate) fn bytes_until(&self, ops: usize, payload: &[u8], scratch: &mut ImageScratch) -> Result<u64> {
        let info = scratch.decoder.info(payload, self.orientation, self.max_pixels).map_err(in_decode)?;
        let quiet = |step: &&Step| step.at < ops && !matches!(step.act, Act::Delay(_));
        self.settle(&NOBODY, (info.width, info.height), quiet, scratch)?;
        let (width, height) = scratch.chain.size();
        Ok((HEADER_BYTES + byte_len(width, height, self.mode.channels())) as u64)
    }

    /// Does the ops that are left, from kept pixels.
    pub(crate) fn prepare_pixels(
        &self,
        sample: &SampleContext,
        kept: &[u8],
        slot: &mut Slot<'_>,
        scratch: &mut ImageScratch,
        pool: &BufferPool,
    ) -> Result<()> {
        self.prepare_from(sample, &Source::parse(kept, self.mode.channels())?, slot, scratch, pool)
    }

    fn settle_until(&self, ops: usize, payload: &[u8], scratch: &mut ImageScratch) -> Result<Info> {
        let info = scratch.decoder.info(payload, self.orientation, self.max_pixels).map_err(in_decode)?;
        self.settle(&NOBODY, (info.width, info.height), |step| step.at < ops, scratch)?;
        Ok(info)
    }
}

/// The sample whose chance is drawn where none may be.
const NOBODY: SampleContext = SampleContext { seed: 0, epoch: 0, sample_id: SampleId(0) };

/// Whether the pixels are those of the stored image, as far as it is decoded.
fn is_untouched(scratch: &ImageScratch, info: &Info) -> bool {
    scratch.chain.count() == 1 && *scratch.chain.get(0) == Geometry::identity(info.width, info.height)
}

impl<'a> Pixels<'a> {
    fn parse(kept: &'a [u8], channels: usize) -> Option<Self> {
        let (header, pixels) = kept.split_at_checked(HEADER_BYTES)?;
        let (words, _) = header.as_chunks::<4>();
        let mut numbers = words.iter().skip(1).map(|word| u32::from_le_bytes(*word));
        let mut next = || numbers.next();
        let (version, done, width, height, stored) = (next()?, next()?, next()?, next()?, next()?);
        let unit = next()?;
        let bytes = u64::from(width).checked_mul(u64::from(height))?.checked_mul(channels as u64)?;
        let sound = words.first() == Some(&MAGIC)
            && version == VERSION
            && stored as usize == channels
            && bytes == pixels.len() as u64;
        let image = ImageRef { width, height, channels, pixels };
        sound.then_some(Self { done: done as usize, unit: Some(unit).filter(|unit| *unit > 0), image })
    }
}

impl<'a> Source<'a> {
    /// Kept pixels.
    pub(super) fn parse(kept: &'a [u8], channels: usize) -> Result<Self> {
        let none = || Error::corrupt(format!("read kept pixels: {} bytes are none", kept.len()));
        Pixels::parse(kept, channels).map(Source::Pixels).ok_or_else(none)
    }
}

impl Source<'_> {
    /// Columns and rows.
    pub(super) fn size(&self) -> (u32, u32) {
        match self {
            Self::Payload(_, info) => (info.width, info.height),
            Self::Pixels(pixels) => (pixels.image.width, pixels.image.height),
        }
    }

    /// Ops already done.
    pub(super) fn done(&self) -> usize {
        match self {
            Self::Payload(..) => 0,
            Self::Pixels(pixels) => pixels.done,
        }
    }

    /// Brings at least `region` into `into` and says which pixels it holds.
    pub(super) fn decode(
        &self,
        decoder: &mut Decoder,
        mode: ImageMode,
        region: Rect,
        into: &mut Image,
    ) -> Result<Rect> {
        // Only border is left of the image: nothing to decode, but the empty box still needs a place.
        if region.is_empty() {
            into.reshape(region.width, region.height, mode.channels());
            return Ok(region);
        }
        match self {
            Self::Payload(payload, info) => {
                decoder.decode(payload, info, mode, region, into).map_err(in_decode)
            }
            Self::Pixels(pixels) => {
                let covered = jpeg::covered(pixels.unit, self.size(), region);
                into.reshape(covered.width, covered.height, mode.channels());
                pixels.image.copy_rect(covered, into.pixels_mut());
                Ok(covered)
            }
        }
    }

    /// Brings exactly `region` into `target` when that needs no detour, or says that it does.
    pub(super) fn decode_into(
        &self,
        decoder: &mut Decoder,
        mode: ImageMode,
        region: Rect,
        target: &mut [u8],
    ) -> Result<bool> {
        match self {
            Self::Payload(payload, info) => {
                decoder.decode_into(payload, info, mode, region, target).map_err(in_decode)
            }
            Self::Pixels(pixels) => {
                pixels.image.copy_rect(region, target);
                Ok(true)
            }
        }
    }
}

#[cfg(test)]
mod tests;
