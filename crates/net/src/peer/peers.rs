//! One peer: its connection, its health, and what waits to be given to it.

use super::{Health, PeerOptions, Tally};
use crate::client::link::Link;
use crate::client::{Asked, Connect, Found, meet, parts};
use crate::credentials::Token;
use crate::handshake::Purpose;
use crate::server::lock;
use crate::threads::Threads;
use crate::wire::MAX_TAIL;
use bytes::Bytes;
use forebay_core::cache::Place;
use forebay_engine::cache::Payload;
use futures::future::{BoxFuture, FutureExt, Shared, join_all};
use futures::stream::{self, StreamExt};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Instant;

/// Bytes and payloads asked for by one message; one payload may be more bytes.
const READ_BYTES: u64 = 8 << 20;
const READ_PAYLOADS: usize = 1024;
/// Payloads on their way to a peer at once.
const GIVING: usize = 8;
/// How long a payload waits to be given to a peer that is not there: it may not have started yet.
const GIVE_TIME: Duration = Duration::from_secs(30);
/// How long to wait for what an owner says is coming: the store is faster by then.
const COMING_TIME: Duration = Duration::from_secs(10);
/// How often one who waits for gifts looks whether the peer is still there.
const FLUSH_PAUSE: Duration = Duration::from_millis(50);

/// Worth keeping; where is the owner's decision.
const GIVEN: Place = Place { memory: true, disk: true };

/// One peer.
#[derive(Debug)]
pub(super) struct Peer {
    connector: Box<dyn Connect>,
    token: Option<Token>,
    handle: Handle,
    state: Mutex<State>,
    tally: Arc<Tally>,
    gifts: mpsc::UnboundedSender<Gift>,
    /// Bytes that may still wait to be given; bounds the channel.
    room: Arc<Semaphore>,
    all_room: u32,
    epoch: Instant,
}

#[derive(Debug)]
struct Gift {
    payload: Payload,
    bytes: Bytes,
    end: Instant,
    _room: OwnedSemaphorePermit,
}

#[derive(Debug)]
struct State {
    link: Option<Arc<Link>>,
    connecting: Option<Shared<BoxFuture<'static, Option<Arc<Link>>>>>,
    health: Health,
}

impl Peer {
    /// Nothing is connected yet; a task waits for gifts.
    pub(super) fn start(
        connector: Box<dyn Connect>,
        options: &PeerOptions,
        tally: Arc<Tally>,
        threads: &Threads,
    ) -> Arc<Self> {
        let (gifts, mut queue) = mpsc::unbounded_channel::<Gift>();
        let all_room = options.give_bytes.clamp(1, u32::MAX as usize) as u32;
        let health = Health::new(options.first_deadline, options.shortest_deadline);
        let peer = Arc::new(Self {
            connector,
            token: options.credentials.token.clone(),
            handle: threads.handle().clone(),
            state: Mutex::new(State { link: None, connecting: None, health }),
            tally,
            gifts,
            room: Arc::new(Semaphore::new(all_room as usize)),
            all_room,
            epoch: Instant::now(),
        });
        let weak = Arc::downgrade(&peer);
        threads.handle().spawn(async move {
            let gifts = stream::poll_fn(move |context| queue.poll_recv(context));
            gifts.for_each_concurrent(GIVING, |gift| hand_over(weak.clone(), gift)).await;
        });
        peer
    }

    fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    /// Whether it is worth asking.
    pub(super) fn is_up(&self) -> bool {
        lock(&self.state).health.is_up(self.now())
    }

    /// Asks for payloads, each with an answer of its own, within a deadline.
    pub(super) async fn ask(self: &Arc<Self>, payloads: &[Payload]) -> Vec<Asked> {
        let parts = parts(payloads, READ_BYTES, READ_PAYLOADS);
        let asked = join_all(parts.map(|part| self.ask_part(part))).await;
        asked.into_iter().flatten().collect()
    }

    async fn ask_part(self: &Arc<Self>, payloads: &[Payload]) -> Vec<Asked> {
        let bytes = payloads.iter().fold(0u64, |sum, payload| sum.saturating_add(payload.length));
        let answer = self.within_deadline(bytes, |link| async move { link.ask_peer(payloads).await }).await;
        let Some(answer) = answer else {
            self.tally.unanswered.fetch_add(payloads.len() as u64, Ordering::Relaxed);
            return vec![Asked::Missing; payloads.len()];
        };
        let asked: Vec<Asked> =
            answer.take().into_iter().map(|answer| answer.unwrap_or(Asked::Missing)).collect();
        let hits = asked.iter().filter(|asked| matches!(asked, Asked::Here(_))).count() as u64;
        let misses = asked.iter().filter(|asked| matches!(asked, Asked::Missing)).count() as u64;
        self.tally.hits.fetch_add(hits, Ordering::Relaxed);
        self.tally.misses.fetch_add(misses, Ordering::Relaxed);
        asked
    }

    /// Waits for a payload that the owner says is coming. How long that takes is up to the one who fetches it, so it
    /// says nothing about the owner.
    pub(super) async fn wait_for(self: &Arc<Self>, payload: Payload) -> Option<Bytes> {
        let waiting = async { self.link().await?.wait_for(payload).await };
        let found: Found = tokio::time::timeout(COMING_TIME, waiting).await.ok().flatten();
        let tally = if found.is_some() { &self.tally.hits } else { &self.tally.misses };
        tally.fetch_add(1, Ordering::Relaxed);
        found.map(|(bytes, _)| bytes)
    }

    /// A payload that the owner may expect of us will not come.
    pub(super) fn give_up(&self, payload: Payload) {
        let link = lock(&self.state).link.clone();
        if let Some(link) = link.filter(|link| link.is_alive()) {
            link.give_up(payload);
        }
    }

    /// Queues a payload for its owner, unless there is no room.
    pub(super) fn give(&self, payload: Payload, bytes: &Bytes) {
        let sound = bytes.len() as u64 == payload.length && payload.length <= MAX_TAIL;
        let size = bytes.len().clamp(1, self.all_room as usize) as u32;
        let room = self.room.clone().try_acquire_many_owned(size).ok().filter(|_| sound);
        let end = Instant::now() + GIVE_TIME;
        let gift = room.map(|room| Gift { payload, bytes: bytes.clone(), end, _room: room });
        if gift.is_none_or(|gift| self.gifts.send(gift).is_err()) {
            self.tally.dropped.fetch_add(1, Ordering::Relaxed);
            self.give_up(payload);
        }
    }

    /// Waits until nothing waits to be given, or nobody is there to be given it.
    pub(super) async fn flush(&self) {
        loop {
            tokio::select! {
                _ = self.room.acquire_many(self.all_room) => return,
                () = tokio::time::sleep(FLUSH_PAUSE) => if !self.is_up() { return },
            }
        }
    }

    /// Bytes that wait to be given.
    pub(super) fn waiting_bytes(&self) -> u64 {
        u64::from(self.all_room).saturating_sub(self.room.available_permits() as u64)
    }

    /// How it is called.
    pub(super) fn name(&self) -> String {
        self.connector.name()
    }

    /// A request that counts for the peer's health: what takes too long loses the connection.
    async fn within_deadline<T, F>(
        self: &Arc<Self>,
        bytes: u64,
        request: impl FnOnce(Arc<Link>) -> F,
    ) -> Option<T>
    where
        F: Future<Output = Option<T>>,
    {
        let deadline = lock(&self.state).health.deadline(bytes);
        let started = Instant::now();
        let work = async {
            let link = self.link().await?;
            let answer = request(link.clone()).await;
            Some((link, answer))
        };
        let outcome = tokio::time::timeout(deadline, work).await;
        let mut state = lock(&self.state);
        if let Ok(Some((_, Some(answer)))) = outcome {
            state.health.answered(bytes, started.elapsed());
            return Some(answer);
        }
        if state.health.is_up(self.now()) {
            tracing::warn!(
                peer = self.connector.name(),
                "a peer does not answer: its payloads come from the store"
            );
        }
        state.health.failed(self.now());
        // What it may still answer comes too late, and a partition looks the same.
        state.link = None;
        state.connecting = None;
        None
    }

    /// The connection; all who need it while it is made wait for the same attempt.
    async fn link(self: &Arc<Self>) -> Option<Arc<Link>> {
        let connecting = {
            let mut state = lock(&self.state);
            if let Some(link) = state.link.as_ref().filter(|link| link.is_alive()) {
                return Some(link.clone());
            }
            state.link = None;
            let peer = Arc::downgrade(self);
            state.connecting.get_or_insert_with(|| connect(peer).boxed().shared()).clone()
        };
        let link = connecting.clone().await;
        let mut state = lock(&self.state);
        if state.connecting.as_ref().is_some_and(|current| current.ptr_eq(&connecting)) {
            state.connecting = None;
            state.link.clone_from(&link);
        }
        link
    }
}

async fn connect(peer: Weak<Peer>) -> Option<Arc<Link>> {
    let peer = peer.upgrade()?;
    match meet(peer.connector.as_ref(), peer.token.as_ref(), Purpose::Peer).await {
        Ok(stream) => Some(Link::start(stream, &peer.handle)),
        Err(error) => {
            tracing::warn!(error = %error.report(), "a peer cannot be reached");
            None
        }
    }
}

async fn hand_over(peer: Weak<Peer>, gift: Gift) {
    let Gift { payload, bytes, end, _room } = gift;
    loop {
        let Some(peer) = peer.upgrade() else { return };
        let pause = lock(&peer.state).health.down_for(peer.now());
        if Instant::now() + pause > end {
            peer.tally.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        if pause.is_zero() {
            let bytes = &bytes;
            let keep = |link: Arc<Link>| async move { link.keep(payload, GIVEN, bytes).await };
            if peer.within_deadline(payload.length, keep).await.is_some() {
                peer.tally.given.fetch_add(1, Ordering::Relaxed);
                return;
            }
        } else {
            // Not held meanwhile: a peer that left the job goes with what waited for it.
            drop(peer);
            tokio::time::sleep(pause).await;
        }
    }
}
