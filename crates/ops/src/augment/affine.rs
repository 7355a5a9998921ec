//! `affine`: rotates, moves, scales and shears about the centre, each drawn uniformly, as torchvision's `RandomAffine`.
//!
//! What it does to pixels is in [`crate::kernels::bend`].

use super::adjustment::Adjustment;
use crate::kernels::bend::{Bend, Motion};
use forebay_core::recipe::Affine;
use forebay_core::rng::Rng;

/// How an image of `size` columns and rows is bent.
pub(crate) fn draw(op: &Affine, size: (u32, u32), rng: &mut Rng) -> Adjustment {
    let matrix = motion(op, size, rng).inverse();
    Adjustment::Bend(Bend { matrix, interpolation: op.interpolation, fill: op.fill })
}

fn motion(op: &Affine, (width, height): (u32, u32), rng: &mut Rng) -> Motion {
    let mut within = |[low, high]: [f64; 2]| rng.uniform(low, high);
    let degrees = within(op.degrees);
    let [most_x, most_y] = [op.translate[0] * f64::from(width), op.translate[1] * f64::from(height)];
    // Whole pixels, so that moving alone blurs nothing.
    let translate = [most_x, most_y].map(|most| within([-most, most]).round_ties_even());
    let scale = within(op.scale);
    let [x_low, x_high, y_low, y_high] = op.shear;
    let shear = [within([x_low, x_high]), within([y_low, y_high])];
    Motion { centre: [0.0; 2], degrees, translate, scale, shear }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::SampleId;
    use forebay_core::recipe::Interpolation;

    const OP: Affine = Affine {
        degrees: [-30.0, 60.0],
        translate: [0.1, 0.2],
        scale: [0.5, 1.5],
        shear: [-5.0, 5.0, 0.0, 8.0],
        interpolation: Interpolation::Nearest,
        fill: 0,
    };

    fn draws(op: &Affine) -> impl Iterator<Item = Motion> {
        (0..10_000).map(move |sample| motion(op, (200, 100), &mut Rng::for_op(1, 0, SampleId(sample), 0)))
    }

    #[test]
    fn every_parameter_fills_torchvisions_interval_evenly() {
        let mut tenths = [[0f64; 10]; 4];
        let (mut shifts_x, mut shifts_y) = ([0u32; 41], [0u32; 41]);
        for drawn in draws(&OP) {
            let values = [
                (drawn.degrees, OP.degrees),
                (drawn.scale, OP.scale),
                (drawn.shear[0], [-5.0, 5.0]),
                (drawn.shear[1], [0.0, 8.0]),
            ];
            for ((value, [low, high]), tenths) in values.into_iter().zip(&mut tenths) {
                assert!((low..high).contains(&value), "{drawn:?}");
                tenths[((value - low) / (high - low) * 10.0) as usize] += 1.0;
            }
            for (shift, counts) in drawn.translate.into_iter().zip([&mut shifts_x, &mut shifts_y]) {
                assert!(shift.fract() == 0.0 && shift.abs() <= 20.0, "{drawn:?}");
                counts[(shift + 20.0) as usize] += 1;
            }
        }
        for counts in tenths {
            let chi: f64 = counts.iter().map(|count| (count - 1000.0).powi(2) / 1000.0).sum();
            assert!(chi < 27.9, "chi-square {chi} over 9 degrees of freedom, p < 0.001");
        }
        // 40 pixels either way: every whole shift inside has a fortieth, the outermost two have half of that.
        for counts in [shifts_x, shifts_y] {
            assert!(counts[1..40].iter().all(|count| (190..310).contains(count)), "{counts:?}");
            assert!([counts[0], counts[40]].iter().all(|count| (85..165).contains(count)), "{counts:?}");
        }
    }

    #[test]
    fn fixed_intervals_draw_what_they_say() {
        let fixed = Affine {
            degrees: [9.0, 9.0],
            translate: [0.0; 2],
            scale: [2.0, 2.0],
            shear: [1.0, 1.0, 3.0, 3.0],
            ..OP
        };
        let expected =
            Motion { centre: [0.0; 2], degrees: 9.0, translate: [0.0; 2], scale: 2.0, shear: [1.0, 3.0] };
        assert!(draws(&fixed).take(50).all(|drawn| drawn == expected));
    }
}
