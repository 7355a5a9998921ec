//! The demo's dataset: JPEGs of smooth noise, which decode at the cost of photographs, in tar shards.

use super::super::Context;
use crate::progress::Progress;
use forebay_core::rng::Rng;
use forebay_core::{Error, Result};
use forebay_engine::available_threads;
use forebay_engine::shard::{ShardWriter, ShardWriterOptions};
use forebay_ops::Image;
use forebay_ops::encode::{Subsampling, jpeg};
use std::path::Path;

/// Pixels on each side of an image.
pub(super) const SIDE: u32 = 256;

/// Samples of one shard.
const SHARD_SAMPLES: u64 = 256;

/// Classes of the labels.
const CLASSES: u64 = 10;

/// Pixels between two points of the grid whose colors are random.
const CELL: usize = 32;

/// What was made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Made {
    pub(super) shards: u64,
    pub(super) bytes: u64,
}

/// Writes `samples` images and labels into shards in `folder`. Images are drawn by all processors.
pub(super) fn dataset(folder: &Path, samples: u64, context: &Context) -> Result<Made> {
    let pattern = folder.join("train-%06d.tar").display().to_string();
    let options = ShardWriterOptions { max_samples: SHARD_SAMPLES, ..ShardWriterOptions::new(pattern) };
    let mut writer = ShardWriter::new(options)?;
    let bar = Progress::new(&context.report, "making", "images", samples);
    let (threads, chunk) = (available_threads() as u64, 16);
    let mut next = 0;
    while next < samples {
        context.interrupt.check()?;
        let end = (next + threads * chunk).min(samples);
        let starts: Vec<u64> = (next..end).step_by(chunk as usize).collect();
        let drawn: Vec<Result<Vec<Vec<u8>>>> = std::thread::scope(|scope| {
            let spawned: Vec<_> = starts
                .iter()
                .map(|start| scope.spawn(move || (*start..(start + chunk).min(end)).map(image).collect()))
                .collect();
            let broken = || Err(Error::internal("draw an image: the thread panicked"));
            spawned.into_iter().map(|thread| thread.join().unwrap_or_else(|_| broken())).collect()
        });
        for (start, images) in starts.into_iter().zip(drawn) {
            for (sample, image) in (start..).zip(images?) {
                let class = (sample % CLASSES).to_string();
                writer.add(&format!("{sample:07}"), &[("jpg", &image), ("cls", class.as_bytes())])?;
            }
        }
        next = end;
        bar.set(next, samples);
    }
    let shards = writer.finish()?;
    Ok(Made { shards: shards.len() as u64, bytes: shards.iter().map(|shard| shard.bytes).sum() })
}

/// One image: a coarse grid of random colors, interpolated and lightly roughened.
fn image(sample: u64) -> Result<Vec<u8>> {
    let side = SIDE as usize;
    let points = side / CELL + 1;
    let mut rng = Rng::keyed(0xDE_40, sample, 0);
    let grid: Vec<[f32; 3]> =
        (0..points * points).map(|_| std::array::from_fn(|_| rng.below(256) as f32)).collect();
    let mut pixels = Vec::with_capacity(side * side * 3);
    for y in 0..side {
        let (row, v) = (y / CELL * points, (y % CELL) as f32 / CELL as f32);
        for x in 0..side {
            let (at, u) = (row + x / CELL, (x % CELL) as f32 / CELL as f32);
            let rough = (rng.next_u32() & 15) as f32 - 7.5;
            let corners = [grid[at], grid[at + 1], grid[at + points], grid[at + points + 1]];
            let [top_left, top_right, low_left, low_right] = corners;
            pixels.extend((0..3).map(|channel| {
                let top = top_left[channel] * (1.0 - u) + top_right[channel] * u;
                let low = low_left[channel] * (1.0 - u) + low_right[channel] * u;
                (top * (1.0 - v) + low * v + rough).clamp(0.0, 255.0) as u8
            }));
        }
    }
    let image = Image::from_pixels(SIDE, SIDE, 3, pixels)
        .map_err(|_| Error::internal("draw an image: its pixels do not fill it"))?;
    jpeg(&image, 85, Subsampling::S420)
}
