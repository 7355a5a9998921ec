//! Changing the number of channels, with Pillow's arithmetic: gray is repeated, alpha is dropped or set to 255,
//! color becomes luma by ITU-R 601 in 16-bit fixed point.

use crate::image::Image;

/// Luma of one color as Pillow's `convert("L")` computes it: rounded, and 255 for white.
#[inline]
pub(crate) fn luma(red: u8, green: u8, blue: u8) -> u8 {
    ((u32::from(red) * 19595 + u32::from(green) * 38470 + u32::from(blue) * 7471 + 0x8000) >> 16) as u8
}

/// Turns the first `width * height` pixels of `image`, stored with `from` channels (1 = gray, 2 = gray and alpha,
/// 3 = RGB, 4 = RGBA), into pixels of `to` channels (1, 3 or 4), in place.
///
/// # Panics
/// When the image has not room for the larger of the two, or a channel count is none of those.
pub(crate) fn convert(image: &mut Image, from: usize, to: usize) {
    let (width, height) = (image.width(), image.height());
    let count = width as usize * height as usize;
    let pixels = image.pixels_mut();
    assert!(pixels.len() >= count * from.max(to), "the image has room for both forms");
    match (from, to) {
        (1, 1) | (3, 3) | (4, 4) => {}
        (1, 3) => widen(pixels, count, |[gray]: [u8; 1]| [gray; 3]),
        (1, 4) => widen(pixels, count, |[gray]: [u8; 1]| [gray, gray, gray, 255]),
        (2, 1) => narrow(pixels, count, |[gray, _]: [u8; 2]| [gray]),
        (2, 3) => widen(pixels, count, |[gray, _]: [u8; 2]| [gray; 3]),
        (2, 4) => widen(pixels, count, |[gray, alpha]: [u8; 2]| [gray, gray, gray, alpha]),
        (3, 1) => narrow(pixels, count, |[r, g, b]: [u8; 3]| [luma(r, g, b)]),
        (3, 4) => widen(pixels, count, |[r, g, b]: [u8; 3]| [r, g, b, 255]),
        (4, 1) => narrow(pixels, count, |[r, g, b, _]: [u8; 4]| [luma(r, g, b)]),
        (4, 3) => narrow(pixels, count, |[r, g, b, _]: [u8; 4]| [r, g, b]),
        _ => unreachable!("images have 1 to 4 channels, tensors 1, 3 or 4; not {from} to {to}"),
    }
    // Leaves the bytes at the front as they are: `reshape` only shortens.
    image.reshape(width, height, to);
}

/// From the front, so that what is written has been read.
#[inline]
fn narrow<const N: usize, const M: usize>(
    pixels: &mut [u8],
    count: usize,
    pixel: impl Fn([u8; N]) -> [u8; M],
) {
    for at in 0..count {
        move_one(pixels, at, &pixel);
    }
}

/// From the back, for the same reason.
#[inline]
fn widen<const N: usize, const M: usize>(
    pixels: &mut [u8],
    count: usize,
    pixel: impl Fn([u8; N]) -> [u8; M],
) {
    for at in (0..count).rev() {
        move_one(pixels, at, &pixel);
    }
}

#[inline]
fn move_one<const N: usize, const M: usize>(
    pixels: &mut [u8],
    at: usize,
    pixel: &impl Fn([u8; N]) -> [u8; M],
) {
    let mut from = [0; N];
    from.copy_from_slice(&pixels[at * N..][..N]);
    pixels[at * M..][..M].copy_from_slice(&pixel(from));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn luma_is_pillows() {
        // From Pillow: Image.new("RGB", (1, 1), color).convert("L").
        for (color, expected) in [
            ([255, 255, 255], 255),
            ([255, 0, 0], 76),
            ([0, 255, 0], 150),
            ([0, 0, 255], 29),
            ([10, 20, 30], 18),
            ([0, 128, 254], 104),
            ([1, 2, 3], 2),
        ] {
            assert_eq!(luma(color[0], color[1], color[2]), expected, "{color:?}");
        }
    }

    #[test]
    fn gray_is_repeated_and_alpha_is_dropped_or_opaque() {
        let run = |source: &[u8], from: usize, to: usize| {
            let mut image = Image::new((source.len() / from) as u32, 1, from.max(to));
            image.pixels_mut()[..source.len()].copy_from_slice(source);
            convert(&mut image, from, to);
            image.pixels().to_vec()
        };
        assert_eq!(run(&[7, 9], 1, 3), [7, 7, 7, 9, 9, 9]);
        assert_eq!(run(&[7, 1, 9, 2], 2, 4), [7, 7, 7, 1, 9, 9, 9, 2]);
        assert_eq!(run(&[7, 1, 9, 2], 2, 1), [7, 9]);
        assert_eq!(run(&[1, 2, 3], 3, 4), [1, 2, 3, 255]);
        assert_eq!(run(&[1, 2, 3, 4, 5, 6, 7, 8], 4, 3), [1, 2, 3, 5, 6, 7]);
        assert_eq!(run(&[1, 2, 3, 0, 255, 0, 0, 9], 4, 1), [2, 76]);
    }
}
