//! How many threads prepare and how many batches are open, found out while a loop runs.
//!
//! A [`Tuner`] sees what was metered at hand-overs and says what to change, one thing at a time:
//!
//! - The loop hardly waits: nothing is changed. Its own steps are the slowest part.
//! - Threads are busy and the loop waits for them: twice as many are tried. Where that brings no more batches, because
//!   processors are the limit, the former number comes back and is left alone for longer each time.
//! - The loop waits although threads were held back by full queues at other times: work comes in bursts, and more open
//!   batches ride over them. Memory bounds how many; they are not taken back, since they cost nothing more.
//! - Anything else is fetching's: how many requests are under way and how large they are is the
//!   [`window`](crate::window)'s to find out.
//!
//! No clock and no thread here: totals come in, a [`Choice`] goes out. The bounds are never left.

#[cfg(test)]
mod simulate;
#[cfg(test)]
mod tests;

use serde::Serialize;
use std::collections::VecDeque;
use std::time::Duration;

/// Steps and time after which something can be said.
const LOOK_STEPS: u64 = 8;
const LOOK_TIME: Duration = Duration::from_millis(20);
/// Steps after a change that do not count: batches in the making are still those of before.
const SETTLE_STEPS: u64 = 4;
/// Looks that bursts are searched in.
const BURST_LOOKS: usize = 4;
/// A loop that waits less than this share of its time has nothing to gain.
const STALL_SHARE: f64 = 0.02;
/// Threads that are busy for this share of their time are what is waited for.
const BUSY_SHARE: f64 = 0.7;
/// Threads that are held back for this share of their time could have worked ahead.
const HELD_SHARE: f64 = 0.02;
/// More threads are kept when they bring this much more.
const LEAST_GAIN: f64 = 0.05;
/// Steps until something is tried again that brought nothing; twice as many each time.
const REST_STEPS: (u64, u64) = (64, 16_384);
/// Choices that are remembered for the report.
const KEPT_CHOICES: usize = 16;

/// What is tuned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Knobs {
    /// Preparing threads.
    pub threads: usize,
    /// Batches that may be open at once.
    pub open_batches: usize,
}

/// What was metered since the loop began. Sums: they only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Batches handed over.
    pub steps: u64,
    /// All time of the loop.
    pub wall: Duration,
    /// Time that the loop waited for batches.
    pub stall: Duration,
    /// The part of it that is preparing's.
    pub prep_stall: Duration,
    /// Time of all threads inside ops.
    pub work: Duration,
    /// Time of all threads that were held back because enough batches were ready.
    pub held: Duration,
}

/// A change and its reason.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Choice {
    /// Batches that had been handed over.
    pub step: u64,
    /// What holds from then on.
    #[serde(flatten)]
    pub knobs: Knobs,
    /// Why, in words.
    pub why: String,
}

/// Finds out how many threads and open batches serve a loop best.
#[derive(Debug)]
pub struct Tuner {
    most: Knobs,
    now: Knobs,
    /// Totals at the last looks, the newest last.
    marks: VecDeque<Totals>,
    /// Nothing before this step counts.
    settled_at: u64,
    trial: Option<Trial>,
    threads_rest: Rest,
    batches_rest: Rest,
    choices: VecDeque<Choice>,
}

/// More threads, on probation.
#[derive(Clone, Copy, Debug)]
struct Trial {
    threads_before: usize,
    rate_before: f64,
}

/// When something may be tried again.
#[derive(Clone, Copy, Debug)]
struct Rest {
    until: u64,
    steps: u64,
}

impl Default for Rest {
    fn default() -> Self {
        Self { until: 0, steps: REST_STEPS.0 }
    }
}

impl Rest {
    fn begin(&mut self, step: u64) {
        self.until = step.saturating_add(self.steps);
        self.steps = (2 * self.steps).min(REST_STEPS.1);
    }
}

/// What happened between two looks.
#[derive(Clone, Copy, Debug)]
struct Seen {
    steps: f64,
    wall: f64,
    stall: f64,
    prep_stall: f64,
    work: f64,
    held: f64,
}

impl Seen {
    fn between(before: &Totals, after: &Totals) -> Self {
        let seconds = |after: Duration, before: Duration| after.saturating_sub(before).as_secs_f64();
        Self {
            steps: after.steps.saturating_sub(before.steps) as f64,
            wall: seconds(after.wall, before.wall).max(1e-9),
            stall: seconds(after.stall, before.stall),
            prep_stall: seconds(after.prep_stall, before.prep_stall),
            work: seconds(after.work, before.work),
            held: seconds(after.held, before.held),
        }
    }

    /// Batches a second.
    fn rate(&self) -> f64 {
        self.steps / self.wall
    }
}

impl Tuner {
    /// Begins with `from`; neither knob goes above `most`, and what is above it already stays.
    pub fn new(from: Knobs, most: Knobs) -> Self {
        Self {
            most: Knobs {
                threads: most.threads.max(from.threads),
                open_batches: most.open_batches.max(from.open_batches),
            },
            now: from,
            marks: VecDeque::new(),
            settled_at: SETTLE_STEPS,
            trial: None,
            threads_rest: Rest::default(),
            batches_rest: Rest::default(),
            choices: VecDeque::new(),
        }
    }

    /// What holds now.
    pub fn knobs(&self) -> Knobs {
        self.now
    }

    /// What was changed, the newest last; the last sixteen.
    pub fn choices(&self) -> impl Iterator<Item = &Choice> {
        self.choices.iter()
    }

    /// There cannot be more threads than these.
    pub fn limit_threads(&mut self, threads: usize) {
        self.most.threads = threads;
        self.now.threads = self.now.threads.min(threads);
        self.trial = None;
    }

    /// Whether enough steps have passed for another look: cheap, for every hand-over.
    pub fn is_due(&self, steps: u64) -> bool {
        steps >= self.marks.back().map_or(self.settled_at, |mark| mark.steps + LOOK_STEPS)
    }

    /// Looks at the totals; gives what is changed, if something is.
    pub fn look(&mut self, totals: &Totals) -> Option<&Choice> {
        if !self.is_due(totals.steps) {
            return None;
        }
        let Some(mark) = self.marks.back() else {
            self.marks.push_back(*totals);
            return None;
        };
        if totals.wall.saturating_sub(mark.wall) < LOOK_TIME {
            return None;
        }
        let (last, first) = (*mark, self.marks.front().copied().unwrap_or(*mark));
        let seen = Seen::between(&last, totals);
        let choice = match self.trial.take() {
            Some(trial) => Some(self.judge(trial, &seen, totals.steps)),
            None => self.try_something(&seen, &Seen::between(&first, totals), totals.steps),
        };
        let Some((knobs, why)) = choice else {
            self.marks.push_back(*totals);
            if self.marks.len() > BURST_LOOKS {
                self.marks.pop_front();
            }
            return None;
        };
        // What was seen before the change says nothing about what is now.
        self.marks.clear();
        self.settled_at = totals.steps + SETTLE_STEPS;
        self.now = knobs;
        if self.choices.len() == KEPT_CHOICES {
            self.choices.pop_front();
        }
        self.choices.push_back(Choice { step: totals.steps, knobs, why });
        self.choices.back()
    }

    fn judge(&mut self, trial: Trial, seen: &Seen, step: u64) -> (Knobs, String) {
        let (threads, before) = (self.now.threads, trial.threads_before);
        let rates =
            format!("{before} threads gave {:.1} batches/s, {threads} {:.1}", trial.rate_before, seen.rate());
        if seen.rate() >= (1.0 + LEAST_GAIN) * trial.rate_before {
            self.threads_rest = Rest::default();
            let (knobs, then) = match self.more_threads(seen, step) {
                Some((knobs, _)) => (knobs, "still more are tried"),
                None => (self.now, "they are kept"),
            };
            return (knobs, format!("{rates}: {then}"));
        }
        self.threads_rest.begin(step);
        (Knobs { threads: before, ..self.now }, format!("{rates}: more bring nothing"))
    }

    fn try_something(&mut self, seen: &Seen, long: &Seen, step: u64) -> Option<(Knobs, String)> {
        self.more_threads(seen, step).or_else(|| self.more_batches(long, step))
    }

    /// Twice the threads, on probation, when they are what is waited for.
    fn more_threads(&mut self, seen: &Seen, step: u64) -> Option<(Knobs, String)> {
        let busy = seen.work / (seen.wall * self.now.threads as f64);
        let waited = seen.prep_stall / seen.wall;
        if step < self.threads_rest.until
            || waited < STALL_SHARE
            || busy < BUSY_SHARE
            || self.now.threads >= self.most.threads
        {
            return None;
        }
        self.trial = Some(Trial { threads_before: self.now.threads, rate_before: seen.rate() });
        let threads = (2 * self.now.threads).min(self.most.threads);
        let why = format!(
            "the loop waits {:.0} % of its time and {} threads are busy for {:.0} % of theirs: {threads} are tried",
            100.0 * waited,
            self.now.threads,
            100.0 * busy
        );
        Some((Knobs { threads, ..self.now }, why))
    }

    /// Twice the open batches, when the loop waits and threads were held back.
    fn more_batches(&mut self, seen: &Seen, step: u64) -> Option<(Knobs, String)> {
        let waited = seen.stall / seen.wall;
        let held = seen.held / (seen.wall * self.now.threads as f64);
        if step < self.batches_rest.until
            || waited < STALL_SHARE
            || held < HELD_SHARE
            || self.now.open_batches >= self.most.open_batches
        {
            return None;
        }
        // Whether it was enough shows when bursts come again.
        self.batches_rest.until = step + LOOK_STEPS * BURST_LOOKS as u64;
        let open_batches = (2 * self.now.open_batches).min(self.most.open_batches);
        let why = format!(
            "the loop waits {:.0} % of its time although threads were held back for {:.0} % of theirs: work comes in \
             bursts, and {open_batches} open batches ride over more of them",
            100.0 * waited,
            100.0 * held
        );
        Some((Knobs { open_batches, ..self.now }, why))
    }
}
