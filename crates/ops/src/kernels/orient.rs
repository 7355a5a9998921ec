//! Mirrors and quarter turns of 8-bit images.

use crate::geometry::Mirror;
use crate::image::{Image, ImageMut, ImageRef};

/// Mirrors in place.
pub(crate) fn mirror(image: &mut ImageMut<'_>, mirror: Mirror) {
    let stride = image.width as usize * image.channels;
    if stride == 0 {
        return;
    }
    if mirror.horizontal {
        for line in image.pixels.chunks_exact_mut(stride) {
            match image.channels {
                1 => line.reverse(),
                3 => line.as_chunks_mut::<3>().0.reverse(),
                _ => line.as_chunks_mut::<4>().0.reverse(),
            }
        }
    }
    if mirror.vertical {
        let (mut top, mut bottom) = (0, image.height as usize);
        while top + 1 < bottom {
            bottom -= 1;
            let (upper, lower) = image.pixels.split_at_mut(bottom * stride);
            upper[top * stride..][..stride].swap_with_slice(&mut lower[..stride]);
            top += 1;
        }
    }
}

/// Whether an EXIF orientation swaps rows and columns.
pub(crate) fn is_turned(orientation: u8) -> bool {
    (5..=8).contains(&orientation)
}

/// Writes `source`, stored with this EXIF orientation, upright into `target`.
pub(crate) fn upright(source: ImageRef<'_>, orientation: u8, target: &mut Image) {
    let (width, height) =
        if is_turned(orientation) { (source.height, source.width) } else { (source.width, source.height) };
    target.reshape(width, height, source.channels);
    match source.channels {
        1 => turn::<1>(source, orientation, target),
        3 => turn::<3>(source, orientation, target),
        _ => turn::<4>(source, orientation, target),
    }
}

fn turn<const N: usize>(source: ImageRef<'_>, orientation: u8, target: &mut Image) {
    let (stored_width, stored_height) = (source.width as usize, source.height as usize);
    let width = target.width() as usize;
    let (from, _) = source.pixels.as_chunks::<N>();
    let (to, _) = target.pixels_mut().as_chunks_mut::<N>();
    for (y, line) in to.chunks_exact_mut(width.max(1)).enumerate() {
        for (x, pixel) in line.iter_mut().enumerate() {
            // Where the upright pixel lies in the stored image; the cases are those of the EXIF standard.
            let (column, row) = match orientation {
                2 => (stored_width - 1 - x, y),
                3 => (stored_width - 1 - x, stored_height - 1 - y),
                4 => (x, stored_height - 1 - y),
                5 => (y, x),
                6 => (y, stored_height - 1 - x),
                7 => (stored_width - 1 - y, stored_height - 1 - x),
                8 => (stored_width - 1 - y, x),
                _ => (x, y),
            };
            *pixel = from[row * stored_width + column];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pillow's `ImageOps.exif_transpose` of the 3x2 image `abc / def` for each orientation.
    #[test]
    fn every_orientation_gives_what_pillow_gives() {
        let stored = Image::from_pixels(3, 2, 1, b"abcdef".to_vec()).unwrap();
        let expected: [(u8, u32, &[u8]); 8] = [
            (1, 3, b"abcdef"),
            (2, 3, b"cbafed"),
            (3, 3, b"fedcba"),
            (4, 3, b"defabc"),
            (5, 2, b"adbecf"),
            (6, 2, b"daebfc"),
            (7, 2, b"fcebda"),
            (8, 2, b"cfbead"),
        ];
        for (orientation, width, pixels) in expected {
            let mut target = Image::default();
            upright(stored.as_ref(), orientation, &mut target);
            assert_eq!((target.width(), target.pixels()), (width, pixels), "orientation {orientation}");
        }
    }

    #[test]
    fn mirroring_twice_changes_nothing_and_once_reverses_pixels_not_channels() {
        for channels in [1, 3, 4] {
            let pixels: Vec<u8> = (0..(5 * 3 * channels) as u8).collect();
            let original = Image::from_pixels(5, 3, channels, pixels).unwrap();
            let both = Mirror { horizontal: true, vertical: true };
            let mut image = original.clone();
            mirror(&mut image.as_mut(), both);
            assert_eq!(image.pixel(0, 0), original.pixel(4, 2));
            assert_eq!(image.pixel(3, 1), original.pixel(1, 1));
            mirror(&mut image.as_mut(), both);
            assert_eq!(image, original);
        }
    }
}
