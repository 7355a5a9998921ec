//! One connection to a server: many requests in flight, answers in any order.
//!
//! A task writes, another reads and hands answers to those who wait. Whoever stops waiting does not leave a claim
//! behind: an answer that makes the asker the one to fetch and that nobody takes is given up again.

use super::waiting::{Asked, Found, Settled, Unclaimed, Wait, Waiting, settle};
use crate::Stream;
use crate::server::lock;
use crate::wire::{Answer, MAX_PAYLOADS, MAX_TAIL, Message, frame};
use bytes::Bytes;
use forebay_core::cache::{Capacity, PayloadId, Place};
use forebay_core::{Error, Result};
use forebay_engine::cache::{KeeperView, Payload};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use tokio::io::{AsyncRead, AsyncWrite, BufReader};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

/// Requests that wait for the socket.
const REQUESTS: usize = 64;
/// Questions about payloads that wait for an answer; half of what a server takes. Payloads that are given do not
/// count, since others may wait for them.
const QUESTIONS: usize = 2048;
/// Questions to a peer that wait for what somebody else fetches. Apart, so that no other question waits behind them.
const AWAITED: usize = 1024;

/// One connection. It ends when this is dropped, or when the other side goes.
#[derive(Debug)]
pub(crate) struct Link {
    me: Weak<Link>,
    out: mpsc::Sender<Out>,
    shared: Arc<Waiting>,
    next: AtomicU64,
    questions: Semaphore,
    awaited: Semaphore,
    view: Mutex<KeeperView>,
    /// Dropped with the link: both tasks see that and end.
    _stop: watch::Sender<bool>,
    handle: Handle,
}

#[derive(Debug)]
struct Out {
    request: u64,
    message: Message,
    tail: Bytes,
}

impl Link {
    /// Runs on a stream whose beginning was made.
    pub(crate) fn start(stream: impl Stream + 'static, handle: &Handle) -> Arc<Self> {
        let (reading, writing) = tokio::io::split(stream);
        let (out, requests) = mpsc::channel(REQUESTS);
        let shared = Arc::new(Waiting(Mutex::new(Some(HashMap::new()))));
        let stop = watch::Sender::new(false);
        let mut stopped = stop.subscribe();
        let link = Arc::new_cyclic(|me| Self {
            me: me.clone(),
            out,
            shared: shared.clone(),
            next: AtomicU64::new(1),
            questions: Semaphore::new(QUESTIONS),
            awaited: Semaphore::new(AWAITED),
            view: Mutex::default(),
            _stop: stop,
            handle: handle.clone(),
        });
        handle.spawn(async move {
            tokio::select! {
                ended = read(BufReader::new(reading), &shared) => {
                    if let Err(error) = ended {
                        tracing::debug!(error = %error.report(), "a shared cache was lost");
                    }
                }
                () = write(writing, requests) => {}
                _ = stopped.changed() => {}
            }
            // Outside of the lock, since those who wait for claims give them up as they go.
            let left = lock(&shared.0).take();
            drop(left);
        });
        link
    }

    pub(crate) fn is_alive(&self) -> bool {
        lock(&self.shared.0).is_some()
    }

    /// What was held when the server said it last.
    pub(crate) fn view(&self) -> KeeperView {
        *lock(&self.view)
    }

    /// One answer each with the version of the slabs; `None` when the connection is lost.
    pub(crate) async fn look(&self, payloads: &[Payload]) -> Option<(u64, Unclaimed<Option<Answer>>)> {
        debug_assert!(payloads.len() <= MAX_PAYLOADS, "callers cut their questions");
        let _one = self.questions.acquire().await.ok()?;
        let (reply, answer) = oneshot::channel();
        let wait = Wait::Look(Unclaimed::new(self.me.clone(), payloads.to_vec()), reply);
        self.ask(Message::Look(payloads.to_vec()), Bytes::new(), Some(wait)).await?;
        answer.await.ok()
    }

    pub(crate) async fn read(&self, payloads: &[Payload]) -> Option<Unclaimed<Option<Found>>> {
        if payloads.is_empty() {
            return Some(Unclaimed::new(self.me.clone(), Vec::new()));
        }
        let _one = self.questions.acquire().await.ok()?;
        let (reply, answer) = oneshot::channel();
        let wait = Wait::Read(Unclaimed::new(self.me.clone(), payloads.to_vec()), payloads.len(), reply);
        self.ask(Message::Read(payloads.to_vec()), Bytes::new(), Some(wait)).await?;
        answer.await.ok()
    }

    /// What a peer says of these right now; `None` when the connection is lost.
    pub(crate) async fn ask_peer(&self, payloads: &[Payload]) -> Option<Unclaimed<Option<Asked>>> {
        if payloads.is_empty() {
            return Some(Unclaimed::new(self.me.clone(), Vec::new()));
        }
        let _one = self.questions.acquire().await.ok()?;
        let (reply, answer) = oneshot::channel();
        let wait = Wait::Ask(Unclaimed::new(self.me.clone(), payloads.to_vec()), payloads.len(), reply);
        self.ask(Message::Ask(payloads.to_vec()), Bytes::new(), Some(wait)).await?;
        answer.await.ok()
    }

    /// Waits for a payload that somebody else fetches.
    pub(crate) async fn wait_for(&self, payload: Payload) -> Found {
        let _one = self.awaited.acquire().await.ok()?;
        let (reply, answer) = oneshot::channel();
        let wait = Wait::Read(Unclaimed::new(self.me.clone(), vec![payload]), 1, reply);
        self.ask(Message::Await(vec![payload]), Bytes::new(), Some(wait)).await?;
        answer.await.ok()?.take().pop().flatten().flatten()
    }

    pub(crate) async fn keep(&self, payload: Payload, place: Place, bytes: &Bytes) -> Option<()> {
        let sound = bytes.len() as u64 == payload.length && payload.length <= MAX_TAIL;
        // What cannot be carried is kept nowhere, and nobody waits for it.
        let place = if sound { place } else { Place::default() };
        let tail = if place.is_kept() { bytes.clone() } else { Bytes::new() };
        self.manage(Message::Keep(payload, place), tail).await?.ok().map(drop)
    }

    /// Never waits.
    pub(crate) fn give_up(&self, payload: Payload) {
        let out = Out { request: 0, message: Message::GiveUp(payload), tail: Bytes::new() };
        if let Err(mpsc::error::TrySendError::Full(out)) = self.out.try_send(out) {
            let sender = self.out.clone();
            self.handle.spawn(async move { drop(sender.send(out).await) });
        }
    }

    pub(crate) async fn held(&self, group: u64) -> Option<Vec<PayloadId>> {
        let (reply, answer) = oneshot::channel();
        self.ask(Message::Held(group), Bytes::new(), Some(Wait::Names(Vec::new(), reply))).await?;
        answer.await.ok()
    }

    pub(crate) async fn forget(&self, names: &[PayloadId]) -> Option<()> {
        for names in names.chunks(MAX_PAYLOADS) {
            self.manage(Message::Forget(names.to_vec()), Bytes::new()).await?.ok()?;
        }
        Some(())
    }

    pub(crate) async fn resize(&self, capacity: Capacity) -> Option<Result<()>> {
        Some(self.manage(Message::Resize(capacity), Bytes::new()).await?.map(drop))
    }

    pub(crate) async fn ask_view(&self) -> Option<KeeperView> {
        self.manage(Message::View, Bytes::new()).await?.ok()
    }

    pub(crate) async fn slabs(&self) -> Option<(u64, Vec<u32>)> {
        let (reply, answer) = oneshot::channel();
        self.ask(Message::Slabs, Bytes::new(), Some(Wait::Slabs(reply))).await?;
        answer.await.ok()
    }

    async fn manage(&self, message: Message, tail: Bytes) -> Option<Result<KeeperView>> {
        let (reply, answer) = oneshot::channel();
        self.ask(message, tail, Some(Wait::Done(reply))).await?;
        let answer = answer.await.ok()?;
        if let Ok(view) = &answer {
            *lock(&self.view) = *view;
        }
        Some(answer)
    }

    async fn ask(&self, message: Message, tail: Bytes, wait: Option<Wait>) -> Option<()> {
        let request = self.next.fetch_add(1, Ordering::Relaxed);
        if let Some(wait) = wait {
            lock(&self.shared.0).as_mut()?.insert(request, wait);
        }
        self.out.send(Out { request, message, tail }).await.ok()
    }
}

async fn write<W: AsyncWrite + Unpin>(mut to: W, mut requests: mpsc::Receiver<Out>) {
    while let Some(out) = requests.recv().await {
        if let Err(error) = frame::write(&mut to, out.request, &out.message, out.tail).await {
            tracing::debug!(%error, "a shared cache was lost");
            return;
        }
    }
}

async fn read<R: AsyncRead + Unpin>(mut from: R, waiting: &Waiting) -> Result<()> {
    let senseless = || Error::corrupt("read from a shared cache: an answer does not fit its question");
    let mut body = Vec::new();
    while let Some((request, message)) = frame::read(&mut from, &mut body).await? {
        let tail = match message.tail() {
            0 => Bytes::new(),
            length => frame::read_tail(&mut from, length).await?,
        };
        let mut guard = lock(&waiting.0);
        let Some(entries) = guard.as_mut() else { return Ok(()) };
        // What nobody asked for, or not any more.
        let Some(wait) = entries.remove(&request) else { continue };
        let again = settle(wait, message, tail).ok_or_else(senseless)?;
        match again {
            Settled::More(wait) => drop(entries.insert(request, wait)),
            Settled::Done(finish) => {
                drop(guard);
                finish();
            }
        }
    }
    Ok(())
}
