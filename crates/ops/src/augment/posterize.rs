//! `posterize`: keeps the high bits of every level, with a probability.

use super::adjustment::Adjustment;
use forebay_core::recipe::Posterize;
use forebay_core::rng::Rng;

/// What is done to this sample, if anything.
pub(crate) fn draw(op: &Posterize, rng: &mut Rng) -> Option<Adjustment> {
    rng.chance(op.p).then_some(Adjustment::Posterize { bits: op.bits })
}
