//! The machine: commands in, actions out. What is made next and what gives way is in `room`.

use super::entry::{Entry, Memory, Need, Point, State, bound, point};
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
    next_ticket: u64,
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

    fn take(&mut self, id: ConsumerId, request: u64, name: Name) {
        if let Some((before, after)) = self.people.notice(id, point(&name)) {
            self.review_between(before, after);
        }
        let too_late = self.people.is_too_late(id, point(&name));
        let Some(consumer) = self.people.consumers.get_mut(&id) else { return };
        consumer.planned.remove(&name);
        let known = self.entries.get_mut(&name);
        let on_the_way = known.is_some_and(|entry| {
            entry.planned.remove(&id);
            entry.state != State::Wanted
        });
        if too_late && !on_the_way {
            self.accounts.skipped += 1;
            if let Some(job) = self.people.job_of(id) {
                job.skipped += 1;
            }
            self.actions.push(Action::Skip { consumer: id, request });
            return self.review(&name);
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        consumer.tickets.insert(ticket);
        self.entry(&name).waiting.insert(ticket);
        self.tickets.insert(ticket, Ticket { consumer: id, request, name });
        self.give_to(id);
    }

    fn forget(&mut self, id: ConsumerId, request: u64) {
        let Some(consumer) = self.people.consumers.get_mut(&id) else { return };
        let is_it = |ticket: &&u64| self.tickets.get(ticket).is_some_and(|found| found.request == request);
        let Some(ticket) = consumer.tickets.iter().find(is_it).copied() else { return };
        consumer.tickets.remove(&ticket);
        if let Some(name) = self.cancel(ticket) {
            self.review(&name);
        }
    }

    fn cancel(&mut self, ticket: u64) -> Option<Name> {
        let name = self.tickets.remove(&ticket)?.name;
        if let Some(entry) = self.entries.get_mut(&name) {
            entry.waiting.remove(&ticket);
        }
        Some(name)
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

    /// What lies between two frontiers of a job may be of no more use.
    fn review_between(&mut self, before: Option<Point>, after: Option<Point>) {
        let Some(after) = after.filter(|_| after > before) else { return };
        let begin = bound(before.unwrap_or((0, 0)));
        let passed = self.entries.range::<BatchName, _>(begin..bound(after));
        let passed: Vec<Name> = passed.map(|(name, _)| Name::clone(name)).collect();
        for name in passed {
            self.review(&name);
        }
    }

    fn sent(&mut self, id: ConsumerId, name: &Name) {
        if let Some(consumer) = self.people.consumers.get_mut(&id) {
            consumer.sending = consumer.sending.saturating_sub(1);
        }
        self.sending = self.sending.saturating_sub(1);
        if let Some(entry) = self.entries.get_mut(name) {
            entry.sending = entry.sending.saturating_sub(1);
        }
        self.review(name);
        self.give_to(id);
    }

    fn made(&mut self, name: &Name, bytes: u64) {
        let Some((entry, reserved)) = self.making(name) else {
            return self.actions.push(Action::Drop(Name::clone(name)));
        };
        entry.state = State::Staged { bytes };
        self.reserve = self.reserve.max(bytes);
        self.accounts.made += 1;
        self.accounts.making -= 1;
        self.accounts.staged += 1;
        self.release(reserved);
        self.hold(bytes);
        self.give(name);
        self.review(name);
    }

    fn failed(&mut self, name: &Name) {
        let Some((_, reserved)) = self.making(name) else { return };
        self.accounts.failed += 1;
        self.accounts.making -= 1;
        self.release(reserved);
        // Whoever planned it is told when it asks: making it over and over for nobody would never end.
        let Some(entry) = self.entries.remove(name) else { return };
        for id in entry.planned {
            if let Some(consumer) = self.people.consumers.get_mut(&id) {
                consumer.planned.remove(name);
            }
        }
        for ticket in entry.waiting {
            let Some(Ticket { consumer, request, .. }) = self.tickets.remove(&ticket) else { continue };
            if let Some(consumer) = self.people.consumers.get_mut(&consumer) {
                consumer.tickets.remove(&ticket);
            }
            self.actions.push(Action::Fault { consumer, request });
        }
    }

    fn making(&mut self, name: &Name) -> Option<(&mut Entry, u64)> {
        let entry = self.entries.get_mut(name)?;
        let State::Making { reserved } = entry.state else { return None };
        Some((entry, reserved))
    }

    fn spilled(&mut self, name: &Name) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        let State::Spilling { bytes } = entry.state else { return };
        let here = entry.sending > 0;
        entry.state = State::Disk { bytes, memory: if here { Memory::Here } else { Memory::Absent } };
        self.accounts.spilled += 1;
        self.freeing -= bytes;
        if !here {
            self.accounts.staged -= 1;
            self.release(bytes);
            self.actions.push(Action::Unload(Name::clone(name)));
        }
        self.review(name);
    }

    fn not_spilled(&mut self, name: &Name) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        let State::Spilling { bytes } = entry.state else { return };
        entry.state = State::Staged { bytes };
        self.freeing -= bytes;
        let free = entry.sending == 0 && entry.waiting.is_empty();
        if free { self.put_out(name) } else { self.review(name) }
    }

    fn loaded(&mut self, name: &Name) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        let State::Disk { bytes, memory: Memory::Loading } = entry.state else { return };
        entry.state = State::Disk { bytes, memory: Memory::Here };
        self.accounts.loaded += 1;
        self.accounts.staged += 1;
        self.give(name);
        self.review(name);
    }

    fn not_loaded(&mut self, name: &Name) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        let State::Disk { bytes, memory: Memory::Loading } = entry.state else { return };
        entry.state = State::Wanted;
        self.wanted.insert(Name::clone(name));
        self.release(bytes);
        self.actions.push(Action::Drop(Name::clone(name)));
        self.review(name);
    }

    /// The entry of a name, wanted when it is new.
    fn entry(&mut self, name: &Name) -> &mut Entry {
        if !self.entries.contains_key(name) {
            self.wanted.insert(Name::clone(name));
        }
        self.entries.entry(Name::clone(name)).or_insert_with(Entry::new)
    }

    /// Gives a batch that is here to all who wait for it and can be sent something.
    fn give(&mut self, name: &Name) {
        let Some(entry) = self.entries.get(name).filter(|entry| entry.is_here()) else { return };
        let waiting: Vec<u64> = entry.waiting.iter().copied().collect();
        for ticket in waiting {
            self.give_ticket(ticket);
        }
    }

    /// Gives a consumer what it waits for and is here.
    fn give_to(&mut self, id: ConsumerId) {
        let Some(consumer) = self.people.consumers.get(&id) else { return };
        let tickets: Vec<u64> = consumer.tickets.iter().copied().collect();
        for ticket in tickets {
            self.give_ticket(ticket);
        }
    }

    fn give_ticket(&mut self, number: u64) {
        let Some(ticket) = self.tickets.get(&number) else { return };
        let (id, name) = (ticket.consumer, Name::clone(&ticket.name));
        let Some(consumer) = self.people.consumers.get_mut(&id) else { return };
        let Some(entry) = self.entries.get_mut(&name).filter(|entry| entry.is_here()) else { return };
        if consumer.sending >= self.options.sends {
            return;
        }
        let request = ticket.request;
        consumer.sending += 1;
        consumer.tickets.remove(&number);
        entry.sending += 1;
        entry.waiting.remove(&number);
        self.sending += 1;
        self.accounts.given += 1;
        self.tickets.remove(&number);
        self.spare.remove(&name);
        if let Some(job) = self.people.job_of(id) {
            job.given += 1;
            if !entry.taken.contains(&job.id) {
                entry.taken.push(job.id);
            }
        }
        self.actions.push(Action::Give { consumer: id, request, name });
    }

    /// Lets go of what nobody needs any more.
    pub(super) fn review(&mut self, name: &Name) {
        let Some(entry) = self.entries.get(name) else { return };
        match entry.state {
            State::Wanted => {
                if entry.planned.is_empty() && entry.waiting.is_empty() {
                    self.wanted.remove(name);
                    self.entries.remove(name);
                }
            }
            State::Making { .. } | State::Spilling { .. } | State::Disk { memory: Memory::Loading, .. } => {}
            _ if entry.sending > 0 => {}
            State::Staged { bytes } => match self.need(name, entry) {
                Need::No => self.forget_bytes(name, bytes, 1),
                Need::Perhaps => drop(self.spare.insert(Name::clone(name))),
                Need::Yes => drop(self.spare.remove(name)),
            },
            State::Disk { bytes, memory } => {
                let here = memory == Memory::Here;
                if self.need(name, entry) != Need::Yes {
                    self.forget_bytes(name, if here { bytes } else { 0 }, u64::from(here));
                } else if here && let Some(entry) = self.entries.get_mut(name) {
                    entry.state = State::Disk { bytes, memory: Memory::Absent };
                    self.accounts.staged -= 1;
                    self.release(bytes);
                    self.actions.push(Action::Unload(Name::clone(name)));
                }
            }
        }
    }

    /// Forgets an entry that is here. Those who still plan it are kept in mind.
    pub(super) fn forget_bytes(&mut self, name: &Name, bytes: u64, staged: u64) {
        self.spare.remove(name);
        self.accounts.staged -= staged;
        self.release(bytes);
        self.actions.push(Action::Drop(Name::clone(name)));
        let Some(mut entry) = self.entries.remove(name) else { return };
        if !entry.planned.is_empty() || !entry.waiting.is_empty() {
            entry.state = State::Wanted;
            self.wanted.insert(Name::clone(name));
            self.entries.insert(Name::clone(name), entry);
        }
    }

    fn review_all(&mut self) {
        let names: Vec<Name> = self.entries.keys().cloned().collect();
        for name in names {
            self.review(&name);
        }
    }

    pub(super) fn need(&self, name: &BatchName, entry: &Entry) -> Need {
        if !entry.waiting.is_empty() {
            return Need::Yes;
        }
        let at = point(name);
        let mut need = Need::No;
        for job in self.people.jobs.values().filter(|job| !entry.taken.contains(&job.id)) {
            if job.passed.is_none_or(|passed| passed <= at) {
                return Need::Yes;
            }
            if job.lacks_ranks() {
                need = Need::Perhaps;
            }
        }
        let is_here = |job: &String| self.people.jobs.contains_key(job);
        if self.people.expected.iter().any(|job| !is_here(job)) { Need::Perhaps } else { need }
    }

    pub(super) fn hold(&mut self, bytes: u64) {
        self.accounts.held_bytes += bytes;
        self.accounts.peak_bytes = self.accounts.peak_bytes.max(self.accounts.held_bytes);
    }

    fn release(&mut self, bytes: u64) {
        self.accounts.held_bytes -= bytes;
    }
}
