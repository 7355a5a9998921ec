//! `random_resized_crop`: cuts a window of random area and aspect and scales it to one size.

use crate::geometry::Chain;
use crate::image::Rect;
use forebay_core::recipe::{Filter, Interval, Size};
use forebay_core::rng::Rng;

/// Windows that do not fit are drawn again this often, as in torchvision.
const TRIES: usize = 10;

/// Adds crop and resize to a chain.
pub fn apply(size: Size, scale: Interval, ratio: Interval, filter: Filter, chain: &mut Chain, rng: &mut Rng) {
    let (width, height) = chain.size();
    chain.crop(draw(width, height, scale, ratio, rng));
    let (height, width) = size.height_width();
    chain.resize(width, height, filter);
}

/// Draws a window inside an image: its share of the area uniform in `scale`, its aspect log-uniform in `ratio`.
/// When none of ten fits, the largest window of an allowed aspect in the middle.
pub fn draw(width: u32, height: u32, scale: Interval, ratio: Interval, rng: &mut Rng) -> Rect {
    let (full_width, full_height) = (f64::from(width), f64::from(height));
    for _ in 0..TRIES {
        let area = full_width * full_height * rng.uniform(scale[0], scale[1]);
        let aspect = rng.uniform(ratio[0].ln(), ratio[1].ln()).exp();
        let crop_width = (area * aspect).sqrt().round_ties_even();
        let crop_height = (area / aspect).sqrt().round_ties_even();
        if (1.0..=full_width).contains(&crop_width) && (1.0..=full_height).contains(&crop_height) {
            let (crop_width, crop_height) = (crop_width as u32, crop_height as u32);
            let y = rng.below(u64::from(height - crop_height) + 1) as u32;
            let x = rng.below(u64::from(width - crop_width) + 1) as u32;
            return Rect { x, y, width: crop_width, height: crop_height };
        }
    }
    let aspect = full_width / full_height;
    let rounded = |side: f64, limit: u32| (side.round_ties_even() as u32).clamp(1, limit);
    let (crop_width, crop_height) = if aspect < ratio[0] {
        (width, rounded(full_width / ratio[0], height))
    } else if aspect > ratio[1] {
        (rounded(full_height * ratio[1], width), height)
    } else {
        (width, height)
    };
    Rect {
        x: (width - crop_width) / 2,
        y: (height - crop_height) / 2,
        width: crop_width,
        height: crop_height,
    }
}

#[cfg(test)]
mod tests;
