//! `gain`: louder or softer by a number of decibels.

use crate::decode::audio::Waveform;
use forebay_core::recipe::Interval;
use forebay_core::rng::Rng;

/// Multiplies every sample by the same factor.
pub(crate) fn apply([low, high]: Interval, wave: &mut Waveform, rng: &mut Rng) {
    let factor = 10f64.powf(rng.uniform(low, high) / 20.0) as f32;
    wave.channels.iter_mut().flatten().for_each(|value| *value *= factor);
}
