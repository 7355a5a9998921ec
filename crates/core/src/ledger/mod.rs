//! The ledger: which samples fed which step on which rank, so that exactly-once can be proved after the fact.
//!
//! A batch is a pure function of dataset, seed, epoch and place, so a ledger does not list samples. A *section* says once
//! what one rank reads from where on ([`SectionHead`]); every batch that its loop received is then one record of a few
//! bytes ([`Received`]): *the next one*, with a check over the ids that were really in it. What is not the plan's own
//! choice is written out: rows that were skipped, filtered or substituted, and in arrival order the places.
//!
//! [`parse`] reads the bytes back. [`streams`] puts the sections of all ranks and restarts in order. A restart begins
//! where its cursor says; what earlier runs had received at or beyond that place is the tail of an abandoned run and
//! counts no more. [`Stream::check`] then asks for every epoch whether each position was received once, and
//! [`Stream::find`] who received a sample. Files and clocks are the engine's.

mod bits;
mod check;
mod find;
mod history;
mod record;
mod verdict;
mod walk;

pub use check::StreamVerdict;
pub use find::Sighting;
pub use history::{Stream, streams};
pub use record::{Encoder, MAX_RECORD_BYTES, Parsed, parse};
pub use verdict::{EpochState, EpochVerdict, Fault, FaultKind, RunVerdict, Seen};

use crate::cursor::Cursor;
use crate::portion::{Consumer, LastBatch};
use crate::{Error, Result, SampleId};
use serde::{Deserialize, Serialize};

/// Raised when an older reader could misunderstand a newer head.
const FORMAT: u32 = 1;

/// Most positions of an epoch that are checked: a bit each.
pub const MAX_POSITIONS: u64 = 1 << 36;

/// Most ranks of a job.
const MAX_WORLD_SIZE: u64 = 1 << 20;

/// Last epoch that makes sense: epochs can be counted on from there.
const MAX_EPOCH: u64 = 1 << 48;

/// What a section says once: all that is needed to tell which positions its batches have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SectionHead {
    format: u32,
    /// When it was begun, in microseconds since 1970; tells runs apart and orders them.
    pub started_micros: u64,
    /// What the launcher calls this start of the job, when it says: equal on all ranks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Version of the dataset.
    pub dataset: String,
    /// Samples of the dataset.
    pub samples: u64,
    /// Positions of an epoch.
    pub positions: u64,
    /// Fingerprint of the recipe.
    pub recipe: String,
    /// All that decides which sample stands at which position, seed included.
    pub order: serde_json::Value,
    /// This rank.
    pub rank: u64,
    /// Number of ranks.
    pub world_size: u64,
    /// Samples per batch and rank.
    pub batch_size: u64,
    /// What happens at the end of an epoch.
    pub last_batch: LastBatch,
    /// Whether batches list their places, because they follow arrival.
    pub lists_places: bool,
    /// Whether batches are cut by length or bytes, so that only the dataset tells which positions they have.
    pub is_cut: bool,
    /// Where the section begins.
    pub cursor: Cursor,
}

impl SectionHead {
    /// A head of this format; everything else is for the caller to fill in.
    pub fn new(consumer: Consumer, cursor: Cursor) -> Self {
        Self {
            format: FORMAT,
            started_micros: 0,
            job: None,
            dataset: String::new(),
            samples: 0,
            positions: 0,
            recipe: String::new(),
            order: serde_json::Value::Null,
            rank: consumer.rank,
            world_size: consumer.world_size,
            batch_size: consumer.batch_size,
            last_batch: consumer.last_batch,
            lists_places: false,
            is_cut: false,
            cursor,
        }
    }

    /// Who received.
    pub fn consumer(&self) -> Consumer {
        let Self { rank, world_size, batch_size, last_batch, .. } = *self;
        Consumer { rank, world_size, batch_size, last_batch }
    }

    fn from_json(bytes: &[u8]) -> Result<Self> {
        let head: Self = serde_json::from_slice(bytes)
            .map_err(|cause| Error::corrupt("read ledger: a section has no head").with_source(cause))?;
        let why = if head.format != FORMAT {
            let why = format!("read ledger: its format is {}, this release reads {FORMAT}", head.format);
            return Err(Error::unsupported(why));
        } else if head.positions == 0 || head.positions > MAX_POSITIONS {
            format!("an epoch has {} positions, 1 to 2^36 are allowed", head.positions)
        } else if head.cursor.epoch > MAX_EPOCH {
            format!("it begins in epoch {}", head.cursor.epoch)
        } else if head.world_size > MAX_WORLD_SIZE {
            format!("it has {} ranks, at most 2^20 are allowed", head.world_size)
        } else if head.samples > MAX_POSITIONS {
            format!("the dataset has {} samples, at most 2^36 are allowed", head.samples)
        } else {
            head.consumer().check()?;
            head.cursor.check()?;
            return Ok(head);
        };
        Err(Error::corrupt(format!("read ledger: {why}")))
    }
}

/// One batch that a loop received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// [`rows_check`] of the ids of its rows.
    pub check: u32,
    /// Milliseconds since the batch before it, or since the section began.
    pub millis: u32,
    /// What the plan alone does not tell.
    pub more: Option<Box<Details>>,
}

/// What the plan alone does not tell of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// Places of the rank's own sequence, in the order of the rows; empty in plan order.
    pub locals: Vec<u64>,
    /// Rows that did not become what was planned, by ascending row.
    pub odd: Vec<OddRow>,
}

/// A planned row that became something else. Rows are counted as planned, before any is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OddRow {
    /// Its number in the batch.
    pub row: u64,
    /// What became of it.
    pub fate: Fate,
}

/// What became of a planned row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Its sample was bad and left out.
    Skipped,
    /// The recipe left it out.
    Filtered,
    /// This sample took its place.
    Substituted(SampleId),
}

/// What one rank received from one start on.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// Where it began, and how.
    pub head: SectionHead,
    /// Batches of each epoch; the first one is the cursor's, the others follow it.
    pub epochs: Vec<Vec<Received>>,
}

impl Section {
    /// When its last batch was received, in microseconds since 1970.
    pub(crate) fn ended_micros(&self) -> u64 {
        let millis = self.epochs.iter().flatten().map(|batch| u64::from(batch.millis)).sum::<u64>();
        self.head.started_micros.saturating_add(millis * 1000)
    }

    /// The epochs with what was received of them and where each began.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (Cursor, &[Received])> {
        self.epochs.iter().enumerate().map(|(number, batches)| {
            let cursor = match number {
                0 => self.head.cursor.clone(),
                _ => Cursor::start_of(self.head.cursor.epoch + number as u64),
            };
            (cursor, batches.as_slice())
        })
    }
}

/// 32 bits that tell other rows, or another order of them, from these.
pub fn rows_check(ids: impl IntoIterator<Item = SampleId>) -> u32 {
    let mut hash = xxhash_rust::xxh3::Xxh3Default::new();
    for id in ids {
        hash.update(&id.0.to_le_bytes());
    }
    hash.digest() as u32
}

#[cfg(test)]
mod tests;
