//! `spec_augment`: spans of frames and of bands are masked, the same in all channels.

use forebay_core::recipe::{MaskFill, SpecAugment};
use forebay_core::rng::Rng;
use std::ops::Range;

/// Masks `values`, which are frames in bands in channels.
pub(crate) fn apply(op: &SpecAugment, values: &mut [f32], (bins, frames): (usize, usize), rng: &mut Rng) {
    if values.is_empty() {
        return;
    }
    let fill = match op.fill {
        MaskFill::Zero => 0.0,
        MaskFill::Mean => {
            let sum: f64 = values.iter().map(|value| f64::from(*value)).sum();
            (sum / values.len() as f64) as f32
        }
    };
    for _ in 0..op.n_time_masks {
        let masked = span(op.time_mask_param, frames, op.p, rng);
        values.chunks_exact_mut(frames).for_each(|row| row[masked.clone()].fill(fill));
    }
    for _ in 0..op.n_freq_masks {
        let Range { start, end } = span(op.freq_mask_param, bins, op.p, rng);
        values
            .chunks_exact_mut(bins * frames)
            .for_each(|channel| channel[start * frames..end * frames].fill(fill));
    }
}

/// A span shorter than `most` and than a share of `size`, somewhere in it; torchaudio's `mask_along_axis`.
fn span(most: u32, size: usize, p: f64, rng: &mut Rng) -> Range<usize> {
    let most = if p < 1.0 { (most as usize).min((size as f64 * p) as usize) } else { most as usize };
    let width = (rng.unit() * most as f64).min(size as f64);
    let start = (rng.unit() * (size as f64 - width)) as usize;
    start..(start + width as usize).min(size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::SampleId;

    #[test]
    fn masks_are_narrower_than_asked_and_everywhere() {
        let mut covered = [0; 50];
        let mut widths = [0; 20];
        for sample in 0..5000 {
            let masked = span(20, 50, 1.0, &mut Rng::for_op(1, 0, SampleId(sample), 0));
            widths[masked.len()] += 1;
            masked.for_each(|at| covered[at] += 1);
        }
        assert!(widths.iter().all(|count| (150..350).contains(count)), "{widths:?}");
        // torchaudio's formula never reaches the last one.
        assert!(covered[..49].iter().all(|count| *count > 0), "{covered:?}");
        for sample in 0..100 {
            assert!(span(20, 50, 0.1, &mut Rng::for_op(1, 0, SampleId(sample), 0)).len() < 5);
            assert!(span(200, 3, 1.0, &mut Rng::for_op(1, 0, SampleId(sample), 0)).end <= 3);
        }
    }

    #[test]
    fn a_mask_crosses_all_channels_and_holds_the_mean() {
        let op = SpecAugment {
            n_time_masks: 1,
            time_mask_param: 6,
            n_freq_masks: 1,
            freq_mask_param: 4,
            p: 1.0,
            fill: MaskFill::Mean,
        };
        let before: Vec<f32> = (0..2 * 4 * 9).map(|at| at as f32).collect();
        let mut seen = 0;
        for sample in 0..50 {
            let mut values = before.clone();
            apply(&op, &mut values, (4, 9), &mut Rng::for_op(1, 0, SampleId(sample), 0));
            let masked: Vec<bool> = values.iter().zip(&before).map(|(a, b)| a != b).collect();
            assert_eq!(masked[..36], masked[36..]);
            assert!(values.iter().zip(&masked).all(|(value, masked)| !masked || *value == 35.5));
            seen += masked.iter().filter(|masked| **masked).count();
        }
        assert!(seen > 500, "{seen}");
    }
}
