//! Prints how well each order mixes a sharded dataset: the figures of `docs/concepts/order.md`.
//!
//! Orders compared: the full permutation, block shuffle at its defaults, and the way of a shuffle buffer (shards in
//! random order, read one after the other, a buffer of equal memory from which a random sample leaves for each one
//! that enters). Two figures per batch of 256: from how many shards its samples come, and how many pairs of its
//! samples were close neighbours in storage compared with the full permutation.
#![expect(clippy::print_stdout, reason = "an example prints")]

use forebay_core::permutation::Permutation;
use forebay_core::plan::block::Blocks;
use forebay_core::plan::{BlockShuffle, Sampler, Shuffle};
use forebay_core::rng::Rng;
use std::collections::HashSet;

const SAMPLES: u64 = 1_281_167;
const SHARD: u64 = 8_714;
const SAMPLE_BYTES: u64 = 112_500;
const BATCH: usize = 256;
const NEAR: u64 = 64;

fn main() {
    let settings = BlockShuffle::default();
    let block_samples = settings.block_bytes / SAMPLE_BYTES;
    let memory_samples = (block_samples * settings.group_blocks) as usize;
    let plan = |shuffle| {
        let blocks = Blocks::uniform(SAMPLES, SHARD, block_samples);
        let plan = Sampler::from_blocks(SAMPLES, blocks, shuffle, 1).expect("settings are sound").plan(0);
        (0..SAMPLES).map(|position| plan.at(position).0).collect::<Vec<_>>()
    };
    let full = plan(Shuffle::Full);
    let (_, near_full) = figures(&full);
    println!("order                        shards a batch   near pairs (full = 1)");
    for (name, order) in [
        ("full permutation", full),
        ("block (default)", plan(Shuffle::Block(settings))),
        ("shuffle buffer, same memory", buffer(memory_samples)),
        ("shuffle buffer, 10 x memory", buffer(memory_samples * 10)),
    ] {
        let (shards, near) = figures(&order);
        println!("{name:28} {shards:14.1} {:23.1}", near / near_full);
    }
    println!("memory of block and buffer: {memory_samples} samples of {SAMPLE_BYTES} bytes");
}

/// Mean number of shards in a batch, and mean number of pairs that stood within `NEAR` places of each other.
fn figures(order: &[u64]) -> (f64, f64) {
    let (mut shards, mut near, mut batches) = (0, 0, 0);
    // The first batches of an epoch are mixed less by design; the figures are those of the steady state.
    for batch in order.chunks_exact(BATCH).skip(16) {
        shards += batch.iter().map(|sample| sample / SHARD).collect::<HashSet<_>>().len();
        let mut sorted = batch.to_vec();
        sorted.sort_unstable();
        for (index, sample) in sorted.iter().enumerate() {
            near += sorted[index + 1..].iter().take_while(|other| *other - sample <= NEAR).count();
        }
        batches += 1;
    }
    (shards as f64 / f64::from(batches), near as f64 / f64::from(batches))
}

/// Shards in random order through a buffer of `size` samples.
fn buffer(size: usize) -> Vec<u64> {
    let shards = Permutation::new(SAMPLES.div_ceil(SHARD), 7);
    let mut rng = Rng::keyed(3, 0, 0);
    let (mut held, mut order) = (Vec::with_capacity(size), Vec::with_capacity(SAMPLES as usize));
    for shard in (0..shards.len()).map(|index| shards.at(index)) {
        for sample in shard * SHARD..((shard + 1) * SHARD).min(SAMPLES) {
            held.push(sample);
            if held.len() == size {
                order.push(held.swap_remove(rng.below(size as u64) as usize));
            }
        }
    }
    while !held.is_empty() {
        order.push(held.swap_remove(rng.below(held.len() as u64) as usize));
    }
    order
}
