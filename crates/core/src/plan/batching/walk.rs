//! The walk over an epoch that says where each batch begins, and with buckets what stands where.

use super::{Batched, Cuts, packing};
use crate::plan::Plan;
use std::sync::Arc;

/// What the walk of one epoch gave.
#[derive(Debug)]
pub(super) struct Walked {
    /// The position beneath of every position; empty when none was moved.
    pub(super) order: Vec<u32>,
    pub(super) cuts: Arc<Cuts>,
}

/// A batch that is not full yet.
#[derive(Clone, Debug, Default)]
struct Open {
    /// Its positions beneath, when they are moved.
    positions: Vec<u32>,
    rows: u64,
    bytes: u64,
    longest: u64,
}

/// What was walked so far.
struct Walk {
    order: Vec<u32>,
    starts: Vec<u64>,
}

impl Batched {
    pub(super) fn walk(&self, plan: &Plan) -> Walked {
        if let Some(packing) = &self.packing {
            return packing::walk(packing, &self.lengths, self.batch_size, plan);
        }
        let buckets = self.bounds.as_ref().map_or(1, |bounds| bounds.len() + 1);
        let mut open = vec![Open::default(); buckets];
        let mut walk = Walk { order: Vec::new(), starts: vec![0] };
        walk.order.reserve_exact(if self.moves { plan.len() as usize } else { 0 });
        let mut too_large = Vec::new();
        for position in 0..plan.len() {
            let length = self.lengths.of(plan.at(position));
            if length > self.limit && self.drops {
                too_large.push(position as u32);
                continue;
            }
            let bucket =
                self.bounds.as_ref().map_or(0, |bounds| bounds.partition_point(|first| *first <= length));
            let batch = &mut open[bucket];
            if batch.rows > 0 && self.bytes_with(batch, length) > self.limit {
                walk.close(batch);
            }
            batch.add(self.moves.then_some(position as u32), length);
            // A sample that is too large for any batch has none after it either.
            if batch.rows == self.batch_size || length > self.limit {
                walk.close(batch);
            }
        }
        let full = walk.starts.len() as u64 - 1;
        open.iter_mut().filter(|batch| batch.rows > 0).for_each(|batch| walk.close(batch));
        let left_out = too_large.len() as u64;
        walk.order.append(&mut too_large);
        walk.starts.shrink_to_fit();
        Walked { order: walk.order, cuts: Arc::new(Cuts { starts: walk.starts, full, left_out, cut_off: 0 }) }
    }

    /// What a batch would take with another sample.
    fn bytes_with(&self, batch: &Open, length: u64) -> u64 {
        if self.bounds.is_some() {
            batch.longest.max(length).saturating_mul(batch.rows + 1)
        } else {
            batch.bytes.saturating_add(length)
        }
    }
}

impl Open {
    fn add(&mut self, position: Option<u32>, length: u64) {
        self.positions.extend(position);
        self.rows += 1;
        self.bytes = self.bytes.saturating_add(length);
        self.longest = self.longest.max(length);
    }
}

impl Walk {
    fn close(&mut self, batch: &mut Open) {
        let end = self.starts.last().copied().unwrap_or(0) + batch.rows;
        self.starts.push(end);
        self.order.append(&mut batch.positions);
        (batch.rows, batch.bytes, batch.longest) = (0, 0, 0);
    }
}
