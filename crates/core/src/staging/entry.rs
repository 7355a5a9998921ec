//! What is known about one batch, and places in the plan.

use super::ConsumerId;
use crate::feed::{BatchName, Run};
use std::collections::BTreeSet;

/// Epoch and position: names and frontiers are compared by it.
pub(super) type Point = (u64, u64);

/// Where a name begins.
pub(super) fn point(name: &BatchName) -> Point {
    (name.epoch, name.first())
}

/// A name below which lie exactly the names that begin before `point`.
pub(super) fn bound((epoch, position): Point) -> BatchName {
    BatchName { epoch, runs: vec![Run { first: position, len: 0, padding: false }] }
}

/// Where a batch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nowhere; somebody plans or waits to take it.
    Wanted,
    /// In the making, with bytes set aside for it.
    Making { reserved: u64 },
    /// In memory.
    Staged { bytes: u64 },
    /// In memory, on its way to disk.
    Spilling { bytes: u64 },
    /// On disk.
    Disk { bytes: u64, memory: Memory },
}

/// What of a batch on disk is in memory too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Memory {
    Absent,
    Loading,
    Here,
}

/// How much a batch is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Need {
    /// Nobody will come for it.
    No,
    /// Somebody may who is not here.
    Perhaps,
    /// An attached job has neither taken nor passed it.
    Yes,
}

/// One batch.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) state: State,
    /// Attached jobs that took it.
    pub(super) taken: Vec<u64>,
    /// Tickets of those who wait for it.
    pub(super) waiting: BTreeSet<u64>,
    /// Those who said that they will want it.
    pub(super) planned: BTreeSet<ConsumerId>,
    /// Writers that hold it.
    pub(super) sending: usize,
}

impl Entry {
    pub(super) fn new() -> Self {
        Self {
            state: State::Wanted,
            taken: Vec::new(),
            waiting: BTreeSet::new(),
            planned: BTreeSet::new(),
            sending: 0,
        }
    }

    /// Whether its bytes can be sent at once.
    pub(super) fn is_here(&self) -> bool {
        matches!(
            self.state,
            State::Staged { .. } | State::Spilling { .. } | State::Disk { memory: Memory::Here, .. }
        )
    }
}
