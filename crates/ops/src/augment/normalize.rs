//! `normalize`: `0..=255` to `0..=1`, minus the mean, divided by the deviation, per channel.
//!
//! The three steps become one multiplication and one addition, worked out in `f64` here and done by
//! [`crate::kernels::normalize`] in the finishing pass.

use crate::kernels::normalize::Affine;
use forebay_core::{Error, Result};

/// The factors of `normalize` for images of `channels` channels; one mean or deviation serves all of them.
pub(crate) fn affine(mean: &[f64], std: &[f64], channels: usize) -> Result<Affine> {
    let mean = per_channel("mean", mean, channels)?;
    let std = per_channel("std", std, channels)?;
    let mut affine = Affine::IDENTITY;
    for channel in 0..channels {
        let (mean, std) = (mean[channel], std[channel]);
        affine.scale[channel] = (1.0 / (255.0 * std)) as f32;
        affine.bias[channel] = (-mean / std) as f32;
        let largest = 255.0 * affine.scale[channel] + affine.bias[channel];
        if std <= 0.0 || !affine.scale[channel].is_finite() || !largest.is_finite() {
            let message = format!(
                "normalize channel {channel} by mean {mean} and std {std}: no finite number comes out"
            );
            return Err(Error::invalid_config(message));
        }
    }
    Ok(affine)
}

fn per_channel(name: &str, values: &[f64], channels: usize) -> Result<[f64; 4]> {
    match values {
        [value] => Ok([*value; 4]),
        values if values.len() == channels && channels <= 4 => {
            Ok(std::array::from_fn(|channel| values.get(channel).copied().unwrap_or_default()))
        }
        _ => Err(Error::invalid_config(format!(
            "normalize an image of {channels} channels: `{name}` has {} values",
            values.len()
        ))
        .with_hint(format!("give 1 or {channels}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn one_pass_equals_three_steps(level: u8, mean in 0.0f64..1.0, std in 0.05f64..1.0) {
            let affine = affine(&[mean], &[std], 3).unwrap();
            let fused = f32::from(level) * affine.scale[1] + affine.bias[1];
            let exact = (f64::from(level) / 255.0 - mean) / std;
            // Two roundings of numbers up to 1 / std: a few steps of f32 at that size.
            prop_assert!((f64::from(fused) - exact).abs() <= 4.0 * f64::from(f32::EPSILON) / std);
        }
    }

    #[test]
    fn counts_that_do_not_match_and_deviations_of_nothing_are_refused() {
        assert!(affine(&[0.5, 0.5], &[0.5], 3).is_err());
        assert!(affine(&[0.5], &[], 3).is_err());
        assert!(affine(&[0.5; 3], &[0.2; 3], 3).is_ok());
        for std in [0.0, -1.0, f64::NAN, 1e-60] {
            assert!(affine(&[0.5], &[std], 1).is_err(), "{std}");
        }
        assert!(affine(&[f64::INFINITY], &[1.0], 1).is_err());
    }
}
