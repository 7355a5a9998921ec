//! A connection: one rank of one job. A thread reads what it asks for, another writes what it is given.
//!
//! A client that does not read holds two batches and a bounded queue of short answers, and is closed when nothing of
//! them leaves for a while. Nobody else waits for it.

use super::feed::{Feed, Prepared};
use super::{Worker, view};
use crate::server::lock;
use crate::service::message::{Attach, Packing, ToClient, ToWorker, WireError};
use crate::service::{Arriving, Closer, Receiving, Sending};
use forebay_core::staging::{Command, ConsumerId, Name};
use forebay_core::{Error, ErrorKind, Result};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Answers that may wait to be written; a client has far fewer requests.
const QUEUE: usize = 4096;
/// Requests that one client may have open.
const REQUESTS: usize = 1024;
/// Longest name of a job.
const JOB_BYTES: usize = forebay_core::dispatcher::MAX_TEXT;

/// What is sent to a client.
#[derive(Clone)]
pub(super) enum Answer {
    Batch {
        request: u64,
        name: Name,
        batch: Arc<Prepared>,
    },
    Fault {
        request: u64,
        fault: WireError,
    },
    Skipped {
        request: u64,
    },
    Refused(WireError),
    /// To somebody who comes while it drains: nothing follows.
    Leaving,
    Attached {
        epoch_samples: u64,
        batch_bytes: u64,
    },
    NeedSpec,
    Draining,
    Shown(String),
}

/// The way to a connection's writer.
#[derive(Clone)]
pub(super) struct Queue {
    answers: SyncSender<Answer>,
    closer: Closer,
}

impl Queue {
    /// Puts an answer in; a client that lets them pile up is closed. False when it was not taken.
    pub(super) fn put(&self, answer: Answer) -> bool {
        let put = self.answers.try_send(answer).is_ok();
        if !put {
            self.closer.close();
        }
        put
    }
}

/// All connections of a worker.
#[derive(Default)]
pub(super) struct Connections {
    next: AtomicU64,
    open: Mutex<HashMap<ConsumerId, Open>>,
    gone: Condvar,
}

struct Open {
    closer: Closer,
    since: Instant,
    attached: Arc<AtomicBool>,
}

impl Connections {
    pub(super) fn count(&self) -> usize {
        lock(&self.open).len()
    }

    pub(super) fn seen(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// Closes those that did not say within `attach` what they read, and those that began to say something and have not
    /// finished it within `message`: what has come of it is in memory, and so is a thread that waits for the rest.
    pub(super) fn close_silent(&self, attach: Duration, message: Duration) {
        for open in lock(&self.open).values() {
            let silent = !open.attached.load(Ordering::Acquire) && open.since.elapsed() > attach;
            if silent || open.closer.unfinished_for().is_some_and(|since| since > message) {
                open.closer.close();
            }
        }
    }

    pub(super) fn close_all(&self) {
        lock(&self.open).values().for_each(|open| open.closer.close());
    }

    /// Waits for the threads of connections that were closed.
    pub(super) fn wait_until_gone(&self) {
        let mut open = lock(&self.open);
        let until = Instant::now() + Duration::from_secs(5);
        while !open.is_empty() && Instant::now() < until {
            open.values().for_each(|open| open.closer.close());
            let waited = self.gone.wait_timeout(open, Duration::from_millis(20));
            open = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Meets somebody who has connected, on a thread of its own.
pub(super) fn take_in(worker: &Arc<Worker>, arriving: Arriving) {
    let worker = Arc::clone(worker);
    let started = std::thread::Builder::new().name("forebay-client".into()).spawn(move || {
        let peer = arriving.peer().to_owned();
        match arriving.meet() {
            Ok((sending, receiving)) => Connection::run(&worker, sending, receiving),
            Err(error) => tracing::debug!(%peer, error = %error.report(), "a client was turned away"),
        }
    });
    if let Err(error) = started {
        tracing::warn!(%error, "no thread for a client: it was turned away");
    }
}

/// The reading half, and what it needs.
struct Connection<'a> {
    worker: &'a Worker,
    id: ConsumerId,
    queue: Queue,
    attached: Arc<AtomicBool>,
    /// What the writer needs to know of the feed.
    reading: Arc<Mutex<Option<Reading>>>,
}

#[derive(Clone)]
struct Reading {
    feed: Arc<Feed>,
    packing: Packing,
}

impl Connection<'_> {
    fn run(worker: &Arc<Worker>, sending: Sending, mut receiving: Receiving) {
        let id = ConsumerId(worker.connections.next.fetch_add(1, Ordering::Relaxed));
        let (answers, written) = sync_channel(QUEUE);
        let closer = receiving.closer();
        let attached = Arc::<AtomicBool>::default();
        let open = Open { closer: closer.clone(), since: Instant::now(), attached: Arc::clone(&attached) };
        lock(&worker.connections.open).insert(id, open);
        *lock(&worker.alone) = None;
        if worker.is_stopping() {
            closer.close();
        }
        let queue = Queue { answers, closer: closer.clone() };
        let connection = Connection { worker, id, queue, attached, reading: Arc::default() };
        std::thread::scope(|scope| {
            let reading = Arc::clone(&connection.reading);
            let writer = std::thread::Builder::new().name("forebay-writer".into());
            let ended = closer.clone();
            let started = writer.spawn_scoped(scope, move || {
                write(worker, id, sending, &written, &reading);
                // Whoever reads from it need not wait any longer.
                ended.close();
            });
            if started.is_ok()
                && let Err(error) = connection.read(&mut receiving)
            {
                tracing::debug!(peer = receiving.peer(), error = %error.report(), "a client was closed");
                // The last word; the writer closes the connection after it.
                let leaves = worker.is_draining() && error.kind() == ErrorKind::Unavailable;
                let refused = || Answer::Refused(WireError::from(&error));
                connection.queue.put(if leaves { Answer::Leaving } else { refused() });
            } else {
                closer.close();
            }
            let reading = lock(&connection.reading).clone();
            if let Some(reading) = reading {
                reading.feed.detach(id);
            }
            // The writer ends when the last way to it is gone.
            drop(connection);
        });
        lock(&worker.connections.open).remove(&id);
        *lock(&worker.alone) = (worker.connections.count() == 0).then(Instant::now);
        worker.connections.gone.notify_all();
    }

    /// Reads until the client ends. An error is told to the client.
    fn read(&self, receiving: &mut Receiving) -> Result<()> {
        let feed = loop {
            match receiving.receive::<ToWorker>() {
                Ok(Some(ToWorker::Attach(attach))) => {
                    if let Some(feed) = self.attach(&attach)? {
                        break feed;
                    }
                }
                Ok(Some(ToWorker::Show)) => {
                    let view = view::view(self.worker, &self.worker.options.listen);
                    let view = serde_json::to_string(&view)
                        .map_err(|cause| Error::internal("show a worker").with_source(cause))?;
                    self.queue.put(Answer::Shown(view));
                }
                Ok(Some(_)) => return Err(Error::invalid_config("read a feed: it was not said which")),
                Ok(None) | Err(_) => return Ok(()),
            }
        };
        // One that is lost has nobody to be told.
        while let Ok(Some(message)) = receiving.receive::<ToWorker>() {
            self.obey(&feed, message)?;
        }
        Ok(())
    }

    fn attach(&self, attach: &Attach) -> Result<Option<Arc<Feed>>> {
        if self.worker.is_draining() {
            return Err(Error::unavailable("read a feed: this worker is about to leave"));
        }
        if attach.job.is_empty() || attach.job.len() > JOB_BYTES {
            let why = format!(
                "read a feed: the job's name has {} bytes, 1 to {JOB_BYTES} are allowed",
                attach.job.len()
            );
            return Err(Error::invalid_config(why));
        }
        if attach.world_size == 0 || attach.rank >= attach.world_size {
            let why = format!("read a feed: rank {} of {} does not exist", attach.rank, attach.world_size);
            return Err(Error::invalid_config(why));
        }
        // Opening may take long, and is not the client's silence.
        self.attached.store(true, Ordering::Release);
        loop {
            let Some(feed) = self.worker.feeds.find(attach)? else {
                self.attached.store(false, Ordering::Release);
                self.queue.put(Answer::NeedSpec);
                return Ok(None);
            };
            let packing = attach.packings.first().copied().unwrap_or_default();
            *lock(&self.reading) = Some(Reading { feed: Arc::clone(&feed), packing });
            let answer =
                Answer::Attached { epoch_samples: feed.epoch_samples(), batch_bytes: feed.batch_bytes() };
            if feed.attach(self.id, &attach.job, attach.rank, attach.world_size, self.queue.clone()) {
                self.queue.put(answer);
                return Ok(Some(feed));
            }
            if let Some(error) = feed.fault() {
                return Err(error);
            }
        }
    }

    fn obey(&self, feed: &Feed, message: ToWorker) -> Result<()> {
        let consumer = self.id;
        match message {
            ToWorker::Plan { mut names } => {
                // A plan is a wish; what is wrong with it is told to whoever asks for it.
                names.retain(|name| feed.check(name).is_ok());
                feed.tell(Command::Plan { consumer, names });
            }
            ToWorker::Take { request, name } => match feed.check(&name) {
                Ok(()) if feed.waiting(consumer) >= REQUESTS => {
                    let why = format!("read a feed: {REQUESTS} requests wait already, no more may");
                    return Err(Error::exhausted(why));
                }
                Ok(()) => feed.tell(Command::Take { consumer, request, name }),
                Err(error) => {
                    self.queue.put(Answer::Fault { request, fault: WireError::from(&error) });
                }
            },
            ToWorker::Forget { request } => feed.tell(Command::Forget { consumer, request }),
            ToWorker::Passed { epoch, position } => {
                feed.tell(Command::Passed { consumer, epoch, position });
            }
            // What it says of memory was noted where it was read.
            ToWorker::Release { .. } => {}
            ToWorker::Attach(_) | ToWorker::Show => {
                return Err(Error::invalid_config("read a feed: this connection reads one already"));
            }
        }
        Ok(())
    }
}

/// Writes answers until there are no more, or until the client does not take them.
fn write(
    worker: &Worker,
    id: ConsumerId,
    mut sending: Sending,
    answers: &Receiver<Answer>,
    reading: &Mutex<Option<Reading>>,
) {
    let mut lost = sending.set_write_time(worker.options.send_time).is_err();
    while let Ok(answer) = answers.recv() {
        let message = match answer {
            Answer::Batch { request, name, batch } => {
                let Some(Reading { feed, packing }) = lock(reading).clone() else { continue };
                if !lost {
                    match sending.send_batch(request, &batch.batch, batch.times, packing) {
                        Ok(sent) => {
                            let bytes = sent.packed_bytes + sent.shared_bytes;
                            worker.bytes_sent.fetch_add(bytes, Ordering::Relaxed);
                        }
                        Err(error) => lost = given_up(&sending, &error),
                    }
                }
                drop(batch);
                feed.tell(Command::Sent { consumer: id, name });
                continue;
            }
            Answer::Fault { request, fault } => ToClient::Fault { request, fault },
            Answer::Skipped { request } => ToClient::Skipped { request },
            last @ (Answer::Refused(_) | Answer::Leaving) => {
                if !lost {
                    let _ = sending.send(&match last {
                        Answer::Refused(fault) => ToClient::Refused { fault },
                        _ => ToClient::Draining,
                    });
                }
                // Nothing follows it; what is still in the queue is let go of.
                lost = true;
                sending.closer().close();
                continue;
            }
            Answer::Attached { epoch_samples, batch_bytes } => {
                ToClient::Attached { epoch_samples, batch_bytes }
            }
            Answer::NeedSpec => ToClient::NeedSpec,
            Answer::Draining => ToClient::Draining,
            Answer::Shown(view) => ToClient::Shown { view },
        };
        if !lost && let Err(error) = sending.send(&message) {
            lost = given_up(&sending, &error);
        }
    }
}

/// A client that is gone, or does not read: its reader is woken up, and detaches it.
fn given_up(sending: &Sending, error: &Error) -> bool {
    tracing::debug!(peer = sending.peer(), error = %error.report(), "a client does not take its batches");
    sending.closer().close();
    true
}
