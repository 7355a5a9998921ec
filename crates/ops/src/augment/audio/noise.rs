//! `noise`: white noise as far below the signal as was drawn, in each channel. Silence stays silent.

use crate::decode::audio::Waveform;
use forebay_core::recipe::Interval;
use forebay_core::rng::Rng;

/// Adds noise with probability `p`. The ratio is of the noise that was drawn, not of what is to be expected of it.
pub(crate) fn apply([low, high]: Interval, p: f64, wave: &mut Waveform, rng: &mut Rng) {
    if !rng.chance(p) {
        return;
    }
    let ratio = 10f64.powf(rng.uniform(low, high) / 10.0);
    for channel in &mut wave.channels {
        let noise = normal(channel.len(), rng);
        let power =
            |values: &[f32]| values.iter().map(|value| f64::from(*value) * f64::from(*value)).sum::<f64>();
        let (signal, drawn) = (power(channel), power(&noise));
        if drawn > 0.0 {
            let factor = (signal / drawn / ratio).sqrt() as f32;
            channel.iter_mut().zip(noise).for_each(|(value, noise)| *value += noise * factor);
        }
    }
}

/// Standard normal values, two of a draw.
fn normal(count: usize, rng: &mut Rng) -> Vec<f32> {
    let mut values = Vec::with_capacity(count + 1);
    while values.len() < count {
        let radius = (-2.0 * (1.0 - rng.unit()).ln()).sqrt();
        let (sin, cos) = (std::f64::consts::TAU * rng.unit()).sin_cos();
        values.extend([(radius * cos) as f32, (radius * sin) as f32]);
    }
    values.truncate(count);
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::SampleId;

    #[test]
    fn the_noise_is_as_far_below_the_signal_as_was_asked() {
        let signal: Vec<f32> = (0..4000).map(|at| (at as f32 * 0.05).sin()).collect();
        let mut wave = Waveform { rate: 8000, channels: vec![signal.clone(), vec![0.0; 4000]] };
        apply([12.0, 12.0], 1.0, &mut wave, &mut Rng::for_op(1, 0, SampleId(0), 0));
        let noise: Vec<f64> = wave.channels[0].iter().zip(&signal).map(|(a, b)| f64::from(a - b)).collect();
        let power = |values: &[f64]| values.iter().map(|value| value * value).sum::<f64>();
        let ratio = power(&signal.iter().map(|value| f64::from(*value)).collect::<Vec<_>>()) / power(&noise);
        assert!((10.0 * ratio.log10() - 12.0).abs() < 0.01, "{ratio}");
        // White: neighbours have nothing to do with each other, and as many lie above zero as below.
        let beside = noise.windows(2).map(|pair| pair[0] * pair[1]).sum::<f64>() / power(&noise);
        let above = noise.iter().filter(|value| **value > 0.0).count();
        assert!(beside.abs() < 0.06 && (1800..2200).contains(&above), "{beside} {above}");
        assert_eq!(wave.channels[1], vec![0.0; 4000]);
    }
}
