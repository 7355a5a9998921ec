//! The nodes of a job as one cache: every node keeps what it owns, and reads from its owner what it does not have.
//!
//! Who owns a payload is computed (`forebay_core::cache::Ownership`), so nodes exchange payloads and nothing else. A
//! payload that its owner does not have comes from the store and is then given to the owner, besides the training's
//! way: from a queue with a limit, and dropped when that is full. A node that is lost or slow costs its own payloads
//! only: they come from the store until it answers again ([`Health`]).
//!
//! What a node is given it keeps as it sees fit ([`OwnedKeeper`]): where its own [`Placing`] says, and without one in
//! memory while there is room, else on disk. The sender's opinion (`Place { memory: true, disk: true }`) says only
//! that it is worth keeping.

mod health;
mod members;
mod owned;
mod peers;

pub use health::Health;
pub use members::Members;
pub use owned::OwnedKeeper;

use crate::client::{Connect, TcpConnector};
use crate::credentials::Credentials;
use crate::server::lock;
use crate::threads::Threads;
use bytes::Bytes;
use forebay_core::Result;
use forebay_core::cache::{Capacity, Ownership, PayloadId, Place};
use forebay_engine::cache::{Keeper, KeeperView, Look, Payload, Tier};
use futures::future::{BoxFuture, FutureExt, join_all};
use peers::Peer;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Most payloads between a look and their read; what is beyond goes to the store.
const MOST_EXPECTED: usize = 1 << 20;

/// Where this node keeps a payload.
#[derive(Clone)]
pub struct Placing(pub Arc<dyn Fn(&Payload) -> Place + Send + Sync>);

impl fmt::Debug for Placing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Placing")
    }
}

/// How to get along with peers.
#[derive(Clone, Debug)]
pub struct PeerOptions {
    /// How to show who we are.
    pub credentials: Credentials,
    /// Where this node keeps what it reads from others: spare room takes copies. `None` keeps no copies.
    pub placing: Option<Placing>,
    /// Bytes that wait to be given to one peer; what is more is dropped.
    pub give_bytes: usize,
    /// How long an answer may take before it is known what is usual.
    pub first_deadline: Duration,
    /// An answer may always take this long.
    pub shortest_deadline: Duration,
}

impl Default for PeerOptions {
    fn default() -> Self {
        Self {
            credentials: Credentials::default(),
            placing: None,
            give_bytes: 64 << 20,
            first_deadline: Duration::from_secs(2),
            shortest_deadline: Duration::from_millis(200),
        }
    }
}

/// What became of payloads that others own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerView {
    /// Read from their owners.
    pub hits: u64,
    /// Asked for, and not with their owners.
    pub misses: u64,
    /// Asked for, without an answer in time.
    pub unanswered: u64,
    /// Given to their owners.
    pub given: u64,
    /// Not given, since too many waited for that already or the owner was lost.
    pub dropped: u64,
}

/// A keeper of its own payloads that reads the others' from their owners. Clones share everything.
#[derive(Clone, Debug)]
pub struct PeerKeeper {
    inner: Arc<Inner>,
    threads: Threads,
}

#[derive(Debug)]
struct Inner {
    local: Arc<dyn Keeper>,
    ownership: Ownership,
    /// By their numbers; `None` is us.
    peers: Vec<Option<Arc<Peer>>>,
    placing: Option<Placing>,
    /// Payloads we said are with a peer, and how often: those reads are not the local keeper's.
    expected: Mutex<HashMap<PayloadId, u32>>,
    tally: Arc<Tally>,
}

#[derive(Debug, Default)]
struct Tally {
    hits: AtomicU64,
    misses: AtomicU64,
    unanswered: AtomicU64,
    given: AtomicU64,
    dropped: AtomicU64,
}

impl PeerKeeper {
    /// Peers by address. Nothing is connected before it is needed. `ownership` has the members' order and seed.
    pub fn new(
        local: Arc<dyn Keeper>,
        ownership: Ownership,
        members: &Members,
        options: PeerOptions,
        threads: Threads,
    ) -> Result<Self> {
        let connector = |address: &String| -> Result<Box<dyn Connect>> {
            Ok(Box::new(TcpConnector::new(address, &options.credentials)?))
        };
        let connectors: Vec<_> = members.addresses().iter().map(connector).collect::<Result<_>>()?;
        Ok(Self::with_connectors(local, ownership, connectors, options, threads))
    }

    /// As [`Self::new`], for streams of any kind; there is one connector for each member, ours is not used.
    pub fn with_connectors(
        local: Arc<dyn Keeper>,
        ownership: Ownership,
        connectors: Vec<Box<dyn Connect>>,
        options: PeerOptions,
        threads: Threads,
    ) -> Self {
        let tally = Arc::<Tally>::default();
        let peers = connectors.into_iter().enumerate().map(|(number, connector)| {
            (number != ownership.me()).then(|| Peer::start(connector, &options, tally.clone(), &threads))
        });
        let peers = peers.collect();
        let inner =
            Inner { local, ownership, peers, placing: options.placing, expected: Mutex::default(), tally };
        Self { inner: Arc::new(inner), threads }
    }

    /// Asks owners for payloads, given by owner as places in `payloads`; what is found is put there in `found`.
    async fn ask(
        &self,
        payloads: &[Payload],
        there: HashMap<usize, Vec<usize>>,
        found: &mut [Option<(Bytes, Tier)>],
    ) {
        let asked = there.into_iter().filter_map(|(owner, indices)| {
            let peer = self.inner.peers.get(owner)?.clone()?;
            let wanted: Vec<Payload> = indices.iter().map(|index| payloads[*index]).collect();
            Some(async move {
                let answer = self.threads.run(async move { peer.read(&wanted).await }).await;
                (indices, answer.unwrap_or_default())
            })
        });
        for (indices, answers) in join_all(asked).await {
            for (index, answer) in indices.into_iter().zip(answers) {
                if let Some((bytes, _)) = answer {
                    self.inner.copy(payloads[index], &bytes).await;
                    found[index] = Some((bytes, Tier::Peer));
                }
            }
        }
    }

    /// What became of others' payloads so far.
    pub fn peer_view(&self) -> PeerView {
        let tally = &self.inner.tally;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        PeerView {
            hits: read(&tally.hits),
            misses: read(&tally.misses),
            unanswered: read(&tally.unanswered),
            given: read(&tally.given),
            dropped: read(&tally.dropped),
        }
    }
}

impl Inner {
    /// The peer that owns a payload and its number, unless that is us.
    fn owner(&self, payload: &Payload) -> Option<(usize, &Arc<Peer>)> {
        let number = self.ownership.owner(payload.rank);
        Some((number, self.peers.get(number)?.as_ref()?))
    }

    /// Whether a look has sent this payload's read to its owner.
    fn was_expected(&self, name: PayloadId) -> bool {
        let mut expected = lock(&self.expected);
        let Some(count) = expected.get_mut(&name) else { return false };
        *count -= 1;
        if *count == 0 {
            expected.remove(&name);
        }
        true
    }

    /// What came from a peer may be worth a copy here. Either way nobody here waits for it any more.
    async fn copy(&self, payload: Payload, bytes: &Bytes) {
        let place = self.placing.as_ref().map(|placing| (placing.0)(&payload)).unwrap_or_default();
        if place.is_kept() {
            self.local.keep(payload, place, bytes).await;
        } else {
            self.local.give_up(payload);
        }
    }
}

impl Keeper for PeerKeeper {
    fn look<'a>(&'a self, payloads: &'a [Payload]) -> BoxFuture<'a, Vec<Look>> {
        async move {
            let inner = &self.inner;
            let mut looks = inner.local.look(payloads).await;
            for (look, payload) in looks.iter_mut().zip(payloads) {
                if !matches!(look, Look::Absent) {
                    continue;
                }
                let Some((owner, _)) = inner.owner(payload).filter(|(_, peer)| peer.is_up()) else {
                    continue;
                };
                let mut expected = lock(&inner.expected);
                if expected.len() < MOST_EXPECTED {
                    *expected.entry(payload.id).or_default() += 1;
                    // From the top, so that they are not those of the local keeper's own.
                    *look = Look::Near { tier: Tier::Peer, together: Some(u32::MAX - owner as u32) };
                }
            }
            looks
        }
        .boxed()
    }

    fn read<'a>(&'a self, payloads: &'a [Payload]) -> BoxFuture<'a, Vec<Option<(Bytes, Tier)>>> {
        async move {
            let inner = &self.inner;
            let mut found = vec![None; payloads.len()];
            let mut here = Vec::new();
            let mut there: HashMap<usize, Vec<usize>> = HashMap::new();
            for (index, payload) in payloads.iter().enumerate() {
                match inner.owner(payload) {
                    Some((owner, _)) if inner.was_expected(payload.id) => {
                        there.entry(owner).or_default().push(index);
                    }
                    _ => here.push(index),
                }
            }
            let local: Vec<Payload> = here.iter().map(|index| payloads[*index]).collect();
            let local = async { if local.is_empty() { Vec::new() } else { inner.local.read(&local).await } };
            let (local, ()) = futures::future::join(local, self.ask(payloads, there, &mut found)).await;
            // What nobody here brings after all may still be with its owner.
            let mut there: HashMap<usize, Vec<usize>> = HashMap::new();
            let mut local = local.into_iter();
            for index in here {
                found[index] = local.next().flatten();
                if found[index].is_none()
                    && let Some((owner, _)) = inner.owner(&payloads[index]).filter(|(_, peer)| peer.is_up())
                {
                    there.entry(owner).or_default().push(index);
                }
            }
            self.ask(payloads, there, &mut found).await;
            found
        }
        .boxed()
    }

    fn keep<'a>(&'a self, payload: Payload, place: Place, bytes: &'a Bytes) -> BoxFuture<'a, ()> {
        async move {
            if let Some((_, peer)) = self.inner.owner(&payload) {
                peer.give(payload, bytes);
            }
            self.inner.local.keep(payload, place, bytes).await;
        }
        .boxed()
    }

    fn settle<'a>(&'a self, payload: Payload, place: Place, bytes: &'a Bytes) -> BoxFuture<'a, ()> {
        self.inner.local.keep(payload, place, bytes)
    }

    fn give_up(&self, payload: Payload) {
        self.inner.local.give_up(payload);
    }

    fn held(&self, group: u64) -> BoxFuture<'_, Vec<PayloadId>> {
        self.inner.local.held(group)
    }

    fn forget<'a>(&'a self, payloads: &'a [PayloadId]) -> BoxFuture<'a, ()> {
        self.inner.local.forget(payloads)
    }

    fn resize(&self, capacity: Capacity) -> BoxFuture<'_, Result<()>> {
        self.inner.local.resize(capacity)
    }

    /// Also waits until all that was to be given to owners has been given or dropped.
    fn flush(&self) -> BoxFuture<'_, ()> {
        async move {
            join_all(self.inner.peers.iter().flatten().map(|peer| peer.flush())).await;
            self.inner.local.flush().await;
        }
        .boxed()
    }

    fn view(&self) -> KeeperView {
        self.inner.local.view()
    }
}
