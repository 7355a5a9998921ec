//! Blending with a smoothed image, as torchvision's transforms v2 adjust the sharpness of `uint8` tensors: smoothed levels
//! are rounded, the blend is computed in `f32` and cut. torch may fuse the blend, which can differ by a level.
//!
//! The outermost pixels stay as they are, as does opacity, the fourth channel.

use crate::image::ImageRef;

/// Writes the image with its sharpness changed by `factor`: 0 is smooth, 1 leaves it as it is, more is sharper.
///
/// # Panics
/// When `to` is not of the image's size.
pub(crate) fn sharpen(from: ImageRef<'_>, factor: f64, to: &mut [u8]) {
    to.copy_from_slice(from.pixels);
    let (width, height, channels) = (from.width as usize, from.height as usize, from.channels);
    if width <= 2 || height <= 2 {
        return;
    }
    let (line, smooth) = (width * channels, (1.0 - factor) as f32);
    let rows = |y: usize| &from.pixels[y * line..(y + 1) * line];
    for (y, target) in to.chunks_exact_mut(line).enumerate().take(height - 1).skip(1) {
        let (above, here, below) = (rows(y - 1), rows(y), rows(y + 1));
        blend_row([above, here, below], channels, smooth, &mut target[channels..line - channels]);
        if channels == 4 {
            for (made, kept) in target.chunks_exact_mut(4).zip(here.chunks_exact(4)) {
                made[3] = kept[3];
            }
        }
    }
}

/// All pixels of a row but the first and the last.
fn blend_row(rows: [&[u8]; 3], channels: usize, smooth: f32, target: &mut [u8]) {
    let len = target.len();
    let [above, here, below] = rows;
    let shifts = [0, channels, 2 * channels];
    let [left, middle, right] = shifts.map(|shift| shift..shift + len);
    let around = [
        &above[left.clone()],
        &above[middle.clone()],
        &above[right.clone()],
        &here[left.clone()],
        &here[right.clone()],
        &below[left],
        &below[middle.clone()],
        &below[right],
    ];
    let centre = &here[middle];
    for (at, made) in target.iter_mut().enumerate() {
        let neighbours: u16 = around.iter().map(|row| u16::from(row[at])).sum();
        let level = u16::from(centre[at]);
        // Thirteenths have no ties, so that this is what any rounding gives.
        let smoothed = (neighbours + 5 * level + 6) / 13;
        let (level, smoothed) = (f32::from(level), f32::from(smoothed));
        *made = (level + smooth * (smoothed - level)) as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Image;
    use proptest::prelude::*;

    fn run(image: &Image, factor: f64) -> Image {
        let mut made = Image::new(image.width(), image.height(), image.channels());
        sharpen(image.as_ref(), factor, made.pixels_mut());
        made
    }

    #[test]
    fn the_middle_moves_towards_or_away_from_its_neighbours() {
        let image = Image::from_pixels(3, 3, 1, vec![10, 10, 10, 10, 140, 10, 10, 10, 10]).unwrap();
        // (8 * 10 + 5 * 140) / 13 = 60.
        for (factor, middle) in [(0.0, 60), (0.5, 100), (1.0, 140), (2.0, 220), (9.0, 255)] {
            let mut expected = image.clone();
            expected.pixels_mut()[4] = middle;
            assert_eq!(run(&image, factor), expected, "{factor}");
        }
    }

    proptest! {
        #[test]
        fn any_image_is_taken_and_one_is_neutral(
            (width, height, channels) in (1u32..20, 1u32..20, prop::sample::select(vec![1usize, 3, 4])),
            factor in 0.0f64..1000.0,
            seed: u8,
        ) {
            let mut image = Image::new(width, height, channels);
            for (at, level) in image.pixels_mut().iter_mut().enumerate() {
                *level = (at * 91 + usize::from(seed)) as u8;
            }
            prop_assert_eq!(&run(&image, 1.0), &image);
            let made = run(&image, factor);
            if width <= 2 || height <= 2 {
                prop_assert_eq!(&made, &image);
            }
            if channels == 4 {
                let opacity = |image: &Image| image.pixels().iter().skip(3).step_by(4).copied().collect::<Vec<_>>();
                prop_assert_eq!(opacity(&made), opacity(&image));
            }
        }
    }
}
