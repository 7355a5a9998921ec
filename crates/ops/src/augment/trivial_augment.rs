//! `trivial_augment`: one op drawn from a list, at a random magnitude, as torchvision's `TrivialAugmentWide`.

use super::adjustment::Adjustment;
use super::space::{Entry, Frame, Space, Translate};
use forebay_core::recipe::TrivialAugment;
use forebay_core::rng::Rng;

/// Strengths of torchvision's `TrivialAugmentWide`.
pub(crate) const SPACE: Space = Space {
    shear: 0.99,
    translate: Translate::Pixels(32.0),
    rotate: 135.0,
    factor: 0.99,
    bits: 6,
    most_bits: 8,
};

/// What is done to an image of `size` columns and rows; nothing when the identity is drawn.
pub(crate) fn draw(op: &TrivialAugment, size: (u32, u32), rng: &mut Rng) -> Option<Adjustment> {
    let TrivialAugment { bins, interpolation, fill } = *op;
    let frame = Frame { size, bins, interpolation, fill };
    let entry = Entry::draw(rng);
    let magnitude = rng.below(u64::from(bins)) as u32;
    SPACE.draw(entry, magnitude, &frame, rng)
}
