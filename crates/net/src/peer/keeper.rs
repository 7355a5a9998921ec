//! A node's own keeper together with those of its peers.

use super::peers::Peer;
use super::{Following, Members, PeerOptions, Tally};
use crate::client::{Asked, Connect, TcpConnector};
use crate::server::{Server, lock};
use crate::threads::Threads;
use bytes::Bytes;
use forebay_core::Result;
use forebay_core::cache::{Capacity, Ownership, PayloadId, Place};
use forebay_engine::cache::{Keeper, KeeperView, Look, Payload, PeersView, Read, Tier};
use futures::future::{BoxFuture, FutureExt, join_all};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

/// Most payloads between a look and their read; what is beyond goes to the store.
const MOST_EXPECTED: usize = 1 << 20;

/// A keeper of its own payloads that reads the others' from their owners. Clones share everything.
#[derive(Clone, Debug)]
pub struct PeerKeeper {
    inner: Arc<Inner>,
    threads: Threads,
}

#[derive(Debug)]
struct Inner {
    local: Arc<dyn Keeper>,
    nodes: RwLock<Arc<Nodes>>,
    options: PeerOptions,
    /// Payloads we said are with a peer, and how often: those reads are not the local keeper's.
    expected: Mutex<HashMap<PayloadId, u32>>,
    tally: Arc<Tally>,
    /// What shows our own payloads to the others, for as long as this lives.
    serving: Mutex<Option<Server>>,
    /// What tells us who takes part.
    following: Mutex<Option<Following>>,
}

/// A keeper that may be gone: for those who act on it and must not keep it.
#[derive(Clone, Debug)]
pub(crate) struct WeakPeerKeeper {
    inner: Weak<Inner>,
    threads: Threads,
}

impl WeakPeerKeeper {
    pub(crate) fn upgrade(&self) -> Option<PeerKeeper> {
        Some(PeerKeeper { inner: self.inner.upgrade()?, threads: self.threads.clone() })
    }
}

/// Who takes part.
#[derive(Debug)]
struct Nodes {
    ownership: Arc<Ownership>,
    /// By their numbers; `None` is us.
    peers: Vec<Option<Arc<Peer>>>,
}

impl Nodes {
    /// The peer that owns a payload and its number, unless that is us.
    fn owner(&self, payload: &Payload) -> Option<(usize, &Arc<Peer>)> {
        let number = self.ownership.owner(payload.rank);
        Some((number, self.peers.get(number)?.as_ref()?))
    }
}

impl PeerKeeper {
    /// Peers by address. Nothing is connected before it is needed. `ownership` has the members' order.
    pub fn new(
        local: Arc<dyn Keeper>,
        ownership: Arc<Ownership>,
        members: &Members,
        options: PeerOptions,
        threads: Threads,
    ) -> Result<Self> {
        let connectors = connectors(members, &options)?;
        Ok(Self::with_connectors(local, ownership, connectors, options, threads))
    }

    /// As [`Self::new`], for streams of any kind; there is one connector for each member, ours is not used.
    pub fn with_connectors(
        local: Arc<dyn Keeper>,
        ownership: Arc<Ownership>,
        connectors: Vec<Box<dyn Connect>>,
        options: PeerOptions,
        threads: Threads,
    ) -> Self {
        let nodes = RwLock::new(Arc::new(Nodes { ownership: ownership.clone(), peers: Vec::new() }));
        let inner = Inner {
            local,
            nodes,
            options,
            expected: Mutex::default(),
            tally: Arc::default(),
            serving: Mutex::default(),
            following: Mutex::default(),
        };
        let keeper = Self { inner: Arc::new(inner), threads };
        keeper.change_connectors(ownership, connectors);
        keeper
    }

    /// Others take part from now on. Who stays keeps its connection.
    pub fn change_members(&self, ownership: Arc<Ownership>, members: &Members) -> Result<()> {
        let connectors = connectors(members, &self.inner.options)?;
        self.change_connectors(ownership, connectors);
        Ok(())
    }

    /// As [`Self::change_members`], for streams of any kind.
    pub fn change_connectors(&self, ownership: Arc<Ownership>, connectors: Vec<Box<dyn Connect>>) {
        let inner = &self.inner;
        let before = inner.nodes();
        let known: HashMap<String, &Arc<Peer>> =
            before.peers.iter().flatten().map(|peer| (peer.name(), peer)).collect();
        let peer = |(number, connector): (usize, Box<dyn Connect>)| {
            (Some(number) != ownership.me()).then(|| match known.get(&connector.name()) {
                Some(peer) => Arc::clone(peer),
                None => Peer::start(connector, &inner.options, inner.tally.clone(), &self.threads),
            })
        };
        let peers = connectors.into_iter().enumerate().map(peer).collect();
        let nodes = Arc::new(Nodes { ownership, peers });
        *inner.nodes.write().unwrap_or_else(PoisonError::into_inner) = nodes;
    }

    /// Keeps a server as long as itself.
    pub(crate) fn serve_with(&self, server: Server) {
        *lock(&self.inner.serving) = Some(server);
    }

    /// Keeps what follows the members as long as itself.
    pub(crate) fn follow_with(&self, following: Following) {
        *lock(&self.inner.following) = Some(following);
    }

    pub(crate) fn downgrade(&self) -> WeakPeerKeeper {
        WeakPeerKeeper { inner: Arc::downgrade(&self.inner), threads: self.threads.clone() }
    }

    /// Asks owners for payloads, given by owner as places in `payloads`; what they say is put there in `found`.
    async fn ask(
        &self,
        nodes: &Nodes,
        payloads: &[Payload],
        there: HashMap<usize, Vec<usize>>,
        found: &mut [Read],
    ) {
        let asked = there.into_iter().filter_map(|(owner, indices)| {
            let peer = nodes.peers.get(owner)?.clone()?;
            let wanted: Vec<Payload> = indices.iter().map(|index| payloads[*index]).collect();
            Some(async move {
                let answer = self.threads.run(async move { peer.ask(&wanted).await }).await;
                (indices, answer.unwrap_or_default())
            })
        });
        for (indices, answers) in join_all(asked).await {
            for (index, answer) in indices.into_iter().zip(answers) {
                found[index] = match answer {
                    Asked::Here(bytes) => Read::Here(bytes, Tier::Peer),
                    Asked::Coming => Read::Coming,
                    Asked::Missing => Read::Absent,
                };
            }
        }
    }

    /// What there is of these, here and with their owners; `Coming` is what an owner waits for.
    async fn find(&self, nodes: &Nodes, payloads: &[Payload]) -> Vec<Read> {
        let inner = &self.inner;
        let mut found = vec![Read::Absent; payloads.len()];
        let mut here = Vec::new();
        let mut there: HashMap<usize, Vec<usize>> = HashMap::new();
        for (index, payload) in payloads.iter().enumerate() {
            match nodes.owner(payload) {
                _ if !inner.was_expected(payload.id) => here.push(index),
                Some((owner, _)) => there.entry(owner).or_default().push(index),
                // It became ours since the look: nobody has it.
                None => {}
            }
        }
        let local: Vec<Payload> = here.iter().map(|index| payloads[*index]).collect();
        let local = async { if local.is_empty() { Vec::new() } else { inner.local.read(&local).await } };
        let asked = self.ask(nodes, payloads, there, &mut found);
        let (local, ()) = futures::future::join(local, asked).await;
        // What nobody here brings after all may still be with its owner.
        let mut there: HashMap<usize, Vec<usize>> = HashMap::new();
        let mut local = local.into_iter();
        for index in here {
            if let Some((bytes, tier)) = local.next().flatten() {
                found[index] = Read::Here(bytes, tier);
            } else if let Some((owner, _)) = nodes.owner(&payloads[index]).filter(|(_, peer)| peer.is_up()) {
                there.entry(owner).or_default().push(index);
            }
        }
        self.ask(nodes, payloads, there, &mut found).await;
        found
    }

    /// Waits for a payload that its owner says is coming.
    async fn wait_for(&self, nodes: &Nodes, payload: Payload) -> Option<(Bytes, Tier)> {
        let (_, peer) = nodes.owner(&payload)?;
        let peer = Arc::clone(peer);
        let bytes = self.threads.run(async move { peer.wait_for(payload).await }).await.flatten()?;
        Some((bytes, Tier::Peer))
    }

    /// How it gets along with its peers.
    pub fn peers_view(&self) -> PeersView {
        let (tally, nodes) = (&self.inner.tally, self.inner.nodes());
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        PeersView {
            members: nodes.ownership.len() as u64,
            hits: read(&tally.hits),
            misses: read(&tally.misses),
            unanswered: read(&tally.unanswered),
            given: read(&tally.given),
            dropped: read(&tally.dropped),
            waiting_bytes: nodes.peers.iter().flatten().map(|peer| peer.waiting_bytes()).sum(),
        }
    }
}

fn connectors(members: &Members, options: &PeerOptions) -> Result<Vec<Box<dyn Connect>>> {
    let connector = |address: &String| -> Result<Box<dyn Connect>> {
        Ok(Box::new(TcpConnector::new(address, &options.credentials)?))
    };
    members.addresses().iter().map(connector).collect()
}

impl Inner {
    fn nodes(&self) -> Arc<Nodes> {
        self.nodes.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The next read of this payload goes to its owner; false when too many do already.
    fn expect(&self, name: PayloadId) -> bool {
        let mut expected = lock(&self.expected);
        let room = expected.len() < MOST_EXPECTED;
        if room {
            *expected.entry(name).or_default() += 1;
        }
        room
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
}

impl Keeper for PeerKeeper {
    fn look<'a>(&'a self, payloads: &'a [Payload]) -> BoxFuture<'a, Vec<Look>> {
        async move {
            let inner = &self.inner;
            let nodes = inner.nodes();
            let mut looks = inner.local.look(payloads).await;
            for (look, payload) in looks.iter_mut().zip(payloads) {
                if !matches!(look, Look::Absent) {
                    continue;
                }
                let Some((owner, _)) = nodes.owner(payload).filter(|(_, peer)| peer.is_up()) else {
                    continue;
                };
                if inner.expect(payload.id) {
                    // Who is to fetch it is the owner's to say. A claim here would outlive an asker that does not read.
                    inner.local.give_up(*payload);
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
            let nodes = &self.inner.nodes();
            let found = self.find(nodes, payloads).await.into_iter().zip(payloads);
            let each = found.map(|(found, payload)| async move {
                match found {
                    Read::Here(bytes, tier) => Some((bytes, tier)),
                    Read::Coming => self.wait_for(nodes, *payload).await,
                    Read::Absent => None,
                }
            });
            join_all(each).await
        }
        .boxed()
    }

    fn read_now<'a>(&'a self, payloads: &'a [Payload]) -> BoxFuture<'a, Vec<Read>> {
        async move {
            let nodes = self.inner.nodes();
            let mut found = self.find(&nodes, payloads).await;
            for (found, payload) in found.iter_mut().zip(payloads) {
                if matches!(found, Read::Coming) && !self.inner.expect(payload.id) {
                    *found = Read::Absent;
                }
            }
            found
        }
        .boxed()
    }

    fn keep<'a>(&'a self, payload: Payload, place: Place, bytes: &'a Bytes) -> BoxFuture<'a, ()> {
        async move {
            if let Some((_, peer)) = self.inner.nodes().owner(&payload) {
                peer.give(payload, bytes);
            }
            self.inner.local.keep(payload, place, bytes).await;
        }
        .boxed()
    }

    fn settle<'a>(&'a self, payload: Payload, place: Place, bytes: &'a Bytes) -> BoxFuture<'a, ()> {
        self.inner.local.keep(payload, place, bytes)
    }

    fn admit<'a>(&'a self, payload: Payload, bytes: &'a Bytes) -> BoxFuture<'a, ()> {
        self.inner.local.admit(payload, bytes)
    }

    fn give_up(&self, payload: Payload) {
        self.inner.local.give_up(payload);
        if let Some((_, peer)) = self.inner.nodes().owner(&payload) {
            peer.give_up(payload);
        }
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

    /// Also waits until all that was to be given to owners that are there has been given.
    fn flush(&self) -> BoxFuture<'_, ()> {
        async move {
            let nodes = self.inner.nodes();
            let given = async move {
                join_all(nodes.peers.iter().flatten().map(|peer| peer.flush())).await;
            };
            self.threads.run(given).await;
            self.inner.local.flush().await;
        }
        .boxed()
    }

    fn view(&self) -> KeeperView {
        KeeperView { peers: self.peers_view(), ..self.inner.local.view() }
    }
}
