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
//! `docs/concepts/stalls.md` has the formulas and says where they end: rates are means, so jitter on queues that run
//! empty is not in them, nor the wait for the very first batch. No clock and no measuring here.

mod fetch;
mod predict;
mod remedy;
mod setup;
#[cfg(test)]
mod tests;

pub use fetch::{FetchLimit, cache_needed};
pub use predict::{Bottleneck, Epoch, Prediction, predict};
pub use remedy::{Change, Remedy, remedies};
pub use setup::Setup;
