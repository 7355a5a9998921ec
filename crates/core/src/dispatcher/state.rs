//! What the dispatcher knows and must not forget. It changes by [`Event`]s alone, so a journal of them brings it back.
//!
//! Leases that every attached job has passed go away by themselves, and beyond [`MAX_LEASES`] the oldest do: a span
//! that is asked for again is leased anew, which costs making some batches again and nothing else.

use super::command::Event;
use super::placing::Placing;
use super::taking::{Ranges, Taking};
use super::words::{JobName, LeaseId, Reached, Terms, Who, WorkerId};
use crate::feed::{FeedId, Span};
use std::collections::{BTreeMap, BTreeSet};

/// Most leases that are remembered.
pub const MAX_LEASES: usize = 1 << 17;

/// Leases in one event of a snapshot.
const LEASES_PER_EVENT: usize = 1024;

/// All that is known. Equal states decide equally.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub(super) next_lease: u64,
    pub(super) next_incarnation: u64,
    pub(super) workers: BTreeMap<WorkerId, Worker>,
    pub(super) addresses: BTreeMap<String, WorkerId>,
    pub(super) jobs: BTreeMap<JobName, Job>,
    pub(super) feeds: BTreeMap<FeedId, Feed>,
    pub(super) consumers: usize,
    /// Leases by age.
    pub(super) leases: BTreeMap<LeaseId, (FeedId, Span)>,
    pub(super) placing: Placing,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Worker {
    pub(super) address: String,
    pub(super) tags: Vec<String>,
    pub(super) slots: u32,
    pub(super) incarnation: u64,
    pub(super) draining: bool,
    pub(super) leased: u64,
    pub(super) spans: BTreeMap<FeedId, BTreeSet<Span>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Job {
    pub(super) terms: Terms,
    pub(super) consumers: BTreeMap<u64, Consumer>,
    /// How far its consumers are, and how many are that far.
    reached: BTreeMap<Reached, u64>,
    pub(super) taking: Option<Taking>,
    /// As it stands in its feed.
    floor: Option<Reached>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Consumer {
    /// The number that its process drew.
    pub(super) process: u64,
    /// The process whose place it took: what that one still sends is refused.
    pub(super) before: Option<u64>,
    pub(super) reached: Reached,
    pub(super) step: u64,
    /// The last request for a span that changed something, and what was given for it.
    pub(super) request: u64,
    pub(super) given: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Feed {
    pub(super) label: String,
    pub(super) span_positions: u64,
    pub(super) epoch_positions: u64,
    pub(super) jobs: BTreeSet<JobName>,
    /// How far each job with consumers is.
    pub(super) floors: BTreeSet<(Reached, JobName)>,
    pub(super) leases: BTreeMap<Span, Lease>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) worker: WorkerId,
    pub(super) id: LeaseId,
}

impl Job {
    /// Before this, no consumer asks again. None without consumers.
    pub(super) fn floor(&self, span_positions: u64) -> Option<Reached> {
        let lowest = *self.reached.first_key_value()?.0;
        let Some(taking) = &self.taking else { return Some(lowest) };
        Some(match taking.floor() {
            Some(number) => Reached { epoch: taking.epoch, position: number.saturating_mul(span_positions) },
            None => Reached { epoch: taking.epoch.saturating_add(1), position: 0 },
        })
    }

    fn come(&mut self, reached: Reached) {
        *self.reached.entry(reached).or_default() += 1;
    }

    fn go(&mut self, reached: Reached) {
        if let Some(count) = self.reached.get_mut(&reached) {
            *count -= 1;
            if *count == 0 {
                self.reached.remove(&reached);
            }
        }
    }
}

impl State {
    /// The state after these events.
    pub fn replay<'a>(events: impl IntoIterator<Item = &'a Event>) -> Self {
        let mut state = Self::default();
        for event in events {
            state.apply(event);
        }
        state
    }

    /// Changes by one event. Events about what is not there change nothing.
    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::NumbersUsed { next_lease, next_incarnation } => {
                self.next_lease = self.next_lease.max(*next_lease);
                self.next_incarnation = self.next_incarnation.max(*next_incarnation);
            }
            Event::WorkerRegistered { worker, address, tags, slots, incarnation } => {
                self.next_incarnation = self.next_incarnation.max(incarnation + 1);
                let slots = (*slots).max(1);
                let known = self.workers.remove(worker);
                if let Some(old) = &known {
                    self.addresses.remove(&old.address);
                    self.placing.remove(*worker, old.leased, old.slots);
                }
                let (leased, spans) = known.map_or_else(Default::default, |old| (old.leased, old.spans));
                self.addresses.insert(address.clone(), *worker);
                self.placing.add(*worker, leased, slots);
                let (address, tags, incarnation) = (address.clone(), tags.clone(), *incarnation);
                let now = Worker { address, tags, slots, incarnation, draining: false, leased, spans };
                self.workers.insert(*worker, now);
            }
            Event::WorkerDraining { worker } => {
                if let Some(known) = self.workers.get_mut(worker) {
                    known.draining = true;
                    self.placing.remove(*worker, known.leased, known.slots);
                }
            }
            Event::WorkerLost { worker } => self.lose_worker(*worker),
            Event::JobAttached { job, terms } => self.attach_job(job, terms),
            Event::JobDetached { job } => self.detach_job(job),
            Event::ConsumerAttached { who, from, step } => {
                let Some(job) = self.jobs.get_mut(&who.job) else { return };
                let gives_again = job.terms.gives_again();
                let old = job.consumers.remove(&who.rank);
                if let Some(old) = &old {
                    job.go(old.reached);
                    if let Some(taking) = &mut job.taking {
                        taking.lose(who.rank, gives_again);
                    }
                } else {
                    self.consumers += 1;
                }
                job.come(*from);
                let before = old.map(|old| old.process);
                let (process, reached, step) = (who.consumer, *from, *step);
                let now = Consumer { process, before, reached, step, request: 0, given: None };
                job.consumers.insert(who.rank, now);
                self.settle(&who.job);
            }
            Event::ConsumerProgressed { job: name, rank, reached, step } => {
                let Some(job) = self.jobs.get_mut(name) else { return };
                let Some(consumer) = job.consumers.get_mut(rank) else { return };
                let before = std::mem::replace(&mut consumer.reached, *reached);
                consumer.step = *step;
                job.go(before);
                job.come(*reached);
                self.settle(name);
            }
            Event::ConsumerLost { job: name, rank } => {
                let Some(job) = self.jobs.get_mut(name) else { return };
                let Some(consumer) = job.consumers.remove(rank) else { return };
                self.consumers -= 1;
                job.go(consumer.reached);
                let gives_again = job.terms.gives_again();
                if let Some(taking) = &mut job.taking {
                    taking.lose(*rank, gives_again);
                }
                self.settle(name);
            }
            Event::SpansLeased { feed, leases } => {
                for (epoch, number, worker, id) in leases {
                    let lease = Lease { worker: *worker, id: *id };
                    self.lease(*feed, Span { epoch: *epoch, number: *number }, lease);
                }
            }
            Event::EpochStarted { job: name, epoch, start, remaining, done, dropped } => {
                let Some(job) = self.jobs.get_mut(name) else { return };
                job.taking = Some(Taking {
                    epoch: *epoch,
                    start: *start,
                    left: Ranges::new(remaining),
                    in_hand: BTreeMap::new(),
                    hands: BTreeMap::new(),
                    done: *done,
                    dropped: *dropped,
                });
                for consumer in job.consumers.values_mut() {
                    consumer.given = None;
                }
                self.settle(name);
            }
            Event::SpanTaken { job: name, rank, request, done, given } => {
                let Some(job) = self.jobs.get_mut(name) else { return };
                let (Some(taking), Some(consumer)) = (&mut job.taking, job.consumers.get_mut(rank)) else {
                    return;
                };
                for number in done {
                    taking.finish(*rank, *number);
                }
                if let Some(number) = given {
                    taking.give(*rank, *number);
                }
                (consumer.request, consumer.given) = (*request, *given);
                self.settle(name);
            }
        }
    }

    /// The shortest list of events that gives this state.
    pub fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for (worker, known) in &self.workers {
            let Worker { address, tags, slots, incarnation, draining, .. } = known.clone();
            events.push(Event::WorkerRegistered { worker: *worker, address, tags, slots, incarnation });
            if draining {
                events.push(Event::WorkerDraining { worker: *worker });
            }
        }
        for (feed, known) in &self.feeds {
            for name in &known.jobs {
                if let Some(job) = self.jobs.get(name) {
                    // The first job of a feed decides its spans, and may have gone since.
                    let terms = Terms { feed: *feed, label: known.label.clone(), ..job.terms.clone() };
                    let terms = Terms { span_positions: known.span_positions, ..terms };
                    job_events(name, job, terms, &mut events);
                }
            }
            let leases: Vec<_> = known
                .leases
                .iter()
                .map(|(span, lease)| (span.epoch, span.number, lease.worker, lease.id))
                .collect();
            for some in leases.chunks(LEASES_PER_EVENT) {
                events.push(Event::SpansLeased { feed: *feed, leases: some.to_vec() });
            }
        }
        let (next_lease, next_incarnation) = (self.next_lease, self.next_incarnation);
        events.push(Event::NumbersUsed { next_lease, next_incarnation });
        events
    }

    /// Workers, jobs, consumers and leases that are known: what memory goes by.
    pub fn sizes(&self) -> [usize; 4] {
        [self.workers.len(), self.jobs.len(), self.consumers, self.leases.len()]
    }

    /// Every lease: feed, span, worker, number.
    pub fn all_leases(&self) -> impl Iterator<Item = (FeedId, Span, WorkerId, LeaseId)> + '_ {
        self.feeds.iter().flat_map(|(feed, known)| {
            known.leases.iter().map(|(span, lease)| (*feed, *span, lease.worker, lease.id))
        })
    }

    /// Leases a span, instead of whom it was leased to before.
    pub(super) fn lease(&mut self, feed: FeedId, span: Span, lease: Lease) {
        self.next_lease = self.next_lease.max(lease.id.0 + 1);
        if !self.feeds.contains_key(&feed) || !self.workers.contains_key(&lease.worker) {
            return;
        }
        self.release(feed, span);
        if let Some(known) = self.feeds.get_mut(&feed) {
            known.leases.insert(span, lease);
            self.leases.insert(lease.id, (feed, span));
        }
        self.weigh(lease.worker, |worker| {
            worker.leased += 1;
            worker.spans.entry(feed).or_default().insert(span);
        });
        if self.leases.len() > MAX_LEASES
            && let Some((_, (feed, span))) = self.leases.pop_first()
        {
            self.release(feed, span);
        }
    }

    fn release(&mut self, feed: FeedId, span: Span) {
        let known = self.feeds.get_mut(&feed);
        let Some(lease) = known.and_then(|known| known.leases.remove(&span)) else { return };
        self.released(feed, span, lease);
    }

    /// A lease was taken out of its feed.
    fn released(&mut self, feed: FeedId, span: Span, lease: Lease) {
        self.leases.remove(&lease.id);
        self.weigh(lease.worker, |worker| {
            worker.leased -= 1;
            if let Some(spans) = worker.spans.get_mut(&feed) {
                spans.remove(&span);
                if spans.is_empty() {
                    worker.spans.remove(&feed);
                }
            }
        });
    }

    /// Changes how much a worker has.
    fn weigh(&mut self, worker: WorkerId, change: impl FnOnce(&mut Worker)) {
        let Some(known) = self.workers.get_mut(&worker) else { return };
        if known.draining {
            return change(known);
        }
        self.placing.remove(worker, known.leased, known.slots);
        change(known);
        self.placing.add(worker, known.leased, known.slots);
    }

    fn lose_worker(&mut self, worker: WorkerId) {
        let Some(known) = self.workers.remove(&worker) else { return };
        self.placing.remove(worker, known.leased, known.slots);
        self.addresses.remove(&known.address);
        for (feed, spans) in known.spans {
            let Some(feed) = self.feeds.get_mut(&feed) else { continue };
            for span in spans {
                if let Some(lease) = feed.leases.remove(&span) {
                    self.leases.remove(&lease.id);
                }
            }
        }
    }

    fn attach_job(&mut self, name: &JobName, terms: &Terms) {
        self.detach_job(name);
        let feed = self.feeds.entry(terms.feed).or_insert_with(|| Feed {
            label: terms.label.clone(),
            span_positions: terms.span_positions.max(1),
            epoch_positions: terms.epoch_positions,
            jobs: BTreeSet::new(),
            floors: BTreeSet::new(),
            leases: BTreeMap::new(),
        });
        feed.jobs.insert(name.clone());
        // Spans of a feed are the same for all its jobs; what this one wished for is of no further use.
        let terms = Terms { span_positions: feed.span_positions, label: feed.label.clone(), ..terms.clone() };
        let job =
            Job { terms, consumers: BTreeMap::new(), reached: BTreeMap::new(), taking: None, floor: None };
        self.jobs.insert(name.clone(), job);
    }

    fn detach_job(&mut self, name: &JobName) {
        let Some(job) = self.jobs.remove(name) else { return };
        self.consumers -= job.consumers.len();
        let Some(feed) = self.feeds.get_mut(&job.terms.feed) else { return };
        feed.jobs.remove(name);
        if let Some(floor) = job.floor {
            feed.floors.remove(&(floor, name.clone()));
        }
        if feed.jobs.is_empty() {
            for (span, lease) in std::mem::take(&mut feed.leases) {
                self.released(job.terms.feed, span, lease);
            }
            self.feeds.remove(&job.terms.feed);
        } else {
            self.drop_passed(job.terms.feed);
        }
    }

    /// A job may have passed spans.
    fn settle(&mut self, name: &JobName) {
        let Some(job) = self.jobs.get_mut(name) else { return };
        let Some(feed) = self.feeds.get_mut(&job.terms.feed) else { return };
        let floor = job.floor(feed.span_positions);
        if floor == job.floor {
            return;
        }
        if let Some(before) = std::mem::replace(&mut job.floor, floor) {
            feed.floors.remove(&(before, name.clone()));
        }
        if let Some(now) = floor {
            feed.floors.insert((now, name.clone()));
        }
        let feed = job.terms.feed;
        self.drop_passed(feed);
    }

    fn drop_passed(&mut self, feed: FeedId) {
        loop {
            let Some(known) = self.feeds.get_mut(&feed) else { return };
            let Some((floor, _)) = known.floors.first() else { return };
            let first = Span { epoch: floor.epoch, number: floor.position / known.span_positions };
            let Some(entry) = known.leases.first_entry().filter(|entry| *entry.key() < first) else { return };
            let (span, lease) = entry.remove_entry();
            self.released(feed, span, lease);
        }
    }
}

/// The events that bring one job back.
fn job_events(name: &JobName, job: &Job, terms: Terms, events: &mut Vec<Event>) {
    events.push(Event::JobAttached { job: name.clone(), terms });
    for (rank, consumer) in &job.consumers {
        for process in consumer.before.into_iter().chain([consumer.process]) {
            let who = Who { job: name.clone(), rank: *rank, consumer: process };
            events.push(Event::ConsumerAttached { who, from: consumer.reached, step: consumer.step });
        }
    }
    let Some(taking) = &job.taking else { return };
    events.push(Event::EpochStarted {
        job: name.clone(),
        epoch: taking.epoch,
        start: taking.start,
        remaining: taking.not_done(),
        done: taking.done,
        dropped: taking.dropped,
    });
    let taken = |rank, request, given| {
        let done = Vec::new();
        Event::SpanTaken { job: name.clone(), rank, request, done, given }
    };
    for (number, rank) in &taking.in_hand {
        events.push(taken(*rank, 0, Some(*number)));
    }
    for (rank, consumer) in job.consumers.iter().filter(|(_, consumer)| consumer.request > 0) {
        events.push(taken(*rank, consumer.request, consumer.given));
    }
}
