//! What the ops that blur, bend and recolor come to once their chance is drawn, and which ops these are.
//!
//! An [`Adjuster`] is an op of the recipe; for each sample it draws any number of [`Adjustment`]s, which are then made one
//! after the other.

use super::aug_mix::{self, Mix};
use super::{affine, autocontrast, equalize, gaussian_blur, posterize, rand_augment, sharpness, solarize};
use super::{auto_augment, perspective, trivial_augment};
use crate::image::Image;
use crate::kernels::bend::Bend;
use crate::kernels::tilt::Tilt;
use crate::kernels::{blur, color, levels, sharpen};
use forebay_core::recipe::{self, Op};
use forebay_core::rng::Rng;

/// An op that changes pixels and keeps the size.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Adjuster {
    GaussianBlur(recipe::GaussianBlur),
    Solarize(recipe::Solarize),
    Posterize(recipe::Posterize),
    Equalize { p: f64 },
    Autocontrast { p: f64 },
    Sharpness(recipe::Sharpness),
    Affine(recipe::Affine),
    RandAugment(recipe::RandAugment),
    TrivialAugment(recipe::TrivialAugment),
    Perspective(recipe::Perspective),
    AutoAugment(recipe::AutoAugment),
    AugMix(recipe::AugMix),
}

/// One change of pixels, with nothing left to chance.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Adjustment {
    Blur { kernel: u32, sigma: f64 },
    Solarize { threshold: f64 },
    Posterize { bits: u8 },
    Equalize,
    Autocontrast,
    Sharpness { factor: f64 },
    Invert,
    Bend(Bend),
    Tilt(Tilt),
    Mix(Box<Mix>),
    Brightness { factor: f64 },
    Contrast { factor: f64 },
    Saturation { factor: f64 },
}

impl Adjuster {
    /// The adjuster that an op is, if it is one.
    pub(crate) fn of(op: &Op) -> Option<Self> {
        Some(match op {
            Op::GaussianBlur(op) => Self::GaussianBlur(op.clone()),
            Op::Solarize(op) => Self::Solarize(op.clone()),
            Op::Posterize(op) => Self::Posterize(op.clone()),
            Op::Equalize { p } => Self::Equalize { p: *p },
            Op::Autocontrast { p } => Self::Autocontrast { p: *p },
            Op::Sharpness(op) => Self::Sharpness(op.clone()),
            Op::Affine(op) => Self::Affine(op.clone()),
            Op::RandAugment(op) => Self::RandAugment(op.clone()),
            Op::TrivialAugment(op) => Self::TrivialAugment(op.clone()),
            Op::Perspective(op) => Self::Perspective(op.clone()),
            Op::AutoAugment(op) => Self::AutoAugment(op.clone()),
            Op::AugMix(op) => Self::AugMix(op.clone()),
            _ => return None,
        })
    }

    /// Draws what is done to an image of `size` columns and rows, and hands it to `each` in order.
    pub(crate) fn draw(&self, size: (u32, u32), rng: &mut Rng, each: impl FnMut(Adjustment)) {
        match self {
            Self::GaussianBlur(op) => gaussian_blur::draw(op, rng).into_iter().for_each(each),
            Self::Solarize(op) => solarize::draw(op, rng).into_iter().for_each(each),
            Self::Posterize(op) => posterize::draw(op, rng).into_iter().for_each(each),
            Self::Equalize { p } => equalize::draw(*p, rng).into_iter().for_each(each),
            Self::Autocontrast { p } => autocontrast::draw(*p, rng).into_iter().for_each(each),
            Self::Sharpness(op) => sharpness::draw(op, rng).into_iter().for_each(each),
            Self::Affine(op) => std::iter::once(affine::draw(op, size, rng)).for_each(each),
            Self::RandAugment(op) => rand_augment::draw(op, size, rng).for_each(each),
            Self::TrivialAugment(op) => trivial_augment::draw(op, size, rng).into_iter().for_each(each),
            Self::Perspective(op) => perspective::draw(op, size, rng).into_iter().for_each(each),
            Self::AutoAugment(op) => auto_augment::draw(op, size, rng).for_each(each),
            Self::AugMix(op) => std::iter::once(aug_mix::draw(op, size, rng)).for_each(each),
        }
    }
}

impl Adjustment {
    /// Whether a mirrored image gives the mirrored result, to the bit, so that a mirror may wait.
    pub(crate) fn lets_mirrors_wait(&self) -> bool {
        !matches!(self, Self::Bend(_) | Self::Tilt(_) | Self::Mix(_))
    }

    /// Makes the change. `spare` is memory to work in.
    pub(crate) fn apply(&self, image: &mut Image, spare: &mut Image) {
        match *self {
            Self::Mix(ref mix) => mix.apply(image, spare),
            Self::Invert => levels::invert(&mut image.as_mut()),
            Self::Solarize { threshold } => levels::solarize(&mut image.as_mut(), threshold),
            Self::Posterize { bits } => levels::posterize(&mut image.as_mut(), bits),
            Self::Equalize => levels::equalize(&mut image.as_mut()),
            Self::Autocontrast => levels::autocontrast(&mut image.as_mut()),
            Self::Brightness { factor } => color::brightness(&mut image.as_mut(), factor),
            Self::Contrast { factor } => color::contrast(&mut image.as_mut(), factor),
            Self::Saturation { factor } => color::saturation(&mut image.as_mut(), factor),
            Self::Bend(bend) if bend.is_identity() => {}
            Self::Bend(_) | Self::Tilt(_) | Self::Blur { .. } | Self::Sharpness { .. } => {
                spare.reshape(image.width(), image.height(), image.channels());
                self.write(image, spare.pixels_mut());
                std::mem::swap(image, spare);
            }
        }
    }

    /// The changes that look at more than one pixel for each.
    fn write(&self, image: &Image, to: &mut [u8]) {
        match *self {
            Self::Blur { kernel, sigma } => blur::blur(image.as_ref(), &blur::weights(kernel, sigma), to),
            Self::Sharpness { factor } => sharpen::sharpen(image.as_ref(), factor, to),
            Self::Bend(bend) => bend.run(image.as_ref(), to),
            Self::Tilt(tilt) => tilt.run(image.as_ref(), to),
            _ => {}
        }
    }
}

#[cfg(test)]
#[path = "adjustment_tests.rs"]
mod tests;
