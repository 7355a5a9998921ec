//! A real dispatcher as a worker's [`Reports`].

use super::reports::{Load, Orders, Reports};
use crate::dispatcher::Control;
use crate::handshake::random;
use crate::server::lock;
use crate::service::Address;
use forebay_core::dispatcher::{self, Command, Reply, WorkerId};
use forebay_core::{Error, Result};
use std::sync::Mutex;
use std::time::Duration;

/// How long one call waits for a dispatcher that is away; the next one tries again.
const WAIT: Duration = Duration::from_secs(3);

/// Reports to a dispatcher.
pub struct DispatcherReports {
    control: Control,
    worker: WorkerId,
    advertise: Option<String>,
    slots: u32,
    tags: Vec<String>,
    /// What the dispatcher gave us when we registered.
    incarnation: Mutex<u64>,
}

impl DispatcherReports {
    /// A worker of a random id. Clients find it at `advertise`, or where it listens; port 0 of `advertise` is the one
    /// at which it listens.
    pub fn new(control: Control, advertise: Option<String>, slots: usize) -> Result<Self> {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&random()?[..8]);
        let slots = u32::try_from(slots.max(1)).unwrap_or(u32::MAX);
        // Zero is the worker in a training process.
        let worker = WorkerId(u64::from_le_bytes(bytes).max(1));
        Ok(Self { control, worker, advertise, slots, tags: Vec::new(), incarnation: Mutex::default() })
    }

    /// The same with tags, by which jobs choose their workers.
    #[must_use]
    pub fn with_tags(self, tags: Vec<String>) -> Self {
        Self { tags, ..self }
    }

    /// Its id.
    pub fn worker(&self) -> WorkerId {
        self.worker
    }
}

/// What clients are told of a worker that listens at `bound`.
fn advertised(advertise: Option<&str>, bound: &str) -> String {
    let Some(advertise) = advertise else { return bound.to_owned() };
    match (advertise.strip_suffix(":0"), bound.rsplit_once(':')) {
        (Some(host), Some((_, port))) => format!("{host}:{port}"),
        _ => advertise.to_owned(),
    }
}

fn unexpected(reply: &Reply) -> Error {
    Error::internal(format!("report to the dispatcher: it answered {reply:?}"))
}

impl Reports for DispatcherReports {
    fn register(&self, address: &Address) -> Result<()> {
        let address = advertised(self.advertise.as_deref(), &address.to_string());
        let (worker, tags, slots) = (self.worker, self.tags.clone(), self.slots);
        let command = Command::RegisterWorker { worker, address, tags, slots };
        match self.control.call(&command, WAIT)? {
            Reply::Registered { incarnation, .. } => {
                *lock(&self.incarnation) = incarnation;
                Ok(())
            }
            other => Err(unexpected(&other)),
        }
    }

    fn heartbeat(&self, load: &Load) -> Result<Orders> {
        let load = dispatcher::Load {
            queued_batches: load.queued_batches,
            staged_bytes: load.staged_bytes,
            made_batches: load.batches_made,
            sent_bytes: load.bytes_sent,
        };
        let incarnation = *lock(&self.incarnation);
        match self.control.call(&Command::Heartbeat { worker: self.worker, incarnation, load }, WAIT)? {
            Reply::Heartbeat(reply) => {
                let names =
                    |jobs: Vec<(dispatcher::JobName, _)>| jobs.into_iter().map(|(job, _)| job.to_string());
                let jobs = reply.feeds.into_iter().map(|feed| (feed.feed, names(feed.jobs).collect()));
                Ok(Orders { drain: reply.drain, jobs: jobs.collect() })
            }
            other => Err(unexpected(&other)),
        }
    }

    fn leave(&self) {
        let incarnation = *lock(&self.incarnation);
        let command = Command::RemoveWorker { worker: self.worker, incarnation };
        // It will notice by itself when it cannot be told.
        let _ = self.control.call(&command, Duration::from_millis(500));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_0_of_the_advertised_address_is_the_one_that_is_bound() {
        for (advertise, told) in [
            (None, "0.0.0.0:4711"),
            (Some("node-3:0"), "node-3:4711"),
            (Some("[fd00::3]:0"), "[fd00::3]:4711"),
            (Some("node-3:80"), "node-3:80"),
        ] {
            assert_eq!(advertised(advertise, "0.0.0.0:4711"), told);
        }
    }
}
