//! The memory tier: payloads copied one behind the other into slabs, found by name.
//!
//! A slab is one allocation that payloads are slices of, so that keeping one costs a copy and no allocation, and
//! serving one costs neither. Room that forgotten payloads leave behind comes back when their slab is written anew,
//! which happens slab by slab, so that never more than one slab is held beyond the limit.

use super::ages::{Ages, seconds_now};
use super::{Payload, TierView};
use crate::sync::{Mutex, MutexGuard};
use bytes::{Bytes, BytesMut};
use forebay_core::cache::PayloadId;
use forebay_store::local::map::prefer_huge_pages;
use std::collections::HashMap;
use std::sync::PoisonError;

/// Bytes of a slab; a larger payload gets one of its own.
const SLAB_BYTES: usize = 32 << 20;

/// Payloads in memory of this process.
#[derive(Debug)]
pub struct MemoryTier {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    view: TierView,
    payloads: HashMap<PayloadId, Entry>,
    /// What is left of the slab being filled.
    room: BytesMut,
    /// Number of the slab being filled.
    slab: usize,
    /// Bytes in use and in all of every slab that still has payloads.
    slabs: HashMap<usize, Slab>,
    ages: Ages,
}

#[derive(Debug)]
struct Entry {
    bytes: Bytes,
    payload: Payload,
    slab: usize,
    /// When it was kept, in seconds since 1970.
    seconds: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slab {
    written: u64,
    live: u64,
}

impl MemoryTier {
    /// An empty tier that holds at most `limit` bytes of payloads.
    pub fn new(limit: u64) -> Self {
        let state = State { view: TierView { limit, ..TierView::default() }, ..State::default() };
        Self { state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The payload, without a copy.
    pub fn get(&self, id: PayloadId) -> Option<Bytes> {
        let mut state = self.lock();
        let bytes = state.payloads.get(&id).map(|entry| entry.bytes.clone());
        state.view.hits += u64::from(bytes.is_some());
        bytes
    }

    /// Copies a payload in if there is room. False when there is not; true also when it was here already.
    pub fn keep(&self, payload: Payload, bytes: &[u8]) -> bool {
        let mut state = self.lock();
        if state.payloads.contains_key(&payload.id) {
            return true;
        }
        let length = bytes.len() as u64;
        let fits = state.view.bytes.checked_add(length).is_some_and(|bytes| bytes <= state.view.limit);
        if !fits {
            state.view.refused += 1;
            return false;
        }
        let seconds = seconds_now();
        state.write(payload, bytes, seconds);
        state.ages.add(seconds);
        state.view.bytes += length;
        state.view.payloads += 1;
        true
    }

    /// Names of what is held for a dataset.
    pub fn held(&self, group: u64) -> Vec<PayloadId> {
        let state = self.lock();
        state
            .payloads
            .values()
            .filter(|entry| entry.payload.group == group)
            .map(|entry| entry.payload.id)
            .collect()
    }

    /// Lets payloads go.
    pub fn forget(&self, ids: &[PayloadId]) {
        let mut state = self.lock();
        for id in ids {
            state.remove(*id);
        }
        state.tidy();
    }

    /// Changes the limit. Payloads of the highest ranks go until the rest fits.
    pub fn resize(&self, limit: u64) {
        let mut state = self.lock();
        state.view.limit = limit;
        if state.view.bytes <= limit {
            return;
        }
        let mut ranked: Vec<_> =
            state.payloads.values().map(|entry| (entry.payload.rank, entry.payload.id)).collect();
        ranked.sort_unstable();
        while state.view.bytes > limit
            && let Some((_, id)) = ranked.pop()
        {
            state.remove(id);
        }
        state.tidy();
    }

    /// What is held.
    pub fn view(&self) -> TierView {
        let state = self.lock();
        TierView { oldest: state.ages.oldest(), newest: state.ages.newest(), ..state.view }
    }
}

impl State {
    fn write(&mut self, payload: Payload, bytes: &[u8], seconds: u32) {
        if self.room.capacity() < bytes.len() {
            self.room = BytesMut::with_capacity(bytes.len().max(SLAB_BYTES));
            prefer_huge_pages(self.room.spare_capacity_mut());
            self.slab += 1;
        }
        self.room.extend_from_slice(bytes);
        let kept = self.room.split().freeze();
        let slab = self.slabs.entry(self.slab).or_default();
        slab.written += bytes.len() as u64;
        slab.live += bytes.len() as u64;
        self.payloads.insert(payload.id, Entry { bytes: kept, payload, slab: self.slab, seconds });
    }

    fn remove(&mut self, id: PayloadId) {
        let Some(entry) = self.payloads.remove(&id) else { return };
        let length = entry.bytes.len() as u64;
        self.view.bytes -= length;
        self.view.payloads -= 1;
        self.ages.remove(entry.seconds);
        if let Some(slab) = self.slabs.get_mut(&entry.slab) {
            slab.live -= length;
        }
    }

    /// Writes slabs anew of which more than a quarter is forgotten, so that their memory goes back.
    fn tidy(&mut self) {
        self.slabs.retain(|_, slab| slab.live > 0);
        let holed: Vec<usize> = self
            .slabs
            .iter()
            .filter(|(_, slab)| slab.written - slab.live > slab.written / 4)
            .map(|(number, _)| *number)
            .collect();
        for number in holed {
            if number == self.slab {
                self.room = BytesMut::new();
            }
            let moved: Vec<PayloadId> = self
                .payloads
                .values()
                .filter(|entry| entry.slab == number)
                .map(|entry| entry.payload.id)
                .collect();
            for id in moved {
                if let Some(entry) = self.payloads.remove(&id) {
                    self.write(entry.payload, &entry.bytes, entry.seconds);
                }
            }
            self.slabs.remove(&number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::cache::Rank;
    use proptest::prelude::*;

    fn payload(id: u64, length: u64) -> Payload {
        Payload { id: PayloadId(u128::from(id)), rank: Rank(id), length, group: id % 3 }
    }

    fn bytes(id: u64, length: u64) -> Vec<u8> {
        (0..length).map(|at| (id * 31 + at) as u8).collect()
    }

    #[derive(Clone, Debug)]
    enum Act {
        Keep(u64, u64),
        Forget(u64),
        Resize(u64),
    }

    fn any_act() -> impl Strategy<Value = Act> {
        prop_oneof![
            6 => (0u64..40, 0u64..5000).prop_map(|(id, length)| Act::Keep(id, length)),
            2 => (0u64..40).prop_map(Act::Forget),
            1 => (0u64..60_000).prop_map(Act::Resize),
        ]
    }

    proptest! {
        #[test]
        fn p043_resident_bytes_stay_within_the_limit_and_payloads_as_they_were(
            acts in proptest::collection::vec(any_act(), 1..120), mut limit in 0u64..60_000,
        ) {
            let tier = MemoryTier::new(limit);
            let mut model: HashMap<u64, u64> = HashMap::new();
            for act in acts {
                match act {
                    Act::Keep(id, length) => {
                        let used: u64 = model.values().sum();
                        let expected = model.contains_key(&id) || used + length <= limit;
                        let kept = tier.keep(payload(id, length), &bytes(id, length));
                        prop_assert_eq!(kept, expected);
                        if kept {
                            model.entry(id).or_insert(length);
                        }
                    }
                    Act::Forget(id) => {
                        tier.forget(&[PayloadId(u128::from(id))]);
                        model.remove(&id);
                    }
                    Act::Resize(to) => {
                        limit = to;
                        tier.resize(to);
                        // The highest ranks go first.
                        while model.values().sum::<u64>() > limit {
                            let highest = *model.keys().max().unwrap();
                            model.remove(&highest);
                        }
                    }
                }
                let view = tier.view();
                prop_assert_eq!((view.bytes, view.payloads, view.limit),
                    (model.values().sum(), model.len() as u64, limit));
                prop_assert!(view.bytes <= limit);
            }
            for id in 0..40 {
                let expected = model.get(&id).map(|length| bytes(id, *length));
                prop_assert_eq!(tier.get(PayloadId(u128::from(id))).map(|bytes| bytes.to_vec()), expected);
            }
            let held: usize = (0..3).map(|group| tier.held(group).len()).sum();
            prop_assert_eq!(held, model.len());
        }
    }

    #[test]
    fn a_payload_larger_than_a_slab_has_a_slab_of_its_own_and_served_bytes_outlive_it() {
        let tier = MemoryTier::new(u64::MAX);
        let long = vec![7; SLAB_BYTES + 1];
        assert!(tier.keep(payload(1, long.len() as u64), &long));
        let served = tier.get(PayloadId(1)).unwrap();
        tier.resize(0);
        assert!(tier.get(PayloadId(1)).is_none());
        assert_eq!(served, long);
    }
}
