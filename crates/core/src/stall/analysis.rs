//! From three measured rates to what holds a run back, what would help, and what would be if.
//!
//! A measured fetch rate stands for whatever the store, the link and the window gave together. It becomes the model's
//! store bandwidth, unless requests in flight over the round trip explain it: then the window is the limit, and how much
//! more the store could give is not known.

use super::{FetchLimit, Prediction, Rate, Remedy, Setup, cache_needed, predict, remedies};
use crate::size::parse_bytes;
use crate::{Error, Result};
use serde::Serialize;

/// A window that explains this share of what was measured is the limit.
const WINDOW_SHARE: f64 = 0.8;

/// More samples a second than any loop takes: one that does nothing.
pub const IDLE_RATE: f64 = 1e12;

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rates {
    /// Samples a second that the loop takes when data is free.
    pub ingest: Rate,
    /// Samples a second that are prepared when every payload is resident.
    pub prep: Rate,
    /// Samples a second that are fetched when nothing is resident; `None` when the recipe reads no payload.
    pub fetch: Option<Rate>,
}

/// What is known of a run beside its rates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct RunFacts {
    /// Samples of one epoch, of this rank.
    pub samples: u64,
    /// Mean bytes of the payloads that the recipe reads of a sample.
    pub sample_bytes: f64,
    /// Samples in a batch.
    pub batch_size: u64,
    /// Preparing threads.
    pub threads: u64,
    /// Bytes that a cache keeps.
    pub cache_bytes: f64,
    /// Bytes of one request, as they were sent.
    pub request_bytes: f64,
    /// Requests that may be in flight; 0 when that is not known to limit anything.
    pub window_requests: f64,
    /// Time of a request when nothing of ours queues on the link; 0 while unknown and on this machine.
    pub round_trip_seconds: f64,
}

/// A run as measured, explained and improved.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Analysis {
    /// What was measured.
    pub rates: Rates,
    /// What else is known.
    pub facts: RunFacts,
    /// What follows from it.
    pub prediction: Prediction,
    /// Bytes of cache from which fetching is no longer the bottleneck; `None` when no cache achieves it.
    pub cache_needed_bytes: Option<f64>,
    /// What would help, the best first.
    pub remedies: Vec<Remedy>,
    /// What would be if.
    pub what_if: Option<WhatIf>,
}

/// The same run with something changed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WhatIf {
    /// What was changed, as it was asked for.
    pub change: String,
    /// What follows from it.
    pub prediction: Prediction,
}

/// Explains a run. `what_if` is `cache=..,cores=..,bandwidth=..,rtt=..,step=..` in any choice, each a value or `x2`.
pub fn analyze(rates: Rates, facts: RunFacts, what_if: Option<&str>) -> Result<Analysis> {
    let setup = setup(&rates, &facts);
    let what_if = match what_if {
        Some(change) => {
            let prediction = predict(&changed(&setup, &facts, change)?)?;
            Some(WhatIf { change: change.to_owned(), prediction })
        }
        None => None,
    };
    Ok(Analysis {
        rates,
        facts,
        prediction: predict(&setup)?,
        cache_needed_bytes: cache_needed(&setup).map(f64::ceil),
        remedies: remedies(&setup)?,
        what_if,
    })
}

impl Analysis {
    /// What holds fetching back in the first epoch, which finds nothing resident.
    pub fn fetch_limit(&self) -> FetchLimit {
        self.prediction.first.fetch_limit
    }
}

/// The model's view of what was measured.
fn setup(rates: &Rates, facts: &RunFacts) -> Setup {
    let bytes = facts.sample_bytes.max(1.0);
    let cores = facts.threads.max(1) as f64;
    let given = rates.fetch.map_or(f64::INFINITY, |fetch| fetch.per_second * bytes);
    let request = if facts.request_bytes > 0.0 { facts.request_bytes } else { bytes };
    let (window, round_trip) = (facts.window_requests.max(1.0), facts.round_trip_seconds);
    let is_far = facts.window_requests > 0.0 && round_trip > 0.0;
    let is_window = is_far && given >= WINDOW_SHARE * window * request / round_trip;
    Setup {
        cores,
        prep_rate_per_core: rates.prep.per_second / cores,
        store_bytes_per_second: if is_window { f64::INFINITY } else { given },
        request_bytes: request,
        // What was measured is what the window gave, whatever the round trip was thought to be.
        round_trip_seconds: if is_window { window * request / given } else { round_trip },
        // A window that was not the limit is not made one by rounding: it follows the link.
        window_requests: if is_window {
            window
        } else {
            window.max(2.0 * given.min(1e15) * round_trip / request + 1e6)
        },
        cache_bytes: facts.cache_bytes,
        ..Setup::unlimited(facts.samples.max(1), bytes, rates.ingest.per_second)
    }
}

fn changed(setup: &Setup, facts: &RunFacts, text: &str) -> Result<Setup> {
    let mut changed = *setup;
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let bad = |why: &str| {
            Error::invalid_config(format!("read `{part}` of what-if: {why}")).with_hint(
                "known are cache=64GiB or 50%, cores=8, bandwidth=2GB, rtt=0.03 and step=0.1, each also as x2",
            )
        };
        let (name, value) = part.split_once('=').ok_or_else(|| bad("it has no value"))?;
        let factor = value
            .strip_prefix('x')
            .map(|factor| positive(factor).ok_or_else(|| bad("the factor is no number above 0")));
        let factor = factor.transpose()?;
        let number = |now: f64| match factor {
            Some(factor) => Ok(now * factor),
            None => positive(value).ok_or_else(|| bad("it is no number above 0")),
        };
        match name.trim() {
            "cache" => {
                changed.cache_bytes = match (factor, value.strip_suffix('%')) {
                    (Some(factor), _) => setup.cache_bytes * factor,
                    (None, Some(percent)) => {
                        let percent: f64 = percent.parse().map_err(|_| bad("it is no share"))?;
                        if !(0.0..=100.0).contains(&percent) {
                            return Err(bad("a share lies between 0% and 100%"));
                        }
                        percent / 100.0 * setup.dataset_bytes()
                    }
                    (None, None) => parse_bytes(value)? as f64,
                }
            }
            "cores" => changed.cores = number(setup.cores)?,
            "bandwidth" => {
                changed.store_bytes_per_second = match factor {
                    Some(factor) => setup.store_bytes_per_second * factor,
                    None => (parse_bytes(value)? as f64).max(1.0),
                }
            }
            "rtt" => {
                changed.round_trip_seconds = number(setup.round_trip_seconds)?;
                // The window as it was allowed, which is now what matters.
                changed.window_requests =
                    if facts.window_requests > 0.0 { facts.window_requests } else { setup.window_requests };
            }
            "step" => {
                let batch = facts.batch_size.max(1) as f64;
                changed.ingest_rate = batch / number(batch / setup.ingest_rate)?;
            }
            _ => return Err(bad("there is no such part")),
        }
    }
    Ok(changed)
}

fn positive(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0)
}
