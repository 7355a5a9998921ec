//! What waits for the writing thread, and the thread. It starts with the first payload.
//!
//! Whoever works on the files holds the writer. The thread takes the writer first and then what waits, so that one who
//! holds the writer and finds nothing waiting knows that all is written.

use super::state::Room;
use super::writer::Writer;
use super::{Shared, folder};
use crate::cache::Payload;
use bytes::Bytes;
use forebay_core::cache::PayloadId;
use futures::channel::oneshot;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use tokio::sync::Semaphore;

/// The queue's room is counted in pieces of this size.
const PIECE: u64 = 4096;

#[derive(Debug)]
pub(super) struct Queue {
    inner: Arc<Inner>,
    places: Arc<Semaphore>,
    pieces: u32,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    writer: Mutex<Writer>,
    waiting: Mutex<Waiting>,
    work: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    forgotten: Vec<PayloadId>,
    payloads: Vec<(PayloadId, u64)>,
    reclaims: Vec<(u64, oneshot::Sender<()>)>,
    woken: bool,
    tidy: bool,
    closing: bool,
}

impl Waiting {
    fn is_empty(&self) -> bool {
        let nothing = self.forgotten.is_empty() && self.payloads.is_empty() && self.reclaims.is_empty();
        nothing && !self.woken && !self.tidy
    }
}

impl Queue {
    pub(super) fn new(shared: Arc<Shared>, writer: Writer, bytes: u64) -> Self {
        let pieces = u32::try_from(bytes.div_ceil(PIECE)).unwrap_or(u32::MAX).clamp(1, 1 << 28);
        let inner =
            Inner { shared, writer: Mutex::new(writer), waiting: Mutex::default(), work: Condvar::new() };
        let places = Arc::new(Semaphore::new(pieces as usize));
        Self { inner: Arc::new(inner), places, pieces, thread: Mutex::default() }
    }

    /// Waits for room in the queue and puts a payload into it, if there is still room for it on disk.
    pub(super) async fn push(&self, payload: Payload, bytes: &Bytes) -> Room {
        let length = bytes.len() as u64;
        let wanted = u32::try_from(length / PIECE + 1).unwrap_or(u32::MAX).min(self.pieces);
        // Nobody closes the semaphore.
        let place = Arc::clone(&self.places).acquire_many_owned(wanted).await.ok();
        let mut state = self.inner.shared.state();
        let room = state.room(payload.id, length);
        if room == Room::Free {
            let turn = state.admit(payload, bytes.clone(), place);
            // Still under the state's lock: turns wait in the order in which they were admitted.
            self.inner.waiting().payloads.push((payload.id, turn));
            drop(state);
            self.start();
        }
        room
    }

    /// Has the thread compact until a payload of this length fits, if it can.
    pub(super) async fn reclaim(&self, length: u64) {
        let (done, answer) = oneshot::channel();
        self.inner.waiting().reclaims.push((length, done));
        self.start();
        let _ = answer.await;
    }

    /// Has the index say that payloads are gone, and segments compacted that are mostly dead.
    pub(super) fn forget(&self, ids: Vec<PayloadId>) {
        if ids.is_empty() {
            return;
        }
        let mut waiting = self.inner.waiting();
        waiting.forgotten.extend(ids);
        waiting.tidy = true;
        drop(waiting);
        self.start();
    }

    /// Has the thread look around.
    pub(super) fn wake(&self) {
        self.inner.waiting().woken = true;
        self.start();
    }

    /// Writes all that waits, on this thread, and brings it to the disk.
    pub(super) fn flush(&self) -> bool {
        let mut writer = self.inner.writer();
        self.inner.work(&mut writer);
        writer.sync().is_ok() && !self.inner.shared.state().full
    }

    /// Changes the limit, on this thread.
    pub(super) fn resize(&self, limit: u64) -> io::Result<()> {
        let mut writer = self.inner.writer();
        self.inner.work(&mut writer);
        // With more room the marker is changed first, with less last: it never says less than the files have.
        if limit >= self.inner.shared.state().limit {
            folder::write_marker(&self.inner.shared.dir, limit)?;
            self.inner.shared.state().limit = limit;
            return Ok(());
        }
        writer.shrink(&self.inner.shared, limit)?;
        folder::write_marker(&self.inner.shared.dir, limit)
    }

    /// Starts the thread if it does not run, and tells it that something waits.
    fn start(&self) {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let inner = Arc::clone(&self.inner);
            let started = std::thread::Builder::new().name("forebay-disk".into()).spawn(move || inner.run());
            match started {
                Ok(handle) => *thread = Some(handle),
                // Without a thread it is written here.
                Err(_) => self.inner.work(&mut self.inner.writer()),
            }
        }
        drop(thread);
        self.inner.work.notify_one();
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.inner.waiting().closing = true;
        self.inner.work.notify_one();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A thread that panicked has nothing more to write.
        let _ = thread.map(JoinHandle::join);
    }
}

impl Inner {
    fn run(&self) {
        loop {
            let mut waiting = self.waiting();
            while waiting.is_empty() && !waiting.closing {
                waiting = self.work.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            }
            let closing = waiting.closing;
            if closing {
                waiting.tidy = false;
            }
            drop(waiting);
            let mut writer = self.writer();
            self.work(&mut writer);
            if closing {
                // What could not be flushed is found out by its checksum.
                let _ = writer.sync();
                return;
            }
        }
    }

    /// Does all that waits. Forgotten payloads come first: one that is kept again must be named by a later line.
    fn work(&self, writer: &mut Writer) {
        let taken = std::mem::take(&mut *self.waiting());
        self.waiting().closing = taken.closing;
        let shared = &*self.shared;
        let mut forgotten = taken.forgotten;
        forgotten.append(&mut shared.take_condemned());
        if !forgotten.is_empty() {
            writer.write_forgotten(shared, &forgotten);
        }
        writer.write(shared, &taken.payloads);
        if taken.tidy {
            writer.tidy(shared);
        }
        for (length, done) in taken.reclaims {
            writer.reclaim(shared, length);
            let _ = done.send(());
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
