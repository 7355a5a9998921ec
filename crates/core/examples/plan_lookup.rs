//! Prints what one lookup in a plan of 100 million samples costs, at random positions, and what making the plan costs.
#![expect(clippy::print_stdout, reason = "an example prints")]

use forebay_core::plan::block::Blocks;
use forebay_core::plan::{BlockShuffle, Sampler, Shuffle};
use std::hint::black_box;
use std::time::Instant;

const SAMPLES: u64 = 100_000_000;
const LOOKUPS: u64 = 5_000_000;

fn main() {
    for (name, shuffle) in [("full", Shuffle::Full), ("block", Shuffle::Block(BlockShuffle::default()))] {
        let blocks = Blocks::uniform(SAMPLES, 10_000, 9);
        let sampler = Sampler::from_blocks(SAMPLES, blocks, shuffle, 1).expect("settings are sound");
        #[expect(clippy::disallowed_methods, reason = "an example measures")]
        let now = Instant::now;
        let began = now();
        let plan = sampler.plan(3);
        let made = began.elapsed();
        let began = now();
        for lookup in 0..LOOKUPS {
            black_box(plan.at(lookup.wrapping_mul(0x9E37_79B9_7F4A_7C15) % SAMPLES));
        }
        let nanos = began.elapsed().as_nanos() as f64 / LOOKUPS as f64;
        println!("{name:6} plan made in {:7.1} ms, {nanos:6.0} ns a lookup", made.as_secs_f64() * 1e3);
    }
}
