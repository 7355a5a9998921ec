//! `rand_augment`: some ops drawn from a list, all at one magnitude, as torchvision's `RandAugment`.

use super::adjustment::Adjustment;
use super::space::{Entry, Frame, Space, Translate};
use forebay_core::recipe::RandAugment;
use forebay_core::rng::Rng;

/// Strengths of torchvision's `RandAugment`.
pub(crate) const SPACE: Space = Space {
    shear: 0.3,
    translate: Translate::Share(150.0 / 331.0),
    rotate: 30.0,
    factor: 0.9,
    bits: 4,
    most_bits: 8,
};

/// What is done to an image of `size` columns and rows, in order.
pub(crate) fn draw(op: &RandAugment, size: (u32, u32), rng: &mut Rng) -> impl Iterator<Item = Adjustment> {
    let RandAugment { n, magnitude, bins, interpolation, fill } = *op;
    let frame = Frame { size, bins, interpolation, fill };
    (0..n).filter_map(move |_| SPACE.draw(Entry::draw(rng), magnitude, &frame, rng))
}
