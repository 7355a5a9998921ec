//! Clusters in virtual time: a dispatcher, workers and consumers over a network that delays, doubles, reorders, loses
//! and cuts, while any of them is killed and started again.
//!
//! `FOREBAY_SEED=n` replays one schedule, `FOREBAY_SLOW=1` runs all thousand of each kind. After every command the
//! dispatcher's state must equal what its events give, and no lease may be given twice; at the end every consumer must
//! have what is its own. `crowd` does the like with a thousand workers and ten thousand consumers. `make simulate` runs
//! all of it.
#![allow(clippy::unwrap_used, reason = "a test whose surroundings are broken may panic")]
#![allow(clippy::print_stderr, reason = "the seed of a failed schedule is for people")]

mod cluster;
mod consumer;
mod crowd;
mod hub;
mod large;

use cluster::{Cluster, Shape};
use forebay_core::dispatcher::{Sharding, Visitation};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Runs a thousand schedules, or `few` of them where time is short; the seed of the first that fails is printed.
fn each_seed<T>(what: &str, few: u64, run: impl Fn(u64) -> T) -> Vec<T> {
    let count = if std::env::var("FOREBAY_SLOW").is_ok() { 1000 } else { few };
    let one = std::env::var("FOREBAY_SEED").ok().and_then(|seed| seed.parse::<u64>().ok());
    let seeds = one.map_or(0..count, |seed| seed..seed + 1);
    let outcomes = seeds.map(|seed| match catch_unwind(AssertUnwindSafe(|| run(seed))) {
        Ok(outcome) => outcome,
        Err(panic) => {
            eprintln!("schedule {seed} of {what} failed; FOREBAY_SEED={seed} replays it");
            resume_unwind(panic);
        }
    });
    outcomes.collect()
}

/// Runs schedules of one shape.
fn schedules(shape: Shape) {
    let checked = each_seed(&format!("{shape:?}"), 250, |seed| Cluster::new(seed, shape).run());
    let exact = checked.iter().filter(|nobody_lost| **nobody_lost).count();
    assert!(
        checked.len() == 1 || exact * 10 > checked.len(),
        "only {exact} schedules of {} were checked to the full",
        checked.len()
    );
}

#[test]
fn p056_consumers_have_exactly_their_portions_whatever_is_killed_or_cut() {
    schedules(Shape {
        sharding: Sharding::Portion,
        visitation: Visitation::ExactlyOnce,
        loses_consumers: true,
    });
}

#[test]
fn p054_every_span_is_taken_once_when_workers_and_the_dispatcher_are_killed() {
    schedules(Shape {
        sharding: Sharding::Dynamic,
        visitation: Visitation::ExactlyOnce,
        loses_consumers: false,
    });
}

#[test]
fn p056_no_span_is_missed_when_consumers_are_killed_too() {
    schedules(Shape {
        sharding: Sharding::Dynamic,
        visitation: Visitation::AtLeastOnce,
        loses_consumers: true,
    });
}

#[test]
fn p056_no_span_is_seen_twice_with_at_most_once() {
    schedules(Shape {
        sharding: Sharding::Dynamic,
        visitation: Visitation::AtMostOnce,
        loses_consumers: true,
    });
}
