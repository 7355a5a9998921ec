//! A keeper of a disk alone, for those who have a memory of their own in front of it and settle who fetches what.

use super::disk::DiskTier;
use super::{DiskConfig, Keeper, KeeperView, Look, Payload, Tier};
use bytes::Bytes;
use forebay_core::Result;
use forebay_core::cache::{Capacity, PayloadId, Place};
use futures::future::{BoxFuture, FutureExt, ready};

/// Holds payloads on disk. Whoever is told *absent* has no claim: two may fetch the same.
#[derive(Debug)]
pub struct DiskKeeper(DiskTier);

impl DiskKeeper {
    /// Opens the directory.
    pub fn open(config: &DiskConfig) -> Result<Self> {
        DiskTier::open(&config.dir, config.limit).map(Self)
    }
}

impl Keeper for DiskKeeper {
    fn look<'a>(&'a self, payloads: &'a [Payload]) -> BoxFuture<'a, Vec<Look>> {
        let look = |payload: &Payload| match self.0.has(payload.id) {
            Some(_) => Look::Near { tier: Tier::Disk, together: Some(0) },
            None => Look::Absent,
        };
        ready(payloads.iter().map(look).collect()).boxed()
    }

    fn read<'a>(&'a self, payloads: &'a [Payload]) -> BoxFuture<'a, Vec<Option<(Bytes, Tier)>>> {
        async move {
            let ids: Vec<PayloadId> = payloads.iter().map(|payload| payload.id).collect();
            let read = self.0.read_many(&ids).await;
            read.into_iter().map(|bytes| bytes.map(|bytes| (bytes, Tier::Disk))).collect()
        }
        .boxed()
    }

    fn keep<'a>(&'a self, payload: Payload, place: Place, bytes: &'a Bytes) -> BoxFuture<'a, ()> {
        async move {
            if place.disk {
                self.0.keep(payload, bytes).await;
            }
        }
        .boxed()
    }

    fn admit<'a>(&'a self, payload: Payload, bytes: &'a Bytes) -> BoxFuture<'a, ()> {
        self.keep(payload, Place { memory: false, disk: true }, bytes)
    }

    fn give_up(&self, _payload: Payload) {}

    fn held(&self, group: u64) -> BoxFuture<'_, Vec<PayloadId>> {
        ready(self.0.held(group)).boxed()
    }

    fn forget<'a>(&'a self, payloads: &'a [PayloadId]) -> BoxFuture<'a, ()> {
        self.0.forget(payloads);
        ready(()).boxed()
    }

    fn resize(&self, capacity: Capacity) -> BoxFuture<'_, Result<()>> {
        ready(self.0.resize(capacity.disk)).boxed()
    }

    fn flush(&self) -> BoxFuture<'_, ()> {
        self.0.flush();
        ready(()).boxed()
    }

    fn view(&self) -> KeeperView {
        KeeperView { disk: self.0.view(), ..KeeperView::default() }
    }
}
