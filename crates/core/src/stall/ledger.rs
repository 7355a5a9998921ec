//! Where a loop's time went: every step, every epoch and all of it, in parts that add up.
//!
//! A *step* here is one round of the loop: the wait for a batch, its hand-over and its transfer, then the work on it. What is told:
//! [`Ledger::took`] when a batch is handed over, [`Ledger::transferred`] when it is the framework's, and [`Ledger::worked`]
//! when the loop asks for the next one. Rings are bounded: the last [`KEPT_STEPS`] steps and [`KEPT_EPOCHS`] epochs.

use super::{Histogram, StallSplit};
use crate::{Error, Result};
use serde::Serialize;
use std::collections::VecDeque;
use std::time::Duration;

/// Steps that are kept one by one.
pub const KEPT_STEPS: usize = 1024;
/// Epochs that are kept one by one.
pub const KEPT_EPOCHS: usize = 64;
/// Phases of the user's own that may have names.
pub const MAX_PHASES: usize = 32;

/// The parts of a loop's time, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Split {
    /// The epoch.
    pub epoch: u64,
    /// Number of the step in its epoch, of an epoch's split the last one.
    pub step: u64,
    /// Batches.
    pub batches: u64,
    /// Samples, padding not counted.
    pub samples: u64,
    /// Bytes of the batches as they were handed over.
    pub bytes: u64,
    /// The loop's own work.
    pub step_seconds: f64,
    /// Waiting that would vanish if every payload were resident.
    pub fetch_stall_seconds: f64,
    /// Waiting that remains when every payload is resident.
    pub prep_stall_seconds: f64,
    /// From when a batch was done, or asked for if that was later, until the loop had it.
    pub queue_seconds: f64,
    /// Making the batch the framework's: conversion, pinning, copying to the device.
    pub transfer_seconds: f64,
    /// The part of the step in which other ranks were waited for, as far as it was found out.
    pub others_seconds: f64,
}

impl Split {
    /// All parts together.
    pub fn seconds(&self) -> f64 {
        self.step_seconds
            + self.fetch_stall_seconds
            + self.prep_stall_seconds
            + self.queue_seconds
            + self.transfer_seconds
    }
}

/// A batch that was handed over.
#[derive(Clone, Copy, Debug)]
pub struct Took {
    /// The epoch.
    pub epoch: u64,
    /// Number of the batch in its epoch.
    pub step: u64,
    /// Samples, padding not counted.
    pub samples: u64,
    /// Its bytes as it was handed over.
    pub bytes: u64,
    /// What was waited for it.
    pub stall: StallSplit,
    /// What the hand-over itself took.
    pub queue: Duration,
}

/// A part of the loop that the user named.
#[derive(Clone, Debug)]
pub struct Phase {
    /// Its name.
    pub name: String,
    /// How long it took, each time.
    pub times: Histogram,
}

/// How long each part took, step by step.
#[derive(Clone, Debug, Default)]
pub struct Times {
    /// The loop's own work.
    pub step: Histogram,
    /// Both stalls together.
    pub stall: Histogram,
    /// Fetch stall.
    pub fetch_stall: Histogram,
    /// Prep stall.
    pub prep_stall: Histogram,
    /// Hand-over.
    pub queue: Histogram,
    /// Transfer.
    pub transfer: Histogram,
}

/// The accounts of one loop.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    total: Split,
    epochs: VecDeque<Split>,
    steps: VecDeque<Split>,
    times: Times,
    phases: Vec<Phase>,
    /// Whether the loop works on the batch that was handed over last.
    working: bool,
}

impl Ledger {
    /// A batch was handed over.
    pub fn took(&mut self, took: &Took) {
        let (fetch, prep) = (took.stall.fetch, took.stall.prep);
        let step = Split {
            epoch: took.epoch,
            step: took.step,
            batches: 1,
            samples: took.samples,
            bytes: took.bytes,
            fetch_stall_seconds: fetch.as_secs_f64(),
            prep_stall_seconds: prep.as_secs_f64(),
            queue_seconds: took.queue.as_secs_f64(),
            ..Split::default()
        };
        if self.epochs.back().is_none_or(|last| last.epoch != took.epoch || last.step >= took.step) {
            push(&mut self.epochs, KEPT_EPOCHS, Split { epoch: took.epoch, ..Split::default() });
        }
        push(&mut self.steps, KEPT_STEPS, Split::default());
        self.working = true;
        self.change(|split| {
            *split = Split {
                epoch: step.epoch,
                step: step.step,
                batches: split.batches + 1,
                samples: split.samples + step.samples,
                bytes: split.bytes + step.bytes,
                step_seconds: split.step_seconds,
                fetch_stall_seconds: split.fetch_stall_seconds + step.fetch_stall_seconds,
                prep_stall_seconds: split.prep_stall_seconds + step.prep_stall_seconds,
                queue_seconds: split.queue_seconds + step.queue_seconds,
                transfer_seconds: split.transfer_seconds,
                others_seconds: split.others_seconds,
            };
        });
        self.times.stall.add(nanos(fetch + prep));
        self.times.fetch_stall.add(nanos(fetch));
        self.times.prep_stall.add(nanos(prep));
        self.times.queue.add(nanos(took.queue));
    }

    /// The batch that was handed over last is the framework's now.
    pub fn transferred(&mut self, time: Duration) {
        self.change(|split| split.transfer_seconds += time.as_secs_f64());
        self.times.transfer.add(nanos(time));
    }

    /// The loop is done with the batch that was handed over last.
    pub fn worked(&mut self, time: Duration) {
        self.change(|split| split.step_seconds += time.as_secs_f64());
        self.times.step.add(nanos(time));
        self.working = false;
    }

    /// Other ranks were waited for in a step that is over. Steps that are kept no more count in the total alone.
    pub fn waited_for_others(&mut self, epoch: u64, step: u64, time: Duration) {
        let seconds = time.as_secs_f64();
        self.total.others_seconds += seconds;
        if let Some(split) = self.epochs.iter_mut().rev().find(|split| split.epoch == epoch) {
            split.others_seconds += seconds;
        }
        let kept = self.steps.iter_mut().rev().find(|split| (split.epoch, split.step) == (epoch, step));
        if let Some(split) = kept {
            split.others_seconds += seconds;
        }
    }

    /// Whether the loop works on the batch that was handed over last.
    pub fn is_working(&self) -> bool {
        self.working
    }

    /// The user's phase `name` took so long, once more.
    pub fn add_phase(&mut self, name: &str, time: Duration) -> Result<()> {
        let known = self.phases.iter().position(|phase| phase.name == name);
        let index = match known {
            Some(index) => index,
            None if self.phases.len() == MAX_PHASES => {
                let what = format!("time the phase `{name}`: {MAX_PHASES} others have names already");
                return Err(Error::exhausted(what).with_hint("use the same name in every step"));
            }
            None => {
                self.phases.push(Phase { name: name.to_owned(), times: Histogram::default() });
                self.phases.len() - 1
            }
        };
        self.phases[index].times.add(nanos(time));
        Ok(())
    }

    /// All of it.
    pub fn total(&self) -> &Split {
        &self.total
    }

    /// The last epochs, the one in hand last. A loop that was begun again in the same epoch counts anew.
    pub fn epochs(&self) -> impl Iterator<Item = &Split> {
        self.epochs.iter()
    }

    /// The last steps.
    pub fn steps(&self) -> impl DoubleEndedIterator<Item = &Split> + ExactSizeIterator {
        self.steps.iter()
    }

    /// How long each part took.
    pub fn times(&self) -> &Times {
        &self.times
    }

    /// The user's own phases, in the order in which they were first met.
    pub fn phases(&self) -> &[Phase] {
        &self.phases
    }

    fn change(&mut self, change: impl Fn(&mut Split)) {
        let splits = [Some(&mut self.total), self.epochs.back_mut(), self.steps.back_mut()];
        splits.into_iter().flatten().for_each(change);
    }
}

fn push(ring: &mut VecDeque<Split>, most: usize, split: Split) {
    if ring.len() == most {
        ring.pop_front();
    }
    ring.push_back(split);
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
