//! `autocontrast`: stretches the levels of each channel to the whole range, with a probability.

use super::adjustment::Adjustment;
use forebay_core::rng::Rng;

/// What is done to this sample, if anything.
pub(crate) fn draw(p: f64, rng: &mut Rng) -> Option<Adjustment> {
    rng.chance(p).then_some(Adjustment::Autocontrast)
}
