//! `grayscale`: replaces color by luma in all color channels, with a probability.
//!
//! Luma is Pillow's `L`, the same as decoding to gray. torchvision on tensors cuts instead of rounding and gives a
//! level less for about half of all colors.

use crate::image::ImageMut;
use crate::kernels::channels::luma;
use forebay_core::rng::Rng;

/// How often color is taken away.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Grayscale {
    /// Probability.
    pub(crate) p: f64,
}

impl Grayscale {
    /// Whether this sample loses its color.
    pub(crate) fn draw(self, rng: &mut Rng) -> bool {
        rng.chance(self.p)
    }

    /// Draws, then changes the image.
    pub(crate) fn apply(self, image: &mut ImageMut<'_>, rng: &mut Rng) {
        if self.draw(rng) {
            match image.channels {
                3 => take_color_away::<3>(image.pixels),
                4 => take_color_away::<4>(image.pixels),
                _ => {}
            }
        }
    }
}

fn take_color_away<const C: usize>(pixels: &mut [u8]) {
    let (pixels, _) = pixels.as_chunks_mut::<C>();
    for pixel in pixels {
        let gray = luma(pixel[0], pixel[1], pixel[2]);
        pixel[..3].fill(gray);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Image;
    use forebay_core::SampleId;

    fn run(channels: usize, pixels: &[u8], p: f64) -> Vec<u8> {
        let width = (pixels.len() / channels) as u32;
        let mut image = Image::from_pixels(width, 1, channels, pixels.to_vec()).unwrap();
        Grayscale { p }.apply(&mut image.as_mut(), &mut Rng::for_op(0, 0, SampleId(0), 0));
        image.pixels().to_vec()
    }

    #[test]
    fn color_becomes_luma_and_opacity_stays() {
        assert_eq!(run(3, &[255, 0, 0, 255, 255, 255], 1.0), [76, 76, 76, 255, 255, 255]);
        assert_eq!(run(4, &[0, 255, 0, 9], 1.0), [150, 150, 150, 9]);
        assert_eq!(run(1, &[3, 4], 1.0), [3, 4]);
        assert_eq!(run(3, &[255, 0, 0], 0.0), [255, 0, 0]);
    }

    #[test]
    fn it_happens_as_often_as_asked() {
        let gray = Grayscale { p: 0.2 };
        let hits = (0..10_000).filter(|s| gray.draw(&mut Rng::for_op(3, 0, SampleId(*s), 1))).count();
        assert!((1880..2120).contains(&hits), "{hits} of 10000 at p = 0.2, three deviations are 120");
    }
}
