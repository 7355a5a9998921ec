//! What users say of a mix beside its datasets, and what only the datasets give numbers to.

use super::LoaderConfig;
use crate::source::Dataset;
use forebay_core::plan::mix::schedule::MixChange;
use forebay_core::plan::mix::stop::Stop;
use forebay_core::{Error, Result};
use serde::{Deserialize, Serialize};

/// Length of an epoch, as users say it: a number, or what ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum EpochSamples {
    /// So many samples.
    Count(u64),
    /// As many as the datasets of a mix decide.
    Stop(Stop),
}

impl EpochSamples {
    /// The number, when it is one.
    pub fn count(self) -> Option<u64> {
        match self {
            Self::Count(count) => Some(count),
            Self::Stop(_) => None,
        }
    }
}

impl LoaderConfig {
    /// The same settings for the mix that a dataset is, or is not: with its parts, an epoch of this length, and changes
    /// that give each part a weight, or each of the datasets that it was made of.
    pub fn mixing(
        self,
        dataset: &Dataset,
        epoch_samples: Option<EpochSamples>,
        changes: &[MixChange],
    ) -> Result<Self> {
        let mix = dataset.mix().map(<[_]>::to_vec);
        let epoch_samples = match (epoch_samples, &mix) {
            (None, _) => None,
            (Some(EpochSamples::Count(count)), _) => Some(count),
            (Some(EpochSamples::Stop(_)), None) => {
                return Err(Error::invalid_config("epoch_samples is a word, but this is one dataset")
                    .with_hint("leave `epoch_samples` out: every sample comes once"));
            }
            (Some(EpochSamples::Stop(_)), Some(_)) if !changes.is_empty() => {
                let why = "epoch_samples is a word, but weights change, and with them what a dataset lasts";
                return Err(Error::invalid_config(why).with_hint("give `epoch_samples` as a number"));
            }
            (Some(EpochSamples::Stop(stop)), Some(parts)) => Some(stop.epoch_samples(parts)?),
        };
        let spread = |change: &MixChange| MixChange {
            weights: dataset.mix_weights(&change.weights),
            ..change.clone()
        };
        Ok(Self { mix, epoch_samples, mix_changes: changes.iter().map(spread).collect(), ..self })
    }
}
