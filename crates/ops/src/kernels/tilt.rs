//! Resampling in perspective, as torchvision's transforms v2 do with `uint8` tensors: places are computed in `f32` and in
//! the order of `grid_sample`, levels are rounded. What is said of last bits in [`super::bend`] holds here.

use super::bend::Source;
use crate::image::ImageRef;
use forebay_core::recipe::Interpolation;

/// Corners of an image: top left, top right, bottom right, bottom left.
pub(crate) type Corners = [[f64; 2]; 4];

/// How an image is seen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tilt {
    /// `a` to `h`: a place of the result comes from `(ax + by + c, dx + ey + f) / (gx + hy + 1)` of the source.
    pub(crate) coefficients: [f64; 8],
    /// How pixels between pixels are made.
    pub(crate) interpolation: Interpolation,
    /// Value of all channels where there is no source.
    pub(crate) fill: u8,
}

/// The coefficients by which `from` of the source is seen at `to`; nothing when `to` is no quadrangle.
pub(crate) fn coefficients(from: &Corners, to: &Corners) -> Option<[f64; 8]> {
    let mut rows = [[0.0; 9]; 8];
    for (pair, ([x, y], [seen_x, seen_y])) in rows.as_chunks_mut::<2>().0.iter_mut().zip(from.iter().zip(to))
    {
        *pair = [
            [*seen_x, *seen_y, 1.0, 0.0, 0.0, 0.0, -x * seen_x, -x * seen_y, *x],
            [0.0, 0.0, 0.0, *seen_x, *seen_y, 1.0, -y * seen_x, -y * seen_y, *y],
        ];
    }
    solve(rows).filter(|solution| solution.iter().all(|value| value.is_finite()))
}

/// Eight equations with eight unknowns, by elimination.
fn solve(mut rows: [[f64; 9]; 8]) -> Option<[f64; 8]> {
    for at in 0..8 {
        let pivot = (at..8).max_by(|a, b| rows[*a][at].abs().total_cmp(&rows[*b][at].abs()))?;
        if rows[pivot][at].abs() < 1e-9 {
            return None;
        }
        rows.swap(at, pivot);
        let above = rows[at];
        for (_, row) in rows.iter_mut().enumerate().filter(|(other, _)| *other != at) {
            let factor = row[at] / above[at];
            row.iter_mut().zip(above).for_each(|(value, from)| *value -= factor * from);
        }
    }
    Some(std::array::from_fn(|at| rows[at][8] / rows[at][at]))
}

impl Tilt {
    /// Writes the image as it is seen.
    ///
    /// # Panics
    /// When `to` is not of the image's size.
    pub(crate) fn run(&self, from: ImageRef<'_>, to: &mut [u8]) {
        assert_eq!(from.pixels.len(), to.len(), "a tilted image has the size of its source");
        match from.channels {
            1 => self.run_on::<1>(from, to),
            3 => self.run_on::<3>(from, to),
            4 => self.run_on::<4>(from, to),
            _ => to.copy_from_slice(from.pixels),
        }
    }

    fn run_on<const C: usize>(&self, from: ImageRef<'_>, to: &mut [u8]) {
        let source = Source::<C>::new(from);
        let (to, _) = to.as_chunks_mut::<C>();
        if to.is_empty() {
            return;
        }
        let (half_x, half_y) = (0.5 * from.width as f32, 0.5 * from.height as f32);
        let [a, b, c, d, e, f, g, h] = self.coefficients.map(|value| value as f32);
        let ([a, b, c], [d, e, f]) =
            ([a, b, c].map(|value| value / half_x), [d, e, f].map(|value| value / half_y));
        for (y, row) in to.chunks_exact_mut(from.width as usize).enumerate() {
            let y = y as f32 + 0.5;
            for (x, pixel) in row.iter_mut().enumerate() {
                let x = x as f32 + 0.5;
                let depth = x * g + y * h + 1.0;
                let at_x = ((x * a + y * b + c) / depth - 1.0 + 1.0) * half_x - 0.5;
                let at_y = ((x * d + y * e + f) / depth - 1.0 + 1.0) * half_y - 0.5;
                *pixel = source.at(at_x, at_y, self.interpolation, self.fill);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Image;
    use proptest::prelude::*;

    fn square(side: f64) -> Corners {
        [[0.0, 0.0], [side, 0.0], [side, side], [0.0, side]]
    }

    #[test]
    fn corners_go_where_they_are_sent_and_no_quadrangle_is_no_view() {
        let seen = [[1.0, 2.0], [8.0, 0.5], [7.0, 9.0], [0.0, 6.0]];
        let [a, b, c, d, e, f, g, h] = coefficients(&square(9.0), &seen).unwrap();
        for ([x, y], [seen_x, seen_y]) in square(9.0).into_iter().zip(seen) {
            let depth = g * seen_x + h * seen_y + 1.0;
            assert!(((a * seen_x + b * seen_y + c) / depth - x).abs() < 1e-9);
            assert!(((d * seen_x + e * seen_y + f) / depth - y).abs() < 1e-9);
        }
        assert_eq!(coefficients(&square(9.0), &[[4.0, 4.0]; 4]), None);
        assert_eq!(coefficients(&square(0.0), &square(0.0)), None);
    }

    proptest! {
        #[test]
        fn any_view_of_any_image_makes_no_new_levels(
            (width, height, channels) in (1u32..24, 1u32..24, prop::sample::select(vec![1usize, 3, 4])),
            coefficients in prop::array::uniform8(-1e3f64..1e3),
            fill: u8,
        ) {
            let mut image = Image::new(width, height, channels);
            image.pixels_mut().fill(fill);
            let mut made = image.clone();
            let tilt = Tilt { coefficients, interpolation: Interpolation::Nearest, fill };
            tilt.run(image.as_ref(), made.pixels_mut());
            prop_assert_eq!(&made, &image);
            let tilt = Tilt { interpolation: Interpolation::Bilinear, ..tilt };
            tilt.run(image.as_ref(), made.pixels_mut());
            prop_assert!(made.pixels().iter().all(|level| *level <= fill));
        }
    }
}
