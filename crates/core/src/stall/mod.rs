//! How fast a training run goes and why it waits: a model of rates, asked by planners and analyzers alike.
//!
//! Three rates in samples a second meet: *ingest* (what the consumers take when data is free), *prep* (what the cores
//! prepare when every payload is resident) and *fetch* (what stores, links and caches bring). The stages overlap, so
//! the run goes at the smallest of them ([`predict`]). The stall is what the consumer waits beyond its own time, and
//! splits without a rest: prep stall is what remains when every payload is resident, fetch stall is what that removes.
//!
//! Fetching is a set of resources that each sample loads by a share: the store's bandwidth and requests, requests in
//! flight over a round trip, each node's link, the cache's reads. The tightest decides ([`FetchLimit`]). A cache that
//! never evicts has exactly its fraction of hits from the second epoch on. [`cache_needed`] inverts the formula,
//! [`remedies`] tries single changes and sorts them by what they bring.
//!
//! What a running loop waits is split by the same definitions: [`ResidentRun`] replays it with every payload resident, and
//! a [`Ledger`] keeps the parts of every step and epoch.
//!
//! Ranks of a job tell each other their [`Pace`], and [`judge`] names the one that makes the others wait.
//!
//! Whether steps differ because batches do says [`StepByLength`].
//!
//! [`analyze`] goes from measured rates to bottleneck, remedies and what would be if.
//!
//! `docs/concepts/stalls.md` has the formulas and says where they end: rates are means, so jitter on queues that run
//! empty is not in them, nor the wait for the very first batch. No clock and no measuring here.

mod analysis;
#[cfg(test)]
mod analysis_tests;
mod fetch;
mod histogram;
mod ledger;
mod length;
mod pace;
mod predict;
mod rate;
mod remedy;
mod resident;
mod setup;
#[cfg(test)]
mod split_tests;
mod straggler;
#[cfg(test)]
mod straggler_tests;
#[cfg(test)]
mod tests;

pub use analysis::{Analysis, IDLE_RATE, Rates, RunFacts, WhatIf, analyze};
pub use fetch::{FetchLimit, cache_needed};
pub use histogram::{CLASSES, Histogram, class_of};
pub use ledger::{KEPT_EPOCHS, KEPT_STEPS, Ledger, MAX_PHASES, Phase, Split, Times, Took};
pub use length::StepByLength;
pub use pace::{
    Evidence, OthersWatch, PACE_STEPS, Pace, TOLD_STEPS, ToldStep, told_steps, waited_for_others,
};
pub use predict::{Bottleneck, Epoch, Prediction, predict};
pub use rate::Rate;
pub use remedy::{Change, Remedy, remedies};
pub use resident::{Making, ResidentRun, StallSplit};
pub use setup::Setup;
pub use straggler::{LEAST_STEPS, Stage, Straggler, Verdict, judge};
