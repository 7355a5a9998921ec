//! Gaussian blur with the edges reflected, as torchvision's transforms v2 blur `uint8` tensors: computed in `f32` and
//! rounded. Done in two passes of one dimension, so that a sum may differ in its last bits and a tie by a level.
//!
//! Sums are taken in pairs around the centre: a mirrored image gives the mirrored blur, to the bit.

use crate::image::ImageRef;
use multiversion::multiversion;

/// Weights below this move no level, whatever lies under them.
const NOTHING: f64 = 1e-9;

/// Weights of the centre and of each distance from it, for `kernel` taps and a deviation of `sigma` pixels.
pub(crate) fn weights(kernel: u32, sigma: f64) -> Vec<f32> {
    let radius = kernel / 2;
    let raw = (0..=radius).map(|far| (-0.5 * (f64::from(far) / sigma).powi(2)).exp());
    let raw: Vec<f64> = raw.collect();
    let sum = raw[0] + 2.0 * raw[1..].iter().sum::<f64>();
    let mut weights: Vec<f32> = raw.iter().map(|weight| (weight / sum) as f32).collect();
    weights.truncate(raw.iter().rposition(|weight| weight / sum > NOTHING).map_or(1, |last| last + 1));
    weights
}

/// Blurs by `weights` of the centre and of each distance from it.
///
/// # Panics
/// When `to` is not of the image's size.
pub(crate) fn blur(from: ImageRef<'_>, weights: &[f32], to: &mut [u8]) {
    assert_eq!(from.pixels.len(), to.len(), "a blurred image has the size of its source");
    let (width, height, channels) = (from.width as usize, from.height as usize, from.channels);
    let line = width * channels;
    if line == 0 || height == 0 || weights.is_empty() {
        return;
    }
    let reach = weights.len() - 1;
    let row = |y: isize| {
        let start = reflect(y, height) * line;
        &from.pixels[start..start + line]
    };
    let mut sums = vec![0.0f32; line];
    let mut wide = vec![0.0f32; line + 2 * reach * channels];
    for (y, target) in (0isize..).zip(to.chunks_exact_mut(line)) {
        scale(&mut sums, row(y), weights[0]);
        for (far, weight) in (1isize..).zip(&weights[1..]) {
            add_rows(&mut sums, row(y - far), row(y + far), *weight);
        }
        for (x, pixel) in (-(reach as isize)..).zip(wide.chunks_exact_mut(channels)) {
            let start = reflect(x, width) * channels;
            pixel.copy_from_slice(&sums[start..start + channels]);
        }
        add_columns(&mut sums, &wide, weights, channels);
        round(&sums, target);
    }
}

/// The place in `0..side` that a place beyond an edge shows; the edge itself is not repeated.
fn reflect(at: isize, side: usize) -> usize {
    let last = side as isize - 1;
    if last == 0 {
        return 0;
    }
    let turn = at.rem_euclid(2 * last);
    turn.min(2 * last - turn) as usize
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2", "x86_64+sse4.1"))]
fn scale(sums: &mut [f32], row: &[u8], weight: f32) {
    for (sum, level) in sums.iter_mut().zip(row) {
        *sum = f32::from(*level) * weight;
    }
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2", "x86_64+sse4.1"))]
fn add_rows(sums: &mut [f32], above: &[u8], below: &[u8], weight: f32) {
    for ((sum, above), below) in sums.iter_mut().zip(above).zip(below) {
        *sum += f32::from(u16::from(*above) + u16::from(*below)) * weight;
    }
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2", "x86_64+sse4.1"))]
fn add_columns(sums: &mut [f32], wide: &[f32], weights: &[f32], channels: usize) {
    let (reach, len) = (weights.len() - 1, sums.len());
    for (sum, level) in sums.iter_mut().zip(&wide[reach * channels..]) {
        *sum = level * weights[0];
    }
    for (far, weight) in weights.iter().enumerate().skip(1) {
        let (left, right) = ((reach - far) * channels, (reach + far) * channels);
        let pairs = wide[left..left + len].iter().zip(&wide[right..right + len]);
        for (sum, (left, right)) in sums.iter_mut().zip(pairs) {
            *sum += (left + right) * weight;
        }
    }
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2", "x86_64+sse4.1"))]
fn round(sums: &[f32], to: &mut [u8]) {
    for (level, sum) in to.iter_mut().zip(sums) {
        *level = sum.round_ties_even() as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Image;
    use crate::geometry::Mirror;
    use crate::kernels::orient;
    use proptest::prelude::*;

    fn run(image: &Image, kernel: u32, sigma: f64) -> Image {
        let mut made = Image::new(image.width(), image.height(), image.channels());
        blur(image.as_ref(), &weights(kernel, sigma), made.pixels_mut());
        made
    }

    #[test]
    fn a_dot_becomes_the_kernel_and_edges_are_reflected() {
        let mut dot = Image::new(5, 5, 1);
        dot.pixels_mut()[12] = 255;
        // exp(-1/2), with one, twice: 0.2741 beside 0.4519 in the middle.
        let made = run(&dot, 3, 1.0);
        let expected = [0, 0, 0, 0, 0, 0, 19, 32, 19, 0, 0, 32, 52, 32, 0, 0, 19, 32, 19, 0, 0, 0, 0, 0, 0];
        assert_eq!(made.pixels(), expected);
        // The first pixel sees its neighbour on both sides.
        let row = Image::from_pixels(3, 1, 1, vec![0, 100, 0]).unwrap();
        assert_eq!(run(&row, 3, 1.0).pixels(), [55, 45, 55]);
        assert_eq!(
            (-4..8).map(|at| reflect(at, 4)).collect::<Vec<_>>(),
            [2, 3, 2, 1, 0, 1, 2, 3, 2, 1, 0, 1]
        );
        assert_eq!((-4..8).map(|at| reflect(at, 1)).sum::<usize>(), 0);
    }

    proptest! {
        #[test]
        fn any_image_is_blurred_within_its_range_and_mirrors_wait(
            (width, height, channels) in (1u32..30, 1u32..30, prop::sample::select(vec![1usize, 3, 4])),
            half in 0u32..40,
            sigma in 0.01f64..50.0,
            seed: u8,
        ) {
            let mut image = Image::new(width, height, channels);
            for (at, level) in image.pixels_mut().iter_mut().enumerate() {
                *level = (at * 37 + usize::from(seed)) as u8;
            }
            let made = run(&image, 2 * half + 1, sigma);
            let range = |image: &Image| (*image.pixels().iter().min().unwrap(), *image.pixels().iter().max().unwrap());
            prop_assert!(range(&made).0 >= range(&image).0 && range(&made).1 <= range(&image).1);
            if half == 0 || width == 1 && height == 1 {
                prop_assert_eq!(&made, &image);
            }
            let both = Mirror { horizontal: true, vertical: true };
            let (mut before, mut after) = (image, made);
            orient::mirror(&mut before.as_mut(), both);
            orient::mirror(&mut after.as_mut(), both);
            prop_assert_eq!(run(&before, 2 * half + 1, sigma), after);
        }
    }
}
