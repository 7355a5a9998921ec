//! Resampling: every position draws any sample, with replacement.
//!
//! A draw depends on seed, epoch and position only, so that a position is found without the ones before it. How many
//! positions an epoch has is free: it may be fewer or more than there are samples.

use super::RESAMPLE;
use crate::rng::{Rng, fold};
use crate::{Error, Result};

/// Longest epoch that may be asked for; cursors and portions count within it without overflow.
pub(super) const MAX_EPOCH_SAMPLES: u64 = 1 << 48;

/// The draws of one epoch.
#[derive(Debug)]
pub(super) struct ResamplePlan {
    key: u64,
    samples: u64,
}

impl ResamplePlan {
    pub(super) fn new(samples: u64, seed: u64, epoch: u64) -> Self {
        Self { key: fold(&[seed, epoch, RESAMPLE]), samples }
    }

    pub(super) fn at(&self, position: u64) -> u64 {
        Rng::keyed(self.key, position, 0).below(self.samples)
    }
}

/// Length of an epoch that draws from `samples` samples: as asked for, or one draw for each sample.
pub(super) fn epoch_length(samples: u64, asked: Option<u64>) -> Result<u64> {
    match asked {
        Some(_) if samples == 0 => Err(Error::invalid_config("resample a dataset: it has no sample to draw")),
        Some(asked) => check_epoch_samples(asked),
        None => Ok(samples),
    }
}

/// Refuses epochs of no sample and epochs nobody could mean.
pub(super) fn check_epoch_samples(asked: u64) -> Result<u64> {
    if (1..=MAX_EPOCH_SAMPLES).contains(&asked) {
        return Ok(asked);
    }
    Err(Error::invalid_config(format!("epoch_samples is {asked}: give 1 to 2^48")))
}

#[cfg(test)]
mod tests {
    use crate::plan::block::Blocks;
    use crate::plan::{Plan, Sampler, Shuffle};
    use crate::{ErrorKind, SampleId};
    use proptest::prelude::*;

    fn sampler(samples: u64, epoch_samples: Option<u64>, seed: u64) -> Sampler {
        let shuffle = Shuffle::Resample { epoch_samples };
        Sampler::from_blocks(samples, Blocks::default(), shuffle, seed).unwrap()
    }

    fn order(plan: &Plan) -> Vec<u64> {
        (0..plan.len()).map(|position| plan.at(position).0).collect()
    }

    proptest! {
        #[test]
        fn p029_resampling_draws_exactly_as_many_samples_as_were_asked_for(
            samples in 1u64..1000, asked in proptest::option::of(1u64..3000), seed: u64, epoch: u64,
        ) {
            let plan = sampler(samples, asked, seed).plan(epoch);
            prop_assert_eq!(plan.len(), asked.unwrap_or(samples));
            prop_assert_eq!(order(&plan).len() as u64, plan.len());
            prop_assert!(order(&plan).iter().all(|sample| *sample < samples));
            prop_assert_eq!(plan.position_of(SampleId(0)), None);
            prop_assert_eq!(plan.group_end(0), plan.len());
        }
    }

    /// 64 shards of 50 samples, 20 draws of the dataset's size: each shard is drawn about as often as any other.
    /// 63 degrees of freedom: 103.4 is passed by one honest generator in a thousand, and so is 33.8 from below,
    /// which an order without replacement would fall under.
    #[test]
    fn p029_resampling_draws_all_shards_alike_by_chi_square() {
        let (shards, per_shard) = (64u64, 50u64);
        let sampler = sampler(shards * per_shard, None, 17);
        for epoch in 0..20 {
            let mut counts = vec![0u64; shards as usize];
            for sample in order(&sampler.plan(epoch)) {
                counts[(sample / per_shard) as usize] += 1;
            }
            let expected = per_shard as f64;
            let chi: f64 = counts.iter().map(|count| (*count as f64 - expected).powi(2) / expected).sum();
            assert!((33.8..103.4).contains(&chi), "chi-square {chi:.1} over 63 degrees in epoch {epoch}");
        }
    }

    #[test]
    fn p029_resampling_depends_on_seed_and_epoch_and_needs_no_earlier_epoch() {
        let seventh = order(&sampler(500, Some(2000), 3).plan(7));
        let other = sampler(500, Some(2000), 3);
        let _ = order(&other.plan(2));
        assert_eq!(seventh, order(&other.plan(7)));
        assert_ne!(seventh, order(&other.plan(8)));
        assert_ne!(seventh, order(&sampler(500, Some(2000), 4).plan(7)));
        // A longer epoch begins with the same draws: the length cuts the stream and does not change it.
        assert_eq!(seventh, order(&sampler(500, Some(9000), 3).plan(7))[..2000]);
        // With replacement: of n samples about n * (1 - 1/e) are seen in n draws.
        let seen: std::collections::HashSet<u64> =
            order(&sampler(10_000, None, 3).plan(0)).into_iter().collect();
        assert!((6200..6450).contains(&seen.len()), "{} of 10,000 samples were seen", seen.len());
    }

    #[test]
    fn epochs_of_no_sample_and_draws_from_nothing_are_refused() {
        for (samples, asked) in [(10, Some(0)), (10, Some(u64::MAX)), (0, Some(5))] {
            let shuffle = Shuffle::Resample { epoch_samples: asked };
            let error = Sampler::from_blocks(samples, Blocks::default(), shuffle, 0).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig);
        }
        assert_eq!(sampler(0, None, 0).plan(0).len(), 0);
    }

    #[test]
    fn draws_never_change_between_releases() {
        assert_eq!(order(&sampler(1000, Some(6), 1).plan(2)), GOLDEN);
    }

    const GOLDEN: [u64; 6] = [581, 302, 429, 304, 83, 624];
}
