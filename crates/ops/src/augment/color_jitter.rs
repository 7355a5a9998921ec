//! `color_jitter`: brightness, contrast, saturation and hue in random order, each by a random factor.
//!
//! Order and factors have the distribution of torchvision's `ColorJitter`; what a factor does to pixels is in
//! [`crate::kernels::color`].

use crate::image::ImageMut;
use crate::kernels::color;
use forebay_core::rng::Rng;

/// How far each property may change; zero leaves it alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ColorJitter {
    /// Factor from `[max(0, 1 - x), 1 + x]`.
    pub(crate) brightness: f64,
    /// Factor from `[max(0, 1 - x), 1 + x]`.
    pub(crate) contrast: f64,
    /// Factor from `[max(0, 1 - x), 1 + x]`.
    pub(crate) saturation: f64,
    /// Turn of the hue circle from `[-x, x]`.
    pub(crate) hue: f64,
}

/// One change of one property.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Change {
    Brightness(f64),
    Contrast(f64),
    Saturation(f64),
    Hue(f64),
}

impl ColorJitter {
    /// Draws the changes in the order in which they are made; `None` stands for a property that is left alone.
    pub(crate) fn draw(&self, rng: &mut Rng) -> [Option<Change>; 4] {
        let mut order = [0, 1, 2, 3];
        for last in (1..order.len()).rev() {
            order.swap(last, rng.below(last as u64 + 1) as usize);
        }
        let factor = |spread: f64, rng: &mut Rng| {
            (spread > 0.0).then(|| rng.uniform((1.0 - spread).max(0.0), 1.0 + spread))
        };
        let brightness = factor(self.brightness, rng).map(Change::Brightness);
        let contrast = factor(self.contrast, rng).map(Change::Contrast);
        let saturation = factor(self.saturation, rng).map(Change::Saturation);
        let hue = (self.hue > 0.0).then(|| Change::Hue(rng.uniform(-self.hue, self.hue)));
        let changes = [brightness, contrast, saturation, hue];
        order.map(|property| changes[property])
    }
}

impl Change {
    /// Makes the change.
    pub(crate) fn apply(self, image: &mut ImageMut<'_>) {
        match self {
            Self::Brightness(factor) => color::brightness(image, factor),
            Self::Contrast(factor) => color::contrast(image, factor),
            Self::Saturation(factor) => color::saturation(image, factor),
            Self::Hue(turn) => color::hue(image, turn),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Image;
    use forebay_core::SampleId;
    use std::collections::HashMap;

    const JITTER: ColorJitter = ColorJitter { brightness: 0.4, contrast: 1.5, saturation: 0.2, hue: 0.1 };

    fn draws(jitter: ColorJitter, count: u64) -> impl Iterator<Item = [Option<Change>; 4]> {
        (0..count).map(move |sample| jitter.draw(&mut Rng::for_op(1, 0, SampleId(sample), 0)))
    }

    #[test]
    fn all_24_orders_are_equally_likely() {
        let mut counts = HashMap::<Vec<u8>, f64>::new();
        for drawn in draws(JITTER, 24_000) {
            let order = drawn.iter().flatten().map(|change| match change {
                Change::Brightness(_) => 0,
                Change::Contrast(_) => 1,
                Change::Saturation(_) => 2,
                Change::Hue(_) => 3,
            });
            *counts.entry(order.collect()).or_default() += 1.0;
        }
        assert_eq!(counts.len(), 24);
        let chi: f64 = counts.values().map(|count| (count - 1000.0).powi(2) / 1000.0).sum();
        assert!(chi < 49.7, "chi-square {chi} over 23 degrees of freedom, p < 0.001");
    }

    #[test]
    fn factors_fill_torchvisions_ranges_evenly() {
        let ranges = [(0.6, 1.4), (0.0, 2.5), (0.8, 1.2), (-0.1, 0.1)];
        let mut tenths = [[0f64; 10]; 4];
        for drawn in draws(JITTER, 10_000) {
            for change in drawn.into_iter().flatten() {
                let (property, factor) = match change {
                    Change::Brightness(factor) => (0, factor),
                    Change::Contrast(factor) => (1, factor),
                    Change::Saturation(factor) => (2, factor),
                    Change::Hue(factor) => (3, factor),
                };
                let (low, high) = ranges[property];
                assert!((low..high).contains(&factor), "{change:?}");
                tenths[property][((factor - low) / (high - low) * 10.0) as usize] += 1.0;
            }
        }
        for counts in tenths {
            let chi: f64 = counts.iter().map(|count| (count - 1000.0).powi(2) / 1000.0).sum();
            assert!(chi < 27.9, "chi-square {chi} over 9 degrees of freedom, p < 0.001");
        }
    }

    #[test]
    fn a_property_without_spread_is_left_alone() {
        let none = ColorJitter { brightness: 0.0, contrast: 0.0, saturation: 0.0, hue: 0.0 };
        assert!(draws(none, 50).all(|drawn| drawn == [None; 4]));
        let only = ColorJitter { contrast: 0.3, ..none };
        assert!(
            draws(only, 50)
                .all(|d| matches!(d.iter().flatten().collect::<Vec<_>>()[..], [Change::Contrast(_)]))
        );
    }

    #[test]
    fn the_same_sample_changes_the_same_way_and_another_does_not() {
        let run = |sample| {
            let mut image = Image::from_pixels(2, 1, 3, vec![10, 200, 90, 250, 3, 77]).unwrap();
            for change in JITTER.draw(&mut Rng::for_op(5, 1, SampleId(sample), 2)).into_iter().flatten() {
                change.apply(&mut image.as_mut());
            }
            image
        };
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
    }
}
