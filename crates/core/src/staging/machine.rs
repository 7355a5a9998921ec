//! The machine: commands in, actions out. Who is given what is in `giving`, what came or did not in `coming`, what nobody
//! needs any more in `keeping`, what is made next and what gives way in `room`.

use super::entry::{Entry, Point, bound, point};
use super::people::People;
use super::{Accounts, Action, Command, ConsumerId, JobView, Name, StagingOptions};
use crate::feed::BatchName;
use std::collections::{BTreeMap, BTreeSet};

/// A wish to have a batch now.
#[derive(Clone, Debug)]
pub(super) struct Ticket {
    pub(super) consumer: ConsumerId,
    pub(super) request: u64,
    pub(super) name: Name,
}

/// Prepared batches of one feed.
#[derive(Clone, Debug)]
pub struct Staging {
    pub(super) options: StagingOptions,
    /// What a batch in the making counts for: as stated, or the largest that was seen.
    pub(super) reserve: u64,
    pub(super) entries: BTreeMap<Name, Entry>,
    pub(super) people: People,
    /// Those who wait, the first to ask first.
    pub(super) tickets: BTreeMap<u64, Ticket>,
    pub(super) next_ticket: u64,
    /// Entries that are neither here nor on the way.
    pub(super) wanted: BTreeSet<Name>,
    /// Staged entries that only those who are not here may need.
    pub(super) spare: BTreeSet<Name>,
    /// Bytes that are on their way to disk.
    pub(super) freeing: u64,
    /// Batches in the hands of writers.
    pub(super) sending: usize,
    /// Names that were dropped although needed, so that making them again is counted.
    pub(super) dropped: BTreeSet<Name>,
    pub(super) accounts: Accounts,
    pub(super) actions: Vec<Action>,
}

impl Staging {
    /// Nothing staged, nobody attached.
    pub fn new(options: StagingOptions) -> Self {
        let options = StagingOptions { sends: options.sends.max(1), ..options };
        Self {
            reserve: options.batch_bytes.max(1),
            options,
            entries: BTreeMap::new(),
            people: People::default(),
            tickets: BTreeMap::new(),
            next_ticket: 0,
            wanted: BTreeSet::new(),
            spare: BTreeSet::new(),
            freeing: 0,
            sending: 0,
            dropped: BTreeSet::new(),
            accounts: Accounts::default(),
            actions: Vec::new(),
        }
    }

    /// Takes note of what happened and says what is to be done, in order.
    pub fn apply(&mut self, command: Command) -> Vec<Action> {
        match command {
            Command::Attach { consumer, job, rank, world_size } => {
                if self.people.attach(consumer, job, rank, world_size) {
                    self.review_all();
                }
            }
            Command::Detach { consumer } => self.detach(consumer),
            Command::Expect { jobs } => {
                let jobs: BTreeSet<String> = jobs.into_iter().collect();
                if jobs != self.people.expected {
                    self.people.expected = jobs;
                    self.review_all();
                }
            }
            Command::Limit { bytes } => self.options.limit_bytes = bytes,
            Command::Size { bytes } => self.reserve = self.reserve.max(bytes),
            Command::Plan { consumer, names } => self.plan(consumer, names),
            Command::Take { consumer, request, name } => self.take(consumer, request, Name::new(name)),
            Command::Forget { consumer, request } => self.forget(consumer, request),
            Command::Passed { consumer, epoch, position } => self.pass(consumer, (epoch, position)),
            Command::Sent { consumer, name } => self.sent(consumer, &name),
            Command::Made { name, bytes } => self.made(&name, bytes),
            Command::Failed { name } => self.failed(&name),
            Command::Spilled { name } => self.spilled(&name),
            Command::NotSpilled { name } => self.not_spilled(&name),
            Command::Loaded { name } => self.loaded(&name),
            Command::NotLoaded { name } => self.not_loaded(&name),
        }
        self.settle();
        std::mem::take(&mut self.actions)
    }

    /// What was done so far, and what is held now.
    pub fn accounts(&self) -> Accounts {
        self.accounts
    }

    /// The attached jobs.
    pub fn jobs(&self) -> Vec<JobView> {
        self.people.view()
    }

    /// Requests of a consumer that were not answered yet.
    pub fn waiting(&self, consumer: ConsumerId) -> usize {
        self.people.consumers.get(&consumer).map_or(0, |consumer| consumer.tickets.len())
    }

    /// Whether somebody waits for a batch or one is on its way.
    pub fn is_busy(&self) -> bool {
        !self.tickets.is_empty() || self.sending > 0
    }

    fn detach(&mut self, id: ConsumerId) {
        let Some(gone) = self.people.detach(id) else { return };
        for ticket in gone.tickets {
            self.cancel(ticket);
        }
        for name in gone.planned {
            if let Some(entry) = self.entries.get_mut(&name) {
                entry.planned.remove(&id);
            }
        }
        self.review_all();
    }

    fn plan(&mut self, id: ConsumerId, names: Vec<BatchName>) {
        for name in names {
            let (name, at) = (Name::new(name.clone()), point(&name));
            let known = self.entries.contains_key(&name);
            let too_late = !known && self.people.is_too_late(id, at);
            let Some(consumer) = self.people.consumers.get_mut(&id) else { return };
            if consumer.passed.is_some_and(|passed| at < passed) || too_late || !consumer.plan(&name) {
                continue;
            }
            self.entry(&name).planned.insert(id);
        }
    }

    fn pass(&mut self, id: ConsumerId, to: Point) {
        let Some((before, after)) = self.people.pass(id, to) else { return };
        let end = bound(to);
        if let Some(consumer) = self.people.consumers.get_mut(&id) {
            let ahead = consumer.planned.split_off(&end);
            for name in std::mem::replace(&mut consumer.planned, ahead) {
                if let Some(entry) = self.entries.get_mut(&name) {
                    entry.planned.remove(&id);
                }
                self.review(&name);
            }
        }
        self.review_between(before, after);
    }

    /// The entry of a name, wanted when it is new.
    pub(super) fn entry(&mut self, name: &Name) -> &mut Entry {
        if !self.entries.contains_key(name) {
            self.wanted.insert(Name::clone(name));
        }
        self.entries.entry(Name::clone(name)).or_insert_with(Entry::new)
    }

    pub(super) fn hold(&mut self, bytes: u64) {
        self.accounts.held_bytes += bytes;
        self.accounts.peak_bytes = self.accounts.peak_bytes.max(self.accounts.held_bytes);
    }

    pub(super) fn release(&mut self, bytes: u64) {
        self.accounts.held_bytes -= bytes;
    }
}
