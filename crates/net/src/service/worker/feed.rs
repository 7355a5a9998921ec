//! One feed: a maker, staging, and the connections that read it.
//!
//! Everything is behind one lock. Whoever has news (a connection, the maker's thread, the disk's thread) tells staging and
//! does what it says, all under the lock and without waiting: batches go to writers' queues, names to the maker.

use super::connection::{Answer, Queue};
use super::spill::{Disk, Errand};
use super::view::FeedView;
use crate::server::lock;
use crate::service::Times;
use crate::service::message::{Late, WireError};
use forebay_core::feed::{BatchName, FeedId};
use forebay_core::staging::{Action, Command, ConsumerId, Name, Staging, StagingOptions};
use forebay_core::{Error, Result};
use forebay_engine::{Batch, Made, Make, Stats};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the maker's thread waits at once, before it looks whether the feed was closed.
const WAIT: Duration = Duration::from_millis(50);

/// A batch that is ready to be sent.
pub(super) struct Prepared {
    pub(super) batch: Batch,
    pub(super) times: Times,
}

/// What a feed is opened with.
pub(super) struct FeedParts {
    pub(super) id: FeedId,
    pub(super) label: String,
    pub(super) late: Late,
    pub(super) limit_bytes: u64,
    pub(super) batch_size: u64,
    pub(super) making_batches: usize,
    pub(super) make: Arc<dyn Make>,
    pub(super) disk: Option<Disk>,
}

/// A feed that is open.
pub(super) struct Feed {
    pub(super) id: FeedId,
    label: String,
    pub(super) late: Late,
    batch_size: u64,
    make: Arc<dyn Make>,
    closed: AtomicBool,
    inner: Mutex<Inner>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Inner {
    staging: Staging,
    batches: HashMap<Name, Arc<Prepared>>,
    queues: HashMap<ConsumerId, Queue>,
    disk: Option<Disk>,
    /// Since when nobody reads it.
    unread: Option<Instant>,
    limit_bytes: u64,
    largest_rows: u64,
    fault: Option<Error>,
}

impl Feed {
    /// Starts a feed's threads.
    pub(super) fn start(parts: FeedParts) -> Result<Arc<Self>> {
        let staging = Staging::new(StagingOptions {
            limit_bytes: parts.limit_bytes,
            batch_bytes: parts.make.batch_bytes(),
            epoch_samples: parts.make.epoch_samples(),
            late: parts.late,
            making_batches: parts.making_batches,
            sends: 2,
        });
        let feed = Arc::new(Self {
            id: parts.id,
            label: parts.label,
            late: parts.late,
            batch_size: parts.batch_size.max(1),
            make: parts.make,
            closed: AtomicBool::new(false),
            inner: Mutex::new(Inner {
                staging,
                batches: HashMap::new(),
                queues: HashMap::new(),
                disk: None,
                unread: Some(Instant::now()),
                limit_bytes: parts.limit_bytes,
                largest_rows: parts.batch_size.max(1),
                fault: None,
            }),
            thread: Mutex::new(None),
        });
        if let Some(disk) = parts.disk {
            let told = Arc::downgrade(&feed);
            let disk = disk.start(move |command, batch| {
                if let Some(feed) = told.upgrade() {
                    feed.disk_says(command, batch);
                }
            })?;
            lock(&feed.inner).disk = Some(disk);
        }
        let shared = Arc::clone(&feed);
        let thread = std::thread::Builder::new().name("forebay-feed".into()).spawn(move || shared.run());
        *lock(&feed.thread) = Some(thread.map_err(|error| Error::io("start the thread of a feed", error))?);
        Ok(feed)
    }

    pub(super) fn epoch_samples(&self) -> u64 {
        self.make.epoch_samples()
    }

    pub(super) fn batch_bytes(&self) -> u64 {
        self.make.batch_bytes()
    }

    /// Lets a connection read; false when the feed was closed meanwhile.
    pub(super) fn attach(&self, id: ConsumerId, job: &str, rank: u64, world_size: u64, queue: Queue) -> bool {
        let mut inner = lock(&self.inner);
        if self.is_closed() {
            return false;
        }
        inner.queues.insert(id, queue);
        inner.unread = None;
        self.apply(&mut inner, Command::Attach { consumer: id, job: job.to_owned(), rank, world_size });
        true
    }

    pub(super) fn detach(&self, id: ConsumerId) {
        let mut inner = lock(&self.inner);
        if inner.queues.remove(&id).is_some() {
            self.apply(&mut inner, Command::Detach { consumer: id });
        }
        if inner.queues.is_empty() {
            inner.unread.get_or_insert_with(Instant::now);
        }
    }

    /// Tells staging what happened.
    pub(super) fn tell(&self, command: Command) {
        self.apply(&mut lock(&self.inner), command);
    }

    /// Checks a name from outside, and what a batch of that size would take.
    pub(super) fn check(&self, name: &BatchName) -> Result<()> {
        name.check(self.epoch_samples())?;
        let rows = name.rows();
        let mut inner = lock(&self.inner);
        if rows <= inner.largest_rows {
            return Ok(());
        }
        // Another job's batches may be larger than those the feed was opened for.
        let bytes = u128::from(self.batch_bytes()) * u128::from(rows) / u128::from(self.batch_size);
        if bytes > u128::from(inner.limit_bytes) {
            let why = format!(
                "make batch of {name}: it takes about {bytes} bytes, staging has {}",
                inner.limit_bytes
            );
            return Err(Error::exhausted(why)
                .with_hint("give the worker more `--staging`, or ask for smaller batches"));
        }
        inner.largest_rows = rows;
        self.apply(&mut inner, Command::Size { bytes: bytes as u64 });
        Ok(())
    }

    /// Requests of a connection that wait for their answer.
    pub(super) fn waiting(&self, id: ConsumerId) -> usize {
        lock(&self.inner).staging.waiting(id)
    }

    pub(super) fn set_limit(&self, bytes: u64) {
        let mut inner = lock(&self.inner);
        if inner.limit_bytes != bytes {
            inner.limit_bytes = bytes;
            self.apply(&mut inner, Command::Limit { bytes });
        }
    }

    pub(super) fn is_busy(&self) -> bool {
        lock(&self.inner).staging.is_busy()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Whether it ended by itself.
    pub(super) fn fault(&self) -> Option<Error> {
        lock(&self.inner).fault.as_ref().map(Error::duplicate)
    }

    pub(super) fn say(&self, answer: &Answer) {
        for queue in lock(&self.inner).queues.values() {
            queue.put(answer.clone());
        }
    }

    /// Closes it when nobody has read it for `grace`.
    pub(super) fn close_if_unread(&self, grace: Duration) -> bool {
        let inner = lock(&self.inner);
        let unread = inner.unread.is_some_and(|since| since.elapsed() >= grace);
        if unread {
            // Under the lock, so that nobody attaches to what is being closed.
            self.closed.store(true, Ordering::Release);
        }
        unread
    }

    /// Ends its threads.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        if let Some(thread) = lock(&self.thread).take()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
        let mut inner = lock(&self.inner);
        let disk = inner.disk.take();
        inner.batches.clear();
        drop(inner);
        drop(disk);
    }

    /// What making its batches took.
    pub(super) fn stats(&self) -> Stats {
        self.make.stats()
    }

    pub(super) fn view(&self) -> FeedView {
        let inner = lock(&self.inner);
        FeedView {
            feed: self.id.to_string(),
            label: self.label.clone(),
            late: self.late,
            epoch_samples: self.epoch_samples(),
            batch_bytes: self.batch_bytes(),
            limit_bytes: inner.limit_bytes,
            staging: inner.staging.accounts(),
            jobs: inner.staging.jobs(),
        }
    }

    /// Takes batches from the maker until the feed is closed.
    fn run(&self) {
        while !self.is_closed() {
            match self.make.take(WAIT) {
                Ok(None) => {}
                Ok(Some(made)) => self.made(made),
                Err(error) => return self.failed(error),
            }
        }
    }

    fn made(&self, Made { name, batch, fetch, prep }: Made) {
        let name = Name::new(name);
        let mut inner = lock(&self.inner);
        match batch {
            Ok(batch) => {
                let bytes = batch_bytes(&batch);
                let times = Times { fetch, prep };
                inner.batches.insert(Name::clone(&name), Arc::new(Prepared { batch, times }));
                self.apply(&mut inner, Command::Made { name, bytes });
            }
            Err(error) => {
                let fault = WireError::from(&error);
                self.apply_with(&mut inner, Command::Failed { name }, Some(&fault));
            }
        }
    }

    fn failed(&self, error: Error) {
        tracing::warn!(feed = %self.id, error = %error.report(), "a feed has ended");
        let mut inner = lock(&self.inner);
        self.closed.store(true, Ordering::Release);
        let refused = Answer::Refused(WireError::from(&error));
        inner.fault = Some(error);
        for queue in inner.queues.values() {
            queue.put(refused.clone());
        }
    }

    fn disk_says(&self, command: Command, batch: Option<Arc<Prepared>>) {
        let mut inner = lock(&self.inner);
        if let (Command::Loaded { name }, Some(batch)) = (&command, batch) {
            inner.batches.insert(Name::clone(name), batch);
        }
        self.apply(&mut inner, command);
    }

    fn apply(&self, inner: &mut Inner, command: Command) {
        self.apply_with(inner, command, None);
    }

    fn apply_with(&self, inner: &mut Inner, command: Command, fault: Option<&WireError>) {
        let mut todo = vec![command];
        let mut wanted: Vec<BatchName> = Vec::new();
        while let Some(command) = todo.pop() {
            for action in inner.staging.apply(command) {
                if let Some(next) = inner.act(action, fault, &mut wanted) {
                    todo.push(next);
                }
            }
        }
        if !wanted.is_empty() {
            self.make.prepare(&wanted);
        }
    }
}

impl Inner {
    /// Does what staging says; what is known at once is told at once.
    fn act(
        &mut self,
        action: Action,
        fault: Option<&WireError>,
        wanted: &mut Vec<BatchName>,
    ) -> Option<Command> {
        match action {
            Action::Make(name) => wanted.push(BatchName::clone(&name)),
            Action::Give { consumer, request, name } => {
                let given =
                    self.queues.get(&consumer).zip(self.batches.get(&name)).is_some_and(|(queue, batch)| {
                        queue.put(Answer::Batch {
                            request,
                            name: Name::clone(&name),
                            batch: Arc::clone(batch),
                        })
                    });
                // A queue that is gone or full belongs to a connection that is being closed.
                return (!given).then_some(Command::Sent { consumer, name });
            }
            Action::Fault { consumer, request } => {
                let fault = fault.cloned().unwrap_or_default();
                self.put(consumer, Answer::Fault { request, fault });
            }
            Action::Skip { consumer, request } => self.put(consumer, Answer::Skipped { request }),
            Action::Drop(name) => {
                self.batches.remove(&name);
                if let Some(disk) = &self.disk {
                    disk.run(Errand::Remove(name));
                }
            }
            Action::Unload(name) => drop(self.batches.remove(&name)),
            Action::Spill(name) => {
                let batch = self.batches.get(&name).cloned();
                let errand = batch.map(|batch| Errand::Write(Name::clone(&name), batch));
                let done = errand.zip(self.disk.as_ref()).is_some_and(|(errand, disk)| disk.run(errand));
                return (!done).then_some(Command::NotSpilled { name });
            }
            Action::Load(name) => {
                let errand = Errand::Read(Name::clone(&name));
                let done = self.disk.as_ref().is_some_and(|disk| disk.run(errand));
                return (!done).then_some(Command::NotLoaded { name });
            }
        }
        None
    }

    fn put(&self, consumer: ConsumerId, answer: Answer) {
        if let Some(queue) = self.queues.get(&consumer) {
            queue.put(answer);
        }
    }
}

/// What a batch holds in memory.
pub(super) fn batch_bytes(batch: &Batch) -> u64 {
    batch.bytes() + batch.ids.len() as u64 * 9
}
