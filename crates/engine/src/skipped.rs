//! Batches that were left out: which they were, and which samples the loop did not get with them.
//!
//! Samples are looked up when a batch is left out, because weights of a mix that change later give its positions another
//! meaning. What is kept has a limit; beyond it batches are counted alone, as all of them are, by the meter.

use crate::session::Definition;
use forebay_core::SampleId;
use forebay_core::plan::Plan;
use forebay_core::portion::Place;

/// Batches that are kept; later ones are only counted.
const MAX_BATCHES: usize = 10_000;

/// Samples after which no further batch is kept: eight megabytes.
const MAX_SAMPLES: usize = 1 << 20;

/// A batch that was left out because nobody kept it and it was not to be made again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedBatch {
    /// The epoch.
    pub epoch: u64,
    /// Number of the batch in its iteration, which no other batch has.
    pub step: u64,
    /// The samples that it would have had, those that only fill it left out.
    pub ids: Vec<SampleId>,
}

/// The batches that were left out so far.
#[derive(Debug, Default)]
pub(crate) struct SkippedBatches {
    batches: Vec<SkippedBatch>,
    samples: usize,
    /// Of the epoch of the last one.
    plan: Option<Plan>,
}

impl SkippedBatches {
    /// The batch with these places was left out.
    pub(crate) fn add(&mut self, definition: &Definition, (epoch, step): (u64, u64), places: &[Place]) {
        if self.is_full() {
            return;
        }
        let plan = match self.plan.take() {
            Some(plan) if plan.epoch() == epoch => plan,
            _ => definition.sampler.plan(epoch),
        };
        let Definition { config, samples, .. } = definition;
        let planned = places.iter().filter(|place| !place.padding).map(|place| plan.at(place.position));
        let ids = planned.map(|id| config.quarantine.stand_in(config.seed, epoch, id, *samples).0).collect();
        self.push(SkippedBatch { epoch, step, ids });
        self.plan = Some(plan);
    }

    /// Another order holds from now on.
    pub(crate) fn reorder(&mut self) {
        self.plan = None;
    }

    /// All that are kept, in the order in which they would have been handed over.
    pub(crate) fn batches(&self) -> &[SkippedBatch] {
        &self.batches
    }

    fn is_full(&self) -> bool {
        self.batches.len() >= MAX_BATCHES || self.samples >= MAX_SAMPLES
    }

    fn push(&mut self, batch: SkippedBatch) {
        self.samples += batch.ids.len();
        self.batches.push(batch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p061_what_is_kept_of_skipped_batches_has_a_limit_in_batches_and_in_samples() {
        let kept = |rows: usize| {
            let mut skipped = SkippedBatches::default();
            while !skipped.is_full() {
                let step = skipped.batches().len() as u64;
                skipped.push(SkippedBatch { epoch: 0, step, ids: vec![SampleId(0); rows] });
            }
            skipped.batches().len()
        };
        assert_eq!(kept(1), MAX_BATCHES);
        assert_eq!(kept(MAX_SAMPLES / 4), 4);
    }
}
