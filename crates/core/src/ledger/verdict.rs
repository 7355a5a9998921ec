//! What a check found, in a form that can be printed or read by programs.

use serde::Serialize;

/// What was found of one epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EpochVerdict {
    /// The epoch.
    pub epoch: u64,
    /// How it stands.
    pub state: EpochState,
    /// Positions of its plan.
    pub positions: u64,
    /// Positions that were received and count, those of odd rows included.
    pub received: u64,
    /// Receipts that count no more, because a later run began before them.
    pub superseded: u64,
    /// Positions that no rank reads, by `last_batch` or because a sample is larger than a batch may be.
    pub left_out: u64,
    /// Rows that only filled a batch.
    pub padding: u64,
    /// Bad samples that were left out.
    pub skipped: u64,
    /// Samples that the recipe left out.
    pub filtered: u64,
    /// Samples that another one stood in for.
    pub substituted: u64,
    /// Positions that should have been received and were not.
    pub gaps: u64,
    /// Positions that were received more than once.
    pub doubles: u64,
    /// Batches whose rows were not those of the plan.
    pub altered: u64,
    /// The first gaps, doubles and altered batches.
    pub faults: Vec<Fault>,
}

/// How an epoch stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EpochState {
    /// Every position once.
    Exact,
    /// Not finished, and every position at most once.
    Open,
    /// Something is missing, double or other than planned.
    Faulty,
    /// Later runs began before it, and none has come to it again.
    Superseded,
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// What.
    pub kind: FaultKind,
    /// The position; the first one of an altered batch.
    pub position: u64,
    /// The sample that stands there, when the order is known.
    pub sample_id: Option<u64>,
    /// Who received it; for a gap, who should have.
    pub seen: Vec<Seen>,
}

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// Nobody received it.
    Gap,
    /// It was received more than once.
    Double,
    /// The rows of a batch were not those of the plan.
    Altered,
}

/// A batch of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Seen {
    /// Number of the run, from 1.
    pub run: u64,
    /// The rank.
    pub rank: u64,
    /// The step of the job, counted from the first run of the ledger over all restarts.
    pub step: u64,
}

/// One start of the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunVerdict {
    /// From 1.
    pub run: u64,
    /// When its first rank began, in microseconds since 1970.
    pub started_micros: u64,
    /// What the launcher called it.
    pub job: Option<String>,
    /// Number of ranks.
    pub world_size: u64,
    /// Ranks that are in the ledger.
    pub ranks: u64,
    /// Samples per batch and rank.
    pub batch_size: u64,
    /// The epoch that it began in.
    pub epoch: u64,
    /// The step of the job that it began with.
    pub first_step: u64,
    /// Batches that its ranks received.
    pub batches: u64,
}
