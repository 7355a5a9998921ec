//! Filling a rectangle of a finished row with one value, whatever its element type and layout.

use crate::image::Rect;
use forebay_core::tensor::{Dtype, Layout};
use half::{bf16, f16};

/// Form of the row that is written into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowForm {
    /// Columns.
    pub(crate) width: u32,
    /// Rows.
    pub(crate) height: u32,
    /// Channels.
    pub(crate) channels: usize,
    /// Order of the axes.
    pub(crate) layout: Layout,
    /// Element type: u8, f16, bf16 or f32.
    pub(crate) dtype: Dtype,
}

/// Writes `value` to all channels of every pixel in `rect`. For `u8` it is cut to `0..=255` and loses its fraction.
///
/// # Panics
/// When `rect` reaches outside, `row` is not of the form's size, or the element type is none of an image's.
pub(crate) fn fill(row: &mut [u8], form: RowForm, rect: Rect, value: f64) {
    assert!(rect.right() <= form.width && rect.bottom() <= form.height, "{rect:?} reaches outside {form:?}");
    match form.dtype {
        Dtype::U8 => fill_with(row, form, rect, [value as u8]),
        Dtype::F16 => fill_with(row, form, rect, f16::from_f64(value).to_ne_bytes()),
        Dtype::Bf16 => fill_with(row, form, rect, bf16::from_f64(value).to_ne_bytes()),
        Dtype::F32 => fill_with(row, form, rect, (value as f32).to_ne_bytes()),
        other => unreachable!("images do not become {}", other.name()),
    }
}

fn fill_with<const N: usize>(row: &mut [u8], form: RowForm, rect: Rect, value: [u8; N]) {
    // Interleaved channels are one plane with wider pixels.
    let (planes, pixel) = match form.layout {
        Layout::Chw => (form.channels, 1),
        Layout::Hwc => (1, form.channels),
    };
    let (values, rest) = row.as_chunks_mut::<N>();
    let (width, height) = (form.width as usize * pixel, form.height as usize);
    assert!(rest.is_empty() && values.len() == planes * height * width, "row of the form's size");
    if rect.is_empty() {
        return;
    }
    let columns = rect.x as usize * pixel..rect.right() as usize * pixel;
    for plane in values.chunks_exact_mut(height * width) {
        for line in plane.chunks_exact_mut(width).take(rect.bottom() as usize).skip(rect.y as usize) {
            line[columns.clone()].fill(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn exactly_the_rectangle_changes(
            (width, x, w) in (1u32..9).prop_flat_map(|side| (Just(side), 0..side)).prop_flat_map(|(s, x)| (Just(s), Just(x), 0..=s - x)),
            (height, y, h) in (1u32..9).prop_flat_map(|side| (Just(side), 0..side)).prop_flat_map(|(s, y)| (Just(s), Just(y), 0..=s - y)),
            channels in 1usize..5,
            chw: bool,
            dtype in prop::sample::select(vec![Dtype::U8, Dtype::F16, Dtype::Bf16, Dtype::F32]),
        ) {
            let layout = if chw { Layout::Chw } else { Layout::Hwc };
            let form = RowForm { width, height, channels, layout, dtype };
            let size = dtype.size();
            let mut row = vec![0x11; width as usize * height as usize * channels * size];
            fill(&mut row, form, Rect { x, y, width: w, height: h }, 2.0);
            let written = match dtype {
                Dtype::U8 => vec![2],
                Dtype::F16 => f16::from_f32(2.0).to_ne_bytes().to_vec(),
                Dtype::Bf16 => bf16::from_f32(2.0).to_ne_bytes().to_vec(),
                _ => 2f32.to_ne_bytes().to_vec(),
            };
            let untouched = vec![0x11; size];
            for (at, value) in row.chunks(size).enumerate() {
                let place = match layout {
                    Layout::Chw => at % (width as usize * height as usize),
                    Layout::Hwc => at / channels,
                };
                let (column, line) = ((place % width as usize) as u32, (place / width as usize) as u32);
                let inside = (x..x + w).contains(&column) && (y..y + h).contains(&line);
                prop_assert_eq!(value, if inside { &written } else { &untouched });
            }
        }
    }

    #[test]
    fn bytes_are_cut_to_their_range() {
        let form = RowForm { width: 1, height: 1, channels: 1, layout: Layout::Hwc, dtype: Dtype::U8 };
        for (value, expected) in [(-3.0, 0), (127.9, 127), (300.0, 255), (f64::NAN, 0)] {
            let mut row = [9];
            fill(&mut row, form, Rect::of_size(1, 1), value);
            assert_eq!(row, [expected]);
        }
    }
}
