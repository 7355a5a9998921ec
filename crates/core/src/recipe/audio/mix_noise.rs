//! `mix_noise`: which recordings are mixed in, and how loud.
//!
//! A recipe says how the dataset of recordings is opened and which version of it is meant; it holds none of them. How it
//! is opened is the `engine` crate's to read, what is done with the recordings the `ops` crate's.

use super::{Fault, decibels, one, probability};
use crate::recipe::Interval;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Most bytes of recordings that a recipe may ask for.
const MAX_BYTES: u64 = 1 << 40;

/// Mixes a part of a recording out of another dataset into the waveform.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MixNoise {
    /// Version of the dataset of recordings.
    pub version: String,
    /// Decibels of the signal above the noise, drawn uniformly.
    pub snr: Interval,
    /// Probability.
    #[serde(default = "one")]
    pub p: f64,
    /// Field of the recordings. Alternatives are separated by `;`.
    #[serde(default = "wav")]
    pub field: String,
    /// All recordings are kept in memory as they are stored; more bytes than these are refused.
    #[serde(default = "max_bytes")]
    pub max_bytes: u64,
    /// How the dataset is opened.
    pub data: Map<String, Value>,
}

impl MixNoise {
    pub(super) fn faults(&self) -> Vec<Fault> {
        let mut faults: Vec<Fault> = Vec::new();
        faults.extend(decibels("snr", self.snr));
        faults.extend(probability(self.p));
        if self.version.trim().is_empty() {
            faults.push(("version", "it is empty: `forebay info` says the version of a dataset".to_owned()));
        }
        if self.field.split(';').any(|name| name.trim().is_empty()) {
            faults.push(("field", "it has an empty name".to_owned()));
        }
        if !(1..=MAX_BYTES).contains(&self.max_bytes) {
            faults.push(("max_bytes", format!("{} is not in 1..={MAX_BYTES}", self.max_bytes)));
        }
        faults
    }

    /// The same recordings are the same wherever they lie, and however much memory they may take.
    pub(super) fn spell_out(&mut self) {
        self.data.clear();
        self.max_bytes = max_bytes();
    }
}

fn wav() -> String {
    "wav".to_owned()
}
fn max_bytes() -> u64 {
    256 << 20
}
