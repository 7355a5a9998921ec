//! The cache: payloads kept near the loader, in memory, on disk and with peers. Nothing is evicted.
//!
//! What is kept is core's decision (`forebay_core::cache`). A [`Keeper`] holds the bytes, in this
//! process or elsewhere (a process of the host, peers: `forebay-net`).

mod ages;
mod choosing;
mod config;
pub mod disk;
mod disk_keeper;
mod local;
mod memory;
mod owners;
mod peers_config;
mod probe;
mod resident;
mod values;
mod warm;

pub use ages::{Ages, seconds_now};
pub use config::{CacheAt, CacheConfig, DiskConfig, Share};
pub use disk::DiskTier;
pub use disk_keeper::DiskKeeper;
pub use local::LocalKeeper;
pub use memory::MemoryTier;
pub use owners::Owners;
pub use peers_config::{MembersFrom, PeersConfig};
pub use resident::CacheSettings;
pub(crate) use resident::{Cache, Claim};
pub(crate) use values::{Preparing, ValueClaim, ValueLook};
pub use warm::{Warmed, warm};

use bytes::Bytes;
use forebay_core::Result;
use forebay_core::cache::{Capacity, PayloadId, Place, Rank};
use futures::future::{BoxFuture, FutureExt};

/// One payload as a keeper sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload {
    /// Its name.
    pub id: PayloadId,
    /// The rank of its sample: says who owns it.
    pub rank: Rank,
    /// Its bytes.
    pub length: u64,
    /// The dataset it belongs to, so that what a dataset no longer wants can be told from what others want.
    pub group: u64,
}

/// Where a payload was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// In memory of this host.
    Memory,
    /// On a local disk.
    Disk,
    /// With a peer.
    Peer,
}

/// What a keeper says about a payload it is asked for.
#[derive(Clone, Debug)]
pub enum Look {
    /// Here it is; no copy was made.
    Here(Bytes),
    /// It has to be read: see [`Keeper::read`]. Payloads of one `together` may be read by one call.
    Near {
        /// Where it probably is.
        tier: Tier,
        /// Payloads with the same number are best read together; `None` is read alone.
        together: Option<u32>,
    },
    /// Somebody is fetching it: [`Keeper::read`] waits until it is here, or says that it will not come.
    Coming,
    /// It has to come from the store, and whoever asked is the one to fetch it: it ends in [`Keeper::keep`] or
    /// [`Keeper::give_up`].
    Absent,
}

/// What became of reading a payload without waiting for others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// It is here.
    Here(Bytes, Tier),
    /// Somebody is fetching it, here or elsewhere: [`Keeper::read`] waits for that one.
    Coming,
    /// It has to come from the store, as with [`Look::Absent`].
    Absent,
}

/// Bytes and counts of one tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierView {
    /// Most bytes it may hold.
    pub limit: u64,
    /// Bytes of payloads it holds.
    pub bytes: u64,
    /// Payloads it holds.
    pub payloads: u64,
    /// Payloads that were refused since there was no room.
    pub refused: u64,
    /// Payloads that were found damaged and forgotten.
    pub damaged: u64,
    /// Payloads that were served.
    pub hits: u64,
    /// When the payload that is here longest was kept, in seconds since 1970.
    pub oldest: Option<u32>,
    /// When the last one was kept.
    pub newest: Option<u32>,
}

impl TierView {
    /// How long ago the payload was kept that is here longest; 0 when nothing is.
    pub fn age_seconds(&self) -> f64 {
        self.oldest.map_or(0.0, |oldest| seconds_now().saturating_sub(oldest).into())
    }
}

/// What a keeper holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeeperView {
    /// Memory.
    pub memory: TierView,
    /// Disk.
    pub disk: TierView,
    /// Payloads that somebody is fetching and has neither kept nor given up.
    pub coming: u64,
    /// The nodes that keep payloads together.
    pub peers: PeersView,
}

/// How this node gets along with its peers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeersView {
    /// Nodes that take part; 0 without peers.
    pub members: u64,
    /// Payloads that owners gave.
    pub hits: u64,
    /// Payloads that were not with their owners.
    pub misses: u64,
    /// Payloads asked for without an answer in time.
    pub unanswered: u64,
    /// Payloads given to their owners.
    pub given: u64,
    /// Payloads not given: too many waited for that already, or the owner was lost.
    pub dropped: u64,
    /// Bytes that wait to be given.
    pub waiting_bytes: u64,
}

/// Whoever holds payloads. Calls never fail: a keeper that cannot answer says that it has nothing.
pub trait Keeper: Send + Sync + std::fmt::Debug {
    /// One answer per payload asked for, in order.
    fn look<'a>(&'a self, payloads: &'a [Payload]) -> BoxFuture<'a, Vec<Look>>;

    /// Reads payloads that were [`Look::Near`] or [`Look::Coming`], one answer each, in order. `None` sends the asker to the store, as
    /// [`Look::Absent`] does.
    fn read<'a>(&'a self, payloads: &'a [Payload]) -> BoxFuture<'a, Vec<Option<(Bytes, Tier)>>>;

    /// As [`Self::read`], without waiting for what a peer's peer fetches: whoever holds memory for what it reads may
    /// not, since the other may wait for such memory too.
    fn read_now<'a>(&'a self, payloads: &'a [Payload]) -> BoxFuture<'a, Vec<Read>> {
        async move {
            let found = self.read(payloads).await.into_iter();
            found.map(|found| found.map_or(Read::Absent, |(bytes, tier)| Read::Here(bytes, tier))).collect()
        }
        .boxed()
    }

    /// Takes a payload that came from the store; `place` says where it belongs on this node. Cheap when it belongs
    /// nowhere.
    fn keep<'a>(&'a self, payload: Payload, place: Place, bytes: &'a Bytes) -> BoxFuture<'a, ()>;

    /// Takes a payload that [`Self::read`] brought: kept on this node where it belongs and is not yet, told nobody.
    fn settle<'a>(&'a self, payload: Payload, place: Place, bytes: &'a Bytes) -> BoxFuture<'a, ()> {
        self.keep(payload, place, bytes)
    }

    /// Takes a payload that a peer gives: into memory while there is room, else onto disk.
    fn admit<'a>(&'a self, payload: Payload, bytes: &'a Bytes) -> BoxFuture<'a, ()>;

    /// The payload will not come: somebody else may fetch it.
    fn give_up(&self, payload: Payload);

    /// Names of all payloads held for a dataset.
    fn held(&self, group: u64) -> BoxFuture<'_, Vec<PayloadId>>;

    /// Lets go of payloads that their dataset no longer wants. Called before an epoch, never for others' payloads.
    fn forget<'a>(&'a self, payloads: &'a [PayloadId]) -> BoxFuture<'a, ()>;

    /// Changes how much may be held. With less room payloads of the highest ranks go at once, until the rest fits.
    fn resize(&self, capacity: Capacity) -> BoxFuture<'_, Result<()>>;

    /// Waits until what was kept is where it belongs: written, or with its owner.
    fn flush(&self) -> BoxFuture<'_, ()> {
        futures::future::ready(()).boxed()
    }

    /// What is held.
    fn view(&self) -> KeeperView;
}
