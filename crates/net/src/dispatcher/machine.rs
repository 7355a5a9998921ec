//! The machine of core as calls find it: leading, standing by while another one leads, or stopped.
//!
//! A call locks the machine, obeys, hands the events to the journal and unlocks; the answer goes out when they are kept.
//! Where several dispatchers share a journal the answer goes out only while this one is sure to lead: before it decides
//! and again when it has waited, it looks at its gate. What it says was then true after it was asked, although it read
//! it from memory.

use super::commit::{Commit, Promise};
use crate::server::lock;
use forebay_core::dispatcher::{Command, Dispatcher, Reply, View};
use forebay_core::scale::Wanted;
use forebay_core::{Error, ErrorKind, Result};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Milliseconds of a clock that never goes back, nor stands still while this process does.
pub(super) type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// A clock that also goes on while the machine sleeps: a lease does not wait for that.
pub(super) fn real_clock() -> Clock {
    use rustix::time::{ClockId, clock_gettime};
    let now = || {
        let time = clock_gettime(ClockId::Boottime);
        time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
    };
    Arc::new(now)
}

/// Until when answers may be given.
#[derive(Clone, Debug)]
pub(super) struct Gate(Arc<AtomicU64>);

impl Gate {
    /// One that nobody else can close.
    pub(super) fn open() -> Self {
        Self(Arc::new(AtomicU64::new(u64::MAX)))
    }

    /// One that is closed until it is set.
    pub(super) fn closed() -> Self {
        Self(Arc::default())
    }

    pub(super) fn set(&self, until: u64) {
        self.0.store(until, Ordering::SeqCst);
    }

    fn is_open(&self, now: u64) -> bool {
        now < self.0.load(Ordering::SeqCst)
    }
}

/// The machine, as clones of a service share it.
pub(super) struct Machine {
    standing: Mutex<Standing>,
    clock: Clock,
}

enum Standing {
    /// Another one leads, if that is known at this address, or nobody does, for this reason.
    Standby {
        leader: Option<String>,
        why: String,
    },
    Leading(Box<Leading>),
    /// A connection that outlives the dispatcher must not keep its journal open.
    Stopped,
}

/// What whoever leads has.
pub(super) struct Leading {
    pub(super) machine: Dispatcher,
    /// None when nothing is kept.
    pub(super) commit: Option<Commit>,
    pub(super) gate: Gate,
    /// When the machine began, by the clock.
    pub(super) began: u64,
    /// While the gate is closed nobody can be heard, so time stands still for the machine: nobody falls silent by it.
    pub(super) closed_at: Option<u64>,
    pub(super) closed_ms: u64,
}

/// An answer, and what it waits for.
struct Decided {
    outcome: Result<Reply>,
    promise: Option<Promise>,
    gate: Gate,
}

impl Leading {
    pub(super) fn new(machine: Dispatcher, commit: Option<Commit>, gate: Gate, now: u64) -> Self {
        Self { machine, commit, gate, began: now, closed_at: None, closed_ms: 0 }
    }

    /// The machine's time, or none while it may not answer.
    fn now(&mut self, clock: u64) -> Option<u64> {
        if !self.gate.is_open(clock) {
            self.closed_at.get_or_insert(clock);
            return None;
        }
        if let Some(since) = self.closed_at.take() {
            self.closed_ms += clock.saturating_sub(since);
        }
        Some(clock.saturating_sub(self.began + self.closed_ms))
    }
}

impl Machine {
    pub(super) fn new(clock: Clock) -> Self {
        let why = "it has just begun".to_owned();
        Self { standing: Mutex::new(Standing::Standby { leader: None, why }), clock }
    }

    pub(super) fn clock(&self) -> u64 {
        (self.clock)()
    }

    /// Begins to lead.
    pub(super) fn lead(&self, leading: Leading) {
        let mut standing = lock(&self.standing);
        if !matches!(*standing, Standing::Stopped) {
            *standing = Standing::Leading(Box::new(leading));
        }
    }

    /// Stands by: another one leads, or nobody can. What this one knew is forgotten.
    pub(super) fn stand_by(&self, leader: Option<String>, why: &str) {
        let mut standing = lock(&self.standing);
        if !matches!(*standing, Standing::Stopped) {
            *standing = Standing::Standby { leader, why: why.to_owned() };
        }
    }

    pub(super) fn close(&self) {
        *lock(&self.standing) = Standing::Stopped;
    }

    /// Where the one is that leads, if it is another one.
    pub(super) fn leader(&self) -> Option<String> {
        match &*lock(&self.standing) {
            Standing::Standby { leader, .. } => leader.clone(),
            _ => None,
        }
    }

    /// Whether this one leads and may answer.
    pub(super) fn leads(&self) -> bool {
        match &*lock(&self.standing) {
            Standing::Leading(leading) => leading.gate.is_open(self.clock()),
            _ => false,
        }
    }

    /// What it knows now; none when it does not lead.
    pub(super) fn view(&self) -> Option<View> {
        match &mut *lock(&self.standing) {
            Standing::Leading(leading) => leading.now(self.clock()).map(|now| leading.machine.view(now)),
            _ => None,
        }
    }

    /// How many workers there should be; none when it does not lead.
    pub(super) fn wanted(&self) -> Option<Wanted> {
        match &*lock(&self.standing) {
            Standing::Leading(leading) if leading.gate.is_open(self.clock()) => {
                Some(leading.machine.wanted())
            }
            _ => None,
        }
    }

    /// Obeys, and waits until what was decided is kept.
    pub(super) async fn obey(&self, command: Command) -> Result<Reply> {
        let Decided { outcome, promise, gate } = self.decide(command)?;
        if let Some(promise) = promise {
            promise.kept().await.map_err(|error| match error.kind() {
                // Whoever leads now knows what became of it; asking again is right.
                ErrorKind::Stale | ErrorKind::Internal => {
                    Error::unavailable("ask the dispatcher: it does not lead any more")
                }
                _ => error,
            })?;
        }
        if gate.is_open(self.clock()) { outcome } else { Err(shut()) }
    }

    fn decide(&self, command: Command) -> Result<Decided> {
        let mut standing = lock(&self.standing);
        let leading = match &mut *standing {
            Standing::Leading(leading) => leading,
            Standing::Standby { why, .. } => {
                return Err(Error::unavailable(format!("ask the dispatcher: it stands by: {why}")));
            }
            Standing::Stopped => return Err(Error::unavailable("ask the dispatcher: it was stopped")),
        };
        // Read under the lock, so that the machine's time never goes back.
        let now = leading.now(self.clock()).ok_or_else(shut)?;
        let gate = leading.gate.clone();
        let outcome = leading.machine.apply(now, command);
        let Some(commit) = &mut leading.commit else {
            return Ok(Decided { outcome: outcome.map(|(reply, _)| reply), promise: None, gate });
        };
        let outcome = outcome.map(|(reply, events)| {
            commit.take(events);
            reply
        });
        if commit.is_long() {
            commit.write_anew(leading.machine.state().events());
        }
        Ok(Decided { outcome, promise: Some(commit.promise()), gate })
    }
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Machine").field("leads", &self.leads()).finish_non_exhaustive()
    }
}

fn shut() -> Error {
    Error::unavailable("ask the dispatcher: etcd has not confirmed in time that it leads")
}
