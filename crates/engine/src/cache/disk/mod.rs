//! The disk tier: payloads in append-only segments below one directory, with an index.
//!
//! [`DiskTier`] is the handle. What is held is kept in memory (`state`), read from the index when the directory is
//! opened (`load`). A thread appends (`writer`) and gets room back (`compact`); reads go through a [`LocalStore`] past
//! the page cache and are checked. Formats are in `segment` and `index`, names in `folder`. One process writes
//! (`lock`), others follow the index as it grows (`follow`). Nothing here fails a training loop once the directory is
//! open: what cannot be read is not there, what cannot be written is not kept. See `docs/design/cache-disk.md`.

mod compact;
mod folder;
mod follow;
mod index;
mod load;
mod lock;
mod queue;
mod segment;
mod state;
mod writer;

use super::{Payload, TierView};
use bytes::Bytes;
use folder::segment_name;
use follow::Follower;
use forebay_core::cache::PayloadId;
use forebay_core::{Error, Result};
use forebay_store::local::{LocalOptions, ReadMode};
use forebay_store::{LocalStore, Store};
use futures::FutureExt;
use futures::future::BoxFuture;
use lock::Lock;
use queue::Queue;
use segment::Entry;
use state::{Room, State};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use writer::Writer;

/// How often a payload that moves while it is read is looked for again.
const LOOKS: usize = 4;

/// Settings of a [`DiskTier`].
#[derive(Clone, Copy, Debug)]
pub struct DiskOptions {
    /// Most bytes of all files of the cache together.
    pub limit: u64,
    /// Bytes that may wait to be written. More lets a burst of fetches pass a slow disk.
    pub queue_bytes: u64,
    /// Size at which a segment is closed; `None` follows the limit.
    pub segment_bytes: Option<u64>,
    /// Bytes after which writes fail as they do on a full disk, to try out what happens then.
    pub full_after: Option<u64>,
}

impl DiskOptions {
    /// Defaults for a limit.
    pub fn new(limit: u64) -> Self {
        Self { limit, queue_bytes: 32 << 20, segment_bytes: None, full_after: None }
    }
}

/// What a disk tier holds, in more detail than [`TierView`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskView {
    /// As all tiers say it.
    pub tier: TierView,
    /// Bytes of segments and index.
    pub file_bytes: u64,
    /// Bytes of segments that hold nothing any more and come back by compaction.
    pub dead_bytes: u64,
    /// Segments.
    pub segments: u64,
    /// Datasets.
    pub groups: u64,
    /// When the oldest payload was kept, in seconds since 1970.
    pub oldest: Option<u32>,
    /// When the newest payload was kept, in seconds since 1970.
    pub newest: Option<u32>,
    /// Another process writes, or nothing may be written here: this one only reads.
    pub read_only: bool,
    /// Writes failed: nothing more is kept in this run.
    pub full: bool,
}

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
    /// Payloads that were found damaged, to be forgotten in the index too.
    condemned: Mutex<Vec<PayloadId>>,
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
            self.condemned.lock().unwrap_or_else(PoisonError::into_inner).push(id);
        }
        here
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
            return Self::follow(dir, options.limit);
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
                return Self::follow(dir, options.limit);
            }
            Err(error) => return Err(fault(error)),
        };
        (writer.segment_bytes, writer.room) = (options.segment_bytes, options.full_after);
        let shared = Arc::new(Shared::new(dir, loaded.state));
        writer.shrink(&shared, options.limit).map_err(fault)?;
        let queue = Queue::new(Arc::clone(&shared), writer, options.queue_bytes);
        Ok(Self { shared, queue: Some(queue), follower: None, warned: AtomicBool::new(false) })
    }

    /// Opens a cache that is there, to look at it. Takes no lock and writes nothing.
    pub fn look(dir: &Path) -> Result<Self> {
        match folder::read_marker(dir)? {
            Some(limit) => Self::follow(dir, limit),
            None => Err(Error::not_found(format!("open the cache `{}`: no cache is there", dir.display()))),
        }
    }

    fn follow(dir: &Path, limit: u64) -> Result<Self> {
        let fault = |error| Error::io(format!("open the cache `{}`", dir.display()), error);
        let (follower, mut state) = Follower::new(dir).map_err(fault)?;
        state.limit = limit;
        let shared = Arc::new(Shared::new(dir, state));
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

    /// The length of a payload that is held.
    pub fn has(&self, id: PayloadId) -> Option<u64> {
        let held = |state: &State| match state.pending.get(&id) {
            Some(pending) => Some(pending.bytes.len() as u64),
            None => state.live.get(&id).map(|entry| u64::from(entry.length)),
        };
        let found = held(&self.shared.state());
        match &self.follower {
            Some(follower) if found.is_none() && follower.catch_up(&self.shared) => {
                held(&self.shared.state())
            }
            _ => found,
        }
    }

    /// Reads a payload and checks it. One whose bytes are wrong or cannot be read is forgotten, counted as damaged and
    /// answered by `None`.
    pub fn read(&self, id: PayloadId) -> BoxFuture<'_, Option<Bytes>> {
        async move {
            for _ in 0..LOOKS {
                self.has(id)?;
                let entry = {
                    let state = self.shared.state();
                    if let Some(pending) = state.pending.get(&id) {
                        return Some(pending.bytes.clone());
                    }
                    // Gone since the line above: whoever asks again learns the same.
                    *state.live.get(&id)?
                };
                let name = segment_name(entry.segment);
                let read = match entry.length {
                    0 => Ok(Bytes::new()),
                    _ => self.shared.store.read(&name, entry.payload().into()).await,
                };
                match &read {
                    Ok(bytes) if entry.matches(bytes) => return read.ok(),
                    Ok(_) => {}
                    Err(error) => self.warn(error),
                }
                // It may have moved while it was read; only a payload that is still said to lie there is damaged.
                let newer = self.follower.as_ref().is_some_and(|follower| follower.catch_up(&self.shared));
                if !newer && self.shared.condemn(id, &entry) {
                    self.queue.iter().for_each(Queue::wake);
                    return None;
                }
            }
            None
        }
        .boxed()
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
        self.queue.as_ref().is_none_or(Queue::flush)
    }

    /// Bytes and counts.
    pub fn view(&self) -> TierView {
        self.shared.state().view()
    }

    /// All that is known about it, ages included. Looks at every payload.
    pub fn detail(&self) -> DiskView {
        let state = self.shared.state();
        let groups: std::collections::HashSet<u64> = state.live.values().map(|entry| entry.group).collect();
        DiskView {
            tier: state.view(),
            file_bytes: state.file_bytes(),
            dead_bytes: state.segments.values().map(state::Segment::dead).sum(),
            segments: state.segments.len() as u64,
            groups: groups.len() as u64,
            oldest: state.live.values().map(|entry| entry.seconds).min(),
            newest: state.live.values().map(|entry| entry.seconds).max(),
            read_only: self.queue.is_none(),
            full: state.full,
        }
    }

    fn warn(&self, error: &Error) {
        if !self.warned.swap(true, Relaxed) {
            tracing::warn!(%error, "a payload of the disk cache could not be read; it is fetched again");
        }
    }
}

impl Shared {
    fn new(dir: &Path, state: State) -> Self {
        let options = LocalOptions { read_mode: ReadMode::Direct, ..LocalOptions::default() };
        let store = LocalStore::with_options(dir.to_owned(), &options);
        Self { dir: dir.to_owned(), state: Mutex::new(state), store, condemned: Mutex::default() }
    }
}
