//! Staging: prepared batches of one feed, kept until every attached job has taken them.
//!
//! [`Staging`] is told what happened ([`Command`]) and says what is to be done ([`Action`]); making, sending and
//! writing to disk are the shell's. A batch is a pure function of its name, so whatever is dropped can be made again:
//! nothing here can lose one, and [`Late`] only chooses who pays when memory is full.
//!
//! What is held is bounded: batches that are staged, in the making or being loaded from disk never add up to more than
//! the limit, unless a single batch is larger than the limit, which is then the only one. A batch in the making counts
//! with the most bytes that a batch may have.
//!
//! A batch is needed by a job that has neither taken it nor passed it with all of its ranks. Needs of jobs and ranks
//! that were only announced keep a batch while there is room and never hold anybody up.

mod coming;
mod entry;
mod giving;
mod keeping;
mod machine;
mod people;
mod room;
#[cfg(test)]
mod tests;

pub use machine::Staging;

use crate::feed::BatchName;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A batch's name, cheap to copy.
pub type Name = Arc<BatchName>;

/// A connection of one rank of one job. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ConsumerId(pub u64);

/// What happens to a batch that some job has not taken when staging is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Late {
    /// It is dropped, and made again when the job asks for it: nobody waits, nobody loses.
    #[default]
    Remake,
    /// It stays, and no further batch is made until it was taken: the fastest waits.
    Wait,
    /// It is written to disk.
    Spill,
    /// It is dropped, and the job is told so: the fastest goes on, the slowest loses a counted batch.
    Skip,
}

/// Limits of one feed's staging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StagingOptions {
    /// Bytes that may be held.
    pub limit_bytes: u64,
    /// Most bytes of one batch; what a batch in the making counts for.
    pub batch_bytes: u64,
    /// Positions of every epoch.
    pub epoch_samples: u64,
    /// Who pays when memory is full.
    pub late: Late,
    /// Batches that are made before anybody asked for them now, at once.
    pub making_batches: usize,
    /// Batches on their way to one consumer at once; the next one waits for the first to be sent.
    pub sends: usize,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// A rank of a job is connected.
    Attach {
        /// Its connection.
        consumer: ConsumerId,
        /// The job.
        job: String,
        /// The rank.
        rank: u64,
        /// Ranks of the job.
        world_size: u64,
    },
    /// A connection is gone. What only it was waiting for is free.
    Detach {
        /// The connection.
        consumer: ConsumerId,
    },
    /// Jobs that read this feed and may come here.
    Expect {
        /// All of them; those of an earlier command that are not among them no longer count.
        jobs: Vec<String>,
    },
    /// From now on this many bytes may be held. What is held beyond gives way as the rules allow.
    Limit {
        /// Bytes.
        bytes: u64,
    },
    /// Batches of this size are asked for.
    Size {
        /// Most bytes of one; counts when it is more than was known.
        bytes: u64,
    },
    /// Names that will be wanted soon.
    Plan {
        /// By whom.
        consumer: ConsumerId,
        /// In the order of need.
        names: Vec<BatchName>,
    },
    /// A batch is wanted now. Answered exactly once while the consumer is attached and does not forget it.
    Take {
        /// By whom.
        consumer: ConsumerId,
        /// The number of the answer.
        request: u64,
        /// Which.
        name: BatchName,
    },
    /// An answer is no longer wanted.
    Forget {
        /// By whom.
        consumer: ConsumerId,
        /// Its number.
        request: u64,
    },
    /// A rank has received everything of its own before a place.
    Passed {
        /// The rank.
        consumer: ConsumerId,
        /// The epoch.
        epoch: u64,
        /// The position.
        position: u64,
    },
    /// A batch that was given has left memory on its way, or its connection is gone.
    Sent {
        /// To whom.
        consumer: ConsumerId,
        /// Which.
        name: Name,
    },
    /// A batch was made.
    Made {
        /// Which.
        name: Name,
        /// Its size.
        bytes: u64,
    },
    /// A batch cannot be made.
    Failed {
        /// Which.
        name: Name,
    },
    /// A batch is on disk now.
    Spilled {
        /// Which.
        name: Name,
    },
    /// A batch could not be written to disk.
    NotSpilled {
        /// Which.
        name: Name,
    },
    /// A batch was read from disk.
    Loaded {
        /// Which.
        name: Name,
    },
    /// A batch could not be read from disk.
    NotLoaded {
        /// Which.
        name: Name,
    },
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Make a batch; answered by `Made` or `Failed`.
    Make(Name),
    /// Send a batch that is in memory; answered by `Sent`.
    Give {
        /// To whom.
        consumer: ConsumerId,
        /// In answer to what.
        request: u64,
        /// Which.
        name: Name,
    },
    /// Tell that a batch cannot be made. Only ever in answer to `Failed`.
    Fault {
        /// Whom.
        consumer: ConsumerId,
        /// In answer to what.
        request: u64,
    },
    /// Tell that a batch is not to be had any more.
    Skip {
        /// Whom.
        consumer: ConsumerId,
        /// In answer to what.
        request: u64,
    },
    /// Forget a batch, in memory and on disk.
    Drop(Name),
    /// Forget the memory of a batch that is on disk.
    Unload(Name),
    /// Write a batch to disk; answered by `Spilled` or `NotSpilled`. It stays in memory until then.
    Spill(Name),
    /// Read a batch from disk; answered by `Loaded` or `NotLoaded`.
    Load(Name),
}

/// What was done so far, and what is held now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accounts {
    /// Batches that were made.
    pub made: u64,
    /// Batches that were made once more because they had been dropped for room.
    pub remade: u64,
    /// Batches that could not be made.
    pub failed: u64,
    /// Batches that were given to somebody.
    pub given: u64,
    /// Batches that somebody was told are not to be had any more.
    pub skipped: u64,
    /// Batches that were dropped although somebody needed them.
    pub dropped: u64,
    /// Batches that were written to disk.
    pub spilled: u64,
    /// Batches that were read from disk.
    pub loaded: u64,
    /// Batches in memory now.
    pub staged: u64,
    /// Batches in the making now.
    pub making: u64,
    /// Bytes held now, what is in the making included.
    pub held_bytes: u64,
    /// Most bytes held at once.
    pub peak_bytes: u64,
}

/// A job as staging sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobView {
    /// Its name.
    pub job: String,
    /// Ranks that are connected.
    pub consumers: u64,
    /// Batches it was given.
    pub given: u64,
    /// Batches it was told are not to be had.
    pub skipped: u64,
    /// Where its slowest rank is: epoch and position.
    pub passed: Option<(u64, u64)>,
}
