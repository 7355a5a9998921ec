//! Which single change brings most.
//!
//! Each candidate is sized to what it must be for its own part to keep up with the consumers, and is then put through the
//! model with everything else as it is. So a remedy for a part that is not the bottleneck brings nothing and is left
//! out, and the gains of two remedies do not add up: apply the first, then ask again.

use super::fetch::{fetch_rate, resources};
use super::{FetchLimit, Setup, cache_needed, predict};
use crate::Result;
use serde::Serialize;

/// Gains below this share of the rate are within what the model can tell.
const LEAST_GAIN: f64 = 0.01;

/// One thing that is changed, to this value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "change", content = "to", rename_all = "snake_case")]
pub enum Change {
    /// Requests in flight of each node.
    WindowRequests(f64),
    /// Bytes of one request: pack small files into shards, or read more neighbours together.
    RequestBytes(f64),
    /// Nodes keep for each other what they have room for.
    Peers(bool),
    /// Bytes of cache on each node.
    CacheBytes(f64),
    /// Cores that prepare, of each node or of workers elsewhere.
    Cores(f64),
    /// Bytes a second of the store.
    StoreBytesPerSecond(f64),
    /// Bytes a second into each node.
    LinkBytesPerSecond(f64),
}

impl Change {
    /// The setup with this change.
    #[must_use]
    pub fn on(self, setup: &Setup) -> Setup {
        let mut changed = *setup;
        match self {
            Self::WindowRequests(requests) => changed.window_requests = requests,
            Self::RequestBytes(bytes) => changed.request_bytes = bytes,
            Self::Peers(peers) => changed.peers = peers,
            Self::CacheBytes(bytes) => changed.cache_bytes = bytes,
            Self::Cores(cores) => changed.cores = cores,
            Self::StoreBytesPerSecond(rate) => changed.store_bytes_per_second = rate,
            Self::LinkBytesPerSecond(rate) => changed.link_bytes_per_second = rate,
        }
        changed
    }
}

/// A change and what it brings from the second epoch on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Remedy {
    /// What to change.
    #[serde(flatten)]
    pub change: Change,
    /// Samples a second with it.
    pub rate: f64,
    /// Seconds of an epoch with it.
    pub epoch_seconds: f64,
    /// How much faster the run goes: 0.5 is half as fast again.
    pub gain: f64,
}

/// Single changes that make the run faster, the one that brings most first. Equal gains keep the order of [`Change`]:
/// settings before memory, memory before machines. Empty when the consumers are the bottleneck.
pub fn remedies(setup: &Setup) -> Result<Vec<Remedy>> {
    let now = predict(setup)?.later;
    let mut found = Vec::new();
    for change in candidates(setup) {
        let then = predict(&change.on(setup))?.later;
        let gain = then.rate / now.rate - 1.0;
        if gain >= LEAST_GAIN {
            found.push(Remedy { change, rate: then.rate, epoch_seconds: then.seconds, gain });
        }
    }
    found.sort_by(|a, b| b.gain.total_cmp(&a.gain));
    Ok(found)
}

fn candidates(setup: &Setup) -> Vec<Change> {
    let hits = setup.hit_fraction();
    let nodes = setup.nodes as f64;
    let wanted = setup.ingest_rate;
    let missed_bytes = wanted * (1.0 - hits) * setup.sample_bytes;
    let limit = fetch_rate(setup, hits).1;
    let mut changes = Vec::new();
    if limit == FetchLimit::Window {
        // So many that their round trips cover what the consumers take; the loop's bound, solved for the window.
        let short = resources(setup)
            .into_iter()
            .find(|resource| resource.limit == FetchLimit::Window)
            .map_or(1.0, |window| missed_bytes / setup.request_bytes / window.per_second);
        changes.push(Change::WindowRequests((setup.window_requests * short).ceil()));
    }
    if matches!(limit, FetchLimit::Window | FetchLimit::StoreRequests) {
        let per_second = match limit {
            FetchLimit::StoreRequests => setup.store_requests_per_second,
            _ => nodes * setup.window_requests / setup.round_trip_seconds.max(f64::MIN_POSITIVE),
        };
        // Twice what would do if transfers took no time: they do.
        let bytes = (2.0 * missed_bytes / per_second).ceil();
        if bytes.is_finite() && bytes > setup.request_bytes {
            changes.push(Change::RequestBytes(bytes));
        }
    }
    if !setup.peers && setup.nodes > 1 && setup.cache_bytes > 0.0 {
        changes.push(Change::Peers(true));
    }
    // All of the dataset helps even where it is not enough to make fetching disappear.
    let keepers = if setup.peers { nodes } else { 1.0 };
    let cache = cache_needed(setup).unwrap_or(setup.dataset_bytes() / keepers);
    if cache > setup.cache_bytes {
        changes.push(Change::CacheBytes(cache.ceil()));
    }
    let cores = wanted / (setup.prep_rate_per_core * nodes);
    if cores > setup.cores {
        changes.push(Change::Cores(cores.ceil()));
    }
    if missed_bytes > setup.store_bytes_per_second {
        changes.push(Change::StoreBytesPerSecond(missed_bytes.ceil()));
    }
    let crossing = if setup.peers { 1.0 - hits / nodes } else { 1.0 - hits };
    let link = wanted * setup.sample_bytes * crossing / nodes;
    if link > setup.link_bytes_per_second {
        changes.push(Change::LinkBytesPerSecond(link.ceil()));
    }
    changes
}
