//! One loader's view of the cache: the names and ranks of its payloads. Fetching asks here first and comes here with
//! what the store gave. Which payloads are to be kept is found out in `choosing`.

use super::choosing::{Choosing, Why};
use super::values::{Preparing, Values};
use super::{CacheAt, CacheConfig, Keeper, KeeperView, LocalKeeper, Look, Owners, Payload, Read, Tier};
use crate::inputs::Inputs;
use crate::meter::Meter;
use crate::sync::{mpsc, thread};
use bytes::Bytes;
use forebay_core::Result;
use forebay_core::cache::{Capacity, ObjectVersion, Place, Rank, key_hash};
use forebay_core::manifest::{Location, Manifest};
use forebay_store::Store;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How long closing waits for a disk.
const CLOSE_WAIT: Duration = Duration::from_millis(1500);

/// How a loader caches: given before the first batch, carried out with it.
#[derive(Clone)]
pub struct CacheSettings {
    /// Room on this node.
    pub capacity: Capacity,
    /// Decides which samples are resident when not all fit. All members of a job give the same.
    pub seed: u64,
    /// Who owns what: members of a job may come and go while it runs.
    pub owners: Owners,
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
            owners: Owners::alone(),
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
            .field("owners", &self.owners)
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}

/// What is kept of one dataset, and by whom.
pub(crate) struct Cache {
    me: Weak<Self>,
    pub(super) keeper: Arc<dyn Keeper>,
    /// What is kept instead of payloads; it takes the place of the keeper's memory.
    pub(super) values: Option<Values>,
    pub(super) names: Arc<Names>,
    pub(super) owners: Owners,
    pub(super) choosing: Choosing,
    pub(super) meter: Arc<Meter>,
}

/// What payloads of a dataset are called.
pub(super) struct Names {
    pub(super) inputs: Inputs,
    pub(super) manifest: Manifest,
    pub(super) store: Arc<dyn Store>,
    seed: u64,
    pub(super) group: u64,
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
        let names = Arc::new(Names { inputs, manifest: manifest.clone(), store, seed: settings.seed, group });
        let cache = Arc::new_cyclic(|me| Self {
            me: me.clone(),
            keeper,
            values,
            names,
            owners: settings.owners.clone(),
            choosing: Choosing::new(settings.capacity),
            meter,
        });
        cache.choose(Why::Begin)?;
        Ok(cache)
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
        if self.owners.have_changed()
            && let Some(cache) = self.me.upgrade()
        {
            cache.follow_members();
        }
        let mut looks = self.keeper.look(payloads).await;
        for (look, payload) in looks.iter_mut().zip(payloads) {
            match look {
                Look::Here(_) => self.count_hit(Tier::Memory, payload.length),
                // What will not be kept, here or by its owner, is not waited for either.
                Look::Coming
                    if self.owners.now().is_mine(payload.rank)
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
                self.take_in(payload, bytes, *tier).await;
            }
            read.push(whole.map(|(bytes, _)| bytes));
        }
        // A keeper that answers too little has not got the rest.
        read.resize(payloads.len(), None);
        read
    }

    /// As [`Self::read`], but what somebody elsewhere fetches is not waited for.
    pub(crate) async fn read_now(&self, payloads: &[Payload]) -> Vec<Read> {
        let mut read = self.keeper.read_now(payloads).await;
        read.resize(payloads.len(), Read::Absent);
        for (answer, payload) in read.iter_mut().zip(payloads) {
            match answer {
                Read::Here(bytes, tier) if bytes.len() as u64 == payload.length => {
                    self.take_in(payload, bytes, *tier).await;
                }
                Read::Here(..) => *answer = Read::Absent,
                Read::Coming | Read::Absent => {}
            }
        }
        read
    }

    /// Counts what was read, and keeps it where it belongs and is not yet.
    async fn take_in(&self, payload: &Payload, bytes: &Bytes, tier: Tier) {
        self.count_hit(tier, payload.length);
        let place = self.payload_place(payload.rank).await;
        // What is on disk already belongs at most into memory too.
        let disk = place.disk && tier == Tier::Peer;
        let missing = Place { memory: place.memory && tier != Tier::Memory, disk };
        if missing.is_kept() {
            self.keeper.settle(*payload, missing, bytes).await;
        }
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

    /// Waits until all that was kept is where it belongs.
    pub(crate) async fn flush(&self) {
        self.keeper.flush().await;
    }

    /// Writes what is still to be written, but for a disk that takes longer than closing may.
    pub(crate) fn close(self: Arc<Self>) {
        let (written, done) = mpsc::channel();
        let cache = Arc::clone(&self);
        let flush = move || {
            futures::executor::block_on(cache.flush());
            let _ = written.send(());
        };
        if thread::Builder::new().name("forebay-cache".into()).spawn(flush).is_ok()
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
            view.memory.hits += kept.memory.hits;
            view.memory.oldest = view.memory.oldest.into_iter().chain(kept.memory.oldest).min();
            view.memory.newest = view.memory.newest.max(kept.memory.newest);
            view.memory.limit = kept.memory.limit;
            view.coming += kept.coming;
        }
        view
    }
}

impl Names {
    pub(super) fn rank(&self, fields: &[(usize, Location)]) -> Rank {
        match fields.first() {
            Some((_, first)) => {
                let object = self.manifest.object(first.object);
                Rank::new(self.seed, key_hash(&object.key), first.offset)
            }
            None => Rank(u64::MAX),
        }
    }

    pub(super) fn payload(&self, rank: Rank, location: Location) -> Payload {
        let object = self.manifest.object(location.object);
        let url = self.store.url(&object.key);
        let version = ObjectVersion::new(&url, object.size, object.stamp, self.manifest.version());
        let id = version.payload(location.offset, location.length);
        Payload { id, rank, length: location.length, group: self.group }
    }
}
