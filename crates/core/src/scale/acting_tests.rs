//! A scaler and an actor over a Deployment in virtual time: pods take their time to start and to leave, and crash.

use super::super::{Scaler, Seen, Why};
use super::*;
use crate::rng::Rng;
use proptest::prelude::*;

fn wanted(workers: u64, there: u64) -> Wanted {
    Wanted { workers, seen: Seen { workers: there, ..Seen::default() }, ..Wanted::default() }
}

fn settings(least: u64, most: u64) -> ScaleSettings {
    ScaleSettings { least_workers: least, most_workers: most, ..ScaleSettings::default() }
}

/// Pods of a Deployment: those that serve, and when each of the others does or is gone.
struct Deployment {
    asked: u64,
    serving: u64,
    starting: Vec<u64>,
    leaving: Vec<u64>,
    start_seconds: u64,
    leave_seconds: u64,
    /// Numbers that were set, with their time.
    sets: Vec<(u64, u64)>,
}

impl Deployment {
    fn new(asked: u64, start_seconds: u64, leave_seconds: u64) -> Self {
        let (starting, leaving, sets) = (Vec::new(), Vec::new(), Vec::new());
        Self { asked, serving: asked, starting, leaving, start_seconds, leave_seconds, sets }
    }

    /// What Kubernetes does within a second.
    fn second(&mut self, now: u64) {
        self.leaving.retain(|&gone| gone > now);
        self.serving += self.starting.iter().filter(|&&ready| ready <= now).count() as u64;
        self.starting.retain(|&ready| ready > now);
        let pods = self.serving + self.starting.len() as u64;
        for _ in pods..self.asked {
            self.starting.push(now + self.start_seconds);
        }
        for _ in self.asked..pods {
            if self.starting.pop().is_none() {
                self.serving -= 1;
                self.leaving.push(now + self.leave_seconds);
            }
        }
    }

    /// Workers that a dispatcher knows: one that leaves is known until it has left.
    fn known(&self) -> u64 {
        self.serving + self.leaving.len() as u64
    }

    fn crash(&mut self, now: u64) {
        if self.serving > 0 {
            self.serving -= 1;
            self.starting.push(now + self.start_seconds);
        }
    }
}

/// Runs a service of this demand for so many seconds; a second in which `crash` is true loses a pod.
fn run(
    deployment: &mut Deployment,
    machines: (&mut Scaler, &mut Actor),
    (demand, each): (f64, f64),
    noise: &mut impl FnMut() -> f64,
    crash: impl Fn(u64) -> bool,
    seconds: std::ops::Range<u64>,
) {
    let (scaler, actor) = machines;
    for now in seconds {
        deployment.second(now);
        if crash(now) {
            deployment.crash(now);
        }
        let supply = (deployment.known() as f64 * each * noise()).min(demand);
        let seen =
            Seen { workers: deployment.known(), demand, supply, waiting: (1.0 - supply / demand).min(0.99) };
        let wanted = scaler.observe(now * 1000, seen);
        if actor.is_due(now * 1000, &wanted)
            && let Some(set) = actor.decide(now * 1000, &wanted, deployment.asked)
        {
            actor.was_set(now * 1000, set);
            deployment.asked = set;
            deployment.sets.push((now, set));
        }
    }
}

#[test]
fn p065_pods_are_asked_for_until_four_serve_a_step_of_10_ms_and_two_a_step_of_20() {
    let settings = settings(1, 8);
    let (mut scaler, mut actor) = (Scaler::new(settings), Actor::new(&settings));
    let mut deployment = Deployment::new(1, 3, 2);
    let mut exact = || 1.0;
    run(&mut deployment, (&mut scaler, &mut actor), (100.0, 25.0), &mut exact, |_| false, 0..60);
    assert!((3..=5).contains(&deployment.asked), "{:?}", deployment.sets);
    assert_eq!(deployment.known(), deployment.asked);
    run(&mut deployment, (&mut scaler, &mut actor), (50.0, 25.0), &mut exact, |_| false, 60..120);
    assert_eq!((deployment.asked, deployment.known()), (2, 2), "{:?}", deployment.sets);
    let sets = deployment.sets.len();
    run(&mut deployment, (&mut scaler, &mut actor), (50.0, 25.0), &mut exact, |_| false, 120..1200);
    assert_eq!(deployment.sets.len(), sets, "{:?}", deployment.sets);
}

#[test]
fn a_worker_that_is_away_is_no_reason_to_ask_for_fewer() {
    let mut actor = Actor::new(&settings(1, 8));
    assert_eq!(actor.decide(0, &wanted(4, 4), 4), None);
    // Whatever is wanted of those that are there, nobody asked for fewer than these.
    for there in 0..4 {
        assert_eq!(actor.decide(1000, &wanted(there.max(1), there), 4), None, "{there}");
    }
    assert_eq!(actor.decide(2000, &wanted(2, 3), 4), Some(2));
}

#[test]
fn more_of_what_does_not_come_is_not_asked_for() {
    let mut actor = Actor::new(&settings(1, 8));
    assert_eq!(actor.decide(0, &wanted(4, 2), 2), Some(4));
    actor.was_set(0, 4);
    for now in [1000, 61_000, 3_600_000] {
        assert_eq!(actor.decide(now, &wanted(6, 3), 4), None);
    }
    assert_eq!(actor.decide(3_601_000, &wanted(8, 4), 4), Some(8));
}

#[test]
fn those_that_leave_are_no_reason_to_ask_for_more() {
    let mut actor = Actor::new(&settings(1, 8));
    assert_eq!(actor.decide(0, &wanted(2, 4), 4), Some(2));
    actor.was_set(0, 2);
    assert_eq!(actor.decide(1000, &wanted(4, 4), 2), None);
    assert_eq!(actor.decide(2000, &wanted(5, 4), 2), None, "not before the change shows");
    assert_eq!(actor.decide(3000, &wanted(3, 2), 2), Some(3));
}

#[test]
fn while_a_change_settles_what_was_wanted_before_counts_for_nothing() {
    let mut actor = Actor::new(&settings(1, 8));
    let settling = |workers, there| Wanted { why: Why::Settling, ..wanted(workers, there) };
    assert_eq!(actor.decide(0, &settling(2, 3), 3), None);
    assert_eq!(actor.decide(1000, &settling(3, 2), 2), None);
    assert_eq!(actor.decide(2000, &settling(3, 9), 9), Some(8), "bounds hold all the same");
}

#[test]
fn a_number_that_somebody_else_set_stands_and_zero_means_hands_off() {
    let mut actor = Actor::new(&settings(2, 8));
    assert_eq!(actor.decide(0, &wanted(5, 4), 4), Some(5));
    actor.was_set(0, 5);
    assert_eq!(actor.decide(1000, &wanted(6, 6), 6), None);
    assert_eq!(actor.decide(2000, &wanted(8, 6), 0), None);
    assert_eq!(actor.decide(3000, &wanted(8, 1), 1), Some(2), "bounds hold at once");
    assert_eq!(actor.decide(4000, &wanted(9, 20), 20), Some(8));
}

#[test]
fn it_looks_now_and_then_and_at_once_when_something_is_to_be_done() {
    let mut actor = Actor::new(&settings(1, 8));
    assert!(actor.is_due(0, &wanted(2, 2)));
    assert_eq!(actor.decide(0, &wanted(2, 2), 2), None);
    assert!(!actor.is_due(1000, &wanted(2, 2)));
    assert!(actor.is_due(1000, &wanted(3, 2)));
    assert!(actor.is_due(30_000, &wanted(2, 2)));
}

#[test]
fn after_failures_it_waits_longer_and_longer() {
    let mut actor = Actor::new(&settings(1, 8));
    let pauses: Vec<u64> = (0..9).map(|_| actor.failed(5000)).collect();
    assert_eq!(pauses, [1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000, 60_000]);
    assert!(!actor.is_due(64_999, &wanted(3, 2)) && actor.is_due(65_000, &wanted(3, 2)));
    assert_eq!(actor.decide(65_000, &wanted(3, 2), 2), Some(3));
    assert_eq!(actor.failed(65_000), 1000);
}

proptest! {
    #[test]
    fn noise_crashes_and_slow_pods_do_not_make_it_swing(
        seed in 0u64..1 << 40, needed in 1.2f64..9.5, start in 1u64..30, leave in 1u64..25, first in 1u64..12,
    ) {
        let settings = settings(1, 12);
        let (mut scaler, mut actor) = (Scaler::new(settings), Actor::new(&settings));
        let mut deployment = Deployment::new(first, start, leave);
        let mut rng = Rng::keyed(seed, 0x5CA1E, 0);
        let mut noise = move || 1.0 + rng.uniform(-0.03, 0.03);
        let crash = |now: u64| now % 211 == seed % 211;
        run(&mut deployment, (&mut scaler, &mut actor), (needed * 25.0, 25.0), &mut noise, crash, 0..1800);
        prop_assert!(deployment.sets.iter().all(|(_, set)| (1..=12).contains(set)), "{:?}", deployment.sets);
        let enough = needed.ceil() as u64;
        prop_assert!(deployment.asked + 1 >= enough, "{} {:?}", deployment.asked, deployment.sets);
        // Ten minutes at most between two tries of fewer, then twenty: a try is down and up again.
        let late = deployment.sets.iter().filter(|(at, _)| *at >= 600).count();
        prop_assert!(late <= 8, "{needed} {:?}", deployment.sets);
    }
}
