//! The disk tier: payloads in append-only segments below one directory, with an index.
//!
//! [`DiskTier`] is the handle. What is held is kept in memory (`state`), read from the index when the directory is
//! opened (`load`). A thread appends (`writer`) and gets room back (`compact`); reads go through a [`LocalStore`] past
//! the page cache and are checked. Formats are in `segment` and `index`, names in `folder`. One process writes
//! (`lock`), others follow the index as it grows (`follow`). Nothing here fails a training loop once the directory is
//! open: what cannot be read is not there, what cannot be written is not kept. See `docs/design/cache-disk.md`.

mod clear;
mod compact;
mod folder;
mod follow;
mod hits;
mod index;
mod lines;
mod load;
mod lock;
mod queue;
mod read;
mod segment;
mod state;
mod view;
mod writer;

pub use clear::{Cleared, Stored};
pub use view::{DiskOptions, DiskView};

use super::{Payload, TierView};
use bytes::Bytes;
use follow::Follower;
use forebay_core::cache::PayloadId;
use forebay_core::{Error, Result};
use forebay_store::LocalStore;
use forebay_store::local::{LocalOptions, ReadMode};
use futures::FutureExt;
use futures::future::BoxFuture;
use lock::Lock;
use queue::Queue;
use segment::Entry;
use state::{Room, State};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use writer::Writer;

/// Payloads on a local disk. Dropping it writes what waits and lets go of the lock.
#[derive(Debug)]
pub struct DiskTier {
    shared: Arc<Shared>,
    queue: Option<Queue>,
    follower: Option<Follower>,
    warned: AtomicBool,
}

/// What callers, the writing thread and compaction share.
#[derive(Debug)]
struct Shared {
    dir: PathBuf,
    state: Mutex<State>,
    store: LocalStore,
    /// Payloads that were found damaged, to be forgotten in the index too by whoever writes it.
    condemned: Option<Mutex<Vec<PayloadId>>>,
    /// Payloads served since this was opened, and those of them that its file does not tell yet.
    hits: AtomicU64,
    new_hits: AtomicU64,
}

impl Drop for DiskTier {
    fn drop(&mut self) {
        self.shared.store_hits();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets a payload that is damaged at this place, and counts it.
    fn condemn(&self, id: PayloadId, entry: &Entry) -> bool {
        let mut state = self.state();
        let here = state.live.get(&id) == Some(entry);
        if here {
            state.remove(id);
            state.damaged += 1;
            if let Some(condemned) = &self.condemned {
                condemned.lock().unwrap_or_else(PoisonError::into_inner).push(id);
            }
        }
        here
    }

    fn count_hits(&self, hits: u64) {
        self.hits.fetch_add(hits, Relaxed);
        self.new_hits.fetch_add(hits, Relaxed);
    }

    fn take_condemned(&self) -> Vec<PayloadId> {
        let list = self.condemned.as_ref();
        list.map(|list| std::mem::take(&mut *list.lock().unwrap_or_else(PoisonError::into_inner)))
            .unwrap_or_default()
    }
}

impl DiskTier {
    /// Opens or makes a cache directory. `limit` is in bytes of all its files as they stand.
    pub fn open(dir: &Path, limit: u64) -> Result<Self> {
        Self::open_with(dir, &DiskOptions::new(limit))
    }

    /// As [`DiskTier::open`], with other settings.
    pub fn open_with(dir: &Path, options: &DiskOptions) -> Result<Self> {
        let fault = |error| Error::io(format!("open the cache `{}`", dir.display()), error);
        std::fs::create_dir_all(dir).map_err(fault)?;
        let lock = Lock::take(dir)?;
        let marker = folder::read_marker(dir)?;
        let Some(lock) = lock else {
            tracing::info!(dir = %dir.display(), "another process writes to the disk cache, this one only reads");
            return Self::follow(dir, options.limit, false);
        };
        if marker.is_none() {
            folder::check_names(dir)?;
        }
        let mut loaded = load::load(dir, true).map_err(fault)?;
        loaded.state.limit = marker.unwrap_or(options.limit).max(options.limit);
        let marked =
            if marker == Some(options.limit) { Ok(()) } else { folder::write_marker(dir, options.limit) };
        let made = marked.and_then(|()| Writer::new(dir.to_owned(), lock, &mut loaded));
        let mut writer = match made {
            Ok(writer) => writer,
            // A disk that is full before anything is written holds what it held.
            Err(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded
                ) =>
            {
                tracing::warn!(dir = %dir.display(), %error, "the disk cache takes no payloads: the disk is full");
                return Self::follow(dir, options.limit, false);
            }
            Err(error) => return Err(fault(error)),
        };
        (writer.segment_bytes, writer.room) = (options.segment_bytes, options.full_after);
        let shared = Arc::new(Shared::new(dir, loaded.state, true));
        writer.shrink(&shared, options.limit).map_err(fault)?;
        let queue = Queue::new(Arc::clone(&shared), writer, options.queue_bytes);
        Ok(Self { shared, queue: Some(queue), follower: None, warned: AtomicBool::new(false) })
    }

    /// Opens a cache that is there, to look at it. Takes no lock and writes nothing.
    pub fn look(dir: &Path) -> Result<Self> {
        match folder::read_marker(dir)? {
            Some(limit) => Self::follow(dir, limit, true),
            None => Err(clear::no_cache(dir)),
        }
    }

    fn follow(dir: &Path, limit: u64, rebuild: bool) -> Result<Self> {
        let fault = |error| Error::io(format!("open the cache `{}`", dir.display()), error);
        let (follower, mut state) = Follower::new(dir, rebuild).map_err(fault)?;
        state.limit = limit;
        let shared = Arc::new(Shared::new(dir, state, false));
        Ok(Self { shared, queue: None, follower: Some(follower), warned: AtomicBool::new(false) })
    }

    /// Bytes of the limit that a payload of this length takes, with all that is written about it.
    pub fn cost(length: u64) -> u64 {
        State::cost(length)
    }

    /// Bytes of the limit that are taken by an empty cache. Payloads whose costs and this sum up to no more than the
    /// limit all fit.
    pub fn fixed_cost() -> u64 {
        State::fixed()
    }

    /// Takes a payload in; `true` when it is held from now on. It is served at once and written by a thread. Waits
    /// while too much waits to be written. Refused when the limit would be passed or when the disk is full.
    pub fn keep<'a>(&'a self, payload: Payload, bytes: &'a Bytes) -> BoxFuture<'a, bool> {
        async move {
            let Some(queue) = &self.queue else { return false };
            let length = bytes.len() as u64;
            let mut room = self.shared.state().room(payload.id, length);
            if room == Room::AfterCompaction {
                queue.reclaim(length).await;
                room = self.shared.state().room(payload.id, length);
            }
            if room == Room::Free {
                room = queue.push(payload, bytes).await;
            }
            let held = matches!(room, Room::Held | Room::Free);
            self.shared.state().refused += u64::from(!held);
            held
        }
        .boxed()
    }

    /// Names of all payloads of a dataset.
    pub fn held(&self, group: u64) -> Vec<PayloadId> {
        let state = self.shared.state();
        let pending = state.pending.values().map(|pending| (pending.payload.id, pending.payload.group));
        let live = state.live.iter().map(|(id, entry)| (*id, entry.group));
        live.chain(pending).filter(|(_, of)| *of == group).map(|(id, _)| id).collect()
    }

    /// Lets go of payloads. Their room comes back when it is needed, or when more than half of a segment is dead.
    pub fn forget(&self, ids: &[PayloadId]) {
        let mut state = self.shared.state();
        let mut gone = Vec::new();
        for id in ids {
            if state.drop_pending(*id).is_some() | state.remove(*id).is_some() {
                gone.push(*id);
            }
        }
        drop(state);
        if let Some(queue) = &self.queue {
            queue.forget(gone);
        }
    }

    /// Changes the limit. With less room payloads of the highest ranks go, and files shrink until they fit, before
    /// this returns: it may take as long as copying the cache.
    pub fn resize(&self, limit: u64) -> Result<()> {
        let Some(queue) = &self.queue else {
            self.shared.state().limit = limit;
            return Ok(());
        };
        queue.resize(limit).map_err(|error| {
            Error::io(format!("change the limit of the cache `{}`", self.shared.dir.display()), error)
        })
    }

    /// Writes all that waits and brings it to the disk. Blocks. `false` when that was not possible.
    pub fn flush(&self) -> bool {
        self.shared.store_hits();
        self.queue.as_ref().is_none_or(Queue::flush)
    }

    /// Bytes and counts.
    pub fn view(&self) -> TierView {
        TierView { hits: self.shared.hits.load(Relaxed), ..self.shared.state().view() }
    }
}

impl Shared {
    fn new(dir: &Path, state: State, writes: bool) -> Self {
        let options = LocalOptions { read_mode: ReadMode::Direct, ..LocalOptions::default() };
        let store = LocalStore::with_options(dir.to_owned(), &options);
        Self {
            dir: dir.to_owned(),
            state: Mutex::new(state),
            store,
            condemned: writes.then(Mutex::default),
            hits: AtomicU64::new(0),
            new_hits: AtomicU64::new(0),
        }
    }
}
