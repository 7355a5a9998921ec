//! A naive keeper, made payloads, streams in memory.
#![allow(dead_code, reason = "each test program uses a part of it")]
#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test helper fails by panicking")]
#![allow(missing_docs, unreachable_pub, reason = "read by tests only")]

use bytes::Bytes;
use forebay_core::cache::{Capacity, PayloadId, Place, Rank};
use forebay_core::{Error, Result};
use forebay_engine::cache::{Keeper, KeeperView, Look, Payload, Tier, TierView};
use forebay_net::{Connect, Server, Stream};
use futures::future::{BoxFuture, FutureExt, ready};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;

/// Longest wait for something that happens in another process or on a socket.
pub const LONG: Duration = Duration::from_secs(60);

pub const BOTH: Place = Place { memory: true, disk: true };
pub const MEMORY: Place = Place { memory: true, disk: false };

pub fn payload(number: u64) -> Payload {
    Payload {
        id: PayloadId(u128::from(number) + 1),
        rank: Rank::new(7, 1, number),
        length: 100 + number % 50,
        group: 1,
    }
}

pub fn payloads(count: u64) -> Vec<Payload> {
    (0..count).map(payload).collect()
}

/// The bytes that the store has for a payload.
pub fn body(payload: &Payload) -> Bytes {
    let first = payload.id.0 as u8;
    (0..payload.length).map(|at| first.wrapping_add(at as u8)).collect::<Vec<_>>().into()
}

/// Keeps whatever fits, in a map, without claims.
#[derive(Debug)]
pub struct MapKeeper(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    limit: u64,
    kept: HashMap<PayloadId, (Payload, Bytes)>,
    refused: u64,
    looks: u64,
}

impl MapKeeper {
    pub fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State { limit, ..State::default() })))
    }

    pub fn len(&self) -> usize {
        self.0.lock().unwrap().kept.len()
    }

    pub fn looks(&self) -> u64 {
        self.0.lock().unwrap().looks
    }
}

impl State {
    fn bytes(&self) -> u64 {
        self.kept.values().map(|(payload, _)| payload.length).sum()
    }
}

impl Keeper for MapKeeper {
    fn look<'a>(&'a self, payloads: &'a [Payload]) -> BoxFuture<'a, Vec<Look>> {
        let mut state = self.0.lock().unwrap();
        state.looks += 1;
        let look = |payload: &Payload| {
            state.kept.get(&payload.id).map_or(Look::Absent, |(_, bytes)| Look::Here(bytes.clone()))
        };
        ready(payloads.iter().map(look).collect()).boxed()
    }

    fn read<'a>(&'a self, payloads: &'a [Payload]) -> BoxFuture<'a, Vec<Option<(Bytes, Tier)>>> {
        let state = self.0.lock().unwrap();
        let read =
            |payload: &Payload| state.kept.get(&payload.id).map(|(_, bytes)| (bytes.clone(), Tier::Memory));
        ready(payloads.iter().map(read).collect()).boxed()
    }

    fn keep<'a>(&'a self, payload: Payload, place: Place, bytes: &'a Bytes) -> BoxFuture<'a, ()> {
        let mut state = self.0.lock().unwrap();
        if place.is_kept() && !state.kept.contains_key(&payload.id) {
            if state.bytes() + payload.length <= state.limit {
                state.kept.insert(payload.id, (payload, bytes.clone()));
            } else {
                state.refused += 1;
            }
        }
        ready(()).boxed()
    }

    fn admit<'a>(&'a self, payload: Payload, bytes: &'a Bytes) -> BoxFuture<'a, ()> {
        self.keep(payload, MEMORY, bytes)
    }

    fn give_up(&self, _payload: Payload) {}

    fn held(&self, group: u64) -> BoxFuture<'_, Vec<PayloadId>> {
        let state = self.0.lock().unwrap();
        let names =
            state.kept.iter().filter(|(_, (payload, _))| payload.group == group).map(|(name, _)| *name);
        ready(names.collect()).boxed()
    }

    fn forget<'a>(&'a self, payloads: &'a [PayloadId]) -> BoxFuture<'a, ()> {
        let mut state = self.0.lock().unwrap();
        for name in payloads {
            state.kept.remove(name);
        }
        ready(()).boxed()
    }

    fn resize(&self, capacity: Capacity) -> BoxFuture<'_, Result<()>> {
        if capacity.disk > 0 {
            return ready(Err(Error::unsupported("resize a map: it has no disk"))).boxed();
        }
        self.0.lock().unwrap().limit = capacity.memory;
        ready(Ok(())).boxed()
    }

    fn view(&self) -> KeeperView {
        let state = self.0.lock().unwrap();
        let memory = TierView {
            limit: state.limit,
            bytes: state.bytes(),
            payloads: state.kept.len() as u64,
            refused: state.refused,
            ..TierView::default()
        };
        KeeperView { memory, ..KeeperView::default() }
    }
}

/// Connects to a server of this process by a pipe in memory, through a relay that can hold, swallow or cut.
#[derive(Clone, Debug)]
pub struct Pipe {
    name: String,
    server: Arc<Mutex<Option<Arc<Server>>>>,
    flow: watch::Sender<Flow>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Bytes go through.
    Open,
    /// Bytes wait.
    Held,
    /// Bytes are lost, and nobody is told.
    Swallowed,
}

impl Pipe {
    pub fn to(server: Arc<Server>) -> Self {
        Self::named("pipe", server)
    }

    pub fn named(name: &str, server: Arc<Server>) -> Self {
        let server = Arc::new(Mutex::new(Some(server)));
        Self { name: name.to_owned(), server, flow: watch::Sender::new(Flow::Open) }
    }

    pub fn set(&self, flow: Flow) {
        self.flow.send_replace(flow);
    }

    /// The server is gone: new connections are refused. Those there are end when the server is dropped.
    pub fn cut(&self) {
        self.server.lock().unwrap().take();
    }

    /// Another one is there.
    pub fn mend(&self, server: Arc<Server>) {
        *self.server.lock().unwrap() = Some(server);
    }
}

impl Connect for Pipe {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Stream>>> {
        async move {
            let server = self.server.lock().unwrap().clone();
            let server = server.ok_or_else(|| Error::unavailable("connect to a pipe: nobody is there"))?;
            let (client, mut relay_near) = tokio::io::duplex(1 << 16);
            let (mut relay_far, served) = tokio::io::duplex(1 << 16);
            server.attach(served);
            let flow = self.flow.subscribe();
            tokio::spawn(async move {
                let (near_in, near_out) = tokio::io::split(&mut relay_near);
                let (far_in, far_out) = tokio::io::split(&mut relay_far);
                tokio::select! {
                    () = carry(near_in, far_out, flow.clone()) => {}
                    () = carry(far_in, near_out, flow.clone()) => {}
                }
            });
            Ok(Box::new(client) as Box<dyn Stream>)
        }
        .boxed()
    }
}

async fn carry(
    mut from: impl tokio::io::AsyncRead + Unpin,
    mut to: impl tokio::io::AsyncWrite + Unpin,
    mut flow: watch::Receiver<Flow>,
) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut buffer = vec![0; 1 << 14];
    loop {
        let Ok(count @ 1..) = from.read(&mut buffer).await else { return };
        let Ok(now) = flow.wait_for(|flow| *flow != Flow::Held).await.map(|flow| *flow) else { return };
        if now == Flow::Open && to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

/// Waits until something is so; a real process or socket has its own time.
pub async fn until(mut so: impl FnMut() -> bool) {
    let waiting = async {
        while !so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG, waiting).await.expect("it came to be in time");
}
