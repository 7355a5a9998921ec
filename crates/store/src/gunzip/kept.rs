//! Expanded objects that are kept, and the bytes that all of them take together.

use crate::ObjectMeta;
use crate::local::files::OpenFile;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// A file without a name that holds what an object expands to. Its bytes are given back when the last reader is done.
#[derive(Debug)]
pub(super) struct Expanded {
    file: OpenFile,
    /// Of the compressed object: what tells its versions apart.
    version: (u64, u64),
    _room: Room,
}

impl Expanded {
    pub(super) fn new(file: OpenFile, meta: &ObjectMeta, room: Room) -> Self {
        Self { file, version: (meta.size, meta.stamp), _room: room }
    }

    pub(super) fn file(&self) -> &OpenFile {
        &self.file
    }

    pub(super) fn size(&self) -> u64 {
        self.file.version.size
    }

    pub(super) fn stamp(&self) -> u64 {
        self.version.1
    }

    pub(super) fn is_of(&self, meta: &ObjectMeta) -> bool {
        self.version == (meta.size, meta.stamp)
    }
}

/// Expanded objects by key, least recently used first to go.
#[derive(Debug)]
pub(super) struct Kept {
    limit: u64,
    used: Arc<AtomicU64>,
    objects: Mutex<Objects>,
    expansions: AtomicU64,
}

#[derive(Debug, Default)]
struct Objects {
    by_key: HashMap<String, (Arc<Expanded>, u64)>,
    clock: u64,
    /// Grows with every [`Kept::replaced`]: what was expanded before must not be kept after.
    replaced: u64,
}

impl Kept {
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, used: Arc::default(), objects: Mutex::default(), expansions: AtomicU64::new(0) }
    }

    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    #[cfg(test)]
    pub(super) fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    pub(super) fn expansions(&self) -> u64 {
        self.expansions.load(Relaxed)
    }

    /// Room for a new object; it grows by [`Kept::grow`] and is given back when dropped.
    pub(super) fn room(&self) -> Room {
        self.expansions.fetch_add(1, Relaxed);
        Room { bytes: 0, used: Arc::clone(&self.used) }
    }

    pub(super) fn get(&self, key: &str) -> Option<Arc<Expanded>> {
        self.with(|objects| {
            objects.clock += 1;
            let (expanded, used) = objects.by_key.get_mut(key)?;
            *used = objects.clock;
            Some(Arc::clone(expanded))
        })
    }

    /// Changes when an object was replaced; goes to [`Kept::insert`].
    pub(super) fn moment(&self) -> u64 {
        self.with(|objects| objects.replaced)
    }

    /// Keeps what was expanded, unless an object was replaced since `moment`.
    pub(super) fn insert(&self, key: &str, expanded: &Arc<Expanded>, moment: u64) {
        self.with(|objects| {
            if objects.replaced != moment {
                return;
            }
            objects.clock += 1;
            objects.by_key.insert(key.to_owned(), (Arc::clone(expanded), objects.clock));
        });
    }

    pub(super) fn forget(&self, key: &str) {
        // Bound first: closing the file must not happen under the lock.
        let _gone = self.with(|objects| objects.by_key.remove(key));
    }

    /// As [`Kept::forget`], also for what is being expanded right now.
    pub(super) fn replaced(&self, key: &str) {
        self.with(|objects| objects.replaced += 1);
        self.forget(key);
    }

    /// Takes more bytes, letting go of old objects where needed. `false` when those in use leave no room.
    pub(super) fn grow(&self, room: &mut Room, bytes: u64) -> bool {
        loop {
            let fits = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.limit);
            if self.used.fetch_update(Relaxed, Relaxed, fits).is_ok() {
                room.bytes += bytes;
                return true;
            }
            let Some(_gone) = self.with(Objects::take_oldest) else { return false };
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Objects) -> T) -> T {
        act(&mut self.objects.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Objects {
    /// The object that was not used for the longest time. One that a reader holds would give nothing back now.
    fn take_oldest(&mut self) -> Option<Arc<Expanded>> {
        let idle = self.by_key.iter().filter(|(_, (expanded, _))| Arc::strong_count(expanded) == 1);
        let key = idle.min_by_key(|(_, (_, used))| *used).map(|(key, _)| key.clone())?;
        self.by_key.remove(&key).map(|(expanded, _)| expanded)
    }
}

/// Bytes taken of the bound.
#[derive(Debug)]
pub(super) struct Room {
    bytes: u64,
    used: Arc<AtomicU64>,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.used.fetch_sub(self.bytes, Relaxed);
    }
}
