//! What a pool keeps for use again, and how much of it.
//!
//! A bound on what lies idle alone lets a process hold its batches and as much again of memory that nobody uses.
//! [`Keep::WithUsed`] bounds the sum: memory of sizes that are not asked for any more gives way to what is.

use super::pages::release;
use super::shared::Memory;
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How much unused memory a pool keeps, in bytes.
#[derive(Clone, Copy)]
pub(super) enum Keep {
    /// As much as this.
    Idle(usize),
    /// As long as it is no more than this together with what is in use.
    WithUsed(usize),
}

/// The memory behind a pool.
pub(super) struct Shelf {
    keep: Keep,
    /// Whether large buffers can be shown to other processes.
    shared: bool,
    free: Mutex<Free>,
}

#[derive(Default)]
struct Free {
    /// Start addresses by capacity; addresses are integers so that the map is `Send`.
    by_capacity: BTreeMap<usize, Vec<usize>>,
    shared_by_capacity: BTreeMap<usize, Vec<Memory>>,
    bytes: usize,
    /// Bytes that were taken and have not come back.
    used: usize,
}

impl Shelf {
    pub(super) fn new(keep: Keep, shared: bool) -> Self {
        Self { keep, shared, free: Mutex::default() }
    }

    pub(super) fn is_shared(&self) -> bool {
        self.shared
    }

    pub(super) fn idle_bytes(&self) -> usize {
        self.lock().bytes
    }

    /// Memory that was used before. Where there is none, the caller takes fresh memory of that size.
    pub(super) fn take(&self, capacity: usize) -> Option<NonNull<u8>> {
        let mut free = self.lock();
        let found = free.pop(capacity);
        // Given back to the system after the lock is.
        let _outdated = free.used(capacity, found.is_none(), self.keep);
        drop(free);
        NonNull::new(found? as *mut u8)
    }

    /// As [`Self::take`], of memory that can be shown. When the system has none of the kind, [`Self::take`] follows.
    pub(super) fn take_shared(&self, capacity: usize) -> Option<Memory> {
        let mut free = self.lock();
        let found = free.pop_shared(capacity)?;
        let _outdated = free.used(capacity, false, self.keep);
        drop(free);
        Some(found)
    }

    /// Fresh memory that can be shown is in use from now on.
    pub(super) fn took_shared(&self, capacity: usize) {
        let mut free = self.lock();
        let _outdated = free.used(capacity, true, self.keep);
        drop(free);
    }

    /// Keeps memory that is used no more; false when it is to go back to the system.
    pub(super) fn put_back(&self, start: NonNull<u8>, capacity: usize) -> bool {
        let mut free = self.lock();
        free.used = free.used.saturating_sub(capacity);
        let keeps = free.has_room(capacity, self.keep);
        if keeps {
            free.bytes += capacity;
            free.by_capacity.entry(capacity).or_default().push(start.as_ptr() as usize);
        }
        keeps
    }

    /// As [`Self::put_back`]. What is `retired` is never kept.
    pub(super) fn put_back_shared(&self, memory: Memory, retired: bool) {
        let mut free = self.lock();
        let size = memory.size();
        free.used = free.used.saturating_sub(size);
        if !retired && free.has_room(size, self.keep) {
            free.bytes += size;
            free.shared_by_capacity.entry(size).or_default().push(memory);
        } else {
            drop(free);
            drop(memory);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Free {
    fn pop(&mut self, capacity: usize) -> Option<usize> {
        let stack = self.by_capacity.get_mut(&capacity)?;
        let start = stack.pop()?;
        if stack.is_empty() {
            self.by_capacity.remove(&capacity);
        }
        self.bytes -= capacity;
        Some(start)
    }

    fn pop_shared(&mut self, capacity: usize) -> Option<Memory> {
        let stack = self.shared_by_capacity.get_mut(&capacity)?;
        let memory = stack.pop()?;
        if stack.is_empty() {
            self.shared_by_capacity.remove(&capacity);
        }
        self.bytes -= capacity;
        Some(memory)
    }

    fn has_room(&self, capacity: usize, keep: Keep) -> bool {
        match keep {
            Keep::Idle(most) => self.bytes + capacity <= most,
            Keep::WithUsed(most) => self.used + self.bytes + capacity <= most,
        }
    }

    /// One more of `capacity` is in use. Idle memory that is too much beside a fresh one is returned, to be dropped.
    fn used(&mut self, capacity: usize, fresh: bool, keep: Keep) -> Vec<Outdated> {
        let mut outdated = Vec::new();
        if let (true, Keep::WithUsed(most)) = (fresh, keep) {
            while self.bytes > 0 && self.used + self.bytes + capacity > most {
                let plain = self.by_capacity.keys().next_back().copied();
                let shared = self.shared_by_capacity.keys().next_back().copied();
                let gone = match (plain, shared) {
                    (Some(size), other) if other.is_none_or(|other| other <= size) => {
                        self.pop(size).and_then(|start| Outdated::plain(start, size))
                    }
                    (_, Some(size)) => {
                        self.pop_shared(size).map(|memory| Outdated::Shared { _memory: memory })
                    }
                    _ => None,
                };
                let Some(gone) = gone else { break };
                outdated.push(gone);
            }
        }
        self.used += capacity;
        outdated
    }
}

/// Memory on its way back to the system.
enum Outdated {
    Plain { start: NonNull<u8>, capacity: usize },
    Shared { _memory: Memory },
}

impl Outdated {
    fn plain(start: usize, capacity: usize) -> Option<Self> {
        Some(Self::Plain { start: NonNull::new(start as *mut u8)?, capacity })
    }
}

impl Drop for Outdated {
    fn drop(&mut self) {
        if let Self::Plain { start, capacity } = self {
            release(*start, *capacity);
        }
    }
}

impl Drop for Shelf {
    fn drop(&mut self) {
        for (capacity, starts) in std::mem::take(&mut self.lock().by_capacity) {
            for start in starts {
                drop(Outdated::plain(start, capacity));
            }
        }
    }
}
