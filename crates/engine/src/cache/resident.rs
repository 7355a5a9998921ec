//! One loader's view of the cache: the names and ranks of its payloads, and which of them are to be kept.
//!
//! Which samples are resident is found out beside the first epoch, on a thread of its own: nothing but keeping a
//! payload waits for it. Fetching asks here first and comes here with what the store gave.

use super::probe::Probe;
use super::values::{Preparing, Values};
use super::{CacheAt, CacheConfig, DiskTier, Keeper, KeeperView, LocalKeeper, Look, Payload, Tier};
use crate::inputs::Inputs;
use crate::meter::Meter;
use bytes::Bytes;
use forebay_core::cache::{
    Capacity, Cost, ObjectVersion, Ownership, PayloadId, Place, Rank, Residency, key_hash,
};
use forebay_core::manifest::{Location, Manifest};
use forebay_core::{Error, Result, SampleId};
use forebay_store::Store;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// How long closing waits for a disk.
const CLOSE_WAIT: Duration = Duration::from_millis(1500);

/// How a loader caches: given before the first batch, carried out with it.
#[derive(Clone)]
pub struct CacheSettings {
    /// Room on this node.
    pub capacity: Capacity,
    /// Decides which samples are resident when not all fit. All members of a job give the same.
    pub seed: u64,
    /// Who owns what.
    pub ownership: Ownership,
    /// What memory keeps of a sample. Other than payloads only when memory is this process's own.
    pub at: CacheAt,
    /// Gives the keeper, when the first batch is asked for.
    pub open: Arc<dyn Fn() -> Result<Arc<dyn Keeper>> + Send + Sync>,
}

impl CacheSettings {
    /// A cache inside this process.
    pub fn local(config: CacheConfig) -> Self {
        Self {
            capacity: config.capacity(),
            seed: config.seed,
            ownership: Ownership::alone(),
            at: config.at.clone(),
            open: Arc::new(move || Ok(LocalKeeper::open(&config)? as Arc<dyn Keeper>)),
        }
    }
}

impl std::fmt::Debug for CacheSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CacheSettings")
            .field("capacity", &self.capacity)
            .field("seed", &self.seed)
            .field("ownership", &self.ownership)
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}

/// What is kept of one dataset, and by whom.
pub(crate) struct Cache {
    keeper: Arc<dyn Keeper>,
    /// What is kept instead of payloads; it takes the place of the keeper's memory.
    pub(super) values: Option<Values>,
    names: Arc<Names>,
    chosen: watch::Sender<Option<Residency>>,
    /// One choice at a time.
    choosing: Mutex<()>,
    pub(super) meter: Arc<Meter>,
}

/// What payloads of a dataset are called.
struct Names {
    inputs: Inputs,
    manifest: Manifest,
    store: Arc<dyn Store>,
    seed: u64,
    ownership: Ownership,
    group: u64,
}

/// A payload to be fetched from the store by us. Whatever happens to it, the keeper hears of it.
pub(crate) struct Claim {
    keeper: Arc<dyn Keeper>,
    payload: Payload,
    done: bool,
}

impl Claim {
    pub(super) fn new(keeper: Arc<dyn Keeper>, payload: Payload) -> Self {
        Self { keeper, payload, done: false }
    }

    pub(super) fn payload(&self) -> &Payload {
        &self.payload
    }

    pub(super) async fn keep(mut self, place: Place, bytes: &Bytes) {
        self.done = true;
        self.keeper.keep(self.payload, place, bytes).await;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.done {
            self.keeper.give_up(self.payload);
        }
    }
}

impl Cache {
    /// Opens the keeper and begins to choose what is resident.
    pub(crate) fn open(
        settings: &CacheSettings,
        inputs: Inputs,
        manifest: &Manifest,
        store: Arc<dyn Store>,
        meter: Arc<Meter>,
        preparing: Option<&Preparing>,
    ) -> Result<Arc<Self>> {
        let values = Values::new(&settings.at, preparing, &inputs, settings.capacity.memory)?;
        let keeper = (settings.open)()?;
        // Datasets of one bucket, and recipes that need other fields, want other payloads.
        let spec = manifest.meta().get("spec").and_then(|spec| spec.as_str()).unwrap_or_default();
        let group = key_hash(&format!("{}\0{spec}\0{}", store.url(""), inputs.names()));
        let names = Arc::new(Names {
            inputs,
            manifest: manifest.clone(),
            store,
            seed: settings.seed,
            ownership: settings.ownership.clone(),
            group,
        });
        let cache = Arc::new(Self {
            keeper,
            values,
            names,
            chosen: watch::Sender::new(None),
            choosing: Mutex::new(()),
            meter,
        });
        cache.choose(settings.capacity, true)?;
        Ok(cache)
    }

    /// Chooses what is resident: at once when all fits, otherwise on a thread of its own.
    fn choose(self: &Arc<Self>, capacity: Capacity, begin: bool) -> Result<()> {
        let fits = self.names.manifest.total_bytes() <= capacity.memory && capacity.disk == 0;
        if fits && self.values.is_none() {
            self.chosen.send_replace(Some(Residency::all()));
            return Ok(());
        }
        self.chosen.send_replace(None);
        let cache = Arc::clone(self);
        let work = move || {
            let _one = cache.choosing.lock().unwrap_or_else(PoisonError::into_inner);
            let disk = capacity.disk.saturating_sub(DiskTier::fixed_cost());
            let names = &cache.names;
            let cost = |field: usize, length: u64| match &cache.values {
                Some(values) => values.cost(field, length),
                None => length,
            };
            if let Some(values) = &cache.values {
                let samples = names.manifest.len();
                values.decide(&Probe { inputs: &names.inputs, store: &names.store, samples }, capacity);
                let most = values.most_bytes(samples, names.manifest.total_bytes());
                if most <= capacity.memory && capacity.disk == 0 {
                    cache.chosen.send_replace(Some(Residency::all()));
                    return;
                }
            }
            let residency = Residency::choose(Capacity { disk, ..capacity }, names.ranked(cost));
            if begin {
                cache.forget_unwanted(&residency);
            }
            cache.chosen.send_replace(Some(residency));
        };
        std::thread::Builder::new()
            .name("forebay-cache".into())
            .spawn(work)
            .map_err(|cause| Error::exhausted("start the thread that plans the cache").with_source(cause))?;
        Ok(())
    }

    /// Lets go of payloads that an earlier version of the dataset left behind, when their room is needed.
    fn forget_unwanted(&self, residency: &Residency) {
        let held: HashSet<PayloadId> =
            futures::executor::block_on(self.keeper.held(self.names.group)).into_iter().collect();
        if held.is_empty() {
            return;
        }
        let mut unwanted = held;
        for sample in 0..self.names.manifest.len() {
            let (_, fields) = self.names.inputs.of(SampleId(sample));
            let rank = self.names.rank(&fields);
            if residency.place(self.names.ownership.local_rank(rank)).is_kept() {
                for (_, location) in fields {
                    unwanted.remove(&self.names.payload(rank, location).id);
                }
            }
        }
        let unwanted: Vec<PayloadId> = unwanted.into_iter().collect();
        if !unwanted.is_empty() {
            tracing::info!(payloads = unwanted.len(), "the cache lets go of what the dataset no longer has");
            futures::executor::block_on(self.keeper.forget(&unwanted));
        }
    }

    /// Changes the room; what is resident is chosen anew.
    pub(crate) fn resize(self: &Arc<Self>, capacity: Capacity) -> Result<()> {
        self.chosen.send_replace(None);
        futures::executor::block_on(self.keeper.resize(capacity))?;
        if let Some(values) = &self.values {
            values.resize(capacity.memory)?;
        }
        self.choose(capacity, false)
    }

    /// The rank of a sample by the payloads it needs.
    pub(crate) fn rank(&self, fields: &[(usize, Location)]) -> Rank {
        self.names.rank(fields)
    }

    /// The payload at a place, of a sample of this rank.
    pub(crate) fn payload(&self, rank: Rank, location: Location) -> Payload {
        self.names.payload(rank, location)
    }

    /// What is known about each of these. Hits are counted here, misses when they are claimed.
    pub(crate) async fn look(&self, payloads: &[Payload]) -> Vec<Look> {
        let mut looks = self.keeper.look(payloads).await;
        for (look, payload) in looks.iter_mut().zip(payloads) {
            match look {
                Look::Here(_) => self.count_hit(Tier::Memory, payload.length),
                // What will not be kept, here or by its owner, is not waited for either.
                Look::Coming
                    if self.names.ownership.is_mine(payload.rank)
                        && !self.payload_place(payload.rank).await.is_kept() =>
                {
                    *look = Look::Absent;
                }
                Look::Coming | Look::Near { .. } | Look::Absent => {}
            }
        }
        looks
    }

    /// Reads what is near. What comes is kept where it belongs.
    pub(crate) async fn read(&self, payloads: &[Payload]) -> Vec<Option<Bytes>> {
        let answers = self.keeper.read(payloads).await;
        let mut read = Vec::with_capacity(payloads.len());
        for (answer, payload) in answers.into_iter().zip(payloads) {
            let whole = answer.filter(|(bytes, _)| bytes.len() as u64 == payload.length);
            if let Some((bytes, tier)) = &whole {
                self.count_hit(*tier, payload.length);
                let place = self.payload_place(payload.rank).await;
                // What is on disk already belongs at most into memory too.
                let disk = place.disk && *tier == Tier::Peer;
                let missing = Place { memory: place.memory && *tier != Tier::Memory, disk };
                if missing.is_kept() {
                    self.keeper.settle(*payload, missing, bytes).await;
                }
            }
            read.push(whole.map(|(bytes, _)| bytes));
        }
        // A keeper that answers too little has not got the rest.
        read.resize(payloads.len(), None);
        read
    }

    /// We are to fetch it.
    pub(crate) fn claim(&self, payload: Payload) -> Claim {
        self.meter.cache_misses.add(1);
        self.meter.cache_miss_bytes.add(payload.length);
        Claim::new(Arc::clone(&self.keeper), payload)
    }

    /// Hands over what the store gave.
    pub(crate) async fn keep(&self, claim: Claim, bytes: &Bytes) {
        let place = self.payload_place(claim.payload.rank).await;
        claim.keep(place, bytes).await;
    }

    /// Where payloads of a sample of this rank are to be kept: not in memory, when that holds values instead.
    async fn payload_place(&self, rank: Rank) -> Place {
        let place = self.place(rank).await;
        let values = self.values.as_ref().and_then(Values::is_on) == Some(true);
        Place { memory: place.memory && !values, ..place }
    }

    /// Where a sample of this rank is to be kept on this node, if that is chosen.
    pub(super) fn place_now(&self, rank: Rank) -> Option<Place> {
        let rank = self.names.ownership.local_rank(rank);
        self.chosen.borrow().map(|residency| residency.place(rank))
    }

    /// Where a sample of this rank is to be kept on this node, once that is chosen.
    pub(crate) async fn place(&self, rank: Rank) -> Place {
        let rank = self.names.ownership.local_rank(rank);
        let mut chosen = self.chosen.subscribe();
        match chosen.wait_for(Option::is_some).await {
            Ok(residency) => residency.map(|residency| residency.place(rank)).unwrap_or_default(),
            Err(_) => Place::default(),
        }
    }

    /// Waits until all that was kept is where it belongs.
    pub(crate) async fn flush(&self) {
        self.keeper.flush().await;
    }

    /// Writes what is still to be written, but for a disk that takes longer than closing may.
    pub(crate) fn close(self: Arc<Self>) {
        let (written, done) = std::sync::mpsc::channel();
        let cache = Arc::clone(&self);
        let flush = move || {
            futures::executor::block_on(cache.flush());
            let _ = written.send(());
        };
        if std::thread::Builder::new().name("forebay-cache".into()).spawn(flush).is_ok()
            && done.recv_timeout(CLOSE_WAIT).is_err()
        {
            tracing::warn!(
                "the cache still writes to its disk; what is not written when the process ends is fetched again"
            );
        }
    }

    pub(super) fn count_hit(&self, tier: Tier, bytes: u64) {
        self.meter.cache_hit_bytes.add(bytes);
        match tier {
            Tier::Memory => self.meter.cache_memory_hits.add(1),
            Tier::Disk => self.meter.cache_disk_hits.add(1),
            Tier::Peer => self.meter.cache_peer_hits.add(1),
        }
    }

    pub(crate) fn view(&self) -> KeeperView {
        let mut view = self.keeper.view();
        if let Some(values) = &self.values {
            let kept = values.view();
            view.memory.bytes += kept.memory.bytes;
            view.memory.payloads += kept.memory.payloads;
            view.memory.refused += kept.memory.refused;
            view.memory.limit = kept.memory.limit;
            view.coming += kept.coming;
        }
        view
    }
}

impl Names {
    fn rank(&self, fields: &[(usize, Location)]) -> Rank {
        match fields.first() {
            Some((_, first)) => {
                let object = self.manifest.object(first.object);
                Rank::new(self.seed, key_hash(&object.key), first.offset)
            }
            None => Rank(u64::MAX),
        }
    }

    fn payload(&self, rank: Rank, location: Location) -> Payload {
        let object = self.manifest.object(location.object);
        let url = self.store.url(&object.key);
        let version = ObjectVersion::new(&url, object.size, object.stamp, self.manifest.version());
        let id = version.payload(location.offset, location.length);
        Payload { id, rank, length: location.length, group: self.group }
    }

    /// Every sample's rank on this node, and what it takes; `memory` says what a field of some length takes there.
    fn ranked(&self, memory: impl Fn(usize, u64) -> u64) -> impl Iterator<Item = (Rank, Cost)> {
        (0..self.manifest.len()).map(move |sample| {
            let (_, fields) = self.inputs.of(SampleId(sample));
            let mut cost = Cost { memory: 0, disk: 0 };
            for (field, location) in &fields {
                cost.memory = cost.memory.saturating_add(memory(*field, location.length));
                cost.disk = cost.disk.saturating_add(DiskTier::cost(location.length));
            }
            (self.ownership.local_rank(self.rank(&fields)), cost)
        })
    }
}
