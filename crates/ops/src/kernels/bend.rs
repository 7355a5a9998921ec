//! Resampling along a matrix, as torchvision's transforms v2 bend `uint8` tensors: places are computed in `f32` and in the
//! order of `grid_sample`, levels are rounded. The last bit of a place depends on how torch multiplies: a place next to
//! the middle between two pixels may go to the other one, and a blend may differ by a level.

use crate::image::ImageRef;
use forebay_core::recipe::Interpolation;

/// How an image is bent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bend {
    /// From a place of the result to one of the source, rows of `[x, y, 1]`, both counted from the middle.
    pub(crate) matrix: [f64; 6],
    /// How pixels between pixels are made.
    pub(crate) interpolation: Interpolation,
    /// Value of all channels where there is no source.
    pub(crate) fill: u8,
}

/// The parameters of a matrix, as torchvision has them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Motion {
    /// What stays in place, from the middle.
    pub(crate) centre: [f64; 2],
    /// Clockwise.
    pub(crate) degrees: f64,
    /// Pixels right and down.
    pub(crate) translate: [f64; 2],
    /// Factor.
    pub(crate) scale: f64,
    /// Degrees along x and along y.
    pub(crate) shear: [f64; 2],
}

impl Motion {
    /// Moves nothing.
    pub(crate) const NONE: Self =
        Self { centre: [0.0; 2], degrees: 0.0, translate: [0.0; 2], scale: 1.0, shear: [0.0; 2] };

    /// The matrix from the result back to the source: shears, scale, rotation and shift undone, in that order reversed.
    pub(crate) fn inverse(&self) -> [f64; 6] {
        let turn = self.degrees.to_radians();
        let [shear_x, shear_y] = self.shear.map(f64::to_radians);
        let a = (turn - shear_y).cos() / shear_y.cos();
        let b = -(a * shear_x.tan() + turn.sin());
        let c = (turn - shear_y).sin() / shear_y.cos();
        let d = turn.cos() - c * shear_x.tan();
        // Rotation and shears keep areas: the determinant is one.
        let [xx, xy, yx, yy] = [d, -b, -c, a].map(|value| value / self.scale);
        let [x, y] = self.centre;
        let (from_x, from_y) = (x + self.translate[0], y + self.translate[1]);
        [xx, xy, x - xx * from_x - xy * from_y, yx, yy, y - yx * from_x - yy * from_y]
    }
}

impl Bend {
    /// Whether it leaves every image as it is.
    pub(crate) fn is_identity(&self) -> bool {
        self.matrix == [1.0, 0.0, 0.0, 0.0, 1.0, 0.0]
    }

    /// Writes the bent image.
    ///
    /// # Panics
    /// When `to` is not of the image's size.
    pub(crate) fn run(&self, from: ImageRef<'_>, to: &mut [u8]) {
        assert_eq!(from.pixels.len(), to.len(), "a bent image has the size of its source");
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
        let (width, height) = (from.width as f32, from.height as f32);
        let (half_x, half_y) = (0.5 * width, 0.5 * height);
        let [xx, xy, x0, yx, yy, y0] = self.matrix.map(|value| value as f32);
        let ([xx, xy, x0], [yx, yy, y0]) =
            ([xx, xy, x0].map(|value| value / half_x), [yx, yy, y0].map(|value| value / half_y));
        for (y, row) in to.chunks_exact_mut(from.width as usize).enumerate() {
            let y = y as f32 - (height - 1.0) * 0.5;
            for (x, pixel) in row.iter_mut().enumerate() {
                let x = x as f32 - (width - 1.0) * 0.5;
                let at_x = (x * xx + y * xy + x0 + 1.0) * half_x - 0.5;
                let at_y = (x * yx + y * yy + y0 + 1.0) * half_y - 0.5;
                *pixel = source.at(at_x, at_y, self.interpolation, self.fill);
            }
        }
    }
}

/// Pixels to be looked at anywhere.
pub(super) struct Source<'a, const C: usize> {
    from: ImageRef<'a>,
    pixels: &'a [[u8; C]],
}

impl<'a, const C: usize> Source<'a, C> {
    pub(super) fn new(from: ImageRef<'a>) -> Self {
        Self { from, pixels: from.pixels.as_chunks().0 }
    }

    /// What is at a place, `fill` where there is nothing.
    #[inline]
    pub(super) fn at(&self, x: f32, y: f32, interpolation: Interpolation, fill: u8) -> [u8; C] {
        match interpolation {
            Interpolation::Nearest => self.nearest(x, y).unwrap_or([fill; C]),
            Interpolation::Bilinear => self.blend(x, y, f32::from(fill)),
        }
    }

    /// The pixel at whole numbers, unless they lie outside.
    fn get(&self, x: f32, y: f32) -> Option<[u8; C]> {
        let (width, height) = (self.from.width, self.from.height);
        let inside = (0.0..width as f32).contains(&x) && (0.0..height as f32).contains(&y);
        inside.then(|| self.pixels[y as usize * width as usize + x as usize])
    }

    fn nearest(&self, x: f32, y: f32) -> Option<[u8; C]> {
        self.get(x.round_ties_even(), y.round_ties_even())
    }

    /// Between the four pixels around. Outside is black, and what is blended with it is once more blended with `fill`:
    /// so torchvision does, whose mask does not undo the black.
    fn blend(&self, x: f32, y: f32, fill: f32) -> [u8; C] {
        let (left, top) = (x.floor(), y.floor());
        let (right, bottom) = (x - left, y - top);
        let corners = [
            (left, top, (1.0 - right) * (1.0 - bottom)),
            (left + 1.0, top, right * (1.0 - bottom)),
            (left, top + 1.0, (1.0 - right) * bottom),
            (left + 1.0, top + 1.0, right * bottom),
        ];
        let (mut sums, mut mask) = ([0.0f32; C], 0.0f32);
        for (x, y, weight) in corners {
            if let Some(pixel) = self.get(x, y) {
                for (sum, level) in sums.iter_mut().zip(pixel) {
                    *sum += f32::from(level) * weight;
                }
                mask += weight;
            }
        }
        sums.map(|sum| ((sum - fill) * mask + fill).round_ties_even() as u8)
    }
}

#[cfg(test)]
#[path = "bend_tests.rs"]
mod tests;
