//! `solarize`: inverts levels of a threshold and more, with a probability.

use super::adjustment::Adjustment;
use forebay_core::recipe::Solarize;
use forebay_core::rng::Rng;

/// What is done to this sample, if anything.
pub(crate) fn draw(op: &Solarize, rng: &mut Rng) -> Option<Adjustment> {
    rng.chance(op.p).then_some(Adjustment::Solarize { threshold: op.threshold })
}
