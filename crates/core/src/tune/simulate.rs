//! A pipeline in virtual time, to try a [`Tuner`] on: a link, threads on processors, open batches, a loop.
//!
//! Batches are worked off in order. Ops that compute share the processors; ops that wait do not. What is metered is what
//! the engine meters, and stalls are split by the same [`ResidentRun`].

use super::{Knobs, Totals, Tuner};
use crate::rng::Rng;
use crate::stall::{Making, ResidentRun};
use std::collections::VecDeque;
use std::time::Duration;

/// Work of one kind. Times are seconds for a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Workload {
    pub(super) step: f64,
    pub(super) fetch: f64,
    /// Of one thread alone.
    pub(super) work: f64,
    /// Processors that the ops need; none when they only wait.
    pub(super) cores: Option<usize>,
    /// One batch in so many takes so many times as long to prepare.
    pub(super) burst: (u64, f64),
    /// Every time varies by up to this share.
    pub(super) jitter: f64,
    pub(super) seed: u64,
}

pub(super) struct Run {
    workload: Workload,
    knobs: Knobs,
    rng: Rng,
    now: f64,
    fetched_at: f64,
    free_at: f64,
    taken: VecDeque<f64>,
    /// What the loop did since the last batch was handed over.
    away: f64,
    resident: ResidentRun,
    pub(super) totals: Totals,
}

impl Run {
    pub(super) fn new(workload: Workload, knobs: Knobs) -> Self {
        Self {
            workload,
            knobs,
            rng: Rng::keyed(workload.seed, 0, 0),
            now: 0.0,
            fetched_at: 0.0,
            free_at: 0.0,
            taken: VecDeque::new(),
            away: 0.0,
            resident: ResidentRun::new(knobs.open_batches, Duration::ZERO),
            totals: Totals::default(),
        }
    }

    fn vary(&mut self, seconds: f64) -> f64 {
        let part = self.rng.below(1 << 20) as f64 / f64::from(1 << 20);
        seconds * (1.0 + self.workload.jitter * (2.0 * part - 1.0))
    }

    /// One batch; gives the seconds it took.
    fn step(&mut self) -> f64 {
        let Workload { step, fetch, work, cores, burst, .. } = self.workload;
        let is_burst = self.rng.below(burst.0) == 0;
        let work = self.vary(work) * if is_burst { burst.1 } else { 1.0 };
        let (step, fetch) = (self.vary(step), self.vary(fetch));
        let threads = self.knobs.threads as f64;
        // Threads beyond the processors only take turns, at a cost.
        let speed = match cores {
            Some(cores) if self.knobs.threads > cores => cores as f64 * 0.98,
            _ => threads,
        };
        while self.taken.len() > self.knobs.open_batches {
            self.taken.pop_front();
        }
        let is_full = self.taken.len() == self.knobs.open_batches;
        let opened = if is_full { self.taken.pop_front().unwrap_or(0.0) } else { 0.0 };
        self.fetched_at += fetch;
        let could = self.free_at.max(self.fetched_at);
        let began = could.max(opened);
        let took = work / speed;
        self.free_at = began + took;
        let stall = (self.free_at - self.now).max(0.0);
        let made = Making {
            work: seconds(took * threads),
            longest: Duration::ZERO,
            servers: self.knobs.threads as u32,
            fetch_limit: Duration::MAX,
        };
        let split = self.resident.split(seconds(self.away), seconds(stall), &made);
        self.taken.push_back(self.now + stall);
        self.now += stall + step;
        self.away = step;
        self.totals.steps += 1;
        self.totals.wall += seconds(stall + step);
        self.totals.stall += seconds(stall);
        self.totals.prep_stall += split.prep;
        self.totals.work += made.work;
        self.totals.held += seconds((began - could) * threads);
        stall + step
    }

    fn set(&mut self, knobs: Knobs) {
        self.knobs = knobs;
        self.resident.set_ahead(knobs.open_batches);
    }

    /// Batches a second of steps `from` to `until`, with the knobs as they are.
    pub(super) fn rate(workload: Workload, knobs: Knobs, from: u64, until: u64) -> f64 {
        let mut run = Self::new(workload, knobs);
        let times: Vec<f64> = (0..until).map(|_| run.step()).collect();
        (until - from) as f64 / times[from as usize..].iter().sum::<f64>()
    }

    /// The same while a tuner turns them.
    pub(super) fn tuned(workload: Workload, tuner: &mut Tuner, from: u64, until: u64) -> f64 {
        let mut run = Self::new(workload, tuner.knobs());
        let mut times = Vec::new();
        for _ in 0..until {
            times.push(run.step());
            if let Some(choice) = tuner.look(&run.totals) {
                let knobs = choice.knobs;
                run.set(knobs);
            }
        }
        (until - from) as f64 / times[from as usize..].iter().sum::<f64>()
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.max(0.0))
}
