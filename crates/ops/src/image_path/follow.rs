//! What follows an image: its geometry as moves of points, drawn again from the same keys, and masks that go its way.

use super::settle::{Act, Change, Step};
use super::{ImagePath, ImageScratch, in_decode};
use crate::augment::adjustment::{Adjuster, Adjustment};
use crate::image_path::half::Source;
use crate::track::Move;
use crate::value::{Input, SampleContext};
use forebay_core::recipe::{Filter, Interpolation};
use forebay_core::{Error, Result};

impl ImagePath {
    /// Columns and rows of the image as it is stored.
    pub(crate) fn stored_size(&self, input: &Input, scratch: &mut ImageScratch) -> Result<(u32, u32)> {
        match input {
            Input::Payload(payload) => self.size_of(payload, scratch),
            Input::Pixels(pixels) => {
                let pixels = Source::parse(pixels, self.mode.channels())?;
                if pixels.done() > 0 {
                    return Err(Error::internal("an image that is followed was kept after an op"));
                }
                Ok(pixels.size())
            }
            Input::Int(_) | Input::Frames(_) | Input::Missing => {
                Err(Error::corrupt("the sample has no image that it could follow"))
            }
        }
    }

    /// Columns and rows of a payload, upright.
    pub(crate) fn size_of(&self, payload: &[u8], scratch: &mut ImageScratch) -> Result<(u32, u32)> {
        let info = scratch.decoder.info(payload, self.orientation, self.max_pixels);
        info.map(|info| (info.width, info.height)).map_err(in_decode)
    }

    /// Where the pixels of this sample's image go.
    pub(crate) fn moves(
        &self,
        sample: &SampleContext,
        size: (u32, u32),
        scratch: &mut ImageScratch,
    ) -> Result<Vec<Move>> {
        self.settle(sample, size, |step| !matches!(step.act, Act::Delay(_)), scratch)?;
        let ImageScratch { chain, changes, .. } = scratch;
        let mut moves = Vec::with_capacity(chain.count());
        let mut size = [size.0, size.1].map(f64::from);
        let mut changes = changes.iter().peekable();
        for (index, geometry) in chain.geometries().enumerate() {
            while let Some((_, change)) = changes.next_if(|(before, _)| *before == index) {
                moves.extend(matrix(change, size).map(|matrix| Move::Matrix(matrix, size)));
            }
            size = [geometry.width(), geometry.height()].map(f64::from);
            moves.push(Move::Geometry(geometry.clone()));
        }
        Ok(moves)
    }
}

/// The matrix from the result of a change to its source, when it moves pixels.
fn matrix(change: &Change, [width, height]: [f64; 2]) -> Option<[f64; 9]> {
    match change {
        Change::Adjust(Adjustment::Bend(bend)) => {
            let [xx, xy, x, yx, yy, y] = bend.matrix;
            let (middle_x, middle_y) = (0.5 * width, 0.5 * height);
            let x = x + middle_x - xx * middle_x - xy * middle_y;
            let y = y + middle_y - yx * middle_x - yy * middle_y;
            Some([xx, xy, x, yx, yy, y, 0.0, 0.0, 1.0])
        }
        Change::Adjust(Adjustment::Tilt(tilt)) => {
            let [a, b, c, d, e, f, g, h] = tilt.coefficients;
            Some([a, b, c, d, e, f, g, h, 1.0])
        }
        _ => None,
    }
}

impl Step {
    /// What a mask does when its image does this: the same with pixels as they are, or nothing when none is moved.
    pub(super) fn for_mask(self) -> Option<Self> {
        let act = match self.act {
            Act::Resize(size, _) => Act::Resize(size, Filter::Nearest),
            Act::RandomResizedCrop { size, scale, ratio, .. } => {
                Act::RandomResizedCrop { size, scale, ratio, filter: Filter::Nearest }
            }
            Act::Pad(border, _) => Act::Pad(border, 0),
            Act::CenterCrop(_) | Act::RandomCrop(..) | Act::Flip(..) => self.act,
            Act::Adjust(adjuster) => match adjuster {
                Adjuster::Affine(_)
                | Adjuster::Perspective(_)
                | Adjuster::RandAugment(_)
                | Adjuster::TrivialAugment(_)
                | Adjuster::AutoAugment(_) => Act::Adjust(adjuster),
                _ => return None,
            },
            Act::ColorJitter(_) | Act::Grayscale(_) | Act::RandomErasing(_) | Act::Delay(_) => return None,
        };
        Some(Self { act, ..self })
    }
}

/// The change of a mask when its image is changed so.
pub(super) fn change_of_mask(drawn: &Adjustment) -> Option<Adjustment> {
    match drawn {
        Adjustment::Bend(bend) => {
            let mut bend = *bend;
            (bend.interpolation, bend.fill) = (Interpolation::Nearest, 0);
            Some(Adjustment::Bend(bend))
        }
        Adjustment::Tilt(tilt) => {
            let mut tilt = *tilt;
            (tilt.interpolation, tilt.fill) = (Interpolation::Nearest, 0);
            Some(Adjustment::Tilt(tilt))
        }
        _ => None,
    }
}
