//! Slabs before another keeper: memory for all processes of the host, and behind it whatever they have, a disk say.

use super::Slabs;
use bytes::Bytes;
use forebay_core::Result;
use forebay_core::cache::{Capacity, PayloadId, Place};
use forebay_engine::cache::{Keeper, KeeperView, Look, Payload, Tier, TierView};
use futures::future::{BoxFuture, FutureExt};
use std::sync::Arc;

/// The memory of a host, with an optional keeper behind it for what belongs on disk.
#[derive(Debug)]
pub struct HostKeeper {
    slabs: Arc<Slabs>,
    behind: Option<Arc<dyn Keeper>>,
}

impl HostKeeper {
    /// `behind` is asked for what is not in memory and takes what belongs on disk. It must not make claims.
    pub fn new(slabs: Arc<Slabs>, behind: Option<Arc<dyn Keeper>>) -> Self {
        Self { slabs, behind }
    }
}

impl Keeper for HostKeeper {
    fn look<'a>(&'a self, payloads: &'a [Payload]) -> BoxFuture<'a, Vec<Look>> {
        async move {
            let here: Vec<Option<Bytes>> = payloads.iter().map(|payload| self.slabs.bytes(payload)).collect();
            let missing = missing(payloads, &here);
            let mut others = match &self.behind {
                Some(behind) if !missing.is_empty() => behind.look(&missing).await,
                _ => Vec::new(),
            }
            .into_iter();
            here.into_iter()
                .map(|here| here.map_or_else(|| others.next().unwrap_or(Look::Absent), Look::Here))
                .collect()
        }
        .boxed()
    }

    fn read<'a>(&'a self, payloads: &'a [Payload]) -> BoxFuture<'a, Vec<Option<(Bytes, Tier)>>> {
        async move {
            let here: Vec<Option<Bytes>> = payloads.iter().map(|payload| self.slabs.bytes(payload)).collect();
            let missing = missing(payloads, &here);
            let mut others = match &self.behind {
                Some(behind) if !missing.is_empty() => behind.read(&missing).await,
                _ => Vec::new(),
            }
            .into_iter();
            here.into_iter()
                .map(|here| here.map_or_else(|| others.next().flatten(), |bytes| Some((bytes, Tier::Memory))))
                .collect()
        }
        .boxed()
    }

    fn keep<'a>(&'a self, payload: Payload, place: Place, bytes: &'a Bytes) -> BoxFuture<'a, ()> {
        async move {
            if place.memory {
                self.slabs.keep(&payload, bytes);
            }
            if let Some(behind) = self.behind.as_ref().filter(|_| place.disk) {
                behind.keep(payload, Place { memory: false, disk: true }, bytes).await;
            }
        }
        .boxed()
    }

    fn admit<'a>(&'a self, payload: Payload, bytes: &'a Bytes) -> BoxFuture<'a, ()> {
        async move {
            if !self.slabs.keep(&payload, bytes)
                && let Some(behind) = &self.behind
            {
                behind.admit(payload, bytes).await;
            }
        }
        .boxed()
    }

    fn give_up(&self, _payload: Payload) {}

    fn held(&self, group: u64) -> BoxFuture<'_, Vec<PayloadId>> {
        async move {
            let mut names = self.slabs.held(group);
            if let Some(behind) = &self.behind {
                names.extend(behind.held(group).await);
                names.sort_unstable();
                names.dedup();
            }
            names
        }
        .boxed()
    }

    fn forget<'a>(&'a self, payloads: &'a [PayloadId]) -> BoxFuture<'a, ()> {
        async move {
            let (slabs, names) = (self.slabs.clone(), payloads.to_vec());
            // It may copy a lot, which is nothing for a thread that drives sockets.
            let _ = tokio::task::spawn_blocking(move || slabs.forget(&names)).await;
            if let Some(behind) = &self.behind {
                behind.forget(payloads).await;
            }
        }
        .boxed()
    }

    fn resize(&self, capacity: Capacity) -> BoxFuture<'_, Result<()>> {
        async move {
            let slabs = self.slabs.clone();
            let _ = tokio::task::spawn_blocking(move || slabs.resize(capacity.memory)).await;
            match &self.behind {
                Some(behind) => behind.resize(Capacity { memory: 0, disk: capacity.disk }).await,
                None => Ok(()),
            }
        }
        .boxed()
    }

    fn view(&self) -> KeeperView {
        let disk = self.behind.as_ref().map_or(TierView::default(), |behind| behind.view().disk);
        KeeperView { memory: self.slabs.view(), disk, ..KeeperView::default() }
    }
}

fn missing(payloads: &[Payload], here: &[Option<Bytes>]) -> Vec<Payload> {
    payloads.iter().zip(here).filter(|(_, here)| here.is_none()).map(|(payload, _)| *payload).collect()
}
