//! Samples on the board: what is known of one on its way into a batch, and in which order they are prepared.

use crate::batch::Fault;
use crate::budget::Hold;
use crate::cache::ValueClaim;
use forebay_core::portion::Place;
use forebay_core::{Error, SampleId};
use forebay_ops::{Input, RowWriter};
use std::sync::Arc;
use std::time::Duration;

/// A sample on its way into a batch.
pub(crate) struct Job {
    pub(crate) epoch: u64,
    /// What the plan put here.
    pub(crate) place: Place,
    /// What is prepared: the planned sample, or its substitute.
    pub(crate) sample: SampleId,
    /// How many substitutes were tried.
    pub(crate) attempt: u32,
    /// One per column, or why they could not be fetched.
    pub(crate) inputs: Result<Vec<Input>, Error>,
    /// What is to be kept of them, ready-made.
    pub(crate) claims: Vec<ValueClaim>,
    /// Memory reserved for them, let go when the row is written: what a batch keeps is accounted with the batch.
    pub(crate) holds: Vec<Arc<Hold>>,
    /// Whether any of them had to be brought: not all were in memory when they were asked for.
    pub(crate) fetched: bool,
    /// Time that threads were inside ops for it, its substitutes included.
    pub(crate) prep: Duration,
    /// Errors of the samples this one stands in for.
    pub(crate) faults: Vec<Fault>,
    /// The right to write the row, when the planned sample claimed it and failed.
    pub(crate) writer: Option<RowWriter>,
}

/// A job that a thread has taken, with the right to write its row.
pub(crate) struct Work {
    pub(crate) job: Job,
    pub(crate) batch: u64,
    pub(crate) writer: RowWriter,
}

/// What became of a job.
pub(crate) enum Outcome {
    /// The row is written and committed.
    Done,
    /// The row stays empty: a filter left the sample out.
    LeftOut,
    /// The row stays empty; with `fatal` its batch raises the error.
    Failed { error: Error, fatal: bool },
}

/// Sorted by batch and row, so that all threads work on what is needed next.
pub(super) struct Queued {
    pub(super) batch: u64,
    pub(super) row: usize,
    pub(super) job: Job,
}

impl PartialEq for Queued {
    fn eq(&self, other: &Self) -> bool {
        (self.batch, self.row) == (other.batch, other.row)
    }
}

impl Eq for Queued {}

impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Queued {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.batch, self.row).cmp(&(other.batch, other.row))
    }
}
