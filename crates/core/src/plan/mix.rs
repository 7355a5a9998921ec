//! A weighted mix of several runs of samples, with random access to any position.
//!
//! Positions are cut into rounds of [`ROUND`] slots. Every round gives each part the same quota, its share of the
//! slots by largest remainder, and permutes the slots. A part's picks are numbered through all rounds; picks run
//! through the part's samples in one keyed permutation after the other, a *pass* each, so that no sample of a part
//! comes again before the pass has had all of them. Inside a round picks stand in any order: a sample may come a
//! round's width early or late. The last round may be cut short.
//!
//! Nothing is stored beyond the quotas: a position gives its round and slot, the slot gives part and pick, the pick
//! gives pass and sample. Quotas may change from a round on: see [`schedule`]. How long an epoch is when the datasets
//! themselves decide is in [`stop`].

pub mod schedule;
pub mod stop;

use super::resample::check_epoch_samples;
use super::{MIX, MIX_PART, Rule, Sampler};
use crate::permutation::Permutation;
use crate::rng::fold;
use crate::{Error, Result};
use schedule::{MixChange, Schedule, Stretch, check_changes};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::Arc;

/// Slots of one round. A part's share is rounded to one in this many.
pub const ROUND: u64 = 1024;

/// Most parts of one mix: enough for every part to have a slot in every round, and room for weights to tell.
pub const MAX_PARTS: usize = 256;

/// One dataset of a mix.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MixPart {
    /// Its run of sample ids.
    pub samples: Range<u64>,
    /// Its share of the epoch relative to the other weights: above 0 and finite. A part gets at least one position in
    /// [`ROUND`], however small its weight.
    pub weight: f64,
}

/// Checks that every part has samples and a weight and that no sample is in two parts.
pub fn check_parts(parts: &[MixPart]) -> Result<()> {
    if !(1..=MAX_PARTS).contains(&parts.len()) {
        let why = format!("mix datasets: {} were given, it takes 1 to {MAX_PARTS}", parts.len());
        return Err(Error::invalid_config(why));
    }
    for (number, part) in parts.iter().enumerate() {
        if part.samples.is_empty() {
            return Err(Error::invalid_config(format!("mix datasets: number {number} has no samples")));
        }
        if !(part.weight.is_finite() && part.weight > 0.0) {
            let why = format!("mix datasets: the weight of number {number} is {}", part.weight);
            return Err(Error::invalid_config(why)
                .with_hint("weights are above 0; leave out a dataset that should not be read"));
        }
    }
    let mut runs: Vec<&Range<u64>> = parts.iter().map(|part| &part.samples).collect();
    runs.sort_unstable_by_key(|run| run.start);
    if let Some(pair) = runs.windows(2).find(|pair| pair[0].end > pair[1].start) {
        return Err(Error::invalid_config(format!(
            "mix datasets: samples {} to {} are in two of them",
            pair[1].start,
            pair[0].end.min(pair[1].end) - 1
        )));
    }
    Ok(())
}

impl Sampler {
    /// The rule that mixes `parts` by their weights, in epochs of exactly `epoch_samples` positions.
    pub fn mixed(parts: &[MixPart], epoch_samples: u64, seed: u64) -> Result<Self> {
        Self::mixed_by(parts, &[], epoch_samples, seed)
    }

    /// The same with weights that change on the way.
    pub fn mixed_by(parts: &[MixPart], changes: &[MixChange], epoch_samples: u64, seed: u64) -> Result<Self> {
        check_parts(parts)?;
        check_changes(changes, parts.len())?;
        let samples = check_epoch_samples(epoch_samples)?;
        let mix = Mix {
            runs: parts.iter().map(|part| part.samples.clone()).collect(),
            schedule: Schedule::new(parts, changes, samples),
        };
        Ok(Self { samples, seed, rule: Rule::Mix(Arc::new(mix)) })
    }
}

/// Parts with their quotas in all epochs.
#[derive(Debug)]
pub(super) struct Mix {
    runs: Vec<Range<u64>>,
    schedule: Schedule,
}

/// The order of one epoch of a mix.
#[derive(Debug)]
pub(super) struct MixPlan {
    mix: Arc<Mix>,
    stretches: Vec<Stretch>,
    seed: u64,
    epoch: u64,
}

impl MixPlan {
    pub(super) fn new(mix: Arc<Mix>, seed: u64, epoch: u64) -> Self {
        let stretches = mix.schedule.epoch(epoch);
        Self { mix, stretches, seed, epoch }
    }

    pub(super) fn at(&self, position: u64) -> u64 {
        let (round, place) = (position / ROUND, position % ROUND);
        let slot = Permutation::new(ROUND, fold(&[self.seed, self.epoch, MIX, round])).at(place);
        let stretch = self.stretches.partition_point(|stretch| stretch.round <= round) - 1;
        let stretch = &self.stretches[stretch];
        // Parts without a slot begin where the next one does, and are never the last to.
        let number = stretch.shares.partition_point(|share| share.first_slot <= slot) - 1;
        let share = &stretch.shares[number];
        let samples = &self.mix.runs[number];
        let pick = share.before + (round - stretch.round) * share.quota + (slot - share.first_slot);
        let len = samples.end - samples.start;
        let key = fold(&[self.seed, self.epoch, MIX_PART, number as u64, pick / len]);
        samples.start + Permutation::new(len, key).at(pick % len)
    }
}

/// Slots of a round for each weight: their sum is [`ROUND`], each is at least 1, and 0 for a weight of 0.
///
/// Largest remainder: shares are rounded down and the slots left over go to the largest fractions, the earlier part
/// first among equals. Parts lifted to one slot take it from those that have most above their share.
fn quotas(weights: &[f64]) -> Vec<u64> {
    // Relative to the largest, the sum of finite weights is finite too.
    let largest = weights.iter().copied().fold(0.0, f64::max);
    let total: f64 = weights.iter().map(|weight| weight / largest).sum();
    let shares: Vec<f64> = weights.iter().map(|weight| weight / largest / total * ROUND as f64).collect();
    let least = |weight: f64| u64::from(weight > 0.0);
    let mut quotas: Vec<u64> =
        shares.iter().zip(weights).map(|(share, weight)| (*share as u64).max(least(*weight))).collect();
    let excess = |quotas: &[u64], at: usize| quotas[at] as f64 - shares[at];
    let given = |quotas: &[u64]| quotas.iter().sum::<u64>();
    while given(&quotas) < ROUND {
        let poorest = (0..quotas.len()).min_by(|a, b| excess(&quotas, *a).total_cmp(&excess(&quotas, *b)));
        quotas[poorest.unwrap_or(0)] += 1;
    }
    while given(&quotas) > ROUND {
        let able = (0..quotas.len()).filter(|at| quotas[*at] > 1);
        let richest = able.max_by(|a, b| excess(&quotas, *a).total_cmp(&excess(&quotas, *b)));
        quotas[richest.unwrap_or(0)] -= 1;
    }
    quotas
}

#[cfg(test)]
mod tests;
