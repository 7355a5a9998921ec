//! Pulling: which batches a client asks of which worker, and which of those that came is handed over next.
//!
//! Pure: what happened comes in by methods with the time in milliseconds, [`Pull::drive`] says what to send, and
//! [`Pull::deliver`] what to hand over. The batches themselves stay with the shell, by number. `answers` takes in what
//! came, [`sequence`](self) walks
//! the rank's portion epoch after epoch; [`workers`](self) knows who answers and how fast; [`home`](self) is a worker in
//! this process that is asked first, `weighing` which of the two ways sends fewer bytes.
//!
//! The first `ready_batches` batches that were not handed over are asked for, whoever makes them, so the one that is
//! needed next is always among them and no more than that are ever held. Names beyond them are told ahead. A late
//! answer is asked for elsewhere, within a share of five in a hundred; a lost link at once. What comes twice is
//! dropped by its number. Nothing is remembered about what was handed over: that is the loader's cursor.

mod answers;
mod asking;
mod home;
mod late;
mod sequence;
#[cfg(test)]
mod tests;
mod weighing;
mod words;
mod workers;

pub use weighing::{Lighter, Weighing};
pub use words::{Action, Arrival, Counts, Delivery, Outcome, PullSettings, Reach, Routing, WorkerKey};

use crate::arrival::ArrivalOrder;
use crate::cursor::Cursor;
use crate::feed::{BatchName, Span};
use crate::{Error, Result};
use home::Home;
use sequence::{Sequence, Wanted};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use workers::Workers;

/// The machine.
#[derive(Debug)]
pub struct Pull {
    settings: PullSettings,
    sequence: Sequence,
    /// Batches from the first that was not handed over on.
    entries: VecDeque<Entry>,
    /// Number of the first entry.
    first: u64,
    /// The epoch that is being handed over, and the number of its first batch.
    epoch: u64,
    epoch_first: u64,
    order: ArrivalOrder,
    /// Batches of this epoch handed over so far.
    step: u64,
    /// Of this epoch, ready and allowed to be handed over.
    offered: u64,
    requests: BTreeMap<u64, u64>,
    next_request: u64,
    routes: BTreeMap<Span, WorkerKey>,
    locating: BTreeSet<Span>,
    /// Spans to be taken from a lost worker.
    moved: BTreeMap<Span, WorkerKey>,
    locate_after: u64,
    workers: Workers,
    home: Option<Home>,
    last_hedge: u64,
    scout_after: u64,
    passed: Reach,
    since_passed: usize,
    actions: Vec<Action>,
    counts: Counts,
}

/// One batch that was not handed over, or one that was before an earlier one.
#[derive(Debug)]
struct Entry {
    wanted: Wanted,
    state: State,
    asks: Vec<Ask>,
    /// The worker that knows of it.
    told: Option<WorkerKey>,
    /// Whether it was asked for before.
    asked: bool,
    /// Workers that could not make it.
    faults: u32,
    offered: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    Ready(Outcome),
    Done,
}

/// A request that was not answered.
#[derive(Clone, Copy, Debug)]
struct Ask {
    request: u64,
    worker: WorkerKey,
    at: u64,
}

impl Pull {
    /// Pulls the batches from `cursor` on.
    pub fn new(settings: PullSettings, cursor: &Cursor) -> Result<Self> {
        if settings.ready_batches == 0 {
            return Err(Error::invalid_config("pull batches: `ready_batches` is 0"));
        }
        let sequence = Sequence::new(&settings, cursor)?;
        let mut pull = Self {
            order: ArrivalOrder::new(settings.window_batches),
            sequence,
            entries: VecDeque::new(),
            first: 0,
            epoch: cursor.epoch,
            epoch_first: 0,
            step: 0,
            offered: 0,
            requests: BTreeMap::new(),
            next_request: 1,
            routes: BTreeMap::new(),
            locating: BTreeSet::new(),
            moved: BTreeMap::new(),
            locate_after: 0,
            workers: Workers::new(settings.late_ms),
            home: settings.home.map(|worker| Home::new(worker, settings.ready_batches)),
            last_hedge: 0,
            scout_after: 0,
            passed: Reach::default(),
            since_passed: 0,
            actions: Vec::new(),
            counts: Counts::default(),
            settings,
        };
        pull.fill();
        Ok(pull)
    }

    /// The next batch, if it may be handed over now.
    pub fn deliver(&mut self) -> Option<Delivery> {
        let ready = self.entries.iter().filter(|entry| entry.state == State::Ready(Outcome::Batch)).count();
        let Some(row) = self.order.next_row() else {
            self.home.iter_mut().for_each(Home::waited);
            return None;
        };
        let number = self.epoch_first + row;
        self.offered -= 1;
        let entry = self.entry_mut(number)?;
        let State::Ready(outcome) = std::mem::replace(&mut entry.state, State::Done) else { return None };
        let (name, places) = (entry.wanted.name.clone(), std::mem::take(&mut entry.wanted.places));
        if outcome == Outcome::Skipped {
            self.counts.skipped += 1;
        }
        let delivery = Delivery { number, epoch: self.epoch, step: self.step, name, places, outcome, ready };
        self.step += 1;
        self.since_passed += 1;
        self.home.iter_mut().for_each(Home::handed);
        while self.entries.front().is_some_and(|entry| entry.state == State::Done) {
            self.entries.pop_front();
            self.first += 1;
        }
        self.fill();
        Some(delivery)
    }

    /// From now on the worker in this process is preferred only while others do not send fewer bytes over the link: they
    /// are near the data. [`Self::weighed`] says what each batch took.
    pub fn weigh_links(&mut self) {
        self.home.iter_mut().for_each(Home::weigh);
    }

    /// A batch of this worker took so many bytes of the link.
    pub fn weighed(&mut self, worker: WorkerKey, bytes: u64) {
        self.home.iter_mut().for_each(|home| home.weighed(worker, bytes));
    }

    /// Whether nothing more comes.
    pub fn is_over(&self) -> bool {
        self.entries.is_empty() && self.sequence.is_over()
    }

    /// How far this rank is.
    pub fn reach(&self) -> Reach {
        match self.entries.front() {
            Some(entry) => {
                // Rows that only fill a batch lie elsewhere in the plan.
                let real = entry.wanted.name.runs.iter().find(|run| !run.padding);
                let position = real.map_or(self.settings.sampler.samples(), |run| run.first);
                Reach { epoch: entry.wanted.epoch, position }
            }
            None => Reach { epoch: self.epoch + 1, position: 0 },
        }
    }

    /// What was counted.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The batch that is needed next, and the workers that were asked for it.
    pub fn waits_for(&self) -> Option<(&BatchName, Vec<WorkerKey>)> {
        let entry = self.entries.front()?;
        Some((&entry.wanted.name, entry.asks.iter().map(|ask| ask.worker).collect()))
    }

    /// What a request asked for, as long as its answer is wanted.
    pub fn name_of(&self, request: u64) -> Option<&BatchName> {
        let number = self.requests.get(&request)?;
        let entry = self.entries.get(number.checked_sub(self.first)? as usize)?;
        Some(&entry.wanted.name)
    }

    /// Workers that were asked and answer.
    pub fn live_workers(&self) -> usize {
        self.workers.attached()
    }

    /// Names as many batches as may be told ahead, and turns to the next epoch when this one was handed over.
    fn fill(&mut self) {
        let ahead = self.settings.plan_ahead.max(self.settings.ready_batches);
        let mut open = self.entries.iter().filter(|entry| entry.state != State::Done).count();
        while open < ahead
            && let Some(wanted) = self.sequence.next()
        {
            self.entries.push_back(Entry {
                wanted,
                state: State::Open,
                asks: Vec::new(),
                told: None,
                asked: false,
                faults: 0,
                offered: false,
            });
            open += 1;
        }
        let Some(front) = self.entries.front().map(|entry| entry.wanted.epoch) else { return };
        if front == self.epoch {
            return self.offer(self.first);
        }
        self.epoch = front;
        self.epoch_first = self.first;
        self.step = 0;
        self.order = ArrivalOrder::new(self.settings.window_batches);
        for number in self.first..self.first + self.entries.len() as u64 {
            self.offer(number);
        }
    }

    fn entry_mut(&mut self, number: u64) -> Option<&mut Entry> {
        let index = number.checked_sub(self.first)?;
        self.entries.get_mut(index as usize)
    }

    fn span_of(&self, number: u64) -> Option<Span> {
        let Routing::Spans(positions) = self.settings.routing else { return None };
        let entry = self.entries.get(number.checked_sub(self.first)? as usize)?;
        Some(entry.wanted.name.span(positions))
    }
}
