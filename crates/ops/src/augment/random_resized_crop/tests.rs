//! The distribution of crops is torchvision's.

use super::*;
use forebay_core::SampleId;

const SCALE: Interval = [0.08, 1.0];
const RATIO: Interval = [3.0 / 4.0, 4.0 / 3.0];
const DRAWS: usize = 20_000;

/// A property of a crop given as (top, left, height, width).
type Measure = fn(&[f64; 4]) -> f64;

/// A small generator that shares nothing with ours.
struct Other(u64);

impl Other {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as f64 / (1u64 << 31) as f64
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }
}

/// torchvision's published algorithm, written down again: (top, left, height, width).
fn reference(width: f64, height: f64, chance: &mut Other) -> [f64; 4] {
    for _ in 0..10 {
        let target_area = width * height * chance.between(SCALE[0], SCALE[1]);
        let aspect = chance.between(RATIO[0].ln(), RATIO[1].ln()).exp();
        let w = (target_area * aspect).sqrt().round();
        let h = (target_area / aspect).sqrt().round();
        if w > 0.0 && w <= width && h > 0.0 && h <= height {
            let top = (chance.unit() * (height - h + 1.0)).floor();
            let left = (chance.unit() * (width - w + 1.0)).floor();
            return [top, left, h, w];
        }
    }
    let (mut w, mut h) = (width, height);
    if width / height < RATIO[0] {
        h = (w / RATIO[0]).round();
    } else if width / height > RATIO[1] {
        w = (h * RATIO[1]).round();
    }
    [((height - h) / 2.0).floor(), ((width - w) / 2.0).floor(), h, w]
}

/// Largest distance between the two cumulative distributions.
fn kolmogorov_smirnov(mut ours: Vec<f64>, mut theirs: Vec<f64>) -> f64 {
    ours.sort_by(f64::total_cmp);
    theirs.sort_by(f64::total_cmp);
    let (mut i, mut j, mut distance) = (0, 0, 0.0f64);
    while i < ours.len() && j < theirs.len() {
        let value = ours[i].min(theirs[j]);
        while i < ours.len() && ours[i] <= value {
            i += 1;
        }
        while j < theirs.len() && theirs[j] <= value {
            j += 1;
        }
        distance = distance.max((i as f64 / ours.len() as f64 - j as f64 / theirs.len() as f64).abs());
    }
    distance
}

#[test]
fn p034_area_aspect_and_place_are_distributed_as_in_torchvision() {
    for (width, height) in [(500u32, 375u32), (375, 500), (1200, 300), (64, 64)] {
        let mut ours = Vec::new();
        let mut theirs = Vec::new();
        let mut chance = Other(u64::from(width) << 20 | u64::from(height));
        for sample in 0..DRAWS {
            let mut rng = Rng::for_op(11, 3, SampleId(sample as u64), 2);
            let rect = draw(width, height, SCALE, RATIO, &mut rng);
            assert!(rect.right() <= width && rect.bottom() <= height && !rect.is_empty());
            ours.push([rect.y, rect.x, rect.height, rect.width].map(f64::from));
            theirs.push(reference(f64::from(width), f64::from(height), &mut chance));
        }
        let measures: [(&str, Measure); 4] = [
            ("area", |[_, _, h, w]| h * w),
            ("aspect", |[_, _, h, w]| w / h),
            ("left", |[_, left, _, _]| *left),
            ("top", |[top, _, _, _]| *top),
        ];
        // 1.95 * sqrt(2 / n): distances above come by chance once in a thousand times.
        let limit = 1.95 * (2.0 / DRAWS as f64).sqrt();
        for (name, measure) in measures {
            let distance =
                kolmogorov_smirnov(ours.iter().map(measure).collect(), theirs.iter().map(measure).collect());
            assert!(
                distance < limit,
                "{name} of crops of {width}x{height}: distance {distance:.4} > {limit:.4}"
            );
        }
    }
}

#[test]
fn an_image_of_no_allowed_aspect_gives_its_middle() {
    let mut rng = Rng::for_op(0, 0, SampleId(0), 0);
    // No window of a tenth of the area fits: the aspect would have to be beyond the interval.
    assert_eq!(draw(1000, 10, [0.9, 1.0], RATIO, &mut rng), Rect { x: 493, y: 0, width: 13, height: 10 });
    assert_eq!(draw(10, 1000, [0.9, 1.0], RATIO, &mut rng), Rect { x: 0, y: 493, width: 10, height: 13 });
}

#[test]
fn a_single_pixel_can_be_cropped() {
    let mut rng = Rng::for_op(0, 0, SampleId(0), 0);
    assert_eq!(draw(1, 1, [0.08, 0.1], RATIO, &mut rng), Rect::of_size(1, 1));
}
