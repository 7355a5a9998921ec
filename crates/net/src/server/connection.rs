//! One client: its requests are read in turn and answered in any order.
//!
//! What a client may have at work is bounded in requests and in bytes. Taking payloads in never waits for anything
//! that another message of the same client would bring, so a client that waits for others can still help them.

use super::{Shared, answer};
use crate::Stream;
use crate::claims::Client;
use crate::handshake::Purpose;
use crate::wire::{MAX_BODY, Message, frame};
use bytes::Bytes;
use forebay_core::cache::Place;
use forebay_core::{Error, ErrorKind, Result};
use forebay_engine::cache::Payload;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite, BufReader};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;

/// Answers that wait for the socket.
const ANSWERS: usize = 64;
/// Names in one message.
const NAMES: usize = MAX_BODY / 32;

/// An answer on its way out, with the bytes it takes from what may be in flight.
pub(crate) struct Out {
    request: u64,
    message: Message,
    tail: Bytes,
    _room: Option<Arc<OwnedSemaphorePermit>>,
}

/// One client, for those who answer it.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) shared: Arc<Shared>,
    pub(crate) client: Client,
    pub(crate) purpose: Purpose,
    room: Arc<Semaphore>,
    out: mpsc::Sender<Out>,
}

impl Caller {
    /// Waits for room for a payload of so many bytes. One that is larger than all the room takes all of it.
    pub(crate) async fn room(&self, bytes: u64) -> Option<OwnedSemaphorePermit> {
        let all = self.shared.options.bytes_in_flight.clamp(1, u32::MAX as usize) as u64;
        self.room.clone().acquire_many_owned(bytes.min(all) as u32).await.ok()
    }

    /// Whether a read waits for what another client fetches, and a look claims what nobody has. Of a host's process the
    /// one that serves peers does so in their name; a node's peers say what they want of that themselves.
    pub(crate) fn may_wait(&self) -> bool {
        self.purpose == Purpose::Share || self.shared.slabs.is_some()
    }

    pub(crate) async fn say(&self, request: u64, message: Message) {
        self.send(request, message, Bytes::new(), None).await;
    }

    pub(crate) async fn send(
        &self,
        request: u64,
        message: Message,
        tail: Bytes,
        room: Option<Arc<OwnedSemaphorePermit>>,
    ) {
        // When the writer has ended, so will the reader.
        let _ = self.out.send(Out { request, message, tail, _room: room }).await;
    }
}

/// Serves a client that has shown who it is, until it leaves.
pub(super) async fn serve<S: Stream>(shared: &Arc<Shared>, stream: S, purpose: Purpose) {
    let client = shared.next_client();
    let here = Here { shared, client };
    shared.connected.send_modify(|count| *count += 1);
    let (reading, writing) = tokio::io::split(stream);
    let (out, answers) = mpsc::channel(ANSWERS);
    let all = shared.options.bytes_in_flight.clamp(1, u32::MAX as usize);
    let room = Arc::new(Semaphore::new(all));
    let caller = Caller { shared: shared.clone(), client, purpose, room, out };
    let ended = tokio::select! {
        ended = read(caller, BufReader::new(reading)) => ended,
        error = write(writing, answers) => Err(Error::io("answer a client of the shared cache", error)),
    };
    if let Err(error) = ended {
        tracing::debug!(error = %error.report(), "a client of the shared cache was lost");
    }
    drop(here);
}

/// Whatever ends the serving, also its being cut off, ends the client's claims.
struct Here<'a> {
    shared: &'a Shared,
    client: Client,
}

impl Drop for Here<'_> {
    fn drop(&mut self) {
        self.shared.gone(self.client);
        self.shared.connected.send_modify(|count| *count -= 1);
    }
}

async fn write<W: AsyncWrite + Unpin>(mut to: W, mut answers: mpsc::Receiver<Out>) -> std::io::Error {
    while let Some(out) = answers.recv().await {
        if let Err(error) = frame::write(&mut to, out.request, &out.message, out.tail).await {
            return error;
        }
    }
    std::future::pending().await
}

async fn read<R: AsyncRead + Unpin>(caller: Caller, mut from: R) -> Result<()> {
    let mut tasks = JoinSet::new();
    let mut body = Vec::new();
    while let Some((request, message)) = frame::read(&mut from, &mut body).await? {
        caller.shared.count(message.kind());
        while tasks.try_join_next().is_some() {}
        if tasks.len() >= caller.shared.options.requests {
            return Err(Error::exhausted("answer a client of the shared cache: it asks too much at once"));
        }
        let tail = message.tail();
        let asking = caller.clone();
        match message {
            Message::Keep(payload, place) => {
                let room = caller.room(tail).await;
                let bytes = frame::read_tail(&mut from, tail).await?;
                // Apart from the others, since taking in goes on when the client leaves meanwhile.
                tokio::spawn(async move {
                    keep(&asking, request, payload, place, &bytes).await;
                    drop(room);
                });
            }
            Message::GiveUp(payload) => caller.shared.give_up(payload.id, caller.client),
            Message::Look(payloads) if caller.may_wait() => drop(tasks.spawn(async move {
                let slabs = asking.shared.slabs.as_ref().map_or(0, |slabs| slabs.version());
                let answers = answer::look(&asking, &payloads).await;
                asking.say(request, Message::Answers { slabs, answers }).await;
            })),
            Message::Read(payloads) => {
                tasks.spawn(async move { answer::read(&asking, request, &payloads).await });
            }
            Message::Ask(payloads) => {
                tasks.spawn(async move { answer::ask(&asking, request, &payloads).await });
            }
            Message::Await(payloads) => {
                tasks.spawn(async move { answer::wait_for_all(&asking, request, &payloads).await });
            }
            other => drop(tasks.spawn(async move { manage(&asking, request, other).await })),
        }
    }
    Ok(())
}

async fn keep(caller: &Caller, request: u64, payload: Payload, place: Place, bytes: &Bytes) {
    let shared = &caller.shared;
    match caller.purpose {
        Purpose::Peer if !place.is_kept() => shared.keeper.give_up(payload),
        _ if !place.is_kept() => {}
        // Of a peer the place says no more than that it is worth keeping.
        Purpose::Peer => shared.keeper.admit(payload, bytes).await,
        _ => shared.keeper.keep(payload, place, bytes).await,
    }
    shared.end_claim(payload.id);
    caller.say(request, Message::Done(shared.keeper.view())).await;
}

/// Requests about all that is held. Peers may not make them: what one node holds is not another's to drop.
async fn manage(caller: &Caller, request: u64, message: Message) {
    let keeper = &caller.shared.keeper;
    let refused = |what: &str| Message::Refused(ErrorKind::Denied, format!("{what}: peers may not"));
    let answer = match message {
        Message::Held(group) => {
            let names = keeper.held(group).await;
            let mut parts = names.chunks(NAMES).peekable();
            while let Some(part) = parts.next() {
                let more = parts.peek().is_some();
                caller.say(request, Message::Names { names: part.to_vec(), more }).await;
                if !more {
                    return;
                }
            }
            Message::Names { names: Vec::new(), more: false }
        }
        Message::Look(_) => refused("look for payloads"),
        Message::Forget(_) if caller.purpose != Purpose::Share => refused("forget payloads"),
        Message::Resize(_) if caller.purpose != Purpose::Share => refused("resize a cache"),
        Message::Forget(names) => {
            keeper.forget(&names).await;
            Message::Done(keeper.view())
        }
        Message::Resize(capacity) => match keeper.resize(capacity).await {
            Ok(()) => Message::Done(keeper.view()),
            Err(error) => Message::Refused(error.kind(), error.report()),
        },
        Message::View => Message::Done(keeper.view()),
        Message::Slabs => match &caller.shared.slabs {
            Some(slabs) => {
                let (version, slabs) = slabs.list();
                Message::SlabList { version, slabs }
            }
            None => Message::SlabList { version: 0, slabs: Vec::new() },
        },
        _ => Message::Refused(ErrorKind::Unsupported, "only servers say this".to_owned()),
    };
    caller.say(request, answer).await;
}
