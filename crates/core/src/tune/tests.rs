//! A tuner comes near the best of a grid, whatever limits the run, and never leaves its bounds.

use super::simulate::{Run, Workload};
use super::*;
use proptest::prelude::*;

const STEADY: Workload =
    Workload { step: 0.0, fetch: 0.0, work: 0.0, cores: None, burst: (1, 1.0), jitter: 0.1, seed: 7 };
const MOST: Knobs = Knobs { threads: 16, open_batches: 33 };

/// Rate of the best grid point, and where it is.
fn best(workload: Workload) -> (f64, Knobs) {
    let mut best = (0.0, MOST);
    for threads in [1, 2, 4, 8, 16] {
        for open_batches in [2, 3, 5, 9, 17, 33] {
            let knobs = Knobs { threads, open_batches };
            let rate = Run::rate(workload, knobs, 200, 1200);
            if rate > best.0 {
                best = (rate, knobs);
            }
        }
    }
    best
}

/// What a tuner reaches after 200 steps, as a share of the best grid point.
fn reached(workload: Workload, from: Knobs) -> f64 {
    let (best, at) = best(workload);
    let mut tuner = Tuner::new(from, MOST);
    let rate = Run::tuned(workload, &mut tuner, 200, 1200);
    let said: Vec<&Choice> = tuner.choices().collect();
    assert!(rate >= 0.9 * best, "{:.2} of {at:?}: {workload:?}, {said:#?}", rate / best);
    rate / best
}

#[test]
fn p066_two_hundred_steps_from_the_defaults_reach_nine_tenths_of_the_best_grid_point() {
    // The defaults: a thread for each of two processors, and what fits of large and of small batches.
    for open_batches in [2, 9] {
        let from = Knobs { threads: 2, open_batches };
        for seed in 0..20 {
            let steady = Workload { seed, ..STEADY };
            // Processors are the limit; threads that wait inside of ops are; the link is; the step is.
            reached(Workload { work: 0.04, cores: Some(2), ..steady }, from);
            reached(Workload { work: 0.04, cores: Some(8), step: 0.004, ..steady }, from);
            reached(Workload { work: 0.08, step: 0.002, ..steady }, from);
            reached(Workload { work: 0.08, step: 0.01, ..steady }, from);
            reached(Workload { fetch: 0.02, work: 0.01, cores: Some(2), step: 0.01, ..steady }, from);
            reached(Workload { fetch: 0.02, work: 0.03, step: 0.001, ..steady }, from);
            reached(Workload { fetch: 0.004, work: 0.01, cores: Some(2), step: 0.02, ..steady }, from);
            // The step is on average, but every tenth batch takes seven times as long to prepare.
            reached(Workload { work: 0.02, cores: Some(2), step: 0.02, burst: (10, 7.0), ..steady }, from);
        }
    }
}

#[test]
fn p066_bursts_are_ridden_over_by_more_open_batches_and_threads_that_wait_get_company() {
    let bursts = Workload { work: 0.02, cores: Some(2), step: 0.02, burst: (10, 7.0), ..STEADY };
    let mut tuner = Tuner::new(Knobs { threads: 2, open_batches: 2 }, MOST);
    Run::tuned(bursts, &mut tuner, 0, 200);
    assert!(tuner.knobs().open_batches >= 8, "{:?}", tuner.knobs());
    assert!(tuner.choices().any(|choice| choice.why.contains("bursts")));
    let waiting = Workload { work: 0.08, step: 0.002, ..STEADY };
    let mut tuner = Tuner::new(Knobs { threads: 2, open_batches: 9 }, MOST);
    Run::tuned(waiting, &mut tuner, 0, 200);
    assert_eq!(tuner.knobs(), MOST.threads_with(9));
}

#[test]
fn what_cannot_be_helped_is_left_alone_more_and_more() {
    let cpu = Workload { work: 0.04, cores: Some(2), ..STEADY };
    let mut tuner = Tuner::new(Knobs { threads: 2, open_batches: 9 }, MOST);
    let mut run = Run::rate(cpu, tuner.knobs(), 0, 5000);
    run = Run::tuned(cpu, &mut tuner, 0, 5000) / run;
    assert!(run > 0.99, "trying costs {run}");
    assert!(tuner.choices().count() <= 16);
    // A loop that never waits is not touched at all.
    let idle = Workload { work: 0.001, step: 0.01, ..STEADY };
    let mut tuner = Tuner::new(Knobs { threads: 2, open_batches: 9 }, MOST);
    Run::tuned(idle, &mut tuner, 0, 1000);
    assert_eq!(tuner.choices().count(), 0);
}

impl Knobs {
    fn threads_with(self, open_batches: usize) -> Self {
        Self { open_batches, ..self }
    }
}

proptest! {
    #[test]
    fn p066_no_knob_leaves_its_bounds_whatever_is_metered(
        from in (1usize..40, 1usize..40),
        most in (1usize..40, 1usize..40),
        looks in prop::collection::vec((0u64..40, 0u64..1 << 40, prop::array::uniform4(0u64..1 << 42)), 1..200),
    ) {
        let from = Knobs { threads: from.0, open_batches: from.1 };
        let most = Knobs { threads: most.0, open_batches: most.1 };
        let mut tuner = Tuner::new(from, most);
        let mut totals = Totals::default();
        for (steps, wall, [stall, prep, work, held]) in looks {
            totals.steps += steps;
            totals.wall += Duration::from_nanos(wall);
            totals.stall += Duration::from_nanos(stall);
            totals.prep_stall += Duration::from_nanos(prep);
            totals.work += Duration::from_nanos(work);
            totals.held += Duration::from_nanos(held);
            let before = tuner.knobs();
            tuner.look(&totals);
            let now = tuner.knobs();
            prop_assert!(now.threads >= from.threads && now.threads <= most.threads.max(from.threads));
            prop_assert!(now.open_batches <= most.open_batches.max(from.open_batches));
            // Open batches are never taken back: memory that was given to them is theirs.
            prop_assert!(now.open_batches >= before.open_batches);
            prop_assert!(tuner.choices().count() <= KEPT_CHOICES);
        }
    }
}
