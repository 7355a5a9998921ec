//! Payloads in anonymous shared memory. Bytes are written once and then shown to other processes, which map them.
//!
//! A slab is filled from its start and never rewritten. What is forgotten leaves a gap; when room is needed, slabs
//! with gaps are copied into fresh ones and dropped. Their memory goes when the last process has let go of what it
//! still uses of it. Until then a payload that is used stays what it was.

use crate::server::lock;
use bytes::Bytes;
use forebay_core::cache::{PayloadId, Rank};
use forebay_core::{Error, Result};
use forebay_engine::cache::{Ages, Payload, TierView, seconds_now};
use forebay_store::local::map::map_shared;
use ring::rand::{SecureRandom, SystemRandom};
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, memfd_create, open};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};

/// Bytes of a slab, unless a payload needs more. Pages nobody wrote to take no memory.
const SLAB_BYTES: u64 = 64 << 20;
/// The lower bits of a version count changes, the upper ones tell one set of slabs from another.
const CHANGES: u32 = 20;

/// Memory that is shared by descriptor.
#[derive(Debug)]
pub struct Slabs {
    state: Mutex<State>,
    slab_bytes: u64,
}

/// One piece of memory.
#[derive(Debug)]
pub(crate) struct Slab {
    file: File,
    /// The same memory for others, who cannot write to it.
    pub(crate) shown: OwnedFd,
    map: Bytes,
    pub(crate) size: u64,
}

#[derive(Debug)]
struct State {
    limit: u64,
    /// Bytes of payloads that are kept or being written.
    bytes: u64,
    refused: u64,
    hits: u64,
    ages: Ages,
    version: u64,
    next: u32,
    slabs: BTreeMap<u32, Filled>,
    kept: HashMap<PayloadId, Kept>,
    writing: HashSet<PayloadId>,
}

#[derive(Debug)]
struct Filled {
    slab: Arc<Slab>,
    used: u64,
    gaps: u64,
    writers: usize,
}

#[derive(Clone, Copy, Debug)]
struct Kept {
    slab: u32,
    offset: u64,
    length: u64,
    rank: Rank,
    group: u64,
    /// When it was kept, in seconds since 1970.
    seconds: u32,
}

impl Slabs {
    /// Room for `limit` bytes.
    pub fn new(limit: u64) -> Result<Self> {
        Self::with_slab_bytes(limit, SLAB_BYTES)
    }

    pub(crate) fn with_slab_bytes(limit: u64, slab_bytes: u64) -> Result<Self> {
        let mut random = [0; 8];
        SystemRandom::new()
            .fill(&mut random)
            .map_err(|_| Error::internal("draw random bytes: the system gave none"))?;
        let state = State {
            limit,
            bytes: 0,
            refused: 0,
            hits: 0,
            ages: Ages::default(),
            version: u64::from_le_bytes(random) >> CHANGES << CHANGES,
            next: 0,
            slabs: BTreeMap::new(),
            kept: HashMap::new(),
            writing: HashSet::new(),
        };
        Ok(Self { state: Mutex::new(state), slab_bytes })
    }

    /// Takes a payload in; false when there is no room, or no memory.
    pub fn keep(&self, payload: &Payload, bytes: &Bytes) -> bool {
        let length = bytes.len() as u64;
        let (number, offset, slab) = {
            let mut state = lock(&self.state);
            if state.kept.contains_key(&payload.id) || state.writing.contains(&payload.id) {
                return true;
            }
            let Some(reserved) = state.reserve(length, self.slab_bytes) else {
                state.refused += 1;
                return false;
            };
            state.writing.insert(payload.id);
            reserved
        };
        let written = slab.file.write_all_at(bytes, offset);
        let mut state = lock(&self.state);
        state.writing.remove(&payload.id);
        if let Some(filled) = state.slabs.get_mut(&number) {
            filled.writers -= 1;
        }
        let (rank, group, seconds) = (payload.rank, payload.group, seconds_now());
        let kept = Kept { slab: number, offset, length, rank, group, seconds };
        state.ages.add(seconds);
        if let Err(error) = written {
            tracing::warn!(%error, "no memory for a payload in the shared cache");
            state.refused += 1;
            state.leave_gap(kept);
            return false;
        }
        state.kept.insert(payload.id, kept);
        true
    }

    /// Where a payload lies: slab and offset.
    pub(crate) fn find(&self, payload: &Payload) -> Option<(u32, u64)> {
        let mut state = lock(&self.state);
        let kept = *state.kept.get(&payload.id).filter(|kept| kept.length == payload.length)?;
        state.hits += 1;
        Some((kept.slab, kept.offset))
    }

    /// A payload's bytes, without a copy.
    pub fn bytes(&self, payload: &Payload) -> Option<Bytes> {
        let mut state = lock(&self.state);
        let kept = *state.kept.get(&payload.id).filter(|kept| kept.length == payload.length)?;
        state.hits += 1;
        state.show(&kept)
    }

    /// Names of what is kept for a dataset.
    pub fn held(&self, group: u64) -> Vec<PayloadId> {
        let state = lock(&self.state);
        state.kept.iter().filter(|(_, kept)| kept.group == group).map(|(name, _)| *name).collect()
    }

    /// Lets go of payloads.
    pub fn forget(&self, names: &[PayloadId]) {
        let mut state = lock(&self.state);
        for name in names {
            if let Some(kept) = state.kept.remove(name) {
                state.leave_gap(kept);
            }
        }
        // Where most is gaps, memory is given back at once.
        state.compact(self.slab_bytes, |filled| filled.gaps * 2 >= filled.used);
    }

    /// Changes how much may be kept; what goes has the highest ranks.
    pub fn resize(&self, limit: u64) {
        let mut state = lock(&self.state);
        state.limit = limit;
        if state.bytes <= limit {
            return;
        }
        let mut ranks: Vec<(Rank, PayloadId)> =
            state.kept.iter().map(|(name, kept)| (kept.rank, *name)).collect();
        ranks.sort_unstable();
        while state.bytes > limit
            && let Some((_, name)) = ranks.pop()
        {
            if let Some(kept) = state.kept.remove(&name) {
                state.leave_gap(kept);
            }
        }
        state.compact(self.slab_bytes, |_| true);
    }

    /// What is kept.
    pub fn view(&self) -> TierView {
        let state = lock(&self.state);
        TierView {
            limit: state.limit,
            bytes: state.bytes,
            payloads: state.kept.len() as u64,
            refused: state.refused,
            damaged: 0,
            hits: state.hits,
            oldest: state.ages.oldest(),
            newest: state.ages.newest(),
        }
    }

    pub(crate) fn version(&self) -> u64 {
        lock(&self.state).version
    }

    pub(crate) fn list(&self) -> (u64, Vec<u32>) {
        let state = lock(&self.state);
        (state.version, state.slabs.keys().copied().collect())
    }

    /// A slab of the set with this version, also of an earlier state of it.
    pub(crate) fn slab(&self, number: u32, version: u64) -> Option<Arc<Slab>> {
        let state = lock(&self.state);
        let same = state.version >> CHANGES == version >> CHANGES;
        state.slabs.get(&number).filter(|_| same).map(|filled| filled.slab.clone())
    }
}

impl State {
    fn show(&self, kept: &Kept) -> Option<Bytes> {
        let filled = self.slabs.get(&kept.slab)?;
        Some(filled.slab.map.slice(kept.offset as usize..(kept.offset + kept.length) as usize))
    }

    /// Room for a payload, counted as kept from now on.
    fn reserve(&mut self, length: u64, slab_bytes: u64) -> Option<(u32, u64, Arc<Slab>)> {
        let gaps = |state: &Self| state.slabs.values().map(|filled| filled.gaps).sum::<u64>();
        if self.bytes.checked_add(length).is_none_or(|bytes| bytes > self.limit) {
            return None;
        }
        if self.bytes + gaps(self) + length > self.limit {
            self.compact(slab_bytes, |_| true);
        }
        let (number, offset, slab) = self.place(length, slab_bytes)?;
        self.bytes += length;
        if let Some(filled) = self.slabs.get_mut(&number) {
            filled.writers += 1;
        }
        Some((number, offset, slab))
    }

    /// The next place, in the newest slab or in a new one.
    fn place(&mut self, length: u64, slab_bytes: u64) -> Option<(u32, u64, Arc<Slab>)> {
        let fits = |filled: &Filled| filled.slab.size - filled.used >= length;
        if !self.slabs.last_key_value().is_some_and(|(_, filled)| fits(filled)) {
            let slab = Slab::new(slab_bytes.max(length)).map_err(|error| {
                tracing::warn!(error = %error.report(), "no memory for the shared cache");
            });
            let filled = Filled { slab: Arc::new(slab.ok()?), used: 0, gaps: 0, writers: 0 };
            self.slabs.insert(self.next, filled);
            self.next += 1;
        }
        let (number, filled) = self.slabs.iter_mut().next_back()?;
        let offset = filled.used;
        filled.used += length;
        Some((*number, offset, filled.slab.clone()))
    }

    fn leave_gap(&mut self, kept: Kept) {
        self.bytes -= kept.length;
        self.ages.remove(kept.seconds);
        if let Some(filled) = self.slabs.get_mut(&kept.slab) {
            filled.gaps += kept.length;
        }
    }

    /// Copies what is left of slabs with gaps into fresh ones and drops them.
    fn compact(&mut self, slab_bytes: u64, worth: impl Fn(&Filled) -> bool) {
        let gappy = |filled: &Filled| filled.gaps > 0 && filled.writers == 0 && worth(filled);
        let numbers: HashSet<u32> =
            self.slabs.iter().filter(|(_, filled)| gappy(filled)).map(|(number, _)| *number).collect();
        if numbers.is_empty() {
            return;
        }
        let old: BTreeMap<u32, Filled> =
            numbers.iter().filter_map(|n| Some((*n, self.slabs.remove(n)?))).collect();
        self.version = self.version >> CHANGES << CHANGES | (self.version + 1) & ((1 << CHANGES) - 1);
        let moving: Vec<(PayloadId, Kept)> = self
            .kept
            .iter()
            .filter(|(_, kept)| numbers.contains(&kept.slab))
            .map(|(n, k)| (*n, *k))
            .collect();
        for (name, kept) in moving {
            let bytes = old.get(&kept.slab).map(|filled| {
                filled.slab.map.slice(kept.offset as usize..(kept.offset + kept.length) as usize)
            });
            let moved = bytes.and_then(|bytes| {
                let (number, offset, slab) = self.place(kept.length, slab_bytes)?;
                slab.file.write_all_at(&bytes, offset).ok()?;
                Some(Kept { slab: number, offset, ..kept })
            });
            if let Some(moved) = moved {
                self.kept.insert(name, moved);
            } else {
                // No memory for the copy: it is only a cache.
                self.kept.remove(&name);
                self.bytes -= kept.length;
                self.ages.remove(kept.seconds);
            }
        }
    }
}

impl Slab {
    fn new(size: u64) -> Result<Self> {
        let fail = |error: rustix::io::Errno| Error::io("make shared memory", error.into());
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(memfd_create("forebay-cache", flags).map_err(fail)?);
        file.set_len(size).map_err(|error| Error::io("make shared memory", error))?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).map_err(fail)?;
        let again = format!("/proc/self/fd/{}", file.as_raw_fd());
        let shown = open(again, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(fail)?;
        let map = Bytes::from_owner(map_shared(&file, size)?);
        Ok(Self { file, shown, map, size })
    }
}

#[cfg(test)]
mod tests;
