//! A keeper inside this process: memory, and a disk below it when one was given.

use super::disk::DiskTier;
use super::{Keeper, KeeperView, Look, MemoryTier, Payload, Tier};
use bytes::Bytes;
use forebay_core::Result;
use forebay_core::cache::{Capacity, PayloadId, Place};
use futures::future::{BoxFuture, FutureExt, join_all, ready};

/// Holds payloads for the loaders of one process.
#[derive(Debug)]
pub struct LocalKeeper {
    memory: MemoryTier,
    disk: Option<DiskTier>,
}

impl LocalKeeper {
    /// Memory for so many bytes of payloads, over a disk or nothing.
    pub fn new(memory_bytes: u64, disk: Option<DiskTier>) -> Self {
        Self { memory: MemoryTier::new(memory_bytes), disk }
    }

    fn look_at(&self, payload: &Payload) -> Look {
        if let Some(bytes) = self.memory.get(payload.id) {
            return Look::Here(bytes);
        }
        match &self.disk {
            Some(disk) if disk.has(payload.id).is_some() => Look::Near { tier: Tier::Disk, together: None },
            _ => Look::Absent,
        }
    }

    async fn read_one(&self, payload: &Payload) -> Option<(Bytes, Tier)> {
        match self.memory.get(payload.id) {
            Some(bytes) => Some((bytes, Tier::Memory)),
            None => self.disk.as_ref()?.read(payload.id).await.map(|bytes| (bytes, Tier::Disk)),
        }
    }
}

impl Keeper for LocalKeeper {
    fn look<'a>(&'a self, payloads: &'a [Payload]) -> BoxFuture<'a, Vec<Look>> {
        ready(payloads.iter().map(|payload| self.look_at(payload)).collect()).boxed()
    }

    fn read<'a>(&'a self, payloads: &'a [Payload]) -> BoxFuture<'a, Vec<Option<(Bytes, Tier)>>> {
        join_all(payloads.iter().map(|payload| self.read_one(payload))).boxed()
    }

    fn keep<'a>(&'a self, payload: Payload, place: Place, bytes: &'a Bytes) -> BoxFuture<'a, ()> {
        async move {
            if place.memory {
                self.memory.keep(payload, bytes);
            }
            if let (true, Some(disk)) = (place.disk, &self.disk) {
                disk.keep(payload, bytes).await;
            }
        }
        .boxed()
    }

    fn give_up(&self, _payload: Payload) {}

    fn held(&self, group: u64) -> BoxFuture<'_, Vec<PayloadId>> {
        let mut held = self.memory.held(group);
        held.extend(self.disk.iter().flat_map(|disk| disk.held(group)));
        held.sort_unstable();
        held.dedup();
        ready(held).boxed()
    }

    fn forget<'a>(&'a self, payloads: &'a [PayloadId]) -> BoxFuture<'a, ()> {
        self.memory.forget(payloads);
        if let Some(disk) = &self.disk {
            disk.forget(payloads);
        }
        ready(()).boxed()
    }

    fn resize(&self, capacity: Capacity) -> BoxFuture<'_, Result<()>> {
        self.memory.resize(capacity.memory);
        ready(self.disk.as_ref().map_or(Ok(()), |disk| disk.resize(capacity.disk))).boxed()
    }

    fn view(&self) -> KeeperView {
        KeeperView {
            memory: self.memory.view(),
            disk: self.disk.as_ref().map(DiskTier::view).unwrap_or_default(),
        }
    }
}
