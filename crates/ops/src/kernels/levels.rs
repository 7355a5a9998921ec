//! Changes of 8-bit levels by a table for each channel: solarize, posterize, equalize and autocontrast, to the level as
//! torchvision's transforms v2 make them of `uint8` tensors.
//!
//! A fourth channel is opacity and stays as it is.

use crate::image::ImageMut;

/// What becomes of each level.
type Table = [u8; 256];

/// Inverts levels of `threshold` and more.
pub(crate) fn solarize(image: &mut ImageMut<'_>, threshold: f64) {
    // Levels are compared as `f32`, as torch compares bytes with a number.
    let threshold = threshold as f32;
    let table = table(|level| if f32::from(level) >= threshold { 255 - level } else { level });
    map(image, &[table; 3]);
}

/// Inverts all levels.
pub(crate) fn invert(image: &mut ImageMut<'_>) {
    map(image, &[table(|level| 255 - level); 3]);
}

/// Keeps the high `bits` of every level.
pub(crate) fn posterize(image: &mut ImageMut<'_>, bits: u8) {
    let low = 0xffu32 >> u32::from(bits.min(8));
    let table = table(|level| level & !(low as u8));
    map(image, &[table; 3]);
}

/// Makes all levels of a channel about equally frequent, as Pillow does.
pub(crate) fn equalize(image: &mut ImageMut<'_>) {
    let tables = histograms(image).map(|counts| {
        let pixels: u64 = counts.iter().sum();
        let brightest = counts.iter().rev().find(|count| **count > 0).copied().unwrap_or(0);
        let step = (pixels - brightest) / 255;
        if step == 0 {
            return table(|level| level);
        }
        let mut below = 0;
        counts.map(|count| {
            let level = (below + step / 2) / step;
            below += count;
            level.min(255) as u8
        })
    });
    map(image, &tables);
}

/// Stretches the levels of a channel to `0..=255`; a channel of one level stays as it is.
pub(crate) fn autocontrast(image: &mut ImageMut<'_>) {
    let tables = histograms(image).map(|counts| {
        let darkest = counts.iter().position(|count| *count > 0).unwrap_or(0);
        let brightest = counts.iter().rposition(|count| *count > 0).unwrap_or(0);
        if darkest >= brightest {
            return table(|level| level);
        }
        // In the order of torchvision's own steps, and cut, not rounded, at their end.
        let unit = (brightest - darkest) as f32 * (1.0 / 255.0) as f32;
        table(|level| ((f32::from(level) - darkest as f32) / unit).clamp(0.0, 255.0) as u8)
    });
    map(image, &tables);
}

fn table(level: impl Fn(u8) -> u8) -> Table {
    std::array::from_fn(|from| level(from as u8))
}

/// How often each level occurs in each color channel; of gray images all are in the first.
fn histograms(image: &ImageMut<'_>) -> [[u64; 256]; 3] {
    let mut counts = [[0; 256]; 3];
    for pixel in image.pixels.chunks_exact(image.channels.max(1)) {
        for (level, counts) in pixel.iter().zip(&mut counts) {
            counts[usize::from(*level)] += 1;
        }
    }
    counts
}

/// Applies the table of each color channel.
fn map(image: &mut ImageMut<'_>, tables: &[Table; 3]) {
    for pixel in image.pixels.chunks_exact_mut(image.channels.max(1)) {
        for (level, table) in pixel.iter_mut().zip(tables) {
            *level = table[usize::from(*level)];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Image;
    use proptest::prelude::*;

    fn run(channels: usize, pixels: &[u8], change: impl Fn(&mut ImageMut<'_>)) -> Vec<u8> {
        let width = (pixels.len() / channels) as u32;
        let mut image = Image::from_pixels(width, 1, channels, pixels.to_vec()).unwrap();
        change(&mut image.as_mut());
        image.pixels().to_vec()
    }

    #[test]
    fn small_images_become_what_the_formulas_say() {
        let levels = [0, 100, 127, 128, 200, 255];
        assert_eq!(run(1, &levels, |i| solarize(i, 128.0)), [0, 100, 127, 127, 55, 0]);
        assert_eq!(run(1, &levels, |i| solarize(i, 127.5)), [0, 100, 127, 127, 55, 0]);
        assert_eq!(run(1, &levels, |i| posterize(i, 1)), [0, 0, 0, 128, 128, 128]);
        assert_eq!(run(1, &levels, |i| posterize(i, 3)), [0, 96, 96, 128, 192, 224]);
        // 100 levels divided by 100 * (1 / 255) in `f32` are a little less than 255, in torchvision too.
        assert_eq!(run(1, &[10, 60, 110], autocontrast), [0, 127, 254]);
        assert_eq!(run(3, &[10, 7, 0, 20, 7, 255], autocontrast), [0, 7, 0, 254, 7, 255]);
        assert_eq!(run(1, &[9, 9], equalize), [9, 9]);
        // 510 pixels below the brightest: steps of 2, and every level becomes the share of darker pixels.
        let spread: Vec<u8> = [vec![10; 255], vec![20; 255], vec![30; 90]].concat();
        let equal = run(1, &spread, equalize);
        assert_eq!([equal[0], equal[255], equal[510]], [0, 128, 255]);
    }

    proptest! {
        #[test]
        fn any_image_is_taken_and_opacity_stays(
            pixels in prop::collection::vec(any::<[u8; 4]>(), 1..600),
            threshold in 0.0f64..=255.0,
            bits in 0u8..=8,
        ) {
            for change in [
                (&|image: &mut ImageMut<'_>| solarize(image, threshold)) as &dyn Fn(&mut ImageMut<'_>),
                &|image| posterize(image, bits),
                &|image| equalize(image),
                &|image| autocontrast(image),
            ] {
                let four = run(4, pixels.as_flattened(), change);
                let color: Vec<u8> = pixels.iter().flat_map(|pixel| pixel[..3].to_vec()).collect();
                let three = run(3, &color, change);
                for ((four, three), before) in four.chunks(4).zip(three.chunks(3)).zip(&pixels) {
                    prop_assert_eq!(&four[..3], three);
                    prop_assert_eq!(four[3], before[3]);
                }
            }
        }

        #[test]
        fn neutral_parameters_leave_every_level_as_it_is(pixels in prop::collection::vec(any::<u8>(), 1..99)) {
            prop_assert_eq!(run(1, &pixels, |image| posterize(image, 8)), pixels.clone());
            let dark: Vec<u8> = pixels.iter().map(|level| level / 2).collect();
            prop_assert_eq!(run(1, &dark, |image| solarize(image, 128.0)), dark);
            let whole: Vec<u8> = [vec![0, 255], pixels].concat();
            prop_assert_eq!(run(1, &whole, autocontrast), whole);
        }
    }
}
