//! What padding wastes: the reason for size classes, as a number.

use super::Lengths;
use crate::manifest::Manifest;
use crate::plan::batching::Cuts;
use crate::plan::{Plan, Sampler, Shuffle};
use crate::{Result, SampleId};

/// Share of bytes that padding every batch to its longest sample would add, between 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PaddingWaste {
    /// In rounds of size classes, or batches of buckets.
    pub rounds: f64,
    /// In a full shuffle of the same dataset by the same seed.
    pub shuffled: f64,
}

impl PaddingWaste {
    /// Both, of epoch 0, from batches that lie evenly over it and have at most `most_samples` samples together.
    pub fn measure(
        sampler: &Sampler,
        manifest: &Manifest,
        field: Option<&str>,
        batch_size: u64,
        most_samples: u64,
    ) -> Result<Self> {
        let lengths = Lengths::counted(manifest, field)?;
        let shuffled = Sampler::new(manifest, Shuffle::Full, sampler.seed)?;
        let waste = |sampler: &Sampler| padding_waste(&sampler.plan(0), batch_size, &lengths, most_samples);
        Ok(Self { rounds: waste(sampler), shuffled: waste(&shuffled) })
    }
}

/// Share of bytes that padding every batch of a plan to its longest sample would add. Looks at batches that lie evenly
/// over the epoch and have at most `most_samples` samples together, at least one batch. Where batches are cut by the plan
/// itself those are looked at, and `batch_size` is how many samples most of them have.
pub fn padding_waste(plan: &Plan, batch_size: u64, lengths: &Lengths, most_samples: u64) -> f64 {
    let batch_size = batch_size.max(1);
    let batches = plan.cuts().map_or_else(|| plan.len().div_ceil(batch_size), Cuts::batches);
    let start = |batch: u64| match plan.cuts() {
        Some(cuts) => cuts.start(batch),
        None => batch.saturating_mul(batch_size).min(plan.len()),
    };
    let looked_at = (most_samples / batch_size).max(1);
    let every = batches.div_ceil(looked_at).max(1);
    let (mut bytes, mut padded) = (0u128, 0u128);
    let mut batch = 0;
    while batch < batches {
        let (first, last) = (start(batch), start(batch + 1));
        let of = |position| u128::from(lengths.of(SampleId(plan.at(position).0)));
        bytes += (first..last).map(of).sum::<u128>();
        padded += (first..last).map(of).max().unwrap_or(0) * u128::from(last - first);
        batch += every;
    }
    if padded == 0 { 0.0 } else { (padded - bytes) as f64 / padded as f64 }
}
