//! The list that `rand_augment` and `trivial_augment` draw from: fourteen ops, and how strong each is at which magnitude.
//!
//! Lists and strengths are torchvision's, of `RandAugment` and of `TrivialAugmentWide`. Strengths are computed in `f32`, as
//! `torch.linspace` does. Its last bit depends on how wide the vectors of a machine are: where it says 15.9999990 and
//! cuts that to 15 pixels, it is 16 here, on every machine.

use super::adjustment::Adjustment;
use crate::kernels::bend::{Bend, Motion};
use forebay_core::recipe::Interpolation;
use forebay_core::rng::Rng;

/// One entry of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Identity,
    ShearX,
    ShearY,
    TranslateX,
    TranslateY,
    Rotate,
    Brightness,
    Color,
    Contrast,
    Sharpness,
    Posterize,
    Solarize,
    AutoContrast,
    Equalize,
    /// Not of the list that all others are drawn from: a policy names it.
    Invert,
}

impl Entry {
    /// The list that is drawn from.
    pub(crate) const ALL: [Self; 14] = [
        Self::Identity,
        Self::ShearX,
        Self::ShearY,
        Self::TranslateX,
        Self::TranslateY,
        Self::Rotate,
        Self::Brightness,
        Self::Color,
        Self::Contrast,
        Self::Sharpness,
        Self::Posterize,
        Self::Solarize,
        Self::AutoContrast,
        Self::Equalize,
    ];

    /// Each with the same probability.
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        Self::ALL[rng.below(Self::ALL.len() as u64) as usize]
    }

    /// Whether the strength works either way.
    fn is_signed(self) -> bool {
        use Entry::{AutoContrast, Equalize, Identity, Invert, Posterize, Solarize};
        !matches!(self, Identity | Posterize | Solarize | AutoContrast | Equalize | Invert)
    }
}

/// How strong entries are at most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Space {
    /// Pixels per pixel.
    pub(crate) shear: f64,
    /// Pixels, or a share of the side.
    pub(crate) translate: Translate,
    /// Degrees.
    pub(crate) rotate: f64,
    /// Away from a factor of one.
    pub(crate) factor: f64,
    /// Bits that are lost.
    pub(crate) bits: u8,
    /// Bits of which they are lost.
    pub(crate) most_bits: u8,
}

/// How far images are moved at most.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Translate {
    Pixels(f64),
    Share(f64),
}

/// What is not drawn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    /// Columns and rows.
    pub(crate) size: (u32, u32),
    /// Number of magnitudes.
    pub(crate) bins: u32,
    /// How pixels between pixels are made.
    pub(crate) interpolation: Interpolation,
    /// Value where there was no image.
    pub(crate) fill: u8,
}

impl Space {
    /// The strength of an entry at a magnitude below `bins`; 0 where it has none.
    pub(crate) fn strength(&self, entry: Entry, magnitude: u32, frame: &Frame) -> f64 {
        let line = |low: f64, high: f64| linspace(low, high, magnitude, frame.bins);
        let far = |side: u32| match self.translate {
            Translate::Pixels(pixels) => pixels,
            Translate::Share(share) => share * f64::from(side),
        };
        match entry {
            Entry::Identity | Entry::AutoContrast | Entry::Equalize | Entry::Invert => 0.0,
            Entry::ShearX | Entry::ShearY => line(0.0, self.shear),
            Entry::TranslateX => line(0.0, far(frame.size.0)),
            Entry::TranslateY => line(0.0, far(frame.size.1)),
            Entry::Rotate => line(0.0, self.rotate),
            Entry::Brightness | Entry::Color | Entry::Contrast | Entry::Sharpness => line(0.0, self.factor),
            Entry::Posterize => {
                let step = f64::from(frame.bins - 1) / f64::from(self.bits);
                f64::from((f32::from(self.most_bits) - magnitude as f32 / step as f32).round_ties_even())
            }
            Entry::Solarize => line(1.0, 0.0),
        }
    }

    /// What an entry does at a magnitude, either way at random where it can be; nothing for the identity.
    pub(crate) fn draw(
        &self,
        entry: Entry,
        magnitude: u32,
        frame: &Frame,
        rng: &mut Rng,
    ) -> Option<Adjustment> {
        let strength = self.strength(entry, magnitude, frame);
        let negative = entry.is_signed() && rng.chance(0.5);
        adjustment(entry, if negative { -strength } else { strength }, frame)
    }
}

/// What an entry of a strength does.
pub(crate) fn adjustment(entry: Entry, strength: f64, frame: &Frame) -> Option<Adjustment> {
    let (width, height) = (f64::from(frame.size.0), f64::from(frame.size.1));
    let corner = [-0.5 * width, -0.5 * height];
    let factor = 1.0 + strength;
    let motion = match entry {
        Entry::Identity => return None,
        Entry::Brightness => return Some(Adjustment::Brightness { factor }),
        Entry::Color => return Some(Adjustment::Saturation { factor }),
        Entry::Contrast => return Some(Adjustment::Contrast { factor }),
        Entry::Sharpness => return Some(Adjustment::Sharpness { factor }),
        Entry::Posterize => return Some(Adjustment::Posterize { bits: strength as u8 }),
        Entry::Solarize => return Some(Adjustment::Solarize { threshold: 255.0 * strength }),
        Entry::AutoContrast => return Some(Adjustment::Autocontrast),
        Entry::Equalize => return Some(Adjustment::Equalize),
        Entry::Invert => return Some(Adjustment::Invert),
        Entry::ShearX => {
            Motion { centre: corner, shear: [strength.atan().to_degrees(), 0.0], ..Motion::NONE }
        }
        Entry::ShearY => {
            Motion { centre: corner, shear: [0.0, strength.atan().to_degrees()], ..Motion::NONE }
        }
        Entry::TranslateX => Motion { translate: [strength.trunc(), 0.0], ..Motion::NONE },
        Entry::TranslateY => Motion { translate: [0.0, strength.trunc()], ..Motion::NONE },
        // Rotations are counterclockwise in torchvision, but for those of affine.
        Entry::Rotate => Motion { degrees: -strength, ..Motion::NONE },
    };
    let Frame { interpolation, fill, .. } = *frame;
    Some(Adjustment::Bend(Bend { matrix: motion.inverse(), interpolation, fill }))
}

/// Entry `at` of `torch.linspace(low, high, steps)`, which counts from the nearer end.
fn linspace(low: f64, high: f64, at: u32, steps: u32) -> f64 {
    let (low, high) = (low as f32, high as f32);
    let step = (high - low) / (steps - 1) as f32;
    let value = if at < steps / 2 { low + step * at as f32 } else { high - step * (steps - 1 - at) as f32 };
    f64::from(value)
}

#[cfg(test)]
#[path = "space_tests.rs"]
mod tests;
