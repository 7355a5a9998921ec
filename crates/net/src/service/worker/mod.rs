//! A worker: makes batches of feeds and holds them until every job that reads the feed has taken them.
//!
//! `forebay worker` and `forebay share` are this: the first listens on TCP and is told by a dispatcher who reads what,
//! the second listens on a unix socket and hands batches over as shared memory. What is made, held, given and dropped is
//! decided by [`forebay_core::staging`]; [`feed`] acts on it, one thread for each feed. A connection is one rank of one
//! job: one thread reads what it asks for, one writes what it is given (`connection`).
//!
//! A worker holds nothing that cannot be made again: it may end at any time, and nobody loses a batch.

mod connection;
mod dispatched;
mod feed;
mod feeds;
mod makers;
mod metrics;
mod reports;
mod share;
mod spill;
mod view;

pub use dispatched::DispatcherReports;
pub use makers::{Makers, RealMakers};
pub use reports::{Load, Orders, Reports};
pub use share::{Shared, serve_share, share_socket};
pub use view::{FeedView, WorkerView, show};

use super::{Address, ListenOptions, Listener, ListenerCloser};
use crate::Credentials;
use crate::server::lock;
use connection::Connections;
use feeds::Feeds;
use forebay_core::staging::Late;
use forebay_core::{Error, Result};
use forebay_ops::BufferPool;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often feeds that nobody reads and connections that say nothing are looked for.
const ROUND: Duration = Duration::from_millis(100);

/// How a worker works.
#[derive(Clone)]
pub struct WorkerOptions {
    /// Where to listen.
    pub listen: Address,
    /// Who may connect over TCP.
    pub credentials: Credentials,
    /// Bytes of prepared batches, over all feeds.
    pub staging_bytes: u64,
    /// What happens to batches that a job is late to take; `None` leaves it to the first job of each feed.
    pub late: Option<Late>,
    /// A folder for batches of [`Late::Spill`].
    pub spill: Option<PathBuf>,
    /// Bytes that these may take, over all feeds.
    pub spill_bytes: u64,
    /// How long a feed stays open that nobody reads.
    pub grace: Duration,
    /// How long a client may leave a batch unread before it is closed.
    pub send_time: Duration,
    /// How long a client may take to show who it is.
    pub begin_time: Duration,
    /// How long a client may take to say what it reads.
    pub attach_time: Duration,
    /// How long a client may take to finish a message that it has begun.
    pub message_time: Duration,
    /// Connections at once.
    pub max_connections: usize,
    /// Feeds at once.
    pub max_feeds: usize,
    /// Batches of a feed that are made ahead of being asked for, at once.
    pub making_batches: usize,
    /// Memory for batches that come back from disk.
    pub pool: BufferPool,
    /// Whether jobs of this user on this machine find a unix socket beside the TCP port.
    pub near: bool,
    /// A dispatcher to report to, and how often.
    pub reports: Option<(Arc<dyn Reports>, Duration)>,
}

impl WorkerOptions {
    /// The usual settings.
    pub fn new(listen: Address) -> Self {
        Self {
            listen,
            credentials: Credentials::default(),
            staging_bytes: 2 << 30,
            late: None,
            spill: None,
            spill_bytes: 64 << 30,
            grace: Duration::from_secs(30),
            send_time: Duration::from_secs(60),
            begin_time: ListenOptions::default().begin_time,
            attach_time: Duration::from_secs(10),
            message_time: Duration::from_secs(30),
            max_connections: 1024,
            max_feeds: 64,
            making_batches: 16,
            pool: BufferPool::new(256 << 20),
            near: false,
            reports: None,
        }
    }
}

/// What all threads of a worker share.
struct Worker {
    options: WorkerOptions,
    feeds: Feeds,
    connections: Connections,
    bytes_sent: AtomicU64,
    draining: AtomicBool,
    stopping: AtomicBool,
    /// Whether the dispatcher, if there is one, has heard of it and answered the last time.
    heard: AtomicBool,
    /// Wakes up threads that wait for the next round.
    round: (Mutex<()>, Condvar),
    /// Since when nobody is connected.
    alone: Mutex<Option<Instant>>,
}

impl Worker {
    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Waits for a time, or until it is to stop.
    fn pause(&self, time: Duration) {
        let waiting = lock(&self.round.0);
        if !self.is_stopping() {
            // Waking up early does no harm.
            drop(self.round.1.wait_timeout(waiting, time).unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Tells everybody to ask elsewhere from now on; what was asked for is answered.
    fn start_draining(&self) {
        if !self.draining.swap(true, Ordering::AcqRel) {
            self.feeds.say_draining();
        }
    }
}

/// Starts a worker. It is ready to be connected to when this returns.
pub fn serve(options: WorkerOptions, makers: Arc<dyn Makers>) -> Result<Running> {
    if options.late == Some(Late::Spill) && options.spill.is_none() {
        return Err(
            Error::invalid_config("spill late batches: no folder was named").with_hint("give `--spill DIR`")
        );
    }
    let limits = ListenOptions {
        max_connections: options.max_connections,
        begin_time: options.begin_time,
        ..ListenOptions::default()
    };
    let listener = Listener::bind(&options.listen, &options.credentials, limits)?;
    let near = if options.near { bind_near(listener.address(), limits) } else { None };
    let (address, mut closers) = (listener.address().clone(), vec![listener.closer()]);
    closers.extend(near.as_ref().map(Listener::closer));
    let worker = Arc::new(Worker {
        feeds: Feeds::new(&options, makers),
        options,
        connections: Connections::default(),
        bytes_sent: AtomicU64::new(0),
        draining: AtomicBool::new(false),
        stopping: AtomicBool::new(false),
        heard: AtomicBool::new(false),
        round: Default::default(),
        alone: Mutex::new(Some(Instant::now())),
    });
    let mut running = Running { worker: Arc::clone(&worker), address, closers, threads: Vec::new() };
    let shared = Arc::clone(&worker);
    running.start("accept", move || accept(&shared, &listener))?;
    if let Some(near) = near {
        let shared = Arc::clone(&worker);
        running.start("accept-near", move || accept(&shared, &near))?;
    }
    let shared = Arc::clone(&worker);
    running.start("tidy", move || tidy(&shared))?;
    if let Some((reports, every)) = worker.options.reports.clone() {
        let address = running.address.clone();
        running.start("report", move || reports::report(&worker, &*reports, &address, every))?;
    }
    Ok(running)
}

/// The second door for jobs of this machine; without it they come by TCP.
fn bind_near(address: &Address, limits: ListenOptions) -> Option<Listener> {
    let Address::Tcp(text) = address else { return None };
    let port = text.rsplit_once(':').and_then(|(_, port)| port.parse().ok())?;
    let bound = super::near::socket(port)
        .and_then(|path| Listener::bind(&Address::Unix(path), &Credentials::default(), limits));
    bound
        .inspect_err(|error| {
            tracing::warn!(error = %error.report(), "jobs of this machine get batches over TCP");
        })
        .ok()
}

fn accept(worker: &Arc<Worker>, listener: &Listener) {
    while !worker.is_stopping() {
        match listener.accept() {
            Ok(Some(arriving)) => connection::take_in(worker, arriving),
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(error = %error.report(), "a connection could not be taken in");
                worker.pause(ROUND);
            }
        }
    }
}

fn tidy(worker: &Worker) {
    while !worker.is_stopping() {
        worker.pause(ROUND);
        worker.feeds.close_unread(worker.options.grace);
        worker.connections.close_silent(worker.options.attach_time, worker.options.message_time);
        let mut alone = lock(&worker.alone);
        *alone = (worker.connections.count() == 0).then(|| alone.unwrap_or_else(Instant::now));
    }
}

/// A worker that runs. Dropping it stops it.
pub struct Running {
    worker: Arc<Worker>,
    address: Address,
    closers: Vec<ListenerCloser>,
    threads: Vec<JoinHandle<()>>,
}

impl Running {
    fn start(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
        let started = std::thread::Builder::new().name(format!("forebay-{name}")).spawn(work);
        self.threads
            .push(started.map_err(|error| Error::io(format!("start thread `{name}` of a worker"), error))?);
        Ok(())
    }

    /// Where it listens, with the port that was given.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// What it does and has done.
    pub fn view(&self) -> WorkerView {
        view::view(&self.worker, &self.address)
    }

    /// For how long nobody has been connected; `None` when somebody is.
    pub fn alone(&self) -> Option<Duration> {
        if self.worker.connections.count() > 0 {
            return None;
        }
        lock(&self.worker.alone).map(|since| since.elapsed())
    }

    /// Clients that have come so far.
    pub fn connected(&self) -> u64 {
        self.worker.connections.seen()
    }

    /// Whether it was asked to drain, by us or by its dispatcher.
    pub fn is_draining(&self) -> bool {
        self.worker.is_draining()
    }

    /// Tells everybody to ask elsewhere, and takes nobody in any more.
    pub fn start_draining(&self) {
        self.worker.start_draining();
    }

    /// Whether somebody waits for a batch or one is on its way.
    pub fn is_busy(&self) -> bool {
        self.worker.feeds.is_busy()
    }

    /// As [`Self::start_draining`], and waits until what was asked for is answered, or
    /// until `within` is over. True when everything is.
    pub fn drain(&self, within: Duration) -> bool {
        self.worker.start_draining();
        let until = Instant::now() + within;
        while self.worker.feeds.is_busy() {
            if Instant::now() > until || self.worker.is_stopping() {
                return false;
            }
            self.worker.pause(Duration::from_millis(10));
        }
        true
    }

    /// Ends it: connections are closed, threads have ended when this returns.
    pub fn stop(&mut self) {
        self.worker.stopping.store(true, Ordering::Release);
        self.closers.iter().for_each(ListenerCloser::close);
        self.worker.connections.close_all();
        self.worker.round.1.notify_all();
        for thread in self.threads.drain(..) {
            // One that panicked has said so.
            let _ = thread.join();
        }
        self.worker.connections.close_all();
        self.worker.connections.wait_until_gone();
        self.worker.feeds.close_all();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Running({})", self.address)
    }
}
