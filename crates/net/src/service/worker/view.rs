//! What a worker shows of itself, as plain data.

use super::Worker;
use crate::service::Address;
use forebay_core::staging::{Accounts, JobView, Late};
use serde::{Deserialize, Serialize};
use std::sync::atomic::Ordering;

/// A worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerView {
    /// Where it listens.
    pub address: String,
    /// Whether it takes no more requests.
    pub draining: bool,
    /// Clients that are connected.
    pub connections: u64,
    /// Bytes of batches that it sent or handed over.
    pub bytes_sent: u64,
    /// Its feeds.
    pub feeds: Vec<FeedView>,
}

/// A feed of a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FeedView {
    /// Its id.
    pub feed: String,
    /// Version of its dataset.
    pub label: String,
    /// What happens to batches that a job is late to take.
    pub late: Late,
    /// Positions of every epoch.
    pub epoch_samples: u64,
    /// Most bytes of one batch of the usual size.
    pub batch_bytes: u64,
    /// Bytes that its staging may hold.
    pub limit_bytes: u64,
    /// What was made, given, dropped, and is held.
    pub staging: Accounts,
    /// Jobs that read it here.
    pub jobs: Vec<JobView>,
}

impl WorkerView {
    /// A number of all feeds together.
    pub fn sum(&self, of: impl Fn(&Accounts) -> u64) -> u64 {
        self.feeds.iter().map(|feed| of(&feed.staging)).sum()
    }
}

pub(super) fn view(worker: &Worker, address: &Address) -> WorkerView {
    WorkerView {
        address: address.to_string(),
        draining: worker.is_draining(),
        connections: worker.connections.count() as u64,
        bytes_sent: worker.bytes_sent.load(Ordering::Relaxed),
        feeds: worker.feeds.views(),
    }
}
