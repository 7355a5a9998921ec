//! Crowds in virtual time: up to a thousand workers and ten thousand consumers, over a network that delays, doubles,
//! reorders and loses, while machines are killed, started again and cut off.
//!
//! `cast` is who takes part and what they say, `network` carries it, `faults` breaks things and counts what it broke,
//! `rules` is what must be true after every event. A schedule ends in peace: the epoch that is given out must then be
//! done to its last span. `FOREBAY_SLOW=1` runs all thousand schedules, `FOREBAY_SEED=n` replays one.

mod cast;
mod faults;
mod network;
mod rules;

use cast::{Cast, Size};
use faults::{Broken, FAULTS};
use network::Crowd;

/// A thousand workers and ten thousand consumers. Whole states are compared now and then: they are large.
const LARGE: Size = Size { workers: 1000, ranks: 1000, jobs: 10, spans: 2000, steps: 4000, compares: 1000 };

/// A crowd whose whole state is compared after every command.
const SMALL: Size = Size { workers: 30, ranks: 25, jobs: 8, spans: 300, steps: 2000, compares: 0 };

/// What came of a schedule.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    broken: Broken,
    /// Decisions, and those of them that took a millisecond or more.
    decided: u64,
    slow: u64,
    /// Stands for all events in their order.
    events: u64,
}

fn schedule(cast: &'static Cast, seed: u64) -> Outcome {
    let mut crowd = Crowd::new(cast, seed);
    for step in 0..cast.size.steps {
        crowd.step(step);
    }
    crowd.make_peace();
    crowd.outcome()
}

/// Runs schedules of one size; every kind of fault must have happened in them.
fn schedules(what: &str, size: Size, few: u64) -> Outcome {
    let cast: &'static Cast = Box::leak(Box::new(Cast::new(size)));
    let outcomes = crate::each_seed(what, few, |seed| schedule(cast, seed));
    let mut all = Outcome::default();
    for outcome in &outcomes {
        all.decided += outcome.decided;
        all.slow += outcome.slow;
        for (sum, times) in all.broken.0.iter_mut().zip(outcome.broken.0) {
            *sum += times;
        }
    }
    let told: Vec<String> =
        FAULTS.iter().zip(all.broken.0).map(|(kind, times)| format!("{kind} {times}")).collect();
    eprintln!("{what}: {} schedules, {} decisions, {}", outcomes.len(), all.decided, told.join(", "));
    for (kind, times) in FAULTS.iter().zip(all.broken.0) {
        assert!(
            times > 0 || outcomes.len() == 1,
            "no {kind} happened in {} schedules of {what}",
            outcomes.len()
        );
    }
    all
}

#[test]
fn p056_p057_a_thousand_workers_and_ten_thousand_consumers_decide_in_time_whatever_goes_wrong() {
    let all = schedules("a large crowd", LARGE, 3);
    // The machine that runs this does other things too, now and then in the middle of a decision.
    assert!(
        all.slow * 100 < all.decided,
        "{} of {} decisions took a millisecond or more",
        all.slow,
        all.decided
    );
}

#[test]
fn p056_p057_a_crowd_keeps_every_rule_after_every_event_whatever_goes_wrong() {
    schedules("a small crowd", SMALL, 25);
}

#[test]
fn a_seed_replays_event_for_event() {
    let cast: &'static Cast = Box::leak(Box::new(Cast::new(SMALL)));
    let run = |seed| {
        let outcome = schedule(cast, seed);
        (outcome.events, outcome.broken, outcome.decided)
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5).0, run(6).0);
}
