//! One column of video: from stored frames to a tensor whose first axis is time.
//!
//! Each frame goes the way of an image ([`crate::image_path`]) into its part of the row. Chance is keyed by the sample, so
//! all frames draw the same; frames that are not taken are not decoded. Where frames lie is found by
//! [`crate::decode::avi`], or they are fields of their own.

use crate::augment::clip;
use crate::buffer::BufferPool;
use crate::decode::avi;
use crate::image_path::{ImagePath, ImageScratch};
use crate::value::{Input, SampleContext, Slot, Tensor, Value};
use forebay_core::recipe::{Clip, Decode, FieldRecipe, Op, Orientation};
use forebay_core::rng::Rng;
use forebay_core::tensor::TensorSpec;
use forebay_core::{Error, Facts, Result};

/// Most bytes of one video without a batch's row: many frames of a small file must not take all memory.
const MAX_BYTES: usize = 16 << 30;

/// A compiled column of video.
#[derive(Debug)]
pub(crate) struct VideoPath {
    image: ImagePath,
    clip: Option<Clip>,
    /// Keys the chance of the clip, which is the column's first op.
    key: u64,
    max_pixels: u64,
}

impl VideoPath {
    /// Compiles column number `column`, or adds what is wrong to `faults`.
    pub(crate) fn compile(column: usize, field: &FieldRecipe, faults: &mut Vec<String>) -> Option<Self> {
        let Decode::Video { mode, max_pixels } = field.decode else { return None };
        let decode = Decode::Image { mode, orientation: Orientation::Ignore, max_pixels };
        // A pause is one for a sample; a clip stands first, so places of ops that draw stay what they are without it.
        let mut ops = field.ops.clone();
        ops.retain(|op| !matches!(op, Op::Delay { .. }));
        let image = ImagePath::compile(column, &FieldRecipe { decode, ops, ..field.clone() }, faults)?;
        Some(Self { image, clip: field.clip().copied(), key: column as u64 * 1000, max_pixels })
    }

    /// Element type and shape of every result, when the recipe alone decides them.
    pub(crate) fn spec(&self) -> Option<TensorSpec> {
        let frames = self.clip.as_ref()?.frames as usize;
        self.image.spec().map(|frame| over_time(frames, &frame))
    }

    /// Prepares one sample. `pool` gives memory for a result that has no row.
    pub(crate) fn prepare(
        &self,
        sample: &SampleContext,
        input: &Input,
        slot: &mut Slot<'_>,
        scratch: &mut ImageScratch,
        pool: &BufferPool,
    ) -> Result<()> {
        let (stored, height) = stored(input).map_err(in_decode)?;
        if stored.is_empty() {
            return Err(in_decode(Error::corrupt("decode video: it has no frame")));
        }
        let taken = match &self.clip {
            Some(clip) => {
                let rng = &mut Rng::for_op(sample.seed, sample.epoch, sample.sample_id, self.key);
                let named =
                    |error: Error| error.with_facts(Facts { op: Some("clip".into()), ..Facts::default() });
                clip::pick(clip, stored.len(), rng).map_err(named)?
            }
            None => (0..stored.len()).collect(),
        };
        let size = self.image.size_of(stored[taken[0]], scratch)?;
        if size.1.checked_mul(2) == Some(height) {
            return Err(in_decode(avi::unsupported("interlaced video")));
        }
        self.check_pixels(size, taken.len())?;
        match slot {
            Slot::Row(row) => self.fill(sample, (&stored, &taken), size, row, scratch),
            Slot::Value(value) => {
                let frame = self.image.spec_for(sample, size, scratch)?;
                let spec = over_time(taken.len(), &frame);
                if frame.bytes().checked_mul(taken.len()).is_none_or(|bytes| bytes > MAX_BYTES) {
                    return Err(Error::exhausted(format!(
                        "decode video: {} frames of {:?} take more than {} MiB",
                        taken.len(),
                        frame.shape,
                        MAX_BYTES >> 20
                    ))
                    .with_hint("take a `clip`, or make frames smaller: add `resize` or a crop"));
                }
                let mut data = pool.take(spec.bytes());
                self.fill(sample, (&stored, &taken), size, data.as_mut_slice(), scratch)?;
                **value = Some(Value::Tensor(Tensor { spec, data }));
                Ok(())
            }
        }
    }

    fn fill(
        &self,
        sample: &SampleContext,
        (stored, taken): (&[&[u8]], &[usize]),
        size: (u32, u32),
        row: &mut [u8],
        scratch: &mut ImageScratch,
    ) -> Result<()> {
        let bytes = row.len() / taken.len();
        for (at, number) in taken.iter().enumerate() {
            let (before, rest) = row.split_at_mut(at * bytes);
            let frame = &mut rest[..bytes];
            if at > 0 && taken[at - 1] == *number {
                frame.copy_from_slice(&before[(at - 1) * bytes..]);
                continue;
            }
            self.image
                .prepare_frame(sample, stored[*number], size, frame, scratch)
                .map_err(|error| error.while_doing(format_args!("prepare frame {number}")))?;
        }
        Ok(())
    }

    fn check_pixels(&self, (width, height): (u32, u32), frames: usize) -> Result<()> {
        let pixels = (u64::from(width) * u64::from(height)).saturating_mul(frames as u64);
        if pixels <= self.max_pixels {
            return Ok(());
        }
        let limit = self.max_pixels;
        let message =
            format!("decode {frames} frames of {width}x{height}: more than max_pixels = {limit} together");
        Err(Error::exhausted(message).with_hint("take a `clip`, or raise `max_pixels`"))
    }
}

/// The stored frames of a sample, and rows of each where the file says it.
fn stored(input: &Input) -> Result<(Vec<&[u8]>, u32)> {
    let payload = match input {
        Input::Frames(frames) => return Ok((frames.iter().map(AsRef::as_ref).collect(), 0)),
        Input::Payload(payload) => payload,
        Input::Missing => return Err(Error::corrupt("the sample has no such field")),
        Input::Int(_) | Input::Pixels(_) => {
            return Err(Error::internal("a video was given as something else"));
        }
    };
    if avi::has_signature(payload) {
        let avi = avi::open(payload)?;
        return Ok((avi.frames.into_iter().map(|frame| &payload[frame]).collect(), avi.height));
    }
    let found = match payload.as_ref() {
        [_, _, _, _, b'f', b't', b'y', b'p', ..] => "MP4 or QuickTime",
        [0x1a, 0x45, 0xdf, 0xa3, ..] => "Matroska or WebM",
        [0, 0, 1, 0xba | 0xb3, ..] => "an MPEG stream",
        _ => {
            let start = payload[..payload.len().min(12)].escape_ascii();
            return Err(Error::corrupt(format!("decode video: it begins with `{start}`, which is no AVI")));
        }
    };
    Err(avi::unsupported(found))
}

fn over_time(frames: usize, frame: &TensorSpec) -> TensorSpec {
    let shape = std::iter::once(frames).chain(frame.shape.iter().copied()).collect();
    TensorSpec { dtype: frame.dtype, shape }
}

fn in_decode(error: Error) -> Error {
    error.with_facts(Facts { op: Some("decode".into()), ..Facts::default() })
}

#[cfg(test)]
mod tests;
