//! What the dispatcher knows and must not forget. It changes by [`Event`]s alone, so a journal of them brings it back.
//!
//! `known` is what it holds of each, `leasing` keeps leases in step with workers and feeds, `snapshot` writes the
//! shortest journal that gives a state back.

use super::command::Event;
use super::known::{Consumer, Feed, Job, Lease, Worker};
use super::placing::Placing;
use super::taking::{Ranges, Taking};
use super::words::{JobName, LeaseId, Terms, WorkerId};
use crate::feed::{FeedId, Span};
use std::collections::{BTreeMap, BTreeSet};

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
}
