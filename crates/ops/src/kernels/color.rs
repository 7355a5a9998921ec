//! Brightness, contrast, saturation and hue of 8-bit images, with the arithmetic of torchvision's transforms v2 on
//! `uint8` tensors: computed in `f32` and cut, not rounded, to whole levels. On PIL images torchvision rounds
//! elsewhere and turns hue in 255 steps, so results there differ by a level or two.
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
    let sum = match image.channels {
        3 => gray_sum::<3>(image.pixels),
        4 => gray_sum::<4>(image.pixels),
        _ => image.pixels.iter().map(|gray| u64::from(*gray)).sum(),
    };
    let gray = (sum as f64 / count as f64) as f32;
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
        pixels.iter_mut().for_each(|pixel| pixel[..3].iter_mut().for_each(map));
    } else {
        image.pixels.iter_mut().for_each(map);
    }
}

/// A level from a number: into `0..=255`, then towards zero.
#[inline(always)]
fn cut(value: f32) -> u8 {
    value as u8
}

#[inline(always)]
fn gray(red: f32, green: f32, blue: f32) -> f32 {
    // Never negative, so cutting is the floor that torchvision takes.
    (red * GRAY[0] + green * GRAY[1] + blue * GRAY[2]) as i32 as f32
}

#[inline]
fn gray_sum<const C: usize>(pixels: &[u8]) -> u64 {
    let (pixels, _) = pixels.as_chunks::<C>();
    pixels
        .chunks(1 << 16)
        .map(|part| {
            // 2^16 levels of at most 255 fit in 32 bits, which vectors add twice as fast.
            let sum: u32 = part.iter().map(|p| gray(p[0].into(), p[1].into(), p[2].into()) as u32).sum();
            u64::from(sum)
        })
        .sum()
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl+f16c", "x86_64+avx2+f16c", "x86_64+sse4.1"))]
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

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl+f16c", "x86_64+avx2+f16c", "x86_64+sse4.1"))]
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
    let hue = turns - turns as i32 as f32;
    let sixth = hue * 6.0;
    let whole = sixth as i32;
    let part = sixth - whole as f32;

    let p = value * (1.0 - saturation);
    let q = value * (1.0 - saturation * part);
    let t = value * (saturation * part + (1.0 - saturation));
    // The sixth can round up to 6.0, which is the beginning of the circle again.
    let whole = if whole == 6 { 0 } else { whole };
    let pick = |at: [f32; 6]| {
        let low = if whole == 0 { at[0] } else if whole == 1 { at[1] } else { at[2] };
        let high = if whole == 3 { at[3] } else if whole == 4 { at[4] } else { at[5] };
        (if whole < 3 { low } else { high }) * LEVELS
    };
    [pick([value, q, p, p, t, value]), pick([t, value, value, q, p, p]), pick([p, p, t, value, value, q])]
}

/// Replaces the color of every pixel, a block at a time with one array per channel.
#[inline(always)]
fn each_color<const C: usize>(pixels: &mut [u8], pixel: impl Fn(f32, f32, f32) -> [f32; 3]) {
    let (pixels, _) = pixels.as_chunks_mut::<C>();
    for part in pixels.chunks_mut(BLOCK) {
        let mut block = [[0u8; C]; BLOCK];
        block[..part.len()].copy_from_slice(part);
        for color in &mut block {
            let [r, g, b] = pixel(color[0].into(), color[1].into(), color[2].into());
            (color[0], color[1], color[2]) = (cut(r), cut(g), cut(b));
        }
        part.copy_from_slice(&block[..part.len()]);
    }
}

#[cfg(test)]
#[path = "color_tests.rs"]
mod tests;
