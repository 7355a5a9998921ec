//! From the parts of a run to its speed and its stall.

use super::fetch::fetch_rate;
use super::{FetchLimit, Setup};
use crate::Result;
use serde::Serialize;

/// The smallest of the three rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bottleneck {
    /// The consumer itself: the run cannot go faster, and nothing stalls.
    Ingest,
    /// Decoding, augmenting, collating.
    Prep,
    /// Bringing payloads.
    Fetch,
}

/// One epoch as predicted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Epoch {
    /// Share of samples that were resident.
    pub hit_fraction: f64,
    /// Samples a second that fetching gives alone; infinite when every payload is at hand.
    pub fetch_rate: f64,
    /// What holds fetching back.
    pub fetch_limit: FetchLimit,
    /// Samples a second of the run.
    pub rate: f64,
    /// The smallest of the three rates; a tie goes to the consumer, then to prep.
    pub bottleneck: Bottleneck,
    /// Time of the epoch: step and stall.
    pub seconds: f64,
    /// Time the consumers work.
    pub step_seconds: f64,
    /// Part of the stall that would vanish if every payload were resident.
    pub fetch_stall_seconds: f64,
    /// Part of the stall that remains when every payload is resident.
    pub prep_stall_seconds: f64,
}

impl Epoch {
    /// Time the consumers wait.
    pub fn stall_seconds(&self) -> f64 {
        self.fetch_stall_seconds + self.prep_stall_seconds
    }

    /// The stall as a share of the epoch.
    pub fn stall_fraction(&self) -> f64 {
        self.stall_seconds() / self.seconds
    }
}

/// A run as predicted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// Samples a second that the consumers take when data is free.
    pub ingest_rate: f64,
    /// Samples a second that all cores prepare when every payload is resident.
    pub prep_rate: f64,
    /// The first epoch, which finds an empty cache.
    pub first: Epoch,
    /// Every epoch after it.
    pub later: Epoch,
}

impl Prediction {
    /// Time of a run of so many epochs.
    pub fn seconds(&self, epochs: u64) -> f64 {
        if epochs == 0 { 0.0 } else { self.first.seconds + (epochs - 1) as f64 * self.later.seconds }
    }
}

/// What a run would do. Fails when the setup makes no sense.
pub fn predict(setup: &Setup) -> Result<Prediction> {
    setup.check()?;
    Ok(Prediction {
        ingest_rate: setup.ingest_rate,
        prep_rate: setup.prep_rate(),
        first: epoch(setup, 0.0),
        later: epoch(setup, setup.hit_fraction()),
    })
}

fn epoch(setup: &Setup, hit_fraction: f64) -> Epoch {
    let (fetch_rate, fetch_limit) = fetch_rate(setup, hit_fraction);
    let resident_rate = setup.ingest_rate.min(setup.prep_rate());
    let rate = resident_rate.min(fetch_rate);
    let bottleneck = if rate >= setup.ingest_rate {
        Bottleneck::Ingest
    } else if rate >= resident_rate {
        Bottleneck::Prep
    } else {
        Bottleneck::Fetch
    };
    let seconds_at = |rate: f64| setup.samples as f64 / rate;
    let step_seconds = seconds_at(setup.ingest_rate);
    Epoch {
        hit_fraction,
        fetch_rate,
        fetch_limit,
        rate,
        bottleneck,
        seconds: seconds_at(rate),
        step_seconds,
        fetch_stall_seconds: seconds_at(rate) - seconds_at(resident_rate),
        prep_stall_seconds: seconds_at(resident_rate) - step_seconds,
    }
}
