//! `random_erasing`: blanks a random rectangle, with a probability.
//!
//! The rectangle has the distribution of torchvision's `RandomErasing`: up to ten draws of area and aspect until one
//! is smaller than the image on both sides, then a place. It is filled after `normalize` when that comes first, so
//! its value is in output units.

use crate::image::Rect;
use crate::kernels::erase::{self, RowForm};
use forebay_core::recipe::Interval;
use forebay_core::rng::Rng;

/// Draws before an image is left as it is.
const TRIES: usize = 10;

/// What is erased how often.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RandomErasing {
    /// Probability.
    pub(crate) p: f64,
    /// Share of the image's area.
    pub(crate) scale: Interval,
    /// Height divided by width, drawn log-uniformly.
    pub(crate) ratio: Interval,
    /// Value written.
    pub(crate) value: f64,
}

impl RandomErasing {
    /// The rectangle to erase in an image of this size, if any.
    pub(crate) fn draw(&self, width: u32, height: u32, rng: &mut Rng) -> Option<Rect> {
        if !rng.chance(self.p) {
            return None;
        }
        let area = f64::from(width) * f64::from(height);
        let [low, high] = self.ratio.map(f64::ln);
        for _ in 0..TRIES {
            let erased = area * rng.uniform(self.scale[0], self.scale[1]);
            let ratio = rng.uniform(low, high).exp();
            // As Python rounds. Casts saturate, so absurd ratios fail the test below.
            let h = (erased * ratio).sqrt().round_ties_even() as u32;
            let w = (erased / ratio).sqrt().round_ties_even() as u32;
            if h < height && w < width {
                let y = rng.below(u64::from(height - h) + 1) as u32;
                let x = rng.below(u64::from(width - w) + 1) as u32;
                return Some(Rect { x, y, width: w, height: h });
            }
        }
        None
    }

    /// Draws, then fills the rectangle of the row.
    pub(crate) fn apply(&self, row: &mut [u8], form: RowForm, rng: &mut Rng) {
        if let Some(rect) = self.draw(form.width, form.height, rng) {
            erase::fill(row, form, rect, self.value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::SampleId;

    const ERASING: RandomErasing =
        RandomErasing { p: 1.0, scale: [0.02, 0.33], ratio: [0.3, 3.3], value: 0.0 };

    fn draws(erasing: RandomErasing, width: u32, height: u32) -> Vec<Option<Rect>> {
        (0..20_000).map(|s| erasing.draw(width, height, &mut Rng::for_op(9, 0, SampleId(s), 3))).collect()
    }

    #[test]
    fn it_happens_as_often_as_asked() {
        let hits = draws(RandomErasing { p: 0.25, ..ERASING }, 224, 224).iter().flatten().count();
        assert!((4816..5184).contains(&hits), "{hits} of 20000 at p = 0.25, three deviations are 184");
    }

    #[test]
    fn areas_and_ratios_fill_their_ranges_evenly() {
        let (mut areas, mut ratios) = ([0f64; 10], [0f64; 10]);
        let tenth = |value: f64, low: f64, high: f64| (((value - low) / (high - low) * 10.0) as usize).min(9);
        let drawn = draws(ERASING, 2000, 2000);
        for rect in drawn.iter().flatten() {
            assert!(rect.right() <= 2000 && rect.bottom() <= 2000 && !rect.is_empty());
            let (w, h) = (f64::from(rect.width), f64::from(rect.height));
            areas[tenth(w * h / 4e6, 0.02, 0.33)] += 1.0;
            ratios[tenth((h / w).ln(), 0.3f64.ln(), 3.3f64.ln())] += 1.0;
        }
        // At these ranges every drawn rectangle but the longest fits (0.33 * 3.3 = 1.09), so both stay near uniform.
        for counts in [areas, ratios] {
            assert!(counts.iter().all(|count| (1700.0..2300.0).contains(count)), "{counts:?}");
        }
    }

    #[test]
    fn every_place_is_reached_up_to_both_edges() {
        let drawn = draws(RandomErasing { scale: [0.25, 0.25], ratio: [1.0, 1.0], ..ERASING }, 8, 8);
        let places: std::collections::HashSet<_> = drawn.iter().flatten().map(|r| (r.x, r.y)).collect();
        assert!(drawn.iter().flatten().all(|r| (r.width, r.height) == (4, 4)));
        assert_eq!(places.len(), 25);
    }

    #[test]
    fn an_image_too_small_for_its_rectangle_is_left_alone() {
        assert!(draws(RandomErasing { scale: [1.0, 1.0], ..ERASING }, 30, 30).iter().all(Option::is_none));
        assert!(draws(ERASING, 1, 1).iter().flatten().all(|rect| rect.is_empty()));
        assert!(draws(ERASING, 0, 0).iter().all(Option::is_none));
        assert!(draws(RandomErasing { ratio: [1e300, 1e300], ..ERASING }, 9, 9).iter().all(Option::is_none));
    }
}
