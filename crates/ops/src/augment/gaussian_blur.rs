//! `gaussian_blur`: blurs with a probability, by a Gaussian whose width is drawn uniformly.
//!
//! What it does to pixels is in [`crate::kernels::blur`].

use super::adjustment::Adjustment;
use forebay_core::recipe::GaussianBlur;
use forebay_core::rng::Rng;

/// The blur of this sample, if it is blurred.
pub(crate) fn draw(op: &GaussianBlur, rng: &mut Rng) -> Option<Adjustment> {
    let [low, high] = op.sigma;
    rng.chance(op.p).then(|| Adjustment::Blur { kernel: op.kernel, sigma: rng.uniform(low, high) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::SampleId;

    #[test]
    fn the_width_fills_its_interval_evenly() {
        let op = GaussianBlur { kernel: 9, sigma: [0.1, 2.0], p: 1.0 };
        let mut tenths = [0f64; 10];
        for sample in 0..10_000 {
            let drawn = draw(&op, &mut Rng::for_op(1, 0, SampleId(sample), 0));
            let Some(Adjustment::Blur { kernel: 9, sigma }) = drawn else { panic!("{drawn:?}") };
            assert!((0.1..2.0).contains(&sigma), "{sigma}");
            tenths[((sigma - 0.1) / 1.9 * 10.0) as usize] += 1.0;
        }
        let chi: f64 = tenths.iter().map(|count| (count - 1000.0).powi(2) / 1000.0).sum();
        assert!(chi < 27.9, "chi-square {chi} over 9 degrees of freedom, p < 0.001");
    }
}
