//! What the loop, the links and the keeper of a supply share: the machine behind one lock, and the batches that came.
//!
//! Whatever happens (a batch came, a link is lost, the loop took one) is told to the machine under the lock, and what
//! the machine then wants is handed to links or left for the keeper. No socket is touched and nothing is waited for
//! under the lock.

use super::Clock;
use super::directory::Report;
use super::link::{Dial, Link};
use crate::server::lock;
use crate::service::message::{Attach, BatchHeader, ToWorker};
use forebay_core::feed::{BatchName, Span};
use forebay_core::pull::{Action, Arrival, Counts, Pull, WorkerKey};
use forebay_core::{Error, ErrorKind, Result};
use forebay_engine::{Batch, Meter};
use forebay_ops::BufferPool;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The longest sleep of those who wait: clocks of tests move without waking anybody.
pub(super) const LONGEST_SLEEP: Duration = Duration::from_millis(100);

/// What links and the loop share.
pub(super) struct Shared {
    pub(super) state: Mutex<State>,
    pub(super) changed: Condvar,
    pub(super) dial: Box<dyn Dial>,
    pub(super) attach: Attach,
    pub(super) spec: String,
    pub(super) epoch_samples: u64,
    pub(super) batch_bytes: u64,
    pub(super) batch_rows: u64,
    pub(super) pool: BufferPool,
    pub(super) meter: Arc<Meter>,
    pub(super) clock: Arc<dyn Clock>,
    /// Whether one worker makes all, and nobody need be asked which.
    pub(super) home: bool,
    /// Whether there is a worker in this process, which needs nobody to say what it makes.
    pub(super) has_home: bool,
}

/// What changes, under the lock.
pub(super) struct State {
    pub(super) pull: Pull,
    pub(super) kept: BTreeMap<u64, Result<Made>>,
    pub(super) links: BTreeMap<WorkerKey, Link>,
    pub(super) addresses: BTreeMap<WorkerKey, String>,
    pub(super) errands: VecDeque<Errand>,
    pub(super) standing: Standing,
    /// Whether any worker ever opened the feed.
    pub(super) served: bool,
    pub(super) failed: Option<Error>,
    /// What went wrong last, for those who wait.
    pub(super) trouble: Option<String>,
    pub(super) stopped: bool,
    pub(super) threads: usize,
    pub(super) opened: u64,
    pub(super) counted: Counts,
    pub(super) waiting_since: Option<Instant>,
    pub(super) report: Report,
}

/// How we stand with the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It was never met: what a span is, is not known yet.
    Unmet,
    /// It does not know us any more.
    Forgotten,
    /// It knows us, or there is none.
    Joined,
}

/// A batch that came.
pub(super) struct Made {
    pub(super) batch: Batch,
    pub(super) fetch_nanos: u64,
    pub(super) prep_nanos: u64,
    pub(super) arrived: tokio::time::Instant,
}

/// Spans whose workers are to be found.
pub(super) struct Errand {
    pub(super) spans: Vec<Span>,
    pub(super) avoid: Vec<WorkerKey>,
    pub(super) lost: Option<WorkerKey>,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Does what the machine wants, and wakes everybody when there was something. Those who wait come here too, each
    /// time they wake up: with nothing to do they must not wake each other, which would go on for ever.
    pub(super) fn drive(self: &Arc<Self>, state: &mut State) {
        if state.stopped || state.failed.is_some() {
            return self.changed.notify_all();
        }
        if state.standing == Standing::Unmet && !self.has_home {
            return;
        }
        let actions = state.pull.drive(self.clock.now());
        let acts = !actions.is_empty();
        for action in actions {
            match action {
                Action::Plan { worker, names } => self.tell(state, worker, ToWorker::Plan { names }),
                Action::Take { worker, request, name } => {
                    self.tell(state, worker, ToWorker::Take { request, name });
                }
                Action::Forget { worker, request } => {
                    if let Some(link) = state.links.get(&worker) {
                        link.tell(ToWorker::Forget { request });
                    }
                }
                Action::Passed(reach) => {
                    for link in state.links.values() {
                        link.tell(ToWorker::Passed { epoch: reach.epoch, position: reach.position });
                    }
                }
                Action::Locate { spans, avoid, lost } => {
                    state.errands.push_back(Errand { spans, avoid, lost });
                }
                Action::Close { worker } => {
                    let address = state.addresses.get(&worker).cloned().unwrap_or_default();
                    tracing::warn!(worker = address, "a worker gives no sign of life: others are asked");
                    state.links.remove(&worker);
                }
            }
        }
        let (counts, before) = (state.pull.counts(), state.counted);
        self.meter.asked_again.add(counts.asked_again - before.asked_again);
        self.meter.skipped_batches.add(counts.skipped - before.skipped);
        state.counted = counts;
        if acts {
            self.changed.notify_all();
        }
    }

    /// Says something to a worker, over a link that is opened when there is none.
    fn tell(self: &Arc<Self>, state: &mut State, worker: WorkerKey, message: ToWorker) {
        if !state.links.contains_key(&worker) {
            let address = state.addresses.get(&worker).cloned().unwrap_or_default();
            state.opened += 1;
            match Link::open(self, state.opened, worker, address) {
                Ok(link) => state.links.insert(worker, link),
                Err(error) => return state.fail(error),
            };
            state.threads += 1;
        }
        if let Some(link) = state.links.get(&worker) {
            link.tell(message);
        }
    }

    /// Starts a thread that closing waits for; the caller counts links itself.
    pub(super) fn spawn(self: &Arc<Self>, name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
        self.lock().threads += 1;
        let shared = Arc::clone(self);
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || {
            let _ending = Ending(shared);
            work();
        });
        thread.map(drop).map_err(|error| {
            self.ended();
            Error::io("start a thread for batches from elsewhere", error)
        })
    }

    pub(super) fn attached(self: &Arc<Self>, worker: WorkerKey, opened: u64) {
        self.happened(worker, opened, |state, now| {
            state.served = true;
            state.trouble = None;
            state.pull.attached(now, worker);
        });
    }

    /// What a request asked for, as long as the answer is wanted.
    pub(super) fn name_of(&self, request: u64) -> Option<BatchName> {
        self.lock().pull.name_of(request).cloned()
    }

    pub(super) fn arrived(
        self: &Arc<Self>,
        worker: WorkerKey,
        opened: u64,
        request: u64,
        (header, link_bytes): (&BatchHeader, u64),
        batch: Batch,
    ) {
        self.happened(worker, opened, |state, now| {
            state.pull.weighed(worker, link_bytes);
            if let Arrival::Keep(number) = state.pull.arrived(now, request) {
                let BatchHeader { fetch_nanos, prep_nanos, .. } = *header;
                let arrived = tokio::time::Instant::now();
                state.kept.insert(number, Ok(Made { batch, fetch_nanos, prep_nanos, arrived }));
            }
        });
    }

    pub(super) fn faulted(self: &Arc<Self>, worker: WorkerKey, opened: u64, request: u64, error: Error) {
        let transient = matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Exhausted);
        self.happened(worker, opened, |state, now| {
            if let Arrival::Keep(number) = state.pull.faulted(now, request, transient) {
                state.kept.insert(number, Err(error));
            }
        });
    }

    pub(super) fn skipped(self: &Arc<Self>, worker: WorkerKey, opened: u64, request: u64) {
        self.happened(worker, opened, |state, now| state.pull.skipped(now, request));
    }

    pub(super) fn draining(self: &Arc<Self>, worker: WorkerKey, opened: u64) {
        self.happened(worker, opened, |state, _| state.pull.draining(worker));
    }

    /// The link is of no use any more. Some reasons hold for any other try too, and end the supply.
    pub(super) fn link_lost(self: &Arc<Self>, worker: WorkerKey, opened: u64, error: Error) {
        let for_good = matches!(
            error.kind(),
            ErrorKind::Denied | ErrorKind::Unsupported | ErrorKind::InvalidConfig | ErrorKind::Stale
        );
        self.happened(worker, opened, |state, now| {
            state.links.remove(&worker);
            if for_good || (self.home && !state.served) {
                return state.fail(error);
            }
            tracing::debug!(error = %error.report(), "a link to a worker is lost");
            state.trouble = Some(error.chain());
            state.pull.lost(now, worker);
        });
    }

    /// Ends the supply, when the link is the one in use.
    pub(super) fn refused(self: &Arc<Self>, worker: WorkerKey, opened: u64, error: Error) {
        if error.kind().is_transient() || error.kind() == ErrorKind::Exhausted {
            return self.link_lost(worker, opened, error);
        }
        self.happened(worker, opened, |state, _| {
            state.links.remove(&worker);
            state.fail(error);
        });
    }

    fn happened(self: &Arc<Self>, worker: WorkerKey, opened: u64, what: impl FnOnce(&mut State, u64)) {
        let mut state = self.lock();
        let current = state.links.get(&worker).is_some_and(|link| link.number() == opened);
        if current && !state.stopped {
            what(&mut state, self.clock.now());
            self.drive(&mut state);
            self.changed.notify_all();
        }
    }

    pub(super) fn sleep<'a>(&self, state: MutexGuard<'a, State>, most: Duration) -> MutexGuard<'a, State> {
        let now = self.clock.now();
        let tick =
            state.pull.next_tick(now).map(|tick| Duration::from_millis(tick.saturating_sub(now).max(1)));
        let time = tick.unwrap_or(most).min(most).min(LONGEST_SLEEP);
        self.changed.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0
    }

    fn ended(&self) {
        self.lock().threads -= 1;
        self.changed.notify_all();
    }
}

impl State {
    pub(super) fn fail(&mut self, error: Error) {
        self.failed.get_or_insert(error);
        self.links.clear();
    }
}

/// Counts a thread as gone, however it goes.
pub(super) struct Ending(pub(super) Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.ended();
    }
}
