//! How well an order mixes, as figures that can be had before a run: by looking at the plan alone.
//!
//! *Displacement* is how far a sample stands from its place in storage, *neighbours* the share of samples that are followed
//! by the one that follows them in storage, *shards* the mean number of objects that a batch comes from, *near pairs* the
//! pairs of a batch that stood within [`NEAR`] places of each other. With classes, *imbalance* is by how much the classes of
//! a batch differ from those of the dataset: the share of its samples that would have to be of another class. What each
//! figure would be for a full permutation is measured the same way, because none of them is 0 or 1 even then.

use super::Plan;
use crate::{Error, Result, SampleId};
use std::collections::{BTreeMap, HashSet};

/// Places within which two samples of a batch count as near.
pub const NEAR: u64 = 64;

/// Most samples of one batch that are looked at.
const MAX_BATCH: u64 = 1 << 20;

/// What is known of samples.
pub struct Storage<'a> {
    /// The object that holds a sample.
    pub object_of: &'a dyn Fn(SampleId) -> u32,
    /// The class of a sample, when classes are known.
    pub class_of: Option<&'a dyn Fn(SampleId) -> Option<i64>>,
    /// Samples of the dataset.
    pub samples: u64,
}

/// How well an order mixes.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct MixingFigures {
    /// Batches that were looked at.
    pub batches: u64,
    /// Mean distance from the place in storage, as a share of the number of samples; about a third is as good as chance.
    pub displacement: f64,
    /// Share of samples that are followed by their neighbour in storage.
    pub neighbours: f64,
    /// Mean number of objects that a batch comes from.
    pub shards_per_batch: f64,
    /// Mean number of pairs of a batch that stood near each other.
    pub near_pairs: f64,
    /// Mean share of a batch that would have to be of another class; `None` without classes.
    pub class_imbalance: Option<f64>,
}

impl MixingFigures {
    /// Looks at up to `limit` positions of a plan, from the middle of it: an epoch begins with smaller groups by design.
    pub fn measure(plan: &Plan, storage: &Storage<'_>, batch_size: u64, limit: u64) -> Result<Self> {
        if !(1..=MAX_BATCH).contains(&batch_size) {
            return Err(Error::invalid_config(format!(
                "measure mixing: batches of {batch_size} samples; give 1 to 2^20"
            )));
        }
        let all = plan.len() / batch_size;
        // An epoch of less than one batch is one batch.
        let batches = all.clamp(1, (limit / batch_size).max(1));
        let first = (all.saturating_sub(batches) / 2) * batch_size;
        let shares = storage.class_of.map(|class_of| class_shares(storage.samples, class_of));
        let (mut figures, mut looked, mut sum) = (Self { batches, ..Self::default() }, 0u64, 0.0);
        let (mut followed, mut shards, mut near, mut imbalance) = (0u64, 0usize, 0usize, 0.0);
        let mut last: Option<u64> = None;
        for batch in 0..batches {
            let from = first + batch * batch_size;
            let to = (from + batch_size).min(plan.len());
            let mut ids: Vec<u64> = (from..to).map(|position| plan.at(position).0).collect();
            for (id, position) in ids.iter().zip(from..) {
                sum += id.abs_diff(position) as f64;
                followed += u64::from(last.is_some_and(|last| last + 1 == *id));
                last = Some(*id);
            }
            looked += ids.len() as u64;
            shards += ids.iter().map(|id| (storage.object_of)(SampleId(*id))).collect::<HashSet<_>>().len();
            if let (Some(shares), Some(class_of)) = (&shares, storage.class_of) {
                imbalance += imbalance_of(&ids, class_of, shares);
            }
            ids.sort_unstable();
            near += near_pairs(&ids);
        }
        if looked == 0 {
            return Ok(figures);
        }
        let mean = |number: usize| number as f64 / batches as f64;
        figures.displacement = sum / looked as f64 / storage.samples.max(1) as f64;
        figures.neighbours = followed as f64 / looked.saturating_sub(1).max(1) as f64;
        figures.shards_per_batch = mean(shards);
        figures.near_pairs = mean(near);
        figures.class_imbalance = shares.map(|_| imbalance / batches as f64);
        Ok(figures)
    }
}

/// Pairs of ascending numbers that are near each other. A window that slides: both ends only move on.
fn near_pairs(sorted: &[u64]) -> usize {
    let (mut pairs, mut low) = (0, 0);
    for (high, id) in sorted.iter().enumerate() {
        while id - sorted[low] > NEAR {
            low += 1;
        }
        pairs += high - low;
    }
    pairs
}

/// The share of each class in the dataset.
fn class_shares(samples: u64, class_of: &dyn Fn(SampleId) -> Option<i64>) -> BTreeMap<Option<i64>, f64> {
    let mut shares: BTreeMap<Option<i64>, f64> = BTreeMap::new();
    for sample in 0..samples {
        *shares.entry(class_of(SampleId(sample))).or_default() += 1.0 / samples as f64;
    }
    shares
}

/// Half the sum of differences between the shares of a batch and those of the dataset.
fn imbalance_of(
    ids: &[u64],
    class_of: &dyn Fn(SampleId) -> Option<i64>,
    shares: &BTreeMap<Option<i64>, f64>,
) -> f64 {
    let mut rest = shares.clone();
    for id in ids {
        *rest.entry(class_of(SampleId(*id))).or_default() -= 1.0 / ids.len() as f64;
    }
    rest.values().map(|difference| difference.abs()).sum::<f64>() / 2.0
}

#[cfg(test)]
mod tests {
    use super::super::block::Blocks;
    use super::super::{BlockShuffle, Sampler, Shuffle};
    use super::*;

    const SAMPLES: u64 = 20_000;

    fn figures(shuffle: Shuffle) -> MixingFigures {
        let blocks = Blocks::uniform(SAMPLES, 500, 10);
        let plan = Sampler::from_blocks(SAMPLES, blocks, shuffle, 1).unwrap().plan(0);
        let storage = Storage {
            object_of: &|sample| (sample.0 / 500) as u32,
            // One class after the other, as folders are packed.
            class_of: Some(&|sample| Some((sample.0 / 2000) as i64)),
            samples: SAMPLES,
        };
        MixingFigures::measure(&plan, &storage, 64, 1 << 14).unwrap()
    }

    #[test]
    fn stored_order_mixes_nothing_and_a_full_permutation_as_chance_does() {
        let stored = figures(Shuffle::Sequential);
        assert_eq!((stored.displacement, stored.neighbours), (0.0, 1.0));
        assert!(stored.shards_per_batch < 1.2 && stored.class_imbalance.unwrap() > 0.85, "{stored:?}");
        assert_eq!(stored.near_pairs, 64.0 * 63.0 / 2.0);
        let full = figures(Shuffle::Full);
        assert!((full.displacement - 1.0 / 3.0).abs() < 0.05, "{full:?}");
        assert!(full.neighbours < 0.001 && full.shards_per_batch > 30.0, "{full:?}");
        assert!(full.class_imbalance.unwrap() < 0.2, "{full:?}");
    }

    #[test]
    fn larger_groups_mix_better() {
        let block = |group_blocks| figures(Shuffle::Block(BlockShuffle { block_bytes: 1, group_blocks }));
        let (small, large, full) = (block(4), block(128), figures(Shuffle::Full));
        assert!(small.shards_per_batch < large.shards_per_batch);
        assert!(small.near_pairs > 4.0 * large.near_pairs, "{small:?} {large:?}");
        assert!(small.class_imbalance > large.class_imbalance);
        assert!(large.shards_per_batch < full.shards_per_batch + 1.0);
    }
}
