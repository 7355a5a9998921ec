//! The fetch rate: resources, what one sample loads each with, and how much cache takes the load away.

use super::Setup;
use serde::Serialize;

/// What holds fetching back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FetchLimit {
    /// Bytes a second of the store.
    StoreBandwidth,
    /// Requests a second of the store.
    StoreRequests,
    /// Too few requests in flight for the round trip.
    Window,
    /// Bytes a second into each node, from the store and from peers.
    NodeLink,
    /// Bytes a second that the cache is read with.
    CacheReads,
    /// Nothing: every payload is at hand.
    Nothing,
}

/// A resource: how much it gives in a second, and what it gives for each sample that is missed and that is hit.
pub(super) struct Resource {
    pub(super) limit: FetchLimit,
    pub(super) per_second: f64,
    per_miss: f64,
    per_hit: f64,
}

impl Resource {
    /// Samples a second when `hits` of all samples are resident.
    fn rate(&self, hits: f64) -> f64 {
        let load = (1.0 - hits) * self.per_miss + hits * self.per_hit;
        if load > 0.0 { self.per_second / load } else { f64::INFINITY }
    }

    /// The smallest share of hits at which it gives `rate`; above 1 when it never does.
    fn hits_for(&self, rate: f64) -> f64 {
        if self.rate(0.0) >= rate {
            return 0.0;
        }
        let relief = self.per_miss - self.per_hit;
        // Resources that hits only load are judged by `rate` at the answer.
        if relief <= 0.0 { f64::INFINITY } else { (self.per_miss - self.per_second / rate) / relief }
    }
}

/// Everything that fetching passes through. Hits and misses overlap, so each resource stands alone.
pub(super) fn resources(setup: &Setup) -> [Resource; 5] {
    let nodes = setup.nodes as f64;
    let bytes = setup.sample_bytes;
    let requests = bytes / setup.request_bytes;
    // Answers of one node share its link, or its part of the store. The bound of a closed loop: no more than
    // `window` requests each time that one takes when nothing of ours queues before it.
    let share = setup.link_bytes_per_second.min(setup.store_bytes_per_second / nodes);
    let request_seconds = setup.round_trip_seconds + setup.request_bytes / share;
    let window_rate =
        if request_seconds > 0.0 { nodes * setup.window_requests / request_seconds } else { f64::INFINITY };
    // A hit that a peer keeps crosses the link like a miss.
    let from_peers = if setup.peers { (nodes - 1.0) / nodes } else { 0.0 };
    let resource = |limit, per_second, per_miss, per_hit| Resource { limit, per_second, per_miss, per_hit };
    [
        resource(FetchLimit::StoreBandwidth, setup.store_bytes_per_second, bytes, 0.0),
        resource(FetchLimit::StoreRequests, setup.store_requests_per_second, requests, 0.0),
        resource(FetchLimit::Window, window_rate, requests, 0.0),
        resource(FetchLimit::NodeLink, nodes * setup.link_bytes_per_second, bytes, from_peers * bytes),
        resource(FetchLimit::CacheReads, nodes * setup.cache_bytes_per_second, 0.0, bytes),
    ]
}

/// Samples a second that fetching gives when `hits` of all samples are resident, and what holds it back.
pub(super) fn fetch_rate(setup: &Setup, hits: f64) -> (f64, FetchLimit) {
    let mut tightest = (f64::INFINITY, FetchLimit::Nothing);
    for resource in resources(setup) {
        let rate = resource.rate(hits);
        if rate < tightest.0 {
            tightest = (rate, resource.limit);
        }
    }
    tightest
}

/// Bytes of cache on each node from which fetching is no longer the bottleneck. `None` when no cache achieves it.
pub fn cache_needed(setup: &Setup) -> Option<f64> {
    let wanted = setup.ingest_rate.min(setup.prep_rate());
    let from_store = resources(setup).into_iter().filter(|resource| resource.limit != FetchLimit::CacheReads);
    let hits = from_store.map(|resource| resource.hits_for(wanted)).fold(0.0, f64::max);
    // What rounding of the last digit loses is not a want of cache.
    if hits > 1.0 || fetch_rate(setup, hits).0 < wanted * (1.0 - 1e-9) {
        return None;
    }
    let keepers = if setup.peers { setup.nodes as f64 } else { 1.0 };
    Some(hits * setup.dataset_bytes() / keepers)
}
