//! Answers for any keeper: on TCP, on a unix socket, or on a stream that is handed over.
//!
//! `listen` takes connections in, `connection` reads requests and writes answers, `answer` finds out what to say.
//! Clients that share (`Purpose::Share`) are kept from fetching the same payload twice: see [`crate::claims`]. The
//! keeper behind a server must not make claims of its own for those, or everyone would wait for everyone. Peers are too;
//! the keeper behind a server for peers does make claims, and `promised` ends them.

mod answer;
mod connection;
mod listen;
mod promised;

use crate::claims::{Claims, Client};
use crate::credentials::Credentials;
use crate::host::Slabs;
use crate::threads::Threads;
use crate::wire::Kind;
use forebay_core::cache::PayloadId;
use forebay_engine::cache::Keeper;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::time::Instant;

/// Limits of a server.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Who may connect. With neither token nor certificates only this machine can.
    pub credentials: Credentials,
    /// Most connections at once; more are turned away.
    pub connections: usize,
    /// Bytes of payloads on their way in or out, for each connection. One payload may go beyond.
    pub bytes_in_flight: usize,
    /// Requests at work, for each connection; who asks more is disconnected.
    pub requests: usize,
    /// How long one client may fetch a payload that others wait for.
    pub claim_time: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            credentials: Credentials::default(),
            connections: 1024,
            bytes_in_flight: 64 << 20,
            requests: 4096,
            claim_time: Duration::from_secs(30),
        }
    }
}

/// A running server; it ends when this is dropped.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    threads: Threads,
    /// Dropped with the server: connections and listeners see that and end.
    stop: watch::Sender<bool>,
}

impl Server {
    /// A server that listens nowhere yet.
    pub fn new(keeper: Arc<dyn Keeper>, options: ServerOptions, threads: Threads) -> Self {
        Self::with_slabs(keeper, None, options, threads)
    }

    /// As [`Self::new`]; payloads in `slabs` are shown to clients instead of sent.
    pub(crate) fn with_slabs(
        keeper: Arc<dyn Keeper>,
        slabs: Option<Arc<Slabs>>,
        options: ServerOptions,
        threads: Threads,
    ) -> Self {
        let places = Arc::new(Semaphore::new(options.connections));
        let claims = Mutex::new(Claims::new(options.claim_time));
        let shared = Shared {
            keeper,
            slabs,
            claims,
            promised: Mutex::default(),
            options,
            places,
            counts: Mutex::default(),
            clients: AtomicU64::new(0),
            connected: watch::Sender::new(0),
            epoch: Instant::now(),
        };
        Self { shared: Arc::new(shared), threads, stop: watch::Sender::new(false) }
    }

    /// Messages received so far.
    pub fn counts(&self) -> Counts {
        *lock(&self.shared.counts)
    }

    /// Payloads that clients fetch right now, so that others wait.
    pub fn claimed(&self) -> usize {
        self.shared.claims().len()
    }

    /// Follows the number of clients that share or are peers.
    pub fn connected(&self) -> watch::Receiver<usize> {
        self.shared.connected.subscribe()
    }
}

/// Messages received, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts([u64; Kind::ALL.len()]);

impl Counts {
    /// Messages of one kind.
    pub fn of(&self, kind: Kind) -> u64 {
        self.0[kind as usize - 1]
    }

    /// All messages.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// What came since an earlier count.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut counts = *self;
        for (count, before) in counts.0.iter_mut().zip(earlier.0) {
            *count -= before;
        }
        counts
    }
}

/// How waiting for another client's fetch ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Waited {
    /// Look again; what is not there then belongs nowhere, and everyone fetches it alone.
    LookAgain,
    /// You are the one to fetch it now.
    Fetch,
}

/// One who waits for another client's fetch.
#[derive(Debug)]
pub(crate) struct Waiter {
    name: PayloadId,
    client: Client,
    told: oneshot::Sender<Waited>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    keeper: Arc<dyn Keeper>,
    slabs: Option<Arc<Slabs>>,
    claims: Mutex<Claims<Waiter>>,
    promised: Mutex<promised::Promised>,
    options: ServerOptions,
    places: Arc<Semaphore>,
    counts: Mutex<Counts>,
    clients: AtomicU64,
    connected: watch::Sender<usize>,
    epoch: Instant,
}

impl Shared {
    fn claims(&self) -> MutexGuard<'_, Claims<Waiter>> {
        lock(&self.claims)
    }

    fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    fn count(&self, kind: Kind) {
        lock(&self.counts).0[kind as usize - 1] += 1;
    }

    fn next_client(&self) -> Client {
        self.clients.fetch_add(1, Ordering::Relaxed)
    }

    /// The payload was kept, or it belongs nowhere.
    fn end_claim(&self, name: PayloadId) {
        self.kept_promise(name);
        let waiting = self.claims().end(name);
        for waiter in waiting {
            // Those who do not wait any more have found it meanwhile.
            let _ = waiter.told.send(Waited::LookAgain);
        }
    }

    fn give_up(&self, name: PayloadId, client: Client) {
        let next = self.claims().give_up(name, client, self.now());
        self.hand_on(next);
        self.free(name);
    }

    fn gone(&self, client: Client) {
        let names = self.claims().of(client);
        let next = self.claims().gone(client, self.now());
        for next in next {
            self.hand_on(Some(next));
        }
        for name in names {
            self.free(name);
        }
    }

    /// Tells one to fetch; one that does not wait any more passes it on.
    fn hand_on(&self, mut next: Option<Waiter>) {
        while let Some(Waiter { name, client, told }) = next {
            let Err(_) = told.send(Waited::Fetch) else { return };
            next = self.claims().give_up(name, client, self.now());
        }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
