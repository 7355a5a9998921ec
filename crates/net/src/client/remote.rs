//! A keeper that is somewhere else: asks a server, and does without when it cannot.
//!
//! A lost connection costs what the server held and nothing else: every payload is absent then, and attempts to
//! connect again are made in the background, further and further apart.

use super::connect::{Connect, meet};
use super::link::Link;
use super::waiting::{Found, Unclaimed};
use crate::credentials::Token;
use crate::handshake::Purpose;
use crate::host::SlabMaps;
use crate::server::lock;
use crate::threads::Threads;
use crate::wire::Answer;
use bytes::Bytes;
use forebay_core::cache::{Capacity, PayloadId, Place};
use forebay_core::{Error, Result};
use forebay_engine::cache::{Keeper, KeeperView, Look, Payload, Tier};
use futures::future::{BoxFuture, FutureExt, join_all};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

/// Payloads in one question.
const LOOK: usize = 1024;
/// Bytes asked for by one message; one payload may be more.
const READ_BYTES: u64 = 8 << 20;
/// How long to wait before connecting again: at first, and at most.
const SOONEST: Duration = Duration::from_millis(250);
const LATEST: Duration = Duration::from_secs(30);

/// How to talk to a server.
#[derive(Clone, Debug)]
pub struct RemoteOptions {
    /// The token, where the server wants one.
    pub token: Option<Token>,
    /// What the connection is for.
    pub purpose: Purpose,
    /// A server that takes longer for an answer is taken for lost. Above the server's `claim_time`.
    pub answer_time: Duration,
}

impl Default for RemoteOptions {
    fn default() -> Self {
        Self { token: None, purpose: Purpose::Share, answer_time: Duration::from_secs(120) }
    }
}

/// A keeper behind a connection.
#[derive(Clone, Debug)]
pub struct RemoteKeeper {
    inner: Arc<Inner>,
    threads: Threads,
}

#[derive(Debug)]
struct Inner {
    connector: Box<dyn Connect>,
    options: RemoteOptions,
    /// The socket where the server shows its slabs, when it runs on this host.
    slabs: Option<PathBuf>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    connected: Option<Connected>,
    connecting: bool,
    failures: u32,
    again: Option<Instant>,
    viewing: bool,
}

/// A connection, and what is mapped of that very server: another one has other slabs under the same numbers.
#[derive(Clone, Debug)]
struct Connected {
    link: Arc<Link>,
    maps: Option<Arc<SlabMaps>>,
}

impl RemoteKeeper {
    /// Connects; an error says why that was not possible. Later losses are not errors.
    pub async fn connect(
        connector: impl Connect + 'static,
        options: RemoteOptions,
        threads: Threads,
    ) -> Result<Self> {
        Self::with_slabs(Box::new(connector), None, options, threads).await
    }

    pub(crate) async fn with_slabs(
        connector: Box<dyn Connect>,
        slabs: Option<PathBuf>,
        options: RemoteOptions,
        threads: Threads,
    ) -> Result<Self> {
        let inner = Arc::new(Inner { connector, options, slabs, state: Mutex::default() });
        let keeper = Self { inner, threads };
        let (inner, on) = (keeper.inner.clone(), keeper.threads.clone());
        let connected = keeper.threads.run(async move { inner.begin(&on).await }).await;
        let connected = connected.ok_or_else(|| Error::internal("the network threads have ended"))??;
        lock(&keeper.inner.state).connected = Some(connected);
        Ok(keeper)
    }

    /// Whether a server is connected right now.
    pub fn is_connected(&self) -> bool {
        lock(&self.inner.state).connected.as_ref().is_some_and(|connected| connected.link.is_alive())
    }

    /// Asks what is held; what was known before when it cannot.
    pub async fn ask_view(&self) -> KeeperView {
        let answer = self.with_link(|connected| async move { connected.link.ask_view().await }).await;
        answer.unwrap_or_else(|| self.view())
    }

    /// Runs a request on the network threads; `None` when there is no connection, or no answer in time.
    async fn with_link<T: Send + 'static, F>(&self, request: impl FnOnce(Connected) -> F) -> Option<T>
    where
        F: Future<Output = Option<T>> + Send + 'static,
    {
        let connected = self.inner.connected(&self.threads)?;
        let (request, inner) = (request(connected.clone()), self.inner.clone());
        let run = self.threads.run(async move {
            let answer = tokio::time::timeout(inner.options.answer_time, request).await;
            if answer.is_err() {
                tracing::warn!(
                    server = inner.connector.name(),
                    "no answer from the shared cache: going on without"
                );
                inner.lost(&connected.link);
            }
            answer.ok().flatten()
        });
        run.await.flatten()
    }
}

impl Inner {
    async fn begin(&self, threads: &Threads) -> Result<Connected> {
        let stream = meet(self.connector.as_ref(), self.options.token.as_ref(), self.options.purpose).await?;
        let link = Link::start(stream, threads.handle());
        let maps = self.slabs.clone().map(|path| Arc::new(SlabMaps::new(path)));
        Ok(Connected { link, maps })
    }

    /// The connection, if there is one; otherwise an attempt is begun when it is time for one.
    fn connected(self: &Arc<Self>, threads: &Threads) -> Option<Connected> {
        if !threads.are_alive() {
            return None;
        }
        let mut state = lock(&self.state);
        if let Some(connected) = state.connected.as_ref().filter(|connected| connected.link.is_alive()) {
            return Some(connected.clone());
        }
        let now = Instant::now();
        if state.connected.take().is_some() {
            tracing::warn!(server = self.connector.name(), "the shared cache was lost: going on without");
            state.again = Some(now + SOONEST);
        }
        if state.connecting || state.again.is_some_and(|again| again > now) {
            return None;
        }
        state.connecting = true;
        drop(state);
        let (inner, threads) = (self.clone(), threads.clone());
        threads.handle().clone().spawn(async move {
            let outcome = inner.begin(&threads).await;
            let mut state = lock(&inner.state);
            state.connecting = false;
            match outcome {
                Ok(connected) => (state.connected, state.failures) = (Some(connected), 0),
                Err(error) => {
                    tracing::debug!(error = %error.report(), "the shared cache is still lost");
                    let pause = SOONEST.saturating_mul(1 << state.failures.min(10)).min(LATEST);
                    state.failures += 1;
                    state.again = Some(Instant::now() + pause);
                }
            }
        });
        None
    }

    fn lost(&self, link: &Arc<Link>) {
        let mut state = lock(&self.state);
        if state.connected.as_ref().is_some_and(|connected| Arc::ptr_eq(&connected.link, link)) {
            state.connected = None;
            state.again = Some(Instant::now() + SOONEST);
        }
    }
}

impl Connected {
    /// Answers to all payloads, with the slabs they lie in mapped.
    async fn look(&self, payloads: Vec<Payload>) -> Option<Vec<Unclaimed<Option<Answer>>>> {
        let parts = join_all(payloads.chunks(LOOK).map(|part| self.link.look(part))).await;
        let mut answers = Vec::with_capacity(parts.len());
        for part in parts {
            let (version, part) = part?;
            if let Some(maps) = &self.maps {
                maps.follow(&self.link, version, part.answers()).await;
            }
            answers.push(part);
        }
        Some(answers)
    }

    fn show(&self, answer: Option<Answer>, payload: &Payload) -> Look {
        match answer {
            None | Some(Answer::Absent) => Look::Absent,
            Some(Answer::Coming) => Look::Coming,
            Some(Answer::Near { tier, together }) => Look::Near { tier, together: Some(together) },
            Some(Answer::Slab { slab, offset }) => {
                let maps = self.maps.as_ref();
                match maps.and_then(|maps| maps.slice(slab, offset, payload.length)) {
                    Some(bytes) => Look::Here(bytes),
                    // What cannot be mapped can still be sent.
                    None => Look::Near { tier: Tier::Memory, together: Some(0) },
                }
            }
        }
    }
}

impl Keeper for RemoteKeeper {
    fn look<'a>(&'a self, payloads: &'a [Payload]) -> BoxFuture<'a, Vec<Look>> {
        async move {
            let asked = payloads.to_vec();
            let answers = self.with_link(|connected| async move {
                let answers = connected.look(asked).await?;
                Some((connected, answers))
            });
            let Some((connected, answers)) = answers.await else {
                return payloads.iter().map(|_| Look::Absent).collect();
            };
            let answers = answers.into_iter().flat_map(Unclaimed::take);
            answers.zip(payloads).map(|(answer, payload)| connected.show(answer, payload)).collect()
        }
        .boxed()
    }

    fn read<'a>(&'a self, payloads: &'a [Payload]) -> BoxFuture<'a, Vec<Option<(Bytes, Tier)>>> {
        async move {
            let asked = payloads.to_vec();
            let found = self.with_link(|connected| async move {
                let parts = parts(&asked, READ_BYTES, LOOK);
                Some(join_all(parts.map(|part| connected.link.read(part))).await)
            });
            let Some(found) = found.await else { return payloads.iter().map(|_| None).collect() };
            let counts = parts(payloads, READ_BYTES, LOOK).map(<[Payload]>::len);
            let each = found.into_iter().zip(counts).flat_map(|(part, count)| match part {
                Some(part) => part.take().into_iter().map(Option::flatten).collect(),
                None => vec![Found::None; count],
            });
            each.collect()
        }
        .boxed()
    }

    fn keep<'a>(&'a self, payload: Payload, place: Place, bytes: &'a Bytes) -> BoxFuture<'a, ()> {
        async move {
            let bytes = bytes.clone();
            self.with_link(|connected| async move { connected.link.keep(payload, place, &bytes).await })
                .await;
        }
        .boxed()
    }

    /// The server does it where the connection is one of a peer; where it belongs is that one's decision.
    fn admit<'a>(&'a self, payload: Payload, bytes: &'a Bytes) -> BoxFuture<'a, ()> {
        self.keep(payload, Place { memory: true, disk: true }, bytes)
    }

    fn give_up(&self, payload: Payload) {
        // Not on a new connection: that one has no claims.
        if let Some(connected) = &lock(&self.inner.state).connected {
            connected.link.give_up(payload);
        }
    }

    fn held(&self, group: u64) -> BoxFuture<'_, Vec<PayloadId>> {
        async move {
            let names = self.with_link(|connected| async move { connected.link.held(group).await }).await;
            names.unwrap_or_default()
        }
        .boxed()
    }

    fn forget<'a>(&'a self, payloads: &'a [PayloadId]) -> BoxFuture<'a, ()> {
        async move {
            let names = payloads.to_vec();
            self.with_link(|connected| async move { connected.link.forget(&names).await }).await;
        }
        .boxed()
    }

    fn resize(&self, capacity: Capacity) -> BoxFuture<'_, Result<()>> {
        async move {
            let answer =
                self.with_link(|connected| async move { connected.link.resize(capacity).await }).await;
            answer.unwrap_or_else(|| {
                let name = self.inner.connector.name();
                Err(Error::unavailable(format!("resize the shared cache at `{name}`: it is not there")))
            })
        }
        .boxed()
    }

    /// What was held when the server said it last; asks again in the background.
    fn view(&self) -> KeeperView {
        let mut state = lock(&self.inner.state);
        let Some(link) = state.connected.as_ref().map(|connected| connected.link.clone()) else {
            return KeeperView::default();
        };
        if !state.viewing && self.threads.are_alive() {
            state.viewing = true;
            let (inner, link) = (self.inner.clone(), link.clone());
            self.threads.handle().spawn(async move {
                link.ask_view().await;
                lock(&inner.state).viewing = false;
            });
        }
        link.view()
    }
}

/// Payloads in runs of at most so many bytes and so many payloads; one payload may be more bytes.
pub(crate) fn parts(payloads: &[Payload], bytes: u64, count: usize) -> impl Iterator<Item = &[Payload]> {
    let mut rest = payloads;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut sum = rest[0].length;
        let mut end = 1;
        while end < rest.len().min(count) && sum.saturating_add(rest[end].length) <= bytes {
            sum += rest[end].length;
            end += 1;
        }
        let (part, left) = rest.split_at(end);
        rest = left;
        Some(part)
    })
}
