//! Which samples of a loader are resident on this node, and what goes when that changes.
//!
//! It is found out beside the first epoch, on a thread of its own: nothing but keeping a payload waits for it. Chosen
//! anew are they when the room changes, and when nodes join or leave: until that is done the last choice holds.

use super::DiskTier;
use super::probe::Probe;
use super::resident::{Cache, Names};
use crate::cache::values::Values;
use crate::sync::{Mutex, MutexGuard, thread};
use forebay_core::cache::{Capacity, Cost, Ownership, PayloadId, Place, Rank, Residency};
use forebay_core::{Error, Result, SampleId};
use std::collections::HashSet;
use std::sync::{Arc, PoisonError};
use tokio::sync::watch;

/// What was chosen, by whom and for how much room.
pub(super) struct Choosing {
    chosen: watch::Sender<Option<Chosen>>,
    capacity: Mutex<Capacity>,
    /// One choice at a time.
    one: Mutex<()>,
}

/// What is resident when these own what they own.
#[derive(Clone, Debug)]
struct Chosen {
    residency: Residency,
    ownership: Arc<Ownership>,
}

impl Chosen {
    fn place(&self, rank: Rank) -> Place {
        self.residency.place(self.ownership.local_rank(rank))
    }
}

/// What a choice is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// The loader begins.
    Begin,
    /// There is more or less room.
    Room,
    /// Nodes joined or left.
    Members,
}

impl Choosing {
    pub(super) fn new(capacity: Capacity) -> Self {
        Self { chosen: watch::Sender::new(None), capacity: Mutex::new(capacity), one: Mutex::new(()) }
    }

    fn capacity(&self) -> MutexGuard<'_, Capacity> {
        self.capacity.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cache {
    /// Chooses what is resident: at once when all fits, otherwise on a thread of its own.
    pub(super) fn choose(self: &Arc<Self>, why: Why) -> Result<()> {
        let capacity = *self.choosing.capacity();
        let fits = self.names.manifest.total_bytes() <= capacity.memory && capacity.disk == 0;
        if fits && self.values.is_none() {
            self.chose(Residency::all(), self.owners.now());
            return Ok(());
        }
        if why != Why::Members {
            self.choosing.chosen.send_replace(None);
        }
        let cache = Arc::clone(self);
        thread::Builder::new()
            .name("forebay-cache".into())
            .spawn(move || cache.choose_now(why))
            .map_err(|cause| Error::exhausted("start the thread that plans the cache").with_source(cause))?;
        Ok(())
    }

    fn chose(&self, residency: Residency, ownership: Arc<Ownership>) {
        self.choosing.chosen.send_replace(Some(Chosen { residency, ownership }));
    }

    fn choose_now(&self, why: Why) {
        let _one = self.choosing.one.lock().unwrap_or_else(PoisonError::into_inner);
        let (capacity, ownership) = (*self.choosing.capacity(), self.owners.now());
        let names = &self.names;
        if let Some(values) = &self.values {
            let samples = names.manifest.len();
            values.decide(&Probe { inputs: &names.inputs, store: &names.store, samples }, capacity);
            let most = values.most_bytes(samples, names.manifest.total_bytes());
            if most <= capacity.memory && capacity.disk == 0 {
                return self.chose(Residency::all(), ownership);
            }
        }
        let disk = capacity.disk.saturating_sub(DiskTier::fixed_cost());
        let samples = names.ranked(&ownership, self.values.as_ref());
        let residency = Residency::choose(Capacity { disk, ..capacity }, samples);
        let chosen = Chosen { residency, ownership };
        match why {
            Why::Begin => self.forget(self.left_behind(&chosen)),
            Why::Members => self.forget(self.copies_in_the_way(&chosen, capacity)),
            Why::Room => {}
        }
        self.choosing.chosen.send_replace(Some(chosen));
    }

    /// What an earlier version of the dataset, or another membership, kept here.
    fn left_behind(&self, chosen: &Chosen) -> HashSet<PayloadId> {
        let mut held = self.held();
        if held.is_empty() {
            return held;
        }
        self.names.each(|rank, _, payload| {
            if chosen.place(rank).is_kept() {
                held.remove(&payload);
            }
        });
        held
    }

    /// Copies of what others own, when we have to keep more than before: what we own ourselves needs their room. Of
    /// that nothing goes, whatever its rank: it would only make room for what is worth as much.
    fn copies_in_the_way(&self, chosen: &Chosen, capacity: Capacity) -> HashSet<PayloadId> {
        let held = self.held();
        let (mut owned, mut copies, mut unwanted) = (0u64, 0u64, HashSet::new());
        self.names.each(|rank, length, payload| {
            if chosen.ownership.is_mine(rank) {
                owned = owned.saturating_add(length);
            } else if held.contains(&payload) {
                copies = copies.saturating_add(length);
                if !chosen.place(rank).is_kept() {
                    unwanted.insert(payload);
                }
            }
        });
        if owned.saturating_add(copies) <= capacity.memory.saturating_add(capacity.disk) {
            unwanted.clear();
        }
        unwanted
    }

    fn held(&self) -> HashSet<PayloadId> {
        futures::executor::block_on(self.keeper.held(self.names.group)).into_iter().collect()
    }

    fn forget(&self, unwanted: HashSet<PayloadId>) {
        let unwanted: Vec<PayloadId> = unwanted.into_iter().collect();
        if !unwanted.is_empty() {
            tracing::info!(
                payloads = unwanted.len(),
                "the cache lets go of what does not belong here any more"
            );
            futures::executor::block_on(self.keeper.forget(&unwanted));
        }
    }

    /// Nodes joined or left: what is resident here is chosen anew, beside everything else.
    pub(super) fn follow_members(self: &Arc<Self>) {
        tracing::info!(members = self.owners.now().len(), "the nodes of the cache have changed");
        if let Err(error) = self.choose(Why::Members) {
            tracing::warn!(error = %error.report(), "what is kept here is not chosen anew");
        }
    }

    /// Changes the room; what is resident is chosen anew.
    pub(crate) fn resize(self: &Arc<Self>, capacity: Capacity) -> Result<()> {
        *self.choosing.capacity() = capacity;
        self.choosing.chosen.send_replace(None);
        futures::executor::block_on(self.keeper.resize(capacity))?;
        if let Some(values) = &self.values {
            values.resize(capacity.memory)?;
        }
        self.choose(Why::Room)
    }

    /// Where a sample of this rank is to be kept on this node, if that is chosen.
    pub(super) fn place_now(&self, rank: Rank) -> Option<Place> {
        self.choosing.chosen.borrow().as_ref().map(|chosen| chosen.place(rank))
    }

    /// Where a sample of this rank is to be kept on this node, once that is chosen.
    pub(crate) async fn place(&self, rank: Rank) -> Place {
        let mut chosen = self.choosing.chosen.subscribe();
        match chosen.wait_for(Option::is_some).await {
            Ok(chosen) => chosen.as_ref().map(|chosen| chosen.place(rank)).unwrap_or_default(),
            Err(_) => Place::default(),
        }
    }
}

impl Names {
    /// Every sample's rank on this node, and what it takes; memory may hold values instead of payloads.
    fn ranked(&self, ownership: &Ownership, values: Option<&Values>) -> impl Iterator<Item = (Rank, Cost)> {
        (0..self.manifest.len()).map(move |sample| {
            let (_, fields) = self.inputs.of(SampleId(sample));
            let mut cost = Cost { memory: 0, disk: 0 };
            for (field, location) in &fields {
                let memory = values.map_or(location.length, |values| values.cost(*field, location.length));
                cost.memory = cost.memory.saturating_add(memory);
                cost.disk = cost.disk.saturating_add(DiskTier::cost(location.length));
            }
            (ownership.local_rank(self.rank(&fields)), cost)
        })
    }

    /// Every payload of the dataset: the rank of its sample, its length and its name.
    fn each(&self, mut visit: impl FnMut(Rank, u64, PayloadId)) {
        for sample in 0..self.manifest.len() {
            let (_, fields) = self.inputs.of(SampleId(sample));
            let rank = self.rank(&fields);
            for (_, location) in fields {
                visit(rank, location.length, self.payload(rank, location).id);
            }
        }
    }
}
