//! Compiling an image column: every fault of it is found here, none while samples are prepared.

use super::ImagePath;
use super::settle::{Act, Step};
use crate::augment::adjustment::Adjuster;
use crate::augment::color_jitter::ColorJitter;
use crate::augment::grayscale::Grayscale;
use crate::augment::normalize;
use crate::augment::random_erasing::RandomErasing;
use crate::kernels::normalize::Finish;
use forebay_core::recipe::{Decode, FieldRecipe, Op};
use forebay_core::tensor::Dtype;
use std::time::Duration;

impl ImagePath {
    /// Compiles column number `column`, or adds what is wrong to `faults`. A mask is compiled under the number of the column
    /// that it follows: so it draws what that one draws.
    pub(crate) fn compile(column: usize, field: &FieldRecipe, faults: &mut Vec<String>) -> Option<Self> {
        let Decode::Image { mode, orientation, max_pixels } = field.decode else { return None };
        let before = faults.len();
        // Erasing after everything else is done in output units, where its value is meant.
        let is_tail = |op: &Op| matches!(op, Op::RandomErasing { .. } | Op::PadBatch(_) | Op::Delay { .. });
        let tail_start = field.ops.iter().rposition(|op| !is_tail(op)).map_or(0, |last| last + 1);
        let mut affine = None;
        let (mut steps, mut tail) = (Vec::new(), Vec::new());
        for (index, op) in field.ops.iter().enumerate() {
            let key = column as u64 * 1000 + index as u64;
            match op {
                Op::Normalize { mean, std } if index + 1 == tail_start => {
                    match normalize::affine(mean, std, mode.channels()) {
                        Ok(made) => affine = Some(made),
                        Err(error) => faults.push(error.message().to_owned()),
                    }
                }
                Op::Normalize { .. } => {
                    faults.push("only `random_erasing` and `delay` may come after `normalize`".into());
                }
                _ if index < tail_start => steps.extend(act(op).map(|act| Step { at: index, key, act })),
                _ => tail.extend(act(op).map(|act| Step { at: index, key, act })),
            }
        }
        let dtype = field.output_dtype().unwrap_or(Dtype::U8);
        let finish = Finish::new(dtype, field.layout, affine);
        let finish = finish.map_err(|error| faults.push(error.message().to_owned())).ok()?;
        let size = field.fixed_image_size().map(|(height, width)| (width, height));
        if faults.len() > before {
            return None;
        }
        let follows = field.follow.is_some();
        if follows {
            // What an image has at its end moves no pixels.
            tail = Vec::new();
            steps = steps.into_iter().filter_map(Step::for_mask).collect();
        }
        let layout = field.layout;
        Some(Self { mode, orientation, max_pixels, steps, finish, tail, dtype, layout, size, follows })
    }
}

fn act(op: &Op) -> Option<Act> {
    Some(match op {
        Op::Resize { size, filter } => Act::Resize(*size, *filter),
        Op::CenterCrop { size } => Act::CenterCrop(*size),
        Op::RandomCrop { size, padding } => Act::RandomCrop(*size, *padding),
        Op::RandomResizedCrop { size, scale, ratio, filter } => {
            Act::RandomResizedCrop { size: *size, scale: *scale, ratio: *ratio, filter: *filter }
        }
        Op::Flip { p, direction } => Act::Flip(*p, *direction),
        Op::Pad { border, value } => Act::Pad(*border, *value),
        &Op::ColorJitter { brightness, contrast, saturation, hue } => {
            Act::ColorJitter(ColorJitter { brightness, contrast, saturation, hue })
        }
        Op::Grayscale { p } => Act::Grayscale(Grayscale { p: *p }),
        &Op::RandomErasing { p, scale, ratio, value } => {
            Act::RandomErasing(RandomErasing { p, scale, ratio, value })
        }
        Op::Delay { seconds } => Act::Delay(Duration::try_from_secs_f64(*seconds).unwrap_or_default()),
        Op::GaussianBlur(_)
        | Op::Solarize(_)
        | Op::Posterize(_)
        | Op::Equalize { .. }
        | Op::Autocontrast { .. }
        | Op::Sharpness(_)
        | Op::Affine(_)
        | Op::RandAugment(_)
        | Op::TrivialAugment(_)
        | Op::Perspective(_)
        | Op::AutoAugment(_)
        | Op::AugMix(_) => Act::Adjust(Adjuster::of(op)?),
        // Those of audio and tokens are refused on images when the recipe is checked.
        // Which frames are taken is settled before there are pixels.
        Op::Clip(_)
        | Op::Normalize { .. }
        | Op::PadBatch(_)
        | Op::Ragged(_)
        | Op::Map { .. }
        | Op::Filter { .. }
        | Op::Audio(_)
        | Op::ByteTokens(_)
        | Op::Tokenize(_)
        | Op::Slice { .. }
        | Op::Truncate { .. }
        | Op::RandomWindow { .. }
        | Op::MaskTokens(_)
        | Op::Pack(_) => return None,
    })
}
