//! `aug_mix`: the image laid over what chains of ops made of it, as torchvision's `AugMix`.

use super::adjustment::Adjustment;
use super::space::{Entry, Frame, Space, Translate};
use crate::image::Image;
use crate::kernels::mix;
use forebay_core::recipe::AugMix;
use forebay_core::rng::Rng;

/// Strengths of torchvision's `AugMix`.
pub(crate) const SPACE: Space = Space {
    shear: 0.3,
    translate: Translate::Share(1.0 / 3.0),
    rotate: 30.0,
    factor: 0.9,
    bits: 4,
    most_bits: 4,
};

/// Number of strengths, of which the severity says how many are drawn from.
const BINS: u32 = 10;

/// The ops that are always drawn from, then those of `all_ops`.
const ENTRIES: [Entry; 13] = [
    Entry::ShearX,
    Entry::ShearY,
    Entry::TranslateX,
    Entry::TranslateY,
    Entry::Rotate,
    Entry::Posterize,
    Entry::Solarize,
    Entry::AutoContrast,
    Entry::Equalize,
    Entry::Brightness,
    Entry::Color,
    Entry::Contrast,
    Entry::Sharpness,
];

/// What is laid over what.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mix {
    /// Share of the image as it was.
    pub(crate) own: f64,
    /// Shares of what chains of changes make of it.
    pub(crate) chains: Vec<(f64, Vec<Adjustment>)>,
}

/// What is done to an image of `size` columns and rows.
pub(crate) fn draw(op: &AugMix, size: (u32, u32), rng: &mut Rng) -> Adjustment {
    let AugMix { severity, width, depth, alpha, all_ops, interpolation, fill } = *op;
    let frame = Frame { size, bins: BINS, interpolation, fill };
    let entries = if all_ops { &ENTRIES[..] } else { &ENTRIES[..9] };
    let mut halves = [0.0; 2];
    rng.shares(alpha, &mut halves);
    let mut shares = vec![0.0; width as usize];
    rng.shares(alpha, &mut shares);
    let chains = shares.into_iter().map(|share| {
        let depth = if depth == 0 { 1 + rng.below(3) as u32 } else { depth };
        let changes = (0..depth).filter_map(|_| {
            let entry = entries[rng.below(entries.len() as u64) as usize];
            let magnitude = rng.below(u64::from(severity)) as u32;
            SPACE.draw(entry, magnitude, &frame, rng)
        });
        (share * halves[1], changes.collect())
    });
    Adjustment::Mix(Box::new(Mix { own: halves[0], chains: chains.collect() }))
}

impl Mix {
    /// Makes the image what it is mixed of. `spare` is memory to work in.
    pub(crate) fn apply(&self, image: &mut Image, spare: &mut Image) {
        let mut sums = vec![0.0; image.pixels().len()];
        mix::add(&mut sums, image.pixels(), self.own as f32);
        let mut made = Image::default();
        for (share, changes) in &self.chains {
            made.clone_from(image);
            for change in changes {
                change.apply(&mut made, spare);
            }
            mix::add(&mut sums, made.pixels(), *share as f32);
        }
        mix::write(&sums, image.pixels_mut());
    }
}
