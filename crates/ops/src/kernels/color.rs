//! Brightness, contrast, saturation and hue of 8-bit images, with the arithmetic of torchvision's transforms v2 on
//! `uint8` tensors: computed in `f32` and cut, not rounded, to whole levels. On PIL images torchvision rounds
//! elsewhere, which is at most a level, and keeps hue in 8 bits, which is a level on average and up to 15.
//!
//! Images with one channel have no saturation and no hue; a fourth channel is opacity and stays as it is.

use crate::image::ImageMut;
use multiversion::multiversion;

/// Pixels of a block, as in the finishing pass.
const BLOCK: usize = 32;

/// torchvision's weights of red, green and blue in gray. They add up to 0.9999.
const GRAY: [f32; 3] = [0.2989, 0.587, 0.114];

/// What torchvision scales `0..=1` by before it cuts to whole levels.
const LEVELS: f32 = 255.999;

/// Multiplies by `factor`: 0 is black, 1 leaves the image as it is.
pub(crate) fn brightness(image: &mut ImageMut<'_>, factor: f64) {
    let factor = factor as f32;
    map_levels(image, |level| level * factor);
}

/// Moves away from the mean gray by `factor`: 0 is all gray, 1 leaves the image as it is.
pub(crate) fn contrast(image: &mut ImageMut<'_>, factor: f64) {
    let count = image.pixels.len() / image.channels;
    if count == 0 {
        return;
    }
    let gray = (gray_sum(image.pixels, image.channels) as f64 / count as f64) as f32;
    let (keep, add) = (factor as f32, gray * (1.0 - factor) as f32);
    map_levels(image, |level| level * keep + add);
}

/// Moves away from each pixel's gray by `factor`: 0 is gray, 1 leaves the image as it is.
pub(crate) fn saturation(image: &mut ImageMut<'_>, factor: f64) {
    saturate(image.pixels, image.channels, factor as f32, (1.0 - factor) as f32);
}

/// Turns the hue circle by `turn`, from -0.5 to 0.5 of a full turn; 0 leaves the image as it is.
pub(crate) fn hue(image: &mut ImageMut<'_>, turn: f64) {
    if turn != 0.0 {
        turn_hue(image.pixels, image.channels, turn as f32);
    }
}

/// Applies a function of one level to every color channel, by a table.
fn map_levels(image: &mut ImageMut<'_>, level: impl Fn(f32) -> f32) {
    let table: [u8; 256] = std::array::from_fn(|from| cut(level(from as f32)));
    let map = |value: &mut u8| *value = table[usize::from(*value)];
    if image.channels == 4 {
        let (pixels, _) = image.pixels.as_chunks_mut::<4>();
        for pixel in pixels {
            pixel[..3].iter_mut().for_each(map);
        }
    } else {
        image.pixels.iter_mut().for_each(map);
    }
}

/// A level from a number: into `0..=255`, then towards zero. The same as `value as u8`, in steps that vectors have.
#[inline(always)]
fn cut(value: f32) -> u8 {
    /// Where the last bit of a float is one.
    const ONES: f32 = 8_388_608.0;
    (value.clamp(0.0, 255.0).floor() + ONES).to_bits() as u8
}

#[inline(always)]
fn gray(red: f32, green: f32, blue: f32) -> f32 {
    (red * GRAY[0] + green * GRAY[1] + blue * GRAY[2]).floor()
}

/// Sum of the grays of all pixels.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2", "x86_64+sse4.1"))]
fn gray_sum(pixels: &[u8], channels: usize) -> u64 {
    match channels {
        3 => gray_sum_of::<3>(pixels),
        4 => gray_sum_of::<4>(pixels),
        _ => pixels.iter().map(|gray| u64::from(*gray)).sum(),
    }
}

#[inline(always)]
fn gray_sum_of<const C: usize>(pixels: &[u8]) -> u64 {
    let (pixels, _) = pixels.as_chunks::<C>();
    let mut total = 0;
    // 2^16 grays of at most 255 fit in 32 bits, of which vectors hold twice as many.
    for stretch in pixels.chunks(BLOCK << 16) {
        let mut sums = [0u32; BLOCK];
        for part in stretch.chunks(BLOCK) {
            let [red, green, blue] = colors(part);
            for (at, sum) in sums.iter_mut().enumerate() {
                *sum += u32::from(cut(gray(red[at], green[at], blue[at])));
            }
        }
        total += sums.iter().map(|sum| u64::from(*sum)).sum::<u64>();
    }
    total
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2", "x86_64+sse4.1"))]
fn saturate(pixels: &mut [u8], channels: usize, keep: f32, add: f32) {
    let pixel = |red: f32, green: f32, blue: f32| {
        let gray = gray(red, green, blue) * add;
        [red * keep + gray, green * keep + gray, blue * keep + gray]
    };
    match channels {
        3 => each_color::<3>(pixels, pixel),
        4 => each_color::<4>(pixels, pixel),
        _ => {}
    }
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2", "x86_64+sse4.1"))]
fn turn_hue(pixels: &mut [u8], channels: usize, turn: f32) {
    let pixel = |red, green, blue| turned(red, green, blue, turn);
    match channels {
        3 => each_color::<3>(pixels, pixel),
        4 => each_color::<4>(pixels, pixel),
        _ => {}
    }
}

/// RGB to HSV, a turn, and back, without a branch so that whole blocks are done at once.
#[inline(always)]
fn turned(red: f32, green: f32, blue: f32, turn: f32) -> [f32; 3] {
    let (r, g, b) = (red * (1.0 / 255.0), green * (1.0 / 255.0), blue * (1.0 / 255.0));
    let value = r.max(g).max(b);
    let range = value - r.min(g).min(b);
    let gray = range == 0.0;
    let saturation = range / if gray { 1.0 } else { value };
    let divisor = if gray { 1.0 } else { range };
    let (rc, gc, bc) = ((value - r) / divisor, (value - g) / divisor, (value - b) / divisor);
    let sixths = if value == r {
        bc - gc
    } else if value == g {
        2.0 + rc - bc
    } else {
        4.0 + gc - rc
    };
    let turns = sixths * (1.0 / 6.0) + 1.0 + turn;
    // Both the hue and the turn are within a turn of zero, so the sum is positive.
    let sixth = (turns - turns.floor()) * 6.0;
    // Each channel is at full value for two sixths, rises or falls for one, and is at its least for two.
    let channel = |start: f32| {
        let place = start + sixth;
        let place = place - (place * (1.0 / 6.0)).floor() * 6.0;
        value - value * saturation * place.min(4.0 - place).clamp(0.0, 1.0)
    };
    [channel(5.0) * LEVELS, channel(3.0) * LEVELS, channel(1.0) * LEVELS]
}

/// Replaces the color of every pixel, a block at a time.
#[inline(always)]
fn each_color<const C: usize>(pixels: &mut [u8], pixel: impl Fn(f32, f32, f32) -> [f32; 3]) {
    let (pixels, _) = pixels.as_chunks_mut::<C>();
    for part in pixels.chunks_mut(BLOCK) {
        let [red, green, blue] = colors(part);
        let mut made = [[0u8; BLOCK]; 3];
        for at in 0..BLOCK {
            let color = pixel(red[at], green[at], blue[at]);
            for channel in 0..3 {
                made[channel][at] = cut(color[channel]);
            }
        }
        for (at, pixel) in part.iter_mut().enumerate() {
            for channel in 0..3 {
                pixel[channel] = made[channel][at];
            }
        }
    }
}

/// The colors of up to a block of pixels, one array per channel; black where there is no pixel.
#[inline(always)]
fn colors<const C: usize>(part: &[[u8; C]]) -> [[f32; BLOCK]; 3] {
    let mut block = [[0u8; C]; BLOCK];
    block[..part.len()].copy_from_slice(part);
    std::array::from_fn(|channel| std::array::from_fn(|at| f32::from(block[at][channel])))
}

#[cfg(test)]
#[path = "color_tests.rs"]
mod tests;
