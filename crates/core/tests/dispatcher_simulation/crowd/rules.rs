//! What must be true of a dispatcher after every event, however large the crowd.

use forebay_core::dispatcher::{Event, Reply, State, Who, WorkerId};
use std::collections::{BTreeMap, BTreeSet};

pub(super) struct Rules {
    /// The state that the events give.
    pub(super) shadow: State,
    workers: BTreeSet<WorkerId>,
    last_lease: Option<u64>,
    /// Spans of the dynamic job in somebody's hand, with the rank, and those that are done.
    hands: BTreeMap<u64, u64>,
    done: BTreeSet<u64>,
}

impl Rules {
    pub(super) fn new(state: &State, workers: u64) -> Self {
        Self {
            shadow: state.clone(),
            workers: (1..=workers).map(WorkerId).collect(),
            last_lease: None,
            hands: BTreeMap::new(),
            done: BTreeSet::new(),
        }
    }

    /// Spans that are done.
    pub(super) fn done(&self) -> usize {
        self.done.len()
    }

    pub(super) fn note(&mut self, event: &Event) {
        self.shadow.apply(event);
        match event {
            Event::WorkerRegistered { worker, .. } => drop(self.workers.insert(*worker)),
            Event::WorkerLost { worker } => drop(self.workers.remove(worker)),
            Event::SpansLeased { leases, .. } => {
                for (_, _, worker, lease) in leases {
                    assert!(self.last_lease.is_none_or(|last| last < lease.0), "{lease:?} was given before");
                    self.last_lease = Some(lease.0);
                    assert!(self.workers.contains(worker), "a lease for {worker:?}, who is gone");
                }
            }
            Event::SpanTaken { rank, done, given, .. } => {
                for span in done {
                    assert_eq!(self.hands.remove(span), Some(*rank), "span {span} is done by who had it not");
                    assert!(self.done.insert(*span), "span {span} is done twice");
                }
                if let Some(span) = given {
                    assert!(!self.done.contains(span), "span {span} is given after it was done");
                    assert_eq!(self.hands.insert(*span, *rank), None, "span {span} is in two hands");
                }
            }
            Event::ConsumerLost { job, rank }
            | Event::ConsumerAttached { who: Who { job, rank, .. }, .. }
                if job.as_str() == "job-0" =>
            {
                self.hands.retain(|_, holder| holder != rank);
            }
            _ => {}
        }
    }

    pub(super) fn check(&self, state: &State, reply: &Reply) {
        assert_eq!(self.shadow.sizes(), state.sizes(), "events do not give as many as there are");
        if let Reply::Located(found) = reply {
            assert!(found.iter().all(|one| self.workers.contains(&one.worker)), "{found:?}");
        }
    }

    pub(super) fn compare(&self, state: &State) {
        assert_eq!(self.shadow, *state, "events do not give the state");
    }
}
