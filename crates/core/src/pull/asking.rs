//! What is sent: routes found, batches asked for, names told ahead. Who is late is in `late`.

use super::{Action, Ask, Entry, Outcome, Pull, Routing, State, WorkerKey};
use crate::feed::Span;
use std::collections::{BTreeMap, BTreeSet};

/// Pause before asking again where spans are made, when nobody was there to make them. Milliseconds.
const LOCATE_PAUSE: u64 = 500;

/// Workers that are avoided by name, at most; more are never in trouble at once without all of them being.
const MAX_AVOIDED: usize = 32;

impl Pull {
    /// What is to be sent now, in this order.
    pub fn drive(&mut self, now: u64) -> Vec<Action> {
        self.fill();
        self.give_up_on_dead(now);
        self.locate(now);
        self.ask(now);
        self.hedge(now);
        self.tell(now);
        self.pass();
        std::mem::take(&mut self.actions)
    }

    /// When [`Self::drive`] has something to do even if nothing happens.
    pub fn next_tick(&self, now: u64) -> Option<u64> {
        let mut times = vec![];
        times.extend(self.workers.next_pause_end(now));
        if self.locate_after > now {
            times.push(self.locate_after);
        }
        if let Some(entry) = self.blocking()
            && let Some(ask) = entry.asks.first()
        {
            let late = match self.workers.running_since(ask.worker, ask.at) {
                Some(since) => since + self.workers.late_after(),
                None => now + 10 * self.settings.late_ms,
            };
            times.push(if late > now { late } else { now + self.settings.late_ms });
        }
        times.into_iter().min()
    }

    /// Spans have another size from now on: where they are made is to be found anew. Answers to earlier questions are
    /// not to be told any more.
    pub fn set_span_positions(&mut self, positions: u64) {
        if self.settings.routing != Routing::Spans(positions) {
            self.settings.routing = Routing::Spans(positions);
            self.routes.clear();
            self.moved.clear();
        }
        self.locating.clear();
    }

    /// A worker has opened the feed.
    pub fn attached(&mut self, now: u64, worker: WorkerKey) {
        self.workers.attached_now(now, worker);
    }

    /// These workers make these spans.
    pub fn located(&mut self, now: u64, found: &[(Span, WorkerKey)]) {
        for (span, worker) in found {
            self.locating.remove(span);
            self.workers.name(*worker);
            if !self.workers.is_usable(now, *worker) {
                self.locate_after = self.locate_after.max(now + LOCATE_PAUSE);
                continue;
            }
            self.routes.entry(*span).or_insert(*worker);
        }
    }

    /// Nobody makes these spans, or nobody could be asked.
    pub fn not_located(&mut self, now: u64, spans: &[Span]) {
        for span in spans {
            self.locating.remove(span);
        }
        self.home.iter_mut().for_each(super::Home::alone);
        self.locate_after = now + LOCATE_PAUSE;
    }

    /// A worker takes no more requests. What it was asked for, it answers.
    pub fn draining(&mut self, worker: WorkerKey) {
        self.workers.draining(worker);
        self.leave(worker, false);
    }

    /// The link to a worker is lost, or none could be opened.
    pub fn lost(&mut self, now: u64, worker: WorkerKey) {
        let skip = self.settings.skip_lost && !self.workers.is_draining(worker);
        self.workers.lost(now, worker);
        self.leave(worker, true);
        let mut skipped = Vec::new();
        for (number, entry) in (self.first..).zip(&mut self.entries) {
            let before = entry.asks.len();
            for ask in entry.asks.iter().filter(|ask| ask.worker == worker) {
                self.requests.remove(&ask.request);
            }
            entry.asks.retain(|ask| ask.worker != worker);
            let bare = entry.asks.len() < before && entry.asks.is_empty() && entry.state == State::Open;
            if bare && skip {
                skipped.push(number);
            }
        }
        for number in skipped {
            self.ready(number, Outcome::Skipped);
        }
    }

    /// Forgets that a worker makes anything.
    fn leave(&mut self, worker: WorkerKey, lost: bool) {
        let spans: Vec<Span> =
            self.routes.iter().filter(|(_, route)| **route == worker).map(|(span, _)| *span).collect();
        for span in spans {
            self.routes.remove(&span);
            if lost {
                self.moved.insert(span, worker);
            }
        }
        for entry in self.entries.iter_mut().filter(|entry| entry.told == Some(worker)) {
            entry.told = None;
        }
    }

    fn route(&self, now: u64, entry: &Entry) -> Option<WorkerKey> {
        let worker = match self.settings.routing {
            Routing::One(worker) => worker,
            Routing::Spans(positions) => *self.routes.get(&entry.wanted.name.span(positions))?,
        };
        self.workers.is_usable(now, worker).then_some(worker)
    }

    fn locate(&mut self, now: u64) {
        let Routing::Spans(positions) = self.settings.routing else { return };
        if self.home_has_all(now) {
            return;
        }
        if let Some(front) = self.entries.front().map(|entry| entry.wanted.name.span(positions)) {
            self.routes.retain(|span, _| *span >= front);
            self.moved.retain(|span, _| *span >= front);
        }
        if self.locate_after > now {
            return;
        }
        let open = self.entries.iter().filter(|entry| entry.state == State::Open && entry.asks.is_empty());
        let wanted: BTreeSet<Span> = open
            .filter(|entry| self.route(now, entry).is_none())
            .map(|entry| entry.wanted.name.span(positions))
            .filter(|span| !self.locating.contains(span))
            .collect();
        let mut groups: BTreeMap<Option<WorkerKey>, Vec<Span>> = BTreeMap::new();
        for span in wanted {
            groups.entry(self.moved.remove(&span)).or_default().push(span);
        }
        for (lost, spans) in groups {
            self.locating.extend(&spans);
            self.actions.push(Action::Locate { spans, avoid: self.avoided(now, &[]), lost });
        }
    }

    pub(super) fn avoided(&self, now: u64, also: &[WorkerKey]) -> Vec<WorkerKey> {
        let mut avoid = self.workers.avoided(now);
        let more: Vec<WorkerKey> = also.iter().copied().filter(|worker| !avoid.contains(worker)).collect();
        avoid.extend(more);
        let excess = avoid.len().saturating_sub(MAX_AVOIDED);
        avoid.drain(..excess);
        avoid
    }

    /// Whether the worker in this process needs nobody beside it.
    fn home_has_all(&self, now: u64) -> bool {
        self.home.as_ref().is_some_and(|home| home.suffices() && self.workers.is_usable(now, home.worker))
    }

    fn ask(&mut self, now: u64) {
        let mut asks = Vec::new();
        let mut home = self.home.as_ref().filter(|home| self.workers.is_usable(now, home.worker));
        let mut at_home = home.map_or(0, |home| self.workers.outstanding(home.worker));
        let window = (self.first..).zip(&self.entries).filter(|(_, entry)| entry.state != State::Done);
        for (number, entry) in window.take(self.settings.ready_batches) {
            if entry.state != State::Open || !entry.asks.is_empty() {
                continue;
            }
            home = home.filter(|home| home.takes(at_home));
            at_home += usize::from(home.is_some());
            if let Some(worker) = home.map(|home| home.worker).or_else(|| self.route(now, entry)) {
                asks.push((number, worker));
            }
        }
        for (number, worker) in asks {
            self.send(now, number, worker);
        }
    }

    pub(super) fn send(&mut self, now: u64, number: u64, worker: WorkerKey) {
        let request = self.next_request;
        let Some(entry) = self.entry_mut(number) else { return };
        entry.asks.push(Ask { request, worker, at: now });
        entry.told = Some(worker);
        let again = std::mem::replace(&mut entry.asked, true);
        let name = entry.wanted.name.clone();
        self.next_request += 1;
        self.requests.insert(request, number);
        self.workers.asked(worker);
        if again {
            self.counts.asked_again += 1;
        } else {
            self.counts.asked += 1;
        }
        self.actions.push(Action::Take { worker, request, name });
    }

    /// Asks another worker than these. Whether there was one.
    pub(super) fn ask_elsewhere(&mut self, now: u64, number: u64, not: &[WorkerKey]) -> bool {
        let Some(worker) = self.workers.other(now, not) else { return false };
        self.send(now, number, worker);
        true
    }

    fn tell(&mut self, now: u64) {
        // Whether a batch is for somebody else is known only when it is asked for.
        if self.home.is_some() {
            return;
        }
        let mut names = BTreeMap::new();
        let untold: Vec<(usize, WorkerKey)> = self
            .entries
            .iter()
            .enumerate()
            .filter(|(_, entry)| entry.state == State::Open && entry.asks.is_empty() && entry.told.is_none())
            .filter_map(|(index, entry)| Some((index, self.route(now, entry)?)))
            .collect();
        for (index, worker) in untold {
            self.entries[index].told = Some(worker);
            let name = self.entries[index].wanted.name.clone();
            names.entry(worker).or_insert_with(Vec::new).push(name);
        }
        self.actions.extend(names.into_iter().map(|(worker, names)| Action::Plan { worker, names }));
    }

    fn pass(&mut self) {
        let reach = self.reach();
        let often = self.since_passed >= self.settings.ready_batches || reach.epoch != self.passed.epoch;
        if self.since_passed > 0 && often && reach > self.passed {
            self.passed = reach;
            self.since_passed = 0;
            self.actions.push(Action::Passed(reach));
        }
    }
}
