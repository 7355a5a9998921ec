//! `perspective`: moves the corners of the image inwards, with a probability, as torchvision's `RandomPerspective`.
//!
//! What it does to pixels is in [`crate::kernels::tilt`].

use super::adjustment::Adjustment;
use crate::kernels::tilt::{Corners, Tilt, coefficients};
use forebay_core::recipe::Perspective;
use forebay_core::rng::Rng;

/// How an image of `size` columns and rows is seen; nothing when the chance is not met, or nothing would be left.
pub(crate) fn draw(op: &Perspective, size: (u32, u32), rng: &mut Rng) -> Option<Adjustment> {
    let Perspective { distortion, p, interpolation, fill } = *op;
    if !rng.chance(p) {
        return None;
    }
    let coefficients = coefficients(&whole(size), &corners(distortion, size, rng))?;
    Some(Adjustment::Tilt(Tilt { coefficients, interpolation, fill }))
}

fn whole((width, height): (u32, u32)) -> Corners {
    let (right, bottom) = (f64::from(width) - 1.0, f64::from(height) - 1.0);
    [[0.0, 0.0], [right, 0.0], [right, bottom], [0.0, bottom]]
}

/// Each corner is a pixel of its quarter, or of the part of it that the distortion allows.
fn corners(distortion: f64, (width, height): (u32, u32), rng: &mut Rng) -> Corners {
    let most = |side: u32| (distortion * f64::from(side / 2)) as u32 + 1;
    let mut inwards = |side: u32| f64::from(rng.below(u64::from(most(side))) as u32);
    let (right, bottom) = (f64::from(width) - 1.0, f64::from(height) - 1.0);
    [
        [inwards(width), inwards(height)],
        [right - inwards(width), inwards(height)],
        [right - inwards(width), bottom - inwards(height)],
        [inwards(width), bottom - inwards(height)],
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::SampleId;
    use forebay_core::recipe::Interpolation;

    #[test]
    fn every_corner_is_drawn_evenly_from_torchvisions_range() {
        // Half of 100 columns and of 61 rows, of which half: 25 and 15 pixels either way, both ends included.
        let mut counts = [[0u32; 26]; 8];
        for sample in 0..10_000 {
            let drawn = corners(0.5, (100, 61), &mut Rng::for_op(1, 0, SampleId(sample), 0));
            for (at, ([x, y], [far_x, far_y])) in drawn.into_iter().zip(whole((100, 61))).enumerate() {
                counts[2 * at][(x - far_x).abs() as usize] += 1;
                counts[2 * at + 1][(y - far_y).abs() as usize] += 1;
            }
        }
        for (at, counts) in counts.iter().enumerate() {
            let (kinds, chi_most) = if at % 2 == 0 { (26, 52.6) } else { (16, 37.7) };
            let mean = 10_000.0 / kinds as f64;
            let chi: f64 =
                counts[..kinds].iter().map(|count| (f64::from(*count) - mean).powi(2) / mean).sum();
            assert!(chi < chi_most, "chi-square {chi} of {counts:?}, p < 0.001");
            assert!(counts[kinds..].iter().all(|count| *count == 0), "{counts:?}");
        }
    }

    #[test]
    fn it_happens_as_often_as_asked_and_not_to_lines() {
        let op = Perspective { distortion: 0.5, p: 0.3, interpolation: Interpolation::Nearest, fill: 0 };
        let drawn = |size, sample| draw(&op, size, &mut Rng::for_op(1, 0, SampleId(sample), 0));
        let hits = (0..10_000).filter(|sample| drawn((50, 50), *sample).is_some()).count();
        assert!((2850..3150).contains(&hits), "{hits} of 10000 at p = 0.3, three deviations are 138");
        assert!((0..100).all(|sample| drawn((1, 9), sample).is_none() && drawn((1, 1), sample).is_none()));
    }
}
