//! The split of an epoch that is cut into batches of different lengths: rank `r` takes batch `s*w + r` at step `s`,
//! as always, and the table of cuts says which positions those are.
//!
//! Where fewer batches than ranks are left for a last step, a policy that keeps every sample divides them: a piece of a
//! batch is no larger than the batch, and of the same bucket. A policy that repeats gives whole batches again.

use super::{Consumer, LastBatch};
use crate::cursor::Remaining;
use crate::plan::batching::Cuts;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::Arc;

/// Which positions a rank's batches are.
#[derive(Clone, Debug)]
pub(super) struct CutSplit {
    cuts: Arc<Cuts>,
    /// The batch that the cursor stands in, and where it stands.
    first: u64,
    base: u64,
    /// One past the last batch that is read.
    end: u64,
    /// This rank's piece of a last step that is divided.
    piece: Option<Piece>,
}

/// Some positions of one batch.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece {
    positions: Range<u64>,
    padding: bool,
}

impl CutSplit {
    pub(super) fn new(cuts: &Arc<Cuts>, start: &Remaining, consumer: &Consumer) -> Self {
        let base = start.first();
        let end = match consumer.last_batch {
            LastBatch::Drop => cuts.full_batches(),
            _ => cuts.batches(),
        };
        let mut split =
            Self { cuts: Arc::clone(cuts), first: cuts.batch_at(base).min(end), base, end, piece: None };
        let over = (split.end - split.first) % consumer.world_size;
        if over > 0 && consumer.last_batch == LastBatch::Partial {
            split.piece = Some(split.piece_of(consumer, over));
        }
        split
    }

    /// Steps to the end of the epoch.
    pub(super) fn steps(&self, consumer: &Consumer) -> u64 {
        let batches = self.end - self.first;
        match consumer.last_batch {
            LastBatch::Drop => batches / consumer.world_size,
            _ => batches.div_ceil(consumer.world_size),
        }
    }

    /// Positions of the rank's batch at a step, and whether they only fill the step.
    pub(super) fn batch(&self, step: u64, consumer: &Consumer) -> (Range<u64>, bool) {
        let last = (step + 1).saturating_mul(consumer.world_size) > self.end - self.first;
        if let (true, Some(piece)) = (last, &self.piece) {
            return (piece.positions.clone(), piece.padding);
        }
        let number = self.first + step * consumer.world_size + consumer.rank;
        if number < self.end {
            return (self.positions(number), false);
        }
        let again = match consumer.last_batch {
            LastBatch::Wrap => (number - self.end) % self.end.max(1),
            _ => self.end.saturating_sub(1),
        };
        (self.cuts.start(again)..self.cuts.start(again + 1), true)
    }

    /// Positions that all ranks together have taken after `steps` steps.
    pub(super) fn global_offset(&self, steps: u64, consumer: &Consumer) -> u64 {
        let number = self.first.saturating_add(steps.saturating_mul(consumer.world_size)).min(self.end);
        self.cuts.start(number).max(self.base) - self.base
    }

    /// Samples that are in no batch.
    pub(super) fn left_out(&self) -> u64 {
        self.cuts.left_out()
    }

    /// Tokens that are in no batch.
    pub(super) fn cut_off(&self) -> u64 {
        self.cuts.cut_off()
    }

    /// About how many samples a rank reads.
    pub(super) fn rank_samples(&self, consumer: &Consumer) -> u64 {
        let steps = self.steps(consumer);
        self.global_offset(steps, consumer).div_ceil(consumer.world_size).max(u64::from(steps > 0))
    }

    fn positions(&self, batch: u64) -> Range<u64> {
        self.cuts.start(batch).max(self.base)..self.cuts.start(batch + 1)
    }

    /// This rank's part of the last `over` batches, fewer than ranks. They are cut into as many pieces as there are
    /// ranks, those with the most samples to a piece first; when there are not enough samples the rest repeat the last.
    fn piece_of(&self, consumer: &Consumer, over: u64) -> Piece {
        let batches: Vec<Range<u64>> =
            (self.end - over..self.end).map(|batch| self.positions(batch)).collect();
        let mut pieces = vec![1u64; batches.len()];
        // The mean rows of a batch's pieces, rounded up, and of equals the earlier.
        let largest = |index: usize, pieces: u64| {
            let rows = batches[index].end - batches[index].start;
            (rows.div_ceil(pieces), std::cmp::Reverse(index))
        };
        let mut heap: BinaryHeap<_> = (0..batches.len()).map(|index| largest(index, 1)).collect();
        for _ in over..consumer.world_size {
            let Some((rows, std::cmp::Reverse(index))) = heap.pop() else { break };
            if rows <= 1 {
                break;
            }
            pieces[index] += 1;
            heap.push(largest(index, pieces[index]));
        }
        let mut before = 0;
        for (batch, count) in batches.iter().zip(pieces) {
            if consumer.rank < before + count {
                let number = consumer.rank - before;
                let rows = batch.end - batch.start;
                let (each, extra) = (rows / count, rows % count);
                let first = batch.start + number * each + number.min(extra);
                let positions = first..first + each + u64::from(number < extra);
                return Piece { positions, padding: false };
            }
            before += count;
        }
        let last = self.cuts.start(self.end).saturating_sub(1);
        Piece { positions: last..last + 1, padding: true }
    }
}
