//! `sharpness`: sharpens or smooths by a factor, with a probability.

use super::adjustment::Adjustment;
use forebay_core::recipe::Sharpness;
use forebay_core::rng::Rng;

/// What is done to this sample, if anything.
pub(crate) fn draw(op: &Sharpness, rng: &mut Rng) -> Option<Adjustment> {
    rng.chance(op.p).then_some(Adjustment::Sharpness { factor: op.factor })
}
