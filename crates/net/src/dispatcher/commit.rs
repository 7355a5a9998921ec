//! The thread that writes the journal: what is decided while it writes goes out with the next write, together.

use super::journal::Journal;
use forebay_core::dispatcher::Event;
use forebay_core::{Error, Result};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::watch;

/// Entries that may wait for the disk; beyond, even those wait that need not.
const MAX_BEHIND: u64 = 1 << 16;

/// What is handed to the thread, in the order it was decided.
#[derive(Debug)]
enum Entry {
    Events(Vec<Event>),
    /// The shortest list of events for the state after all that went before.
    Anew(Vec<Event>),
}

/// How far the thread is.
#[derive(Clone, Debug, Default)]
struct Written {
    entries: u64,
    /// Why it ended before its time.
    fault: Option<Arc<Error>>,
}

/// The journal as the service sees it. Entries are numbered from 1.
#[derive(Debug)]
pub(super) struct Commit {
    sender: Sender<Entry>,
    sent: u64,
    /// The last entry that answers must wait for.
    awaited: u64,
    is_long: Arc<AtomicBool>,
    written: watch::Receiver<Written>,
}

/// Waits until what was decided is on disk.
#[derive(Clone, Debug)]
pub(super) struct Promise {
    entry: u64,
    written: watch::Receiver<Written>,
}

impl Commit {
    /// Starts the thread; it ends when this is dropped and all is written.
    pub(super) fn start(journal: Journal) -> Result<(Self, std::thread::JoinHandle<()>)> {
        let (sender, receiver) = channel();
        let (told, written) = watch::channel(Written::default());
        let is_long = Arc::new(AtomicBool::new(false));
        let flag = is_long.clone();
        let thread = std::thread::Builder::new()
            .name("forebay-journal".into())
            .spawn(move || run(journal, &receiver, &told, &flag))
            .map_err(|error| Error::io("start the thread that writes dispatcher state", error))?;
        Ok((Self { sender, sent: 0, awaited: 0, is_long, written }, thread))
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
        // A thread that has ended says why through `written`.
        let _ = self.sender.send(entry);
        self.sent += 1;
    }
}

impl Promise {
    /// Waits; an error means that it will never be on disk.
    pub(super) async fn kept(mut self) -> Result<()> {
        let entry = self.entry;
        let reached = self.written.wait_for(|now| now.entries >= entry || now.fault.is_some()).await;
        match reached.as_deref() {
            Ok(Written { fault: None, .. }) => Ok(()),
            Ok(Written { fault: Some(fault), .. }) => Err(fault.duplicate()),
            Err(_) => Err(Error::internal("the thread that writes dispatcher state has ended")),
        }
    }

    /// Waits until the journal cannot be written any more.
    pub(super) async fn broken(mut self) -> Error {
        match self.written.wait_for(|now| now.fault.is_some()).await.as_deref() {
            Ok(Written { fault: Some(fault), .. }) => fault.duplicate(),
            _ => std::future::pending().await,
        }
    }
}

fn run(mut journal: Journal, entries: &Receiver<Entry>, told: &watch::Sender<Written>, is_long: &AtomicBool) {
    while let Ok(first) = entries.recv() {
        let (mut count, mut events) = (0, Vec::new());
        let mut outcome = Ok(());
        for entry in std::iter::once(first).chain(entries.try_iter()) {
            count += 1;
            match entry {
                Entry::Events(some) => events.extend(some),
                Entry::Anew(all) => {
                    // What went before is in it.
                    events.clear();
                    outcome = outcome.and_then(|()| journal.compact(&all));
                }
            }
        }
        if !events.is_empty() {
            outcome = outcome.and_then(|()| journal.append(&events));
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

/// Opens the journal of a folder.
pub(super) fn open(folder: &Path) -> Result<(Journal, forebay_core::dispatcher::State)> {
    Journal::open(folder)
}
