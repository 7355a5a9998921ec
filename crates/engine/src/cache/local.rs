//! A keeper inside this process: memory, and a disk below it when one was given.
//!
//! A payload that one loader is fetching is not fetched by another, nor twice by one that already looks into the next
//! epoch: whoever asks in between waits for the first.

use super::disk::DiskTier;
use super::{CacheConfig, Keeper, KeeperView, Look, MemoryTier, Payload, Tier};
use crate::sync::{Mutex, MutexGuard};
use bytes::Bytes;
use forebay_core::Result;
use forebay_core::cache::{Capacity, PayloadId, Place};
use futures::future::{BoxFuture, FutureExt, ready};
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Keepers over a directory that this process has open, or is closing.
static OPEN: std::sync::Mutex<Vec<Opened>> = std::sync::Mutex::new(Vec::new());

/// How long opening a directory waits for a keeper of this process that is writing its last payloads.
const CLOSING_WAIT: Duration = Duration::from_secs(10);

struct Opened {
    config: CacheConfig,
    /// A forked child has the list, but not the threads that write.
    process: u32,
    keeper: Weak<LocalKeeper>,
    /// Dead when the files are closed, which is later than the keeper's own end.
    files: Weak<()>,
}

/// Holds payloads for the loaders of one process.
#[derive(Debug)]
pub struct LocalKeeper {
    memory: MemoryTier,
    disk: Option<DiskTier>,
    /// Payloads that somebody is fetching, with those who wait for them.
    coming: Mutex<HashMap<PayloadId, watch::Sender<Option<Bytes>>>>,
    /// Last, so that it goes after the files are closed.
    files: Arc<()>,
}

impl LocalKeeper {
    /// Memory for so many bytes of payloads, over a disk or nothing.
    pub fn new(memory_bytes: u64, disk: Option<DiskTier>) -> Self {
        Self { memory: MemoryTier::new(memory_bytes), disk, coming: Mutex::default(), files: Arc::new(()) }
    }

    /// Opens the tiers that a setting names. Loaders of this process that name the same directory share its keeper.
    pub fn open(config: &CacheConfig) -> Result<Arc<Self>> {
        let Some(disk) = &config.disk else { return Ok(Arc::new(Self::new(config.memory, None))) };
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let process = std::process::id();
        open.retain(|opened| opened.process == process && opened.files.strong_count() > 0);
        if let Some(keeper) =
            open.iter().find(|opened| opened.config == *config).and_then(|opened| opened.keeper.upgrade())
        {
            return Ok(keeper);
        }
        let since = Instant::now();
        let closing = |opened: &Opened| {
            let same = opened.config.disk.as_ref().is_some_and(|other| other.dir == disk.dir);
            same && opened.keeper.strong_count() == 0 && opened.files.strong_count() > 0
        };
        while open.iter().any(closing) && since.elapsed() < CLOSING_WAIT {
            std::thread::sleep(Duration::from_millis(1));
        }
        let tier = DiskTier::open(&disk.dir, disk.limit)?;
        let keeper = Arc::new(Self::new(config.memory, Some(tier)));
        open.push(Opened {
            config: config.clone(),
            process,
            keeper: Arc::downgrade(&keeper),
            files: Arc::downgrade(&keeper.files),
        });
        Ok(keeper)
    }

    fn coming(&self) -> MutexGuard<'_, HashMap<PayloadId, watch::Sender<Option<Bytes>>>> {
        self.coming.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells those who wait for a payload.
    fn came(&self, id: PayloadId, bytes: &Bytes) {
        if let Some(waiting) = self.coming().remove(&id) {
            waiting.send_replace(Some(bytes.clone()));
        }
    }

    fn look_at(&self, payload: &Payload) -> Look {
        // Asked first: what is kept is taken from here only after it can be found below.
        let mut coming = self.coming();
        if coming.contains_key(&payload.id) {
            return Look::Coming;
        }
        if let Some(bytes) = self.memory.get(payload.id) {
            return Look::Here(bytes);
        }
        if self.disk.as_ref().is_some_and(|disk| disk.has(payload.id).is_some()) {
            return Look::Near { tier: Tier::Disk, together: Some(0) };
        }
        coming.insert(payload.id, watch::Sender::new(None));
        Look::Absent
    }
}

impl Keeper for LocalKeeper {
    fn look<'a>(&'a self, payloads: &'a [Payload]) -> BoxFuture<'a, Vec<Look>> {
        ready(payloads.iter().map(|payload| self.look_at(payload)).collect()).boxed()
    }

    fn read<'a>(&'a self, payloads: &'a [Payload]) -> BoxFuture<'a, Vec<Option<(Bytes, Tier)>>> {
        async move {
            let mut found: Vec<Option<(Bytes, Tier)>> = vec![None; payloads.len()];
            let (mut coming, mut stored, mut places) = (Vec::new(), Vec::new(), Vec::new());
            for (place, payload) in payloads.iter().enumerate() {
                let waiting = self.coming().get(&payload.id).map(watch::Sender::subscribe);
                if let Some(waiting) = waiting {
                    coming.push((place, waiting));
                } else if let Some(bytes) = self.memory.get(payload.id) {
                    found[place] = Some((bytes, Tier::Memory));
                } else {
                    places.push(place);
                    stored.push(payload.id);
                }
            }
            if let Some(disk) = self.disk.as_ref().filter(|_| !stored.is_empty()) {
                for (place, bytes) in places.into_iter().zip(disk.read_many(&stored).await) {
                    found[place] = bytes.map(|bytes| (bytes, Tier::Disk));
                }
            }
            for (place, mut waiting) in coming {
                let came = waiting.wait_for(Option::is_some).await;
                let bytes = came.ok().and_then(|bytes| bytes.clone());
                found[place] = bytes.map(|bytes| (bytes, Tier::Memory));
            }
            found
        }
        .boxed()
    }

    fn keep<'a>(&'a self, payload: Payload, place: Place, bytes: &'a Bytes) -> BoxFuture<'a, ()> {
        async move {
            if place.memory {
                self.memory.keep(payload, bytes);
            }
            if let (true, Some(disk)) = (place.disk, &self.disk) {
                disk.keep(payload, bytes).await;
            }
            self.came(payload.id, bytes);
        }
        .boxed()
    }

    fn admit<'a>(&'a self, payload: Payload, bytes: &'a Bytes) -> BoxFuture<'a, ()> {
        async move {
            if !self.memory.keep(payload, bytes)
                && let Some(disk) = &self.disk
            {
                disk.keep(payload, bytes).await;
            }
            self.came(payload.id, bytes);
        }
        .boxed()
    }

    fn give_up(&self, payload: Payload) {
        self.coming().remove(&payload.id);
    }

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

    fn flush(&self) -> BoxFuture<'_, ()> {
        if let Some(disk) = &self.disk {
            disk.flush();
        }
        ready(()).boxed()
    }

    fn view(&self) -> KeeperView {
        KeeperView {
            memory: self.memory.view(),
            disk: self.disk.as_ref().map(DiskTier::view).unwrap_or_default(),
            coming: self.coming().len() as u64,
            ..KeeperView::default()
        }
    }
}
