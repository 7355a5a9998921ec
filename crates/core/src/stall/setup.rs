//! What is known of a run: the dataset, the consumers, the cores, the store and what lies between.

use crate::{Error, Result};

/// A run by its parts. `f64::INFINITY` means that a part never limits; everything else is finite and not negative.
///
/// Nodes are alike. What is said of a node holds for each of them, the store is shared by all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setup {
    /// Samples of one epoch, over all nodes.
    pub samples: u64,
    /// Mean bytes of one sample's payload.
    pub sample_bytes: f64,
    /// Samples a second that all consumers together take when data is free.
    pub ingest_rate: f64,
    /// Machines that train.
    pub nodes: u64,
    /// Cores of a node that prepare. Prep is taken to grow in proportion to them.
    pub cores: f64,
    /// Samples a second that one core prepares when every payload is resident; infinite when nothing is to be done.
    pub prep_rate_per_core: f64,
    /// Bytes a second that the store gives to all nodes together.
    pub store_bytes_per_second: f64,
    /// Requests a second that the store answers for all nodes together; infinite when it never limits.
    pub store_requests_per_second: f64,
    /// Bytes of one request. Smaller than a sample: it takes several; larger: neighbours come together.
    pub request_bytes: f64,
    /// Seconds from a request to the first byte of its answer on an idle link.
    pub round_trip_seconds: f64,
    /// Requests that a node has in flight.
    pub window_requests: f64,
    /// Bytes a second into a node.
    pub link_bytes_per_second: f64,
    /// Bytes of payloads that a node keeps, never evicted.
    pub cache_bytes: f64,
    /// Bytes a second that a node's own cache is read with; infinite for memory.
    pub cache_bytes_per_second: f64,
    /// Whether nodes keep different samples for each other. Otherwise each keeps for itself.
    pub peers: bool,
}

impl Setup {
    /// A run on one node that nothing limits but its consumers: change the fields that do.
    pub fn unlimited(samples: u64, sample_bytes: f64, ingest_rate: f64) -> Self {
        Self {
            samples,
            sample_bytes,
            ingest_rate,
            nodes: 1,
            cores: 1.0,
            prep_rate_per_core: f64::INFINITY,
            store_bytes_per_second: f64::INFINITY,
            store_requests_per_second: f64::INFINITY,
            request_bytes: sample_bytes,
            round_trip_seconds: 0.0,
            window_requests: 1.0,
            link_bytes_per_second: f64::INFINITY,
            cache_bytes: 0.0,
            cache_bytes_per_second: f64::INFINITY,
            peers: false,
        }
    }

    /// All faults at once.
    pub fn check(&self) -> Result<()> {
        let mut faults = Vec::new();
        let mut count = |name: &str, value: u64| {
            if value == 0 {
                faults.push(format!("{name} is 0"));
            }
        };
        count("samples", self.samples);
        count("nodes", self.nodes);
        for (name, value) in [
            ("sample_bytes", self.sample_bytes),
            ("ingest_rate", self.ingest_rate),
            ("cores", self.cores),
            ("request_bytes", self.request_bytes),
            ("window_requests", self.window_requests),
        ] {
            if !(value.is_finite() && value > 0.0) {
                faults.push(format!("{name} is {value}, not a number above 0"));
            }
        }
        for (name, value) in [
            ("prep_rate_per_core", self.prep_rate_per_core),
            ("store_bytes_per_second", self.store_bytes_per_second),
            ("store_requests_per_second", self.store_requests_per_second),
            ("link_bytes_per_second", self.link_bytes_per_second),
            ("cache_bytes_per_second", self.cache_bytes_per_second),
        ] {
            if value.is_nan() || value <= 0.0 {
                faults.push(format!("{name} is {value}, not above 0"));
            }
        }
        for (name, value) in
            [("round_trip_seconds", self.round_trip_seconds), ("cache_bytes", self.cache_bytes)]
        {
            if !(value.is_finite() && value >= 0.0) {
                faults.push(format!("{name} is {value}, not a number of at least 0"));
            }
        }
        if faults.is_empty() {
            return Ok(());
        }
        Err(Error::invalid_config(format!("predict a run: {}", faults.join("; "))))
    }

    /// Bytes of the whole dataset.
    pub fn dataset_bytes(&self) -> f64 {
        self.samples as f64 * self.sample_bytes
    }

    /// Samples a second that all nodes prepare when every payload is resident.
    pub fn prep_rate(&self) -> f64 {
        self.prep_rate_per_core * self.cores * self.nodes as f64
    }

    /// The share of samples that are resident somewhere from the second epoch on: no more, no less, because nothing
    /// is evicted.
    pub fn hit_fraction(&self) -> f64 {
        let keepers = if self.peers { self.nodes as f64 } else { 1.0 };
        (self.cache_bytes * keepers / self.dataset_bytes()).min(1.0)
    }
}
