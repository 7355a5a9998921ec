//! `resize`: scales the short side to a number, or both sides to exact numbers.

use crate::geometry::Chain;
use forebay_core::recipe::{Filter, Size};

/// Adds the resize to a chain.
pub fn apply(size: Size, filter: Filter, chain: &mut Chain) {
    let (width, height) = target(size, chain.size());
    chain.resize(width, height, filter);
}

/// Columns and rows after resizing an image of `(width, height)`. The long side is truncated, as torchvision does.
pub fn target(size: Size, (width, height): (u32, u32)) -> (u32, u32) {
    match size {
        Size::Exact([height, width]) => (width, height),
        Size::Side(side) => {
            let long = |long: u32, short: u32| {
                let scaled = u64::from(side) * u64::from(long) / u64::from(short.max(1));
                u32::try_from(scaled).unwrap_or(u32::MAX).max(1)
            };
            if width <= height { (side, long(height, width)) } else { (long(width, height), side) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_long_side_is_truncated_like_torchvision_does() {
        // torchvision.transforms.functional._compute_resized_output_size for the same numbers.
        for (size, from, to) in [
            (Size::Side(256), (500, 375), (341, 256)),
            (Size::Side(256), (375, 500), (256, 341)),
            (Size::Side(224), (224, 1000), (224, 1000)),
            (Size::Side(7), (3, 3), (7, 7)),
            (Size::Exact([10, 20]), (5, 5), (20, 10)),
        ] {
            assert_eq!(target(size, from), to, "{size:?} of {from:?}");
        }
    }

    #[test]
    fn a_needle_of_an_image_does_not_overflow() {
        assert_eq!(target(Size::Side(u32::MAX), (1, u32::MAX)), (u32::MAX, u32::MAX));
    }
}
