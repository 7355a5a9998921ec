//! What a worker shows of itself, as plain data.

use super::{Running, Worker};
use crate::Credentials;
use crate::service::message::{ToClient, ToWorker};
use crate::service::{Address, connect};
use forebay_core::staging::{Accounts, JobView, Late};
use forebay_core::{Error, Result};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
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

/// Asks a worker, or the process of a host, what it has.
pub fn show(address: &Address, credentials: &Credentials) -> Result<WorkerView> {
    let (mut sending, mut receiving) = connect(address, credentials)?;
    sending.send(&ToWorker::Show)?;
    let strange = || Error::corrupt(format!("ask `{address}` what it has: its answer makes no sense"));
    match receiving.receive::<ToClient>()? {
        Some(ToClient::Shown { view }) => {
            serde_json::from_str(&view).map_err(|cause| strange().with_source(cause))
        }
        Some(ToClient::Refused { fault }) => Err(fault.into()),
        Some(_) => Err(strange()),
        None => Err(Error::unavailable(format!("ask `{address}` what it has: it ended the connection"))),
    }
}

impl Running {
    /// What it has, for as long as it runs.
    pub fn views(&self) -> impl Fn() -> Result<WorkerView> + Send + use<> {
        let (worker, address) = (Arc::downgrade(&self.worker), self.address.clone());
        move || {
            let worker = worker.upgrade();
            let worker =
                worker.ok_or_else(|| Error::unavailable(format!("look at `{address}`: it was stopped")))?;
            Ok(view(&worker, &address))
        }
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
