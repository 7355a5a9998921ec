//! The data path under many interleavings of its threads and tasks, drawn by a scheduler: nothing is lost, nothing comes
//! twice, and nobody waits for ever (a wait that nothing ends is a failure that prints its schedule).
//!
//! Needs the feature `shuttle`: `make interleavings`. `FOREBAY_SLOW` draws many more.
#![allow(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

#[path = "../common/mod.rs"]
mod common;

mod budget;
mod cache;
mod late;
mod session;

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner};

/// How many places of a schedule the second scheduler chooses with care: most faults of threads need two or three.
const DEPTH: usize = 3;

/// Runs `body` under `draws` schedules: half of them switch anywhere, half let one thread run on where it matters.
fn draw(draws: usize, body: impl Fn() + Clone + Send + Sync + 'static) {
    let draws = if std::env::var_os("FOREBAY_SLOW").is_some() { draws * 20 } else { draws };
    let mut config = Config::new();
    // Preparing runs in these threads.
    config.stack_size = 1 << 20;
    config.silence_warnings = true;
    // As other drawn tests: the same draws in CI, others everywhere else.
    let seed = std::env::var("PROPTEST_RNG_SEED").ok().and_then(|seed| seed.parse().ok());
    let anywhere = match seed {
        Some(seed) => RandomScheduler::new_from_seed(seed, draws / 2),
        None => RandomScheduler::new(draws / 2),
    };
    let seldom = match seed {
        Some(seed) => PctScheduler::new_from_seed(seed, DEPTH, draws / 2),
        None => PctScheduler::new(DEPTH, draws / 2),
    };
    Runner::new(anywhere, config.clone()).run(body.clone());
    Runner::new(seldom, config).run(body);
}
