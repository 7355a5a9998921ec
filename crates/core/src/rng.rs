//! Seeded chance without state: Philox4x32-10, keyed by what is being decided.
//!
//! A draw depends only on its key, never on how many draws other samples made, so any thread on any machine gets
//! the same crop for the same (seed, epoch, sample id, op). The generator's output is part of the file format in
//! spirit: golden values in the tests keep it from changing between releases.

use crate::SampleId;

/// A stream of numbers for one op on one sample in one epoch.
#[derive(Clone, Debug)]
pub struct Rng {
    key: [u32; 2],
    counter: [u32; 4],
    block: [u32; 4],
    used: usize,
}

/// One finalizer round of SplitMix64: a cheap, well-spread 64-bit mix used to fold keys together.
pub const fn mix64(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Folds several numbers into one key; the order of the parts matters.
pub fn fold(parts: &[u64]) -> u64 {
    parts.iter().fold(0x0F0E_BA1D, |acc, part| mix64(acc ^ mix64(*part)))
}

impl Rng {
    /// The stream for op number `op` of a recipe on one sample in one epoch.
    pub fn for_op(seed: u64, epoch: u64, sample: SampleId, op: u64) -> Self {
        Self::keyed(fold(&[seed, epoch]), sample.0, op)
    }

    /// A stream from a 64-bit key and two 64-bit stream numbers.
    pub fn keyed(key: u64, stream: u64, substream: u64) -> Self {
        let folded = mix64(substream);
        Self {
            key: [key as u32, (key >> 32) as u32],
            counter: [0, folded as u32 ^ (folded >> 32) as u32, stream as u32, (stream >> 32) as u32],
            block: [0; 4],
            used: 4,
        }
    }

    /// 32 uniform bits.
    pub fn next_u32(&mut self) -> u32 {
        if self.used == 4 {
            self.block = philox4x32_10(self.counter, self.key);
            self.counter[0] = self.counter[0].wrapping_add(1);
            self.used = 0;
        }
        self.used += 1;
        self.block[self.used - 1]
    }

    /// 64 uniform bits.
    pub fn next_u64(&mut self) -> u64 {
        u64::from(self.next_u32()) | (u64::from(self.next_u32()) << 32)
    }

    /// Uniform in `[0, 1)` with 53 random bits.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Uniform in `[low, high)`; `low` when the interval is empty.
    pub fn uniform(&mut self, low: f64, high: f64) -> f64 {
        if high > low { low + (high - low) * self.unit() } else { low }
    }

    /// Uniform in `0..bound`, without modulo bias worth speaking of (below 2^-32 for bounds under 2^32).
    pub fn below(&mut self, bound: u64) -> u64 {
        debug_assert!(bound > 0, "an empty range has no member to draw");
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// True with probability `p`.
    pub fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }

    /// Standard normal value (Box-Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Fills `shares` with numbers that sum to one (symmetric Dirichlet; two of them: Beta of `alpha` and `alpha`).
    pub fn shares(&mut self, alpha: f64, shares: &mut [f64]) {
        // In logarithms, because Gamma values of a small alpha are too small for a number.
        for share in &mut *shares {
            *share = self.log_gamma(alpha);
        }
        let most = shares.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        for share in &mut *shares {
            *share = (*share - most).exp();
        }
        let sum: f64 = shares.iter().sum();
        for share in shares {
            *share /= sum;
        }
    }

    /// Logarithm of a Gamma value (Marsaglia and Tsang, 2000).
    fn log_gamma(&mut self, alpha: f64) -> f64 {
        if alpha < 1.0 {
            let below = (1.0 - self.unit()).ln() / alpha;
            return below + self.log_gamma(alpha + 1.0);
        }
        let shifted = alpha - 1.0 / 3.0;
        let width = 1.0 / (9.0 * shifted).sqrt();
        loop {
            let x = self.normal();
            let cube = (1.0 + width * x).powi(3);
            let chance = (1.0 - self.unit()).ln();
            if cube > 0.0 && chance < 0.5 * x * x + shifted - shifted * cube + shifted * cube.ln() {
                return shifted.ln() + cube.ln();
            }
        }
    }
}

/// Ten rounds of the Philox 4x32 block function (Salmon et al., SC'11).
fn philox4x32_10(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let low = u64::from(counter[0]) * 0xD251_1F53;
        let high = u64::from(counter[2]) * 0xCD9E_8D57;
        counter = [
            (high >> 32) as u32 ^ counter[1] ^ key[0],
            high as u32,
            (low >> 32) as u32 ^ counter[3] ^ key[1],
            low as u32,
        ];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    counter
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The three known-answer vectors published with Random123.
    #[test]
    fn philox_matches_the_published_vectors() {
        assert_eq!(philox4x32_10([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(
            philox4x32_10([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox4x32_10([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn a_draw_depends_on_every_part_of_its_key() {
        let base = Rng::for_op(1, 2, SampleId(3), 4).next_u64();
        assert_eq!(base, Rng::for_op(1, 2, SampleId(3), 4).next_u64());
        for other in [
            Rng::for_op(9, 2, SampleId(3), 4),
            Rng::for_op(1, 9, SampleId(3), 4),
            Rng::for_op(1, 2, SampleId(9), 4),
            Rng::for_op(1, 2, SampleId(3), 9),
        ] {
            assert_ne!(base, { other }.next_u64());
        }
    }

    #[test]
    fn draws_are_uniform_over_a_small_range() {
        let mut counts = [0u32; 10];
        for sample in 0..20_000 {
            counts[Rng::for_op(7, 0, SampleId(sample), 1).below(10) as usize] += 1;
        }
        let chi: f64 = counts.iter().map(|c| (f64::from(*c) - 2000.0).powi(2) / 2000.0).sum();
        assert!(chi < 27.9, "chi-square {chi} over 9 degrees of freedom, p < 0.001");
    }

    #[test]
    fn shares_sum_to_one_and_have_the_spread_of_a_beta_distribution() {
        for alpha in [0.2, 1.0, 4.0] {
            let (mut sum, mut squares) = (0.0, 0.0);
            for sample in 0..20_000 {
                let mut shares = [0.0; 2];
                Rng::for_op(7, 0, SampleId(sample), 1).shares(alpha, &mut shares);
                assert!((shares[0] + shares[1] - 1.0).abs() < 1e-12 && (0.0..=1.0).contains(&shares[0]));
                sum += shares[0];
                squares += shares[0] * shares[0];
            }
            let mean = sum / 20_000.0;
            let variance = squares / 20_000.0 - mean * mean;
            assert!((mean - 0.5).abs() < 0.012, "{mean} at {alpha}");
            let expected = 0.25 / (2.0 * alpha + 1.0);
            assert!((variance / expected - 1.0).abs() < 0.04, "{variance}, not {expected}, at {alpha}");
        }
        let mut shares = [0.0; 3];
        for sample in 0..1000 {
            Rng::for_op(7, 0, SampleId(sample), 1).shares(1e-3, &mut shares);
            assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-12, "{shares:?}");
        }
    }

    #[test]
    fn the_stream_never_changes_between_releases() {
        let mut rng = Rng::for_op(0, 0, SampleId(0), 0);
        let drawn = [rng.next_u32(), rng.next_u32(), rng.next_u32(), rng.next_u32(), rng.next_u32()];
        assert_eq!(drawn, GOLDEN);
    }

    const GOLDEN: [u32; 5] = [3_244_945_628, 4_246_036_501, 313_738_224, 1_429_556_278, 3_019_320_208];
}
