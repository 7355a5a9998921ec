//! One image column: from an encoded payload to the row, along the shortest way.
//!
//! All chance is drawn and all geometry is settled from the header alone. Then only the needed region is decoded,
//! resampled once if the chain folds into one geometry, and written to the row by the finishing pass. The
//! invariant and the ways not taken are in `docs/design/image-path.md`.

mod compile;
mod follow;
mod half;
mod settle;

pub(crate) use self::half::HEADER_BYTES;

use self::half::Source;
use self::settle::{Act, Change, Step};
use crate::buffer::BufferPool;
use crate::decode::image::Decoder;
use crate::geometry::{Chain, Geometry, Mirror};
use crate::image::{Image, Rect, byte_len};
use crate::kernels::erase::RowForm;
use crate::kernels::normalize::Finish;
use crate::kernels::orient;
use crate::kernels::resample::Resampler;
use crate::value::{SampleContext, Slot, Tensor, Value};
use forebay_core::recipe::{ImageMode, Orientation};
use forebay_core::rng::Rng;
use forebay_core::tensor::{Dtype, Layout, TensorSpec};
use forebay_core::{Error, Facts, Result};

/// A compiled image column.
#[derive(Debug)]
pub(crate) struct ImagePath {
    mode: ImageMode,
    orientation: Orientation,
    max_pixels: u64,
    steps: Vec<Step>,
    finish: Finish,
    /// Done to the finished row, in output units.
    tail: Vec<Step>,
    dtype: Dtype,
    layout: Layout,
    /// Columns and rows of every result, when the recipe alone decides them.
    size: Option<(u32, u32)>,
    /// Whether it is a mask that goes the way of another column's image.
    follows: bool,
}

/// What one thread reuses from image to image.
#[derive(Debug)]
pub(crate) struct ImageScratch {
    decoder: Decoder,
    resampler: Resampler,
    chain: Chain,
    /// Changes, each with the number of the geometry that comes after it.
    changes: Vec<(usize, Change)>,
    current: Image,
    spare: Image,
}

impl ImageScratch {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            decoder: Decoder::new()?,
            resampler: Resampler::default(),
            chain: Chain::new(1, 1),
            changes: Vec::new(),
            current: Image::default(),
            spare: Image::default(),
        })
    }
}

impl ImagePath {
    /// Element type and shape of every result, when the recipe alone decides them.
    pub(crate) fn spec(&self) -> Option<TensorSpec> {
        self.size.map(|size| self.spec_of(size))
    }

    /// Prepares one image from its payload. `pool` gives memory for a result that has no row.
    pub(crate) fn prepare(
        &self,
        sample: &SampleContext,
        payload: &[u8],
        slot: &mut Slot<'_>,
        scratch: &mut ImageScratch,
        pool: &BufferPool,
    ) -> Result<()> {
        let info = scratch.decoder.info(payload, self.orientation, self.max_pixels).map_err(in_decode)?;
        self.prepare_from(sample, &Source::Payload(payload, info), slot, scratch, pool)
    }

    /// Prepares one frame of a video, which must be as large as the others.
    pub(crate) fn prepare_frame(
        &self,
        sample: &SampleContext,
        payload: &[u8],
        (width, height): (u32, u32),
        row: &mut [u8],
        scratch: &mut ImageScratch,
    ) -> Result<()> {
        let info = scratch.decoder.info(payload, self.orientation, self.max_pixels).map_err(in_decode)?;
        if (info.width, info.height) != (width, height) {
            let message = format!("it is {}x{}, others are {width}x{height}", info.width, info.height);
            return Err(in_decode(Error::corrupt(message)));
        }
        let source = Source::Payload(payload, info);
        self.settle(sample, source.size(), |_| true, scratch)?;
        self.fill(sample, &source, scratch, row)
    }

    /// Element type and shape of what a stored image of this size becomes.
    pub(crate) fn spec_for(
        &self,
        sample: &SampleContext,
        size: (u32, u32),
        scratch: &mut ImageScratch,
    ) -> Result<TensorSpec> {
        self.settle(sample, size, |step| !matches!(step.act, Act::Delay(_)), scratch)?;
        Ok(self.spec_of(scratch.chain.size()))
    }

    fn prepare_from(
        &self,
        sample: &SampleContext,
        source: &Source<'_>,
        slot: &mut Slot<'_>,
        scratch: &mut ImageScratch,
        pool: &BufferPool,
    ) -> Result<()> {
        self.settle(sample, source.size(), |step| step.at >= source.done(), scratch)?;
        let (width, height) = scratch.chain.size();
        match slot {
            Slot::Row(row) => self.fill(sample, source, scratch, row),
            Slot::Value(value) => {
                let spec = self.spec_of((width, height));
                let mut data = pool.take(spec.bytes());
                self.fill(sample, source, scratch, data.as_mut_slice())?;
                **value = Some(Value::Tensor(Tensor { spec, data }));
                Ok(())
            }
        }
    }

    fn spec_of(&self, (width, height): (u32, u32)) -> TensorSpec {
        let (width, height, channels) = (width as usize, height as usize, self.mode.channels());
        let shape = match self.layout {
            Layout::Chw => vec![channels, height, width],
            Layout::Hwc => vec![height, width, channels],
        };
        TensorSpec { dtype: self.dtype, shape }
    }

    /// Makes the pixels.
    fn fill(
        &self,
        sample: &SampleContext,
        source: &Source<'_>,
        scratch: &mut ImageScratch,
        row: &mut [u8],
    ) -> Result<()> {
        let (width, height) = scratch.chain.size();
        let form =
            RowForm { width, height, channels: self.mode.channels(), layout: self.layout, dtype: self.dtype };
        if row.len() != byte_len(width, height, form.channels) * self.dtype.size() {
            return Err(Error::internal(format!(
                "write an image of {width}x{height}: the row has {} bytes",
                row.len()
            )));
        }
        if !self.straight(source, scratch, row)? {
            let mirror = self.pixels(source, scratch)?;
            self.finish.run(scratch.current.as_ref(), mirror.horizontal, row);
        }
        for Step { key, act, .. } in self.tail.iter().filter(|step| step.at >= source.done()) {
            match act {
                Act::RandomErasing(op) => {
                    let rng = &mut Rng::for_op(sample.seed, sample.epoch, sample.sample_id, *key);
                    op.apply(row, form, rng);
                }
                Act::Delay(time) => std::thread::sleep(*time),
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes the row without a detour when it holds 8-bit pixels as they are: by the decoder, or by the resampler.
    fn straight(&self, source: &Source<'_>, scratch: &mut ImageScratch, row: &mut [u8]) -> Result<bool> {
        let geometry = scratch.chain.get(0);
        let plain = self.dtype == Dtype::U8 && (self.layout == Layout::Hwc || self.mode == ImageMode::Gray);
        if !plain || scratch.chain.count() > 1 || !geometry.mirror.is_none() {
            return Ok(false);
        }
        let whole = geometry.grid.is_none() && geometry.border.is_empty();
        let region = geometry.needed();
        if whole && source.decode_into(&mut scratch.decoder, self.mode, region, row)? {
            return Ok(true);
        }
        let covered = source.decode(&mut scratch.decoder, self.mode, region, &mut scratch.current)?;
        scratch.resampler.run(scratch.current.as_ref(), covered, geometry, row)?;
        Ok(true)
    }

    /// Leaves the pixels in `scratch.current`, and says how they must still be mirrored; only left and right.
    fn pixels(&self, source: &Source<'_>, scratch: &mut ImageScratch) -> Result<Mirror> {
        let ImageScratch { decoder, resampler, chain, changes, current, spare } = scratch;
        let region = chain.get(0).needed();
        let mut covered = source.decode(decoder, self.mode, region, current)?;
        let mut changes = changes.iter().peekable();
        let mut left = Mirror::default();
        for index in 0..chain.count() {
            while let Some((_, change)) = changes.next_if(|(before, _)| *before == index) {
                change.apply(current, spare);
            }
            let geometry = chain.get(index);
            if !is_there(geometry, covered) {
                spare.reshape(geometry.width(), geometry.height(), self.mode.channels());
                resampler.run(current.as_ref(), covered, geometry, spare.pixels_mut())?;
                std::mem::swap(current, spare);
            }
            covered = Rect::of_size(current.width(), current.height());
            let last = index + 1 == chain.count();
            left = Mirror { horizontal: last && geometry.mirror.horizontal, vertical: false };
            let now = Mirror { horizontal: geometry.mirror.horizontal && !last, ..geometry.mirror };
            orient::mirror(&mut current.as_mut(), now);
        }
        Ok(left)
    }
}

/// Whether the pixels at hand are already what the geometry asks for, mirrors aside.
fn is_there(geometry: &Geometry, covered: Rect) -> bool {
    geometry.grid.is_none() && geometry.border.is_empty() && geometry.needed() == covered
}

fn in_decode(error: Error) -> Error {
    error.with_facts(Facts { op: Some("decode".into()), ..Facts::default() })
}

#[cfg(test)]
mod tests;
