//! The one that writes the journal: what is decided while it writes goes out with the next write, together.

use super::journal::Journal;
use forebay_core::dispatcher::Event;
use forebay_core::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;

/// Entries that may wait to be written; beyond, even those wait that need not.
const MAX_BEHIND: u64 = 1 << 16;

/// What is handed to the writer, in the order it was decided.
#[derive(Debug)]
enum Entry {
    Events(Vec<Event>),
    /// The shortest list of events for the state after all that went before.
    Anew(Vec<Event>),
}

/// How far the writer is.
#[derive(Clone, Debug, Default)]
struct Written {
    entries: u64,
    /// Why it ended before its time.
    fault: Option<Arc<Error>>,
}

/// The journal as the service sees it. Entries are numbered from 1.
#[derive(Debug)]
pub(super) struct Commit {
    sender: UnboundedSender<Entry>,
    sent: u64,
    /// The last entry that answers must wait for.
    awaited: u64,
    is_long: Arc<AtomicBool>,
    written: watch::Receiver<Written>,
}

/// Waits until what was decided is kept.
#[derive(Clone, Debug)]
pub(super) struct Promise {
    entry: u64,
    written: watch::Receiver<Written>,
}

/// What writes; it ends when its [`Commit`] is dropped and all is written.
#[derive(Debug)]
pub(super) enum Writer {
    Thread(std::thread::JoinHandle<()>),
    Task(tokio::task::JoinHandle<()>),
}

impl Writer {
    /// Waits until all is written.
    pub(super) async fn finish(self, handle: &Handle) {
        match self {
            Self::Thread(thread) => drop(handle.spawn_blocking(move || thread.join()).await),
            Self::Task(task) => drop(task.await),
        }
    }
}

impl Commit {
    /// Has a thread write: for journals that wait for a disk.
    pub(super) fn on_thread(journal: Box<dyn Journal>) -> Result<(Self, Writer)> {
        let (commit, run) = Self::start(journal);
        let thread = std::thread::Builder::new()
            .name("forebay-journal".into())
            .spawn(move || futures::executor::block_on(run))
            .map_err(|error| Error::io("start the thread that writes dispatcher state", error))?;
        Ok((commit, Writer::Thread(thread)))
    }

    /// Has a task write: for journals at the other end of a socket.
    pub(super) fn on_runtime(journal: Box<dyn Journal>, handle: &Handle) -> (Self, Writer) {
        let (commit, run) = Self::start(journal);
        (commit, Writer::Task(handle.spawn(run)))
    }

    fn start(journal: Box<dyn Journal>) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (sender, receiver) = unbounded_channel();
        let (told, written) = watch::channel(Written::default());
        let is_long = Arc::new(AtomicBool::new(false));
        let run = run(journal, receiver, told, is_long.clone());
        (Self { sender, sent: 0, awaited: 0, is_long, written }, run)
    }

    /// Takes events. To be called in the order of decisions.
    pub(super) fn take(&mut self, events: Vec<Event>) {
        if events.is_empty() {
            return;
        }
        let is_durable = events.iter().any(Event::is_durable);
        self.send(Entry::Events(events));
        let is_behind = self.sent.saturating_sub(self.written.borrow().entries) > MAX_BEHIND;
        if is_durable || is_behind {
            self.awaited = self.sent;
        }
    }

    /// Whether the journal should be written anew.
    pub(super) fn is_long(&self) -> bool {
        self.is_long.swap(false, Ordering::Relaxed)
    }

    /// Has the journal written anew.
    pub(super) fn write_anew(&mut self, events: Vec<Event>) {
        self.send(Entry::Anew(events));
    }

    /// All that was decided so far. An answer may tell of what others asked for, so it waits for that too.
    pub(super) fn promise(&self) -> Promise {
        Promise { entry: self.awaited, written: self.written.clone() }
    }

    fn send(&mut self, entry: Entry) {
        // A writer that has ended says why through `written`.
        let _ = self.sender.send(entry);
        self.sent += 1;
    }
}

impl Promise {
    /// Waits; an error means that it may never be kept.
    pub(super) async fn kept(mut self) -> Result<()> {
        let entry = self.entry;
        let reached = self.written.wait_for(|now| now.entries >= entry || now.fault.is_some()).await;
        match reached.as_deref() {
            Ok(Written { fault: None, .. }) => Ok(()),
            Ok(Written { fault: Some(fault), .. }) => Err(fault.duplicate()),
            Err(_) => Err(Error::internal("what writes dispatcher state has ended")),
        }
    }

    /// Waits until the journal cannot be written any more.
    pub(super) async fn broken(mut self) -> Error {
        // The lock of what is seen is not held while it waits for ever.
        let seen = self.written.wait_for(|now| now.fault.is_some()).await.map(|now| now.clone());
        match seen {
            Ok(Written { fault: Some(fault), .. }) => fault.duplicate(),
            _ => std::future::pending().await,
        }
    }
}

async fn run(
    mut journal: Box<dyn Journal>,
    mut entries: UnboundedReceiver<Entry>,
    told: watch::Sender<Written>,
    is_long: Arc<AtomicBool>,
) {
    while let Some(first) = entries.recv().await {
        let (mut count, mut events) = (0, Vec::new());
        let (mut outcome, mut next) = (Ok(()), Some(first));
        while let Some(entry) = next {
            count += 1;
            match entry {
                Entry::Events(some) => events.extend(some),
                Entry::Anew(all) if outcome.is_ok() => {
                    // What went before is in it.
                    events.clear();
                    outcome = journal.compact(&all).await;
                }
                Entry::Anew(_) => {}
            }
            next = entries.try_recv().ok();
        }
        if !events.is_empty() && outcome.is_ok() {
            outcome = journal.append(&events).await;
        }
        match outcome {
            Ok(()) => told.send_modify(|now| now.entries += count),
            Err(error) => {
                tracing::error!(error = %error.report(), "dispatcher state cannot be written");
                told.send_modify(|now| now.fault = Some(Arc::new(error)));
                return;
            }
        }
        if journal.is_long() {
            is_long.store(true, Ordering::Relaxed);
        }
    }
}
