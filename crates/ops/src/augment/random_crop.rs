//! `random_crop`: cuts a window at a random place, after optional padding.

use crate::geometry::{Border, Chain};
use crate::image::Rect;
use forebay_core::recipe::Size;
use forebay_core::rng::Rng;

/// Adds the crop to a chain. An image still too small after `padding` gets what is missing on both sides, as
/// torchvision's `pad_if_needed` does, so that every place of it can be drawn.
pub fn apply(size: Size, padding: u32, chain: &mut Chain, rng: &mut Rng) {
    let (crop_height, crop_width) = size.height_width();
    chain.pad(Border { left: padding, top: padding, right: padding, bottom: padding, value: 0 });
    let (width, height) = chain.size();
    let (missing_x, missing_y) = (crop_width.saturating_sub(width), crop_height.saturating_sub(height));
    chain.pad(Border { left: missing_x, top: missing_y, right: missing_x, bottom: missing_y, value: 0 });
    let (width, height) = chain.size();
    let y = rng.below(u64::from(height - crop_height) + 1) as u32;
    let x = rng.below(u64::from(width - crop_width) + 1) as u32;
    chain.crop(Rect { x, y, width: crop_width, height: crop_height });
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::SampleId;
    use std::collections::HashSet;

    #[test]
    fn every_place_of_a_padded_image_is_drawn_and_none_outside() {
        let mut seen = HashSet::new();
        for sample in 0..2000 {
            let mut chain = Chain::new(6, 4);
            apply(Size::Side(4), 1, &mut chain, &mut Rng::for_op(1, 0, SampleId(sample), 0));
            let geometry = chain.get(0);
            assert_eq!((chain.count(), chain.size()), (1, (4, 4)));
            seen.insert((geometry.border.left, geometry.window.x, geometry.border.top, geometry.window.y));
        }
        // Eight columns and six rows after padding: five by three places.
        assert_eq!(seen.len(), 15);
    }

    #[test]
    fn an_image_that_is_too_small_is_padded_to_fit() {
        let mut chain = Chain::new(3, 3);
        apply(Size::Side(8), 0, &mut chain, &mut Rng::for_op(1, 0, SampleId(0), 0));
        assert_eq!(chain.size(), (8, 8));
        assert_eq!((chain.get(0).window.width, chain.get(0).window.height), (3, 3));
    }
}
