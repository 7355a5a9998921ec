//! `center_crop`: cuts the middle; smaller images are padded with zeros first.

use crate::geometry::{Border, Chain};
use crate::image::Rect;
use forebay_core::recipe::Size;

/// Adds the crop to a chain.
pub fn apply(size: Size, chain: &mut Chain) {
    let (crop_height, crop_width) = size.height_width();
    let (width, height) = chain.size();
    let (missing_x, missing_y) = (crop_width.saturating_sub(width), crop_height.saturating_sub(height));
    if missing_x > 0 || missing_y > 0 {
        chain.pad(Border {
            left: missing_x / 2,
            top: missing_y / 2,
            right: missing_x.div_ceil(2),
            bottom: missing_y.div_ceil(2),
            value: 0,
        });
    }
    let (width, height) = chain.size();
    chain.crop(Rect {
        x: half_to_even(width - crop_width),
        y: half_to_even(height - crop_height),
        width: crop_width,
        height: crop_height,
    });
}

/// Half of a number, with ties going to the even neighbour: Python's `round(x / 2)`, which torchvision uses here.
fn half_to_even(number: u32) -> u32 {
    let half = number / 2;
    half + (number & half & 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_go_to_the_even_neighbour() {
        assert_eq!([0, 1, 2, 3, 4, 5, 6, 7].map(half_to_even), [0, 0, 1, 2, 2, 2, 3, 4]);
    }

    #[test]
    fn a_smaller_image_is_padded_on_both_sides() {
        let mut chain = Chain::new(5, 20);
        apply(Size::Side(10), &mut chain);
        let geometry = chain.get(0);
        assert_eq!((chain.count(), chain.size()), (1, (10, 10)));
        assert_eq!((geometry.border.left, geometry.border.right), (2, 3));
        assert_eq!(geometry.window, Rect { x: 0, y: 5, width: 5, height: 10 });
    }
}
