//! `speed`: the waveform at another rate, taken as if it had the old one.

use forebay_core::rng::Rng;

/// The rates from and to which a waveform of `rate` is resampled, when there is anything to do.
pub(crate) fn draw(factors: &[f64], rate: u32, rng: &mut Rng) -> Option<(u32, u32)> {
    let factor = match factors {
        [only] => *only,
        _ => factors[rng.below(factors.len().max(1) as u64) as usize],
    };
    // As torchaudio does: cut, not rounded.
    let from = (factor * f64::from(rate)) as u32;
    (from != rate && from > 0).then_some((from, rate))
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::SampleId;

    #[test]
    fn each_speed_is_drawn_as_often() {
        let factors = [0.9, 1.0, 1.1];
        let mut counts = [0; 3];
        for sample in 0..3000 {
            match draw(&factors, 16_000, &mut Rng::for_op(1, 0, SampleId(sample), 0)) {
                Some((14_400, 16_000)) => counts[0] += 1,
                None => counts[1] += 1,
                Some((17_600, 16_000)) => counts[2] += 1,
                other => panic!("{other:?}"),
            }
        }
        assert!(counts.iter().all(|count| (900..1100).contains(count)), "{counts:?}");
    }
}
