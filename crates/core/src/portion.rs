//! The portion: which positions of a plan one rank reads, in which batches.
//!
//! At global step `s` of a job with `w` ranks, rank `r` takes batch index `s*w + r`: the remaining positions number
//! `[index*B, (index+1)*B)`, `B` being the batch size per rank. A batch therefore does not depend on the number of
//! ranks, and a run resumed on another number of ranks goes on at the next index. The one exception is the last step
//! under [`LastBatch::Partial`], where what is left is shared evenly so that ranks differ by at most one sample.
//!
//! Where batches are cut by bytes or lengths ([`batching`](crate::plan::batching)) the table of cuts takes the place of
//! `B`, and the rest stays as it is.
//!
//! Every rank has the same number of steps under every policy, known before step 0, and no batch is ever empty.

mod cut;

use crate::cursor::{Cursor, Remaining};
use crate::plan::batching::Cuts;
use crate::{Error, Result};
use cut::CutSplit;
use std::sync::Arc;

/// What happens to samples that do not fill a last batch on every rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LastBatch {
    /// They are left out of this epoch.
    Drop,
    /// The last batches are shorter: each sample exactly once. A rank for which none is left gets one marked repeat.
    #[default]
    Partial,
    /// Batches stay full: the last sample of the plan is repeated, marked as padding.
    Pad,
    /// Batches stay full: the first samples of the plan are repeated, marked as padding.
    Wrap,
}

/// Who reads: one rank of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Consumer {
    /// This rank, `0..world_size`.
    pub rank: u64,
    /// Number of ranks.
    pub world_size: u64,
    /// Samples per batch and rank; the most of them where batches are cut by bytes or lengths.
    pub batch_size: u64,
    /// What happens at the end.
    pub last_batch: LastBatch,
}

impl Consumer {
    /// Checks the numbers against each other.
    pub fn check(&self) -> Result<()> {
        if self.batch_size == 0 {
            return Err(Error::invalid_config("batch_size is 0: give at least 1"));
        }
        if self.world_size == 0 || self.rank >= self.world_size {
            return Err(Error::invalid_config(format!(
                "rank is {} of world_size {}: ranks count from 0 to world_size - 1",
                self.rank, self.world_size
            )));
        }
        if self.batch_size.checked_mul(self.world_size).is_none_or(|samples| samples > 1 << 40) {
            return Err(Error::invalid_config(format!(
                "batch_size {} times world_size {} is beyond 2^40 samples a step",
                self.batch_size, self.world_size
            )));
        }
        Ok(())
    }
}

/// Every `of`-th batch of a rank's sequence, from batch `first` on: what one of several processes makes that are asked
/// in turn, so that together they make the rank's batches in the rank's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The first batch, below `of`.
    pub first: u64,
    /// How many processes are asked.
    pub of: u64,
}

impl Default for Turn {
    /// All batches.
    fn default() -> Self {
        Self { first: 0, of: 1 }
    }
}

impl Turn {
    /// Checks the numbers against each other.
    pub fn check(&self) -> Result<()> {
        if self.first < self.of && self.of <= 1 << 16 {
            return Ok(());
        }
        Err(Error::invalid_config(format!("turn is {} of {}: turns count from 0", self.first, self.of)))
    }

    /// The batch of the rank's sequence that is number `step` of this turn.
    fn batch(self, step: u64) -> u64 {
        step * self.of + self.first
    }
}

/// One place in a rank's sequence of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number in this rank's sequence of the epoch; arrival order is accounted in these.
    pub local: u64,
    /// Position in the plan.
    pub position: u64,
    /// Whether this repeats a sample only to fill the batch.
    pub padding: bool,
}

/// The batches of one rank in one epoch, from a cursor to the end.
#[derive(Clone, Debug)]
pub struct Portion {
    consumer: Consumer,
    /// What was left of the epoch when this split among ranks began.
    start: Remaining,
    /// Steps of the split that are done already (arrival order only; otherwise the start moves on).
    first_step: u64,
    /// What is left of this rank's own sequence.
    local: Remaining,
    /// Which of its batches are meant.
    turn: Turn,
    /// Where batches are, when they are not so many samples each.
    cut: Option<CutSplit>,
}

impl Portion {
    /// What `consumer` still has to read of an epoch of `samples` samples, according to `cursor`.
    pub fn new(samples: u64, consumer: Consumer, cursor: &Cursor) -> Result<Self> {
        consumer.check()?;
        let start = cursor.start(samples)?;
        let (local, turn) = (Remaining::full(0), Turn::default());
        let mut portion = Self { consumer, start, first_step: 0, local, turn, cut: None };
        portion.local = Remaining::full(portion.offset(portion.total_steps()));
        if let Some((step, local)) = cursor.local(&consumer)? {
            if step > portion.total_steps() || local.len() != portion.local.len() {
                return Err(Error::stale("load cursor: it does not fit this dataset and number of ranks"));
            }
            portion.first_step = step;
            portion.local = local;
        }
        Ok(portion)
    }

    /// What `consumer` still has to read of an epoch of `samples` positions that is cut into batches by `cuts`.
    pub(crate) fn cut(samples: u64, cuts: &Arc<Cuts>, consumer: Consumer, cursor: &Cursor) -> Result<Self> {
        consumer.check()?;
        let start = cursor.start(samples)?;
        if cursor.local(&consumer)?.is_some() || !start.is_a_run() {
            return Err(Error::stale(
                "load cursor: it was taken in arrival order, these batches are planned",
            ));
        }
        let cut = CutSplit::new(cuts, &start, &consumer);
        let local = Remaining::full(cut.rank_samples(&consumer));
        Ok(Self { consumer, start, first_step: 0, local, turn: Turn::default(), cut: Some(cut) })
    }

    /// Who reads.
    pub fn consumer(&self) -> &Consumer {
        &self.consumer
    }

    /// The same portion, of which only the batches of `turn` are read.
    #[must_use]
    pub fn in_turn(mut self, turn: Turn) -> Self {
        self.turn = turn;
        self
    }

    /// Batches still to come; the same on every rank, and up to one fewer in later turns.
    pub fn steps(&self) -> u64 {
        (self.total_steps() - self.first_step).saturating_sub(self.turn.first).div_ceil(self.turn.of)
    }

    /// Samples in the batch `step` steps from here, padding included. Never 0.
    pub fn batch_len(&self, step: u64) -> u64 {
        let step = self.first_step + self.turn.batch(step);
        match &self.cut {
            Some(cut) => {
                let (positions, _) = cut.batch(step, &self.consumer);
                positions.end - positions.start
            }
            None => self.offset(step + 1) - self.offset(step),
        }
    }

    /// The places of the batch `step` steps from here, in plan order.
    pub fn batch(&self, step: u64) -> impl Iterator<Item = Place> + '_ {
        let done = self.offset(self.first_step);
        let step = self.first_step + self.turn.batch(step);
        let (numbers, padding) = match &self.cut {
            Some(cut) => cut.batch(step, &self.consumer),
            None => (self.offset(step)..self.offset(step + 1), false),
        };
        numbers.map(move |number| match &self.cut {
            Some(_) => Place { local: number, position: number, padding },
            None => self.place(self.local.nth(number - done)),
        })
    }

    /// Every place still to come, in plan order.
    pub fn places(&self) -> impl Iterator<Item = Place> + '_ {
        (0..self.steps()).flat_map(|step| self.batch(step))
    }

    /// The cursor after `steps` further batches in plan order: the same on every rank. In turns it is where the rank
    /// stands when every turn had as many.
    pub fn cursor_after(&self, epoch: u64, steps: u64) -> Cursor {
        if steps >= self.steps() {
            return Cursor::start_of(epoch + 1);
        }
        Cursor::at(epoch, self.start.skip(self.global_offset(steps * self.turn.of)))
    }

    /// Samples of the epoch that no rank reads, because each is larger than a batch may be.
    pub fn left_out(&self) -> u64 {
        self.cut.as_ref().map_or(0, CutSplit::left_out)
    }

    /// Tokens of the epoch that no rank gets, because their packed document is longer than a batch.
    pub fn cut_off(&self) -> u64 {
        self.cut.as_ref().map_or(0, CutSplit::cut_off)
    }

    /// Positions that no rank reads, because they fill no batch or are larger than one may be.
    pub(crate) fn unread(&self) -> Remaining {
        self.start.skip(self.global_offset(self.total_steps()))
    }

    /// What is left of this rank's sequence, by [`Place::local`].
    pub fn local(&self) -> &Remaining {
        &self.local
    }

    /// The cursor after `steps` further batches by arrival, with `local` left of this rank's sequence.
    pub fn cursor_after_arrival(&self, epoch: u64, steps: u64, local: &Remaining) -> Cursor {
        if steps >= self.steps() {
            return Cursor::start_of(epoch + 1);
        }
        Cursor::in_arrival(epoch, self.start.clone(), &self.consumer, self.first_step + steps, local.clone())
    }

    /// The place with a number in this rank's sequence, whether it is still to come or not.
    pub(crate) fn place(&self, local: u64) -> Place {
        let Consumer { rank, world_size, batch_size, last_batch } = self.consumer;
        let step = local / batch_size;
        let total = self.start.count();
        let full_steps = total / (batch_size * world_size);
        let ordinal = if step >= full_steps && last_batch == LastBatch::Partial {
            let (first, real) = self.last_share();
            let row = local - full_steps * batch_size;
            if row < real { first + row } else { total }
        } else {
            (step * world_size + rank) * batch_size + local % batch_size
        };
        if ordinal < total {
            return Place { local, position: self.start.nth(ordinal), padding: false };
        }
        let samples = self.start.len();
        let position = if last_batch == LastBatch::Wrap { (ordinal - total) % samples } else { samples - 1 };
        Place { local, position, padding: true }
    }

    /// Steps from the start of the split to the end of the epoch.
    fn total_steps(&self) -> u64 {
        if let Some(cut) = &self.cut {
            return cut.steps(&self.consumer);
        }
        let a_step = self.consumer.batch_size * self.consumer.world_size;
        match self.consumer.last_batch {
            LastBatch::Drop => self.start.count() / a_step,
            _ => self.start.count().div_ceil(a_step),
        }
    }

    /// Places of this rank's sequence before step `step`, counted from the start of the split.
    fn offset(&self, step: u64) -> u64 {
        let full_steps = self.start.count() / (self.consumer.batch_size * self.consumer.world_size);
        if step <= full_steps || self.consumer.last_batch != LastBatch::Partial {
            return step * self.consumer.batch_size;
        }
        full_steps * self.consumer.batch_size + self.last_share().1.max(1)
    }

    /// Remaining positions that all ranks together have taken after `steps` steps.
    fn global_offset(&self, steps: u64) -> u64 {
        match &self.cut {
            Some(cut) => cut.global_offset(steps, &self.consumer),
            None => (steps * self.consumer.batch_size * self.consumer.world_size).min(self.start.count()),
        }
    }

    /// First ordinal and number of samples of this rank in a shared last step.
    fn last_share(&self) -> (u64, u64) {
        let Consumer { rank, world_size, batch_size, .. } = self.consumer;
        let total = self.start.count();
        let first = total / (batch_size * world_size) * (batch_size * world_size);
        let (each, extra) = ((total - first) / world_size, (total - first) % world_size);
        (first + rank * each + rank.min(extra), each + u64::from(rank < extra))
    }
}

#[cfg(test)]
mod tests;
