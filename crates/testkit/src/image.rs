//! Seeded pixels: smooth noise that compresses like a photograph rather than like static.

use forebay_core::rng::Rng;

/// An RGB image of `width * height` pixels, rows from the top, three bytes a pixel. The same seed gives the same image.
///
/// A coarse grid of random colors is interpolated and lightly roughened, so neighbouring pixels are alike, as they
/// are in photographs.
pub fn smooth_noise(seed: u64, width: usize, height: usize) -> Vec<u8> {
    const CELL: usize = 16;
    let (columns, rows) = (width / CELL + 2, height / CELL + 2);
    let mut rng = Rng::keyed(seed, 0, 0);
    let grid: Vec<[f32; 3]> =
        (0..columns * rows).map(|_| std::array::from_fn(|_| rng.below(256) as f32)).collect();
    let mut pixels = Vec::with_capacity(width * height * 3);
    for y in 0..height {
        let (row, v) = (y / CELL, (y % CELL) as f32 / CELL as f32);
        for x in 0..width {
            let (column, u) = (x / CELL, (x % CELL) as f32 / CELL as f32);
            let at = row * columns + column;
            let roughness = (rng.next_u32() & 7) as f32 - 3.5;
            let corners = [(at, at + 1), (at + columns, at + columns + 1)];
            pixels.extend((0..3).map(|channel| {
                let across = corners.map(|(l, r)| grid[l][channel] * (1.0 - u) + grid[r][channel] * u);
                (across[0] * (1.0 - v) + across[1] * v + roughness).clamp(0.0, 255.0) as u8
            }));
        }
    }
    pixels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_pixels_and_neighbours_are_alike() {
        let image = smooth_noise(1, 40, 30);
        assert_eq!(image.len(), 40 * 30 * 3);
        assert_eq!(image, smooth_noise(1, 40, 30));
        assert_ne!(image, smooth_noise(2, 40, 30));
        let steps = image.windows(4).map(|w| f64::from(w[0].abs_diff(w[3]))).sum::<f64>();
        assert!(steps / (image.len() as f64) < 20.0, "far from white noise, whose mean step is 85");
    }
}
