//! Who waits for a batch, and who is given one.

use super::entry::{State, point};
use super::machine::{Staging, Ticket};
use super::{Action, ConsumerId, Name};

impl Staging {
    pub(super) fn take(&mut self, id: ConsumerId, request: u64, name: Name) {
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

    pub(super) fn forget(&mut self, id: ConsumerId, request: u64) {
        let Some(consumer) = self.people.consumers.get_mut(&id) else { return };
        let is_it = |ticket: &&u64| self.tickets.get(ticket).is_some_and(|found| found.request == request);
        let Some(ticket) = consumer.tickets.iter().find(is_it).copied() else { return };
        consumer.tickets.remove(&ticket);
        if let Some(name) = self.cancel(ticket) {
            self.review(&name);
        }
    }

    pub(super) fn cancel(&mut self, ticket: u64) -> Option<Name> {
        let name = self.tickets.remove(&ticket)?.name;
        if let Some(entry) = self.entries.get_mut(&name) {
            entry.waiting.remove(&ticket);
        }
        Some(name)
    }

    pub(super) fn sent(&mut self, id: ConsumerId, name: &Name) {
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

    /// Gives a batch that is here to all who wait for it and can be sent something.
    pub(super) fn give(&mut self, name: &Name) {
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
}
