//! What the dispatcher's state holds of each worker, job, consumer and feed.

use super::taking::Taking;
use super::words::{JobName, LeaseId, Reached, Terms, WorkerId};
use crate::feed::{FeedId, Span};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Worker {
    pub(super) address: String,
    pub(super) tags: Vec<String>,
    pub(super) slots: u32,
    pub(super) incarnation: u64,
    pub(super) draining: bool,
    pub(super) leased: u64,
    pub(super) spans: BTreeMap<FeedId, BTreeSet<Span>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Job {
    pub(super) terms: Terms,
    pub(super) consumers: BTreeMap<u64, Consumer>,
    /// How far its consumers are, and how many are that far.
    pub(super) reached: BTreeMap<Reached, u64>,
    pub(super) taking: Option<Taking>,
    /// As it stands in its feed.
    pub(super) floor: Option<Reached>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Consumer {
    /// The number that its process drew.
    pub(super) process: u64,
    /// The process whose place it took: what that one still sends is refused.
    pub(super) before: Option<u64>,
    pub(super) reached: Reached,
    pub(super) step: u64,
    /// The last request for a span that changed something, and what was given for it.
    pub(super) request: u64,
    pub(super) given: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Feed {
    pub(super) label: String,
    pub(super) span_positions: u64,
    pub(super) epoch_positions: u64,
    pub(super) jobs: BTreeSet<JobName>,
    /// How far each job with consumers is.
    pub(super) floors: BTreeSet<(Reached, JobName)>,
    pub(super) leases: BTreeMap<Span, Lease>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) worker: WorkerId,
    pub(super) id: LeaseId,
}

impl Job {
    /// Before this, no consumer asks again. None without consumers.
    pub(super) fn floor(&self, span_positions: u64) -> Option<Reached> {
        let lowest = *self.reached.first_key_value()?.0;
        let Some(taking) = &self.taking else { return Some(lowest) };
        Some(match taking.floor() {
            Some(number) => Reached { epoch: taking.epoch, position: number.saturating_mul(span_positions) },
            None => Reached { epoch: taking.epoch.saturating_add(1), position: 0 },
        })
    }

    pub(super) fn come(&mut self, reached: Reached) {
        *self.reached.entry(reached).or_default() += 1;
    }

    pub(super) fn go(&mut self, reached: Reached) {
        if let Some(count) = self.reached.get_mut(&reached) {
            *count -= 1;
            if *count == 0 {
                self.reached.remove(&reached);
            }
        }
    }
}
