//! Changing the number of channels, with Pillow's arithmetic: gray is repeated, alpha is dropped or set to 255,
//! color becomes luma by ITU-R 601 in 16-bit fixed point.

/// Luma of one color as Pillow's `convert("L")` computes it: rounded, and 255 for white.
#[inline]
pub(crate) fn luma(red: u8, green: u8, blue: u8) -> u8 {
    ((u32::from(red) * 19595 + u32::from(green) * 38470 + u32::from(blue) * 7471 + 0x8000) >> 16) as u8
}

/// Writes the pixels of `source` (1 = gray, 2 = gray and alpha, 3 = RGB, 4 = RGBA) to `target` (1, 3 or 4 channels).
///
/// # Panics
/// When the two do not hold the same number of pixels, or a channel count is none of those.
pub(crate) fn convert(source: &[u8], from: usize, target: &mut [u8], to: usize) {
    assert_eq!(source.len() / from, target.len() / to, "both sides hold the same pixels");
    match (from, to) {
        (1, 1) | (3, 3) | (4, 4) => target.copy_from_slice(source),
        (1, 3) => each(source, target, |&[gray]: &[u8; 1]| [gray; 3]),
        (1, 4) => each(source, target, |&[gray]: &[u8; 1]| [gray, gray, gray, 255]),
        (2, 1) => each(source, target, |&[gray, _]: &[u8; 2]| [gray]),
        (2, 3) => each(source, target, |&[gray, _]: &[u8; 2]| [gray; 3]),
        (2, 4) => each(source, target, |&[gray, alpha]: &[u8; 2]| [gray, gray, gray, alpha]),
        (3, 1) => each(source, target, |&[r, g, b]: &[u8; 3]| [luma(r, g, b)]),
        (3, 4) => each(source, target, |&[r, g, b]: &[u8; 3]| [r, g, b, 255]),
        (4, 1) => each(source, target, |&[r, g, b, _]: &[u8; 4]| [luma(r, g, b)]),
        (4, 3) => each(source, target, |&[r, g, b, _]: &[u8; 4]| [r, g, b]),
        _ => unreachable!("images have 1 to 4 channels, tensors 1, 3 or 4; not {from} to {to}"),
    }
}

#[inline]
fn each<const N: usize, const M: usize>(source: &[u8], target: &mut [u8], pixel: impl Fn(&[u8; N]) -> [u8; M]) {
    let (source, _) = source.as_chunks::<N>();
    let (target, _) = target.as_chunks_mut::<M>();
    for (to, from) in target.iter_mut().zip(source) {
        *to = pixel(from);
    }
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
        let run = |source: &[u8], from, to| {
            let mut target = vec![0; source.len() / from * to];
            convert(source, from, &mut target, to);
            target
        };
        assert_eq!(run(&[7, 9], 1, 3), [7, 7, 7, 9, 9, 9]);
        assert_eq!(run(&[7, 1, 9, 2], 2, 4), [7, 7, 7, 1, 9, 9, 9, 2]);
        assert_eq!(run(&[7, 1, 9, 2], 2, 1), [7, 9]);
        assert_eq!(run(&[1, 2, 3], 3, 4), [1, 2, 3, 255]);
        assert_eq!(run(&[1, 2, 3, 4, 5, 6, 7, 8], 4, 3), [1, 2, 3, 5, 6, 7]);
        assert_eq!(run(&[1, 2, 3, 0, 255, 0, 0, 9], 4, 1), [2, 76]);
    }
}
