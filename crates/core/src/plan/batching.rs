//! Batches that are not simply so many samples: of about one length, or of a bounded number of bytes.
//!
//! Any order can be cut anew. Its positions are walked once an epoch, in order. Without buckets a batch ends where the
//! next sample would make it too large, and no position moves. With buckets every sample goes to the open batch of its
//! bucket, and batches follow each other in the order in which they became full: what stood together still comes at
//! about the same time, and reads stay where they were. Batches that are still open at the end come last, shorter than
//! the others, those of the shortest samples first.
//!
//! All of that is a function of the order beneath, the lengths and these settings. Ranks take batches, as everywhere, by
//! their number: neither an order nor a batch depends on how many ranks there are. What a walk gives is kept: where each
//! batch begins ([`Cuts`]), and with buckets four bytes a sample for what stands where.

pub mod packing;
mod settings;
mod walk;

pub use settings::{Batching, Bucket, MAX_RATIO, MIN_RATIO, Oversize};

use super::{Plan, Rule, Sampler};
use crate::cursor::Cursor;
use crate::manifest::Manifest;
use crate::plan::rounds::Lengths;
use crate::portion::{Consumer, Portion};
use crate::{Error, Result, SampleId};
use packing::Packing;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use walk::Walked;

/// Epochs whose walk is kept: the one that is read, and the one that is prefetched.
const KEPT_EPOCHS: usize = 2;

/// Where each batch of an epoch begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cuts {
    /// First position of every batch, and the end of the last one.
    starts: Vec<u64>,
    /// Batches that were closed because they were full; the others come after them.
    full: u64,
    /// Positions after the last batch, which is not read: those of samples that are too large.
    left_out: u64,
    /// Tokens of packed documents that are in no batch, because they are beyond all of its rows.
    cut_off: u64,
}

impl Cuts {
    /// Number of batches.
    pub fn batches(&self) -> u64 {
        (self.starts.len() as u64).saturating_sub(1)
    }

    /// Batches that are full. They come first.
    pub fn full_batches(&self) -> u64 {
        self.full
    }

    /// Samples of the epoch that are in no batch, because they are too large.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Tokens of packed documents that are in no batch: a document goes on in the next row, but not in the next batch.
    pub fn cut_off(&self) -> u64 {
        self.cut_off
    }

    /// First position of a batch, or the end of the last one.
    pub fn start(&self, batch: u64) -> u64 {
        self.starts.get(batch as usize).or(self.starts.last()).copied().unwrap_or(0)
    }

    /// The batch that a position lies in, or the number of batches.
    pub fn batch_at(&self, position: u64) -> u64 {
        (self.starts.partition_point(|start| *start <= position) as u64).saturating_sub(1).min(self.batches())
    }
}

impl Sampler {
    /// The same samples, cut into batches by `batching`, of at most `batch_size` samples.
    pub fn batched(self, manifest: &Manifest, batching: &Batching, batch_size: u64) -> Result<Self> {
        batching.check()?;
        if batch_size == 0 {
            return Err(Error::invalid_config("batch_size is 0: give at least 1"));
        }
        let lengths = Lengths::counted(manifest, batching.length_field.as_deref())?;
        let limit = batching.batch_bytes.unwrap_or(u64::MAX);
        let drops = batching.oversize == Oversize::Drop
            && (0..manifest.len()).any(|sample| lengths.of(SampleId(sample)) > limit);
        let packing = batching.pack.clone();
        let moves = batching.bucket.is_some() || drops || packing.as_ref().is_some_and(Packing::moves);
        if moves && self.samples > u64::from(u32::MAX) {
            return Err(Error::unsupported(format!(
                "cut batches by length: an epoch has {} samples, more than 2^32",
                self.samples
            )));
        }
        let batched = Batched {
            lengths,
            bounds: batching.bucket.as_ref().map(Bucket::bounds),
            batch_size,
            limit,
            drops: batching.oversize == Oversize::Drop,
            moves,
            packing,
            kept: Mutex::default(),
            beneath: self.clone(),
        };
        Ok(Self { rule: Rule::Batched(Arc::new(batched)), ..self })
    }

    /// What `consumer` has to read of the cursor's epoch from there on.
    pub fn portion(&self, consumer: Consumer, cursor: &Cursor) -> Result<Portion> {
        match &self.rule {
            Rule::Batched(batched) => {
                Portion::cut(self.samples, &batched.walked(cursor.epoch).cuts, consumer, cursor)
            }
            _ => Portion::new(self.samples, consumer, cursor),
        }
    }

    /// Whether making a plan takes a walk over all its positions.
    pub fn walks(&self) -> bool {
        matches!(self.rule, Rule::Batched(_))
    }
}

/// All that is the same for all epochs.
#[derive(Debug)]
pub(super) struct Batched {
    beneath: Sampler,
    lengths: Lengths,
    /// First length of every bucket but the first; `None` without buckets.
    bounds: Option<Vec<u64>>,
    batch_size: u64,
    /// Most bytes of a batch.
    limit: u64,
    /// Whether samples beyond the limit are left out.
    drops: bool,
    /// Whether samples stand at other positions than beneath.
    moves: bool,
    /// How documents are packed, when they are.
    packing: Option<Packing>,
    kept: Mutex<VecDeque<(u64, Arc<Walked>)>>,
}

impl Batched {
    /// The walk of an epoch. Whoever asks while another thread is at it waits for that.
    fn walked(&self, epoch: u64) -> Arc<Walked> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, walked)) = kept.iter().find(|(known, _)| *known == epoch) {
            return Arc::clone(walked);
        }
        let walked = Arc::new(self.walk(&self.beneath.plan(epoch)));
        kept.push_front((epoch, Arc::clone(&walked)));
        kept.truncate(KEPT_EPOCHS);
        walked
    }
}

/// The order of one epoch.
#[derive(Debug)]
pub(super) struct BatchedPlan {
    batched: Arc<Batched>,
    beneath: Plan,
    walked: OnceLock<Arc<Walked>>,
}

impl BatchedPlan {
    pub(super) fn new(batched: Arc<Batched>, epoch: u64) -> Self {
        let beneath = batched.beneath.plan(epoch);
        Self { batched, beneath, walked: OnceLock::new() }
    }

    fn walked(&self) -> &Walked {
        self.walked.get_or_init(|| self.batched.walked(self.beneath.epoch()))
    }

    pub(super) fn at(&self, position: u64) -> u64 {
        let beneath =
            if self.batched.moves { self.walked().order[position as usize].into() } else { position };
        self.beneath.at(beneath).0
    }

    /// A look at every position, when samples were moved.
    pub(super) fn position_of(&self, sample: SampleId) -> Option<u64> {
        let beneath = self.beneath.position_of(sample)?;
        if !self.batched.moves {
            return Some(beneath);
        }
        self.walked().order.iter().position(|other| u64::from(*other) == beneath).map(|at| at as u64)
    }

    pub(super) fn cuts(&self) -> &Cuts {
        &self.walked().cuts
    }

    /// One past the last position that is read together with `position`.
    pub(super) fn group_end(&self, position: u64) -> Option<u64> {
        (!self.batched.moves).then(|| self.beneath.group_end(position))
    }
}

#[cfg(test)]
mod tests;
