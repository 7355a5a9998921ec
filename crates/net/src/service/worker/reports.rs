//! What a worker tells its dispatcher, and what it is told.
//!
//! [`Reports`] is the dispatcher as a worker sees it. A dispatcher that is away holds nothing up: batches are made and
//! given as before, and the worker registers again as soon as it answers.

use super::Worker;
use super::view;
use crate::service::Address;
use forebay_core::feed::FeedId;
use forebay_core::{ErrorKind, Result};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A dispatcher, as its workers see it. Calls may block for some seconds, not for ever.
pub trait Reports: Send + Sync {
    /// Says that a worker is there, and where clients find it.
    fn register(&self, address: &Address) -> Result<()>;

    /// Says how much it has to do. An error of the kind `stale` or `not_found` asks it to register again.
    fn heartbeat(&self, load: &Load) -> Result<Orders>;

    /// Says that it leaves.
    fn leave(&self);
}

/// How much a worker has to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Batches that are in the making.
    pub queued_batches: u64,
    /// Bytes of staging.
    pub staged_bytes: u64,
    /// Batches that were made so far.
    pub batches_made: u64,
    /// Bytes that were sent so far.
    pub bytes_sent: u64,
}

/// What a dispatcher tells a worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Orders {
    /// Whether it shall take no more requests.
    pub drain: bool,
    /// Jobs that read its feeds, here or elsewhere.
    pub jobs: HashMap<FeedId, Vec<String>>,
}

/// Reports until the worker ends.
pub(super) fn report(worker: &Arc<Worker>, reports: &dyn Reports, address: &Address, every: Duration) {
    let mut registered = false;
    let mut away = false;
    while !worker.is_stopping() {
        let told = if registered {
            beat(worker, reports, address)
        } else {
            reports.register(address).inspect(|()| registered = true)
        };
        worker.heard.store(told.is_ok(), Ordering::Release);
        match told {
            Ok(()) => away = false,
            Err(error) => {
                if matches!(error.kind(), ErrorKind::Stale | ErrorKind::NotFound) {
                    registered = false;
                }
                if !std::mem::replace(&mut away, true) {
                    tracing::warn!(error = %error.report(), "the dispatcher does not answer; work goes on without it");
                }
                worker.pause(every);
                continue;
            }
        }
        if registered && !worker.is_stopping() {
            worker.pause(every);
        }
    }
    if registered {
        reports.leave();
    }
}

fn beat(worker: &Worker, reports: &dyn Reports, address: &Address) -> Result<()> {
    let view = view::view(worker, address);
    let orders = reports.heartbeat(&Load {
        queued_batches: view.sum(|staging| staging.making),
        staged_bytes: view.sum(|staging| staging.held_bytes),
        batches_made: view.sum(|staging| staging.made),
        bytes_sent: view.bytes_sent,
    })?;
    worker.feeds.expect(&orders.jobs);
    if orders.drain {
        worker.start_draining();
    }
    Ok(())
}
