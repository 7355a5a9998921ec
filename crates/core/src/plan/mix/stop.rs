//! How long an epoch of a mix is when its datasets decide: until the first of them has nothing new, or until all were read.
//!
//! Which slot of a round is whose depends on seed and epoch, the length of an epoch must not. So it counts whole rounds: of
//! one that is cut short nobody knows beforehand which picks it has.

use super::{MixPart, ROUND, check_parts, quotas};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// What ends an epoch of a mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// The first dataset that does not last for another round: no sample comes twice.
    First,
    /// The last dataset of which a sample is missing: every sample comes at least once.
    All,
}

impl Stop {
    /// Positions of an epoch of these parts.
    pub fn epoch_samples(self, parts: &[MixPart]) -> Result<u64> {
        check_parts(parts)?;
        let weights: Vec<f64> = parts.iter().map(|part| part.weight).collect();
        let parts = || {
            let lengths = parts.iter().map(|part| part.samples.end - part.samples.start);
            lengths.zip(quotas(&weights))
        };
        if let (Self::First, Some((number, (samples, quota)))) =
            (self, parts().enumerate().find(|(_, (samples, quota))| samples < quota))
        {
            let why = format!(
                "find the length of an epoch: dataset number {number} has {samples} samples, {quota} of {ROUND} are its share"
            );
            return Err(Error::invalid_config(why).with_hint("give `epoch_samples` as a number, or `all`"));
        }
        let rounds = match self {
            Self::First => parts().map(|(samples, quota)| samples / quota).min(),
            Self::All => parts().map(|(samples, quota)| samples.div_ceil(quota)).max(),
        };
        rounds.unwrap_or(0).checked_mul(ROUND).ok_or_else(|| {
            Error::invalid_config("find the length of an epoch: it has more than 2^64 samples")
                .with_hint("give `epoch_samples`, or the smaller weights more")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{counts, order, parts};
    use super::*;
    use crate::plan::Sampler;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn p029_an_epoch_stops_before_a_sample_comes_twice_or_after_every_one_came(
            of in proptest::collection::vec((1024u64..3000, 0.05f64..1.0), 1..5), seed: u64, epoch in 0u64..9,
        ) {
            let counted = |stop: Stop| {
                let samples = stop.epoch_samples(&parts(&of)).unwrap();
                let plan = Sampler::mixed(&parts(&of), samples, seed).unwrap().plan(epoch);
                counts(&of, &order(&plan))
            };
            prop_assert!(counted(Stop::First).iter().flatten().all(|count| *count <= 1));
            prop_assert!(counted(Stop::All).iter().flatten().all(|count| *count >= 1));
            // No longer than needed: a round less and some dataset is not through, a round more and one begins again.
            let quotas = quotas(&of.iter().map(|(_, weight)| *weight).collect::<Vec<_>>());
            let all = Stop::All.epoch_samples(&parts(&of)).unwrap() / ROUND;
            prop_assert!(of.iter().zip(&quotas).any(|((len, _), quota)| (all - 1) * quota < *len));
            let first = Stop::First.epoch_samples(&parts(&of)).unwrap() / ROUND + 1;
            prop_assert!(of.iter().zip(&quotas).any(|((len, _), quota)| first * quota > *len));
        }
    }

    #[test]
    fn an_epoch_is_not_empty_and_a_dataset_smaller_than_its_share_is_named() {
        let of = [(3000, 1.0), (100, 1.0)];
        let error = Stop::First.epoch_samples(&parts(&of)).unwrap_err();
        assert!(error.message().contains("number 1 has 100 samples, 512 of 1024"), "{error}");
        assert_eq!(Stop::All.epoch_samples(&parts(&of)).unwrap(), 6 * ROUND);
        assert!(Stop::All.epoch_samples(&parts(&[(1 << 63, 1e-9), (5, 1.0)])).is_err());
        assert!(Stop::First.epoch_samples(&[]).is_err());
    }
}
