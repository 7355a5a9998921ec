//! Workers add up: what several give to one job against what one gives, in virtual time, until the link is full.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a simulation that fails by panicking")]

#[path = "../examples/scaling/simulation.rs"]
mod simulation;

use simulation::{Costs, run};

const COSTS: Costs = Costs {
    prep_us: 64_000,
    batch_bytes: 64 * 224 * 224 * 3,
    link_bytes_per_second: 3_125_000_000,
    ranks: 4,
    batches: 4000,
};

#[test]
fn eight_workers_give_nine_tenths_of_eight_times_what_one_gives() {
    let one = run(1, COSTS).batches_per_second;
    for workers in [2, 4, 8] {
        let outcome = run(workers, COSTS);
        let share = outcome.batches_per_second / one / workers as f64;
        assert!(share >= 0.9, "{workers} workers give {share} of {workers} times one: {outcome:?}");
        assert!(share <= 1.001, "{outcome:?}");
    }
}

#[test]
fn beyond_the_link_more_workers_bring_nothing_and_the_link_is_full() {
    // A link that carries what three workers make.
    let narrow = COSTS.batch_bytes * 1_000_000 / COSTS.prep_us * 3;
    let costs = Costs { link_bytes_per_second: narrow, ..COSTS };
    let (two, four, eight) = (run(2, costs), run(4, costs), run(8, costs));
    let one = run(1, costs).batches_per_second;
    assert!(two.batches_per_second / one / 2.0 >= 0.9, "{two:?}");
    for outcome in [four, eight] {
        assert!(outcome.link_share >= 0.95, "{outcome:?}");
        assert!((0.9..=1.01).contains(&(outcome.batches_per_second / one / 3.0)), "{outcome:?}");
    }
    assert!(eight.worker_share < 0.5, "{eight:?}");
}
