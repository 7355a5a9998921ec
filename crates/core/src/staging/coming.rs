//! Batches that came, from makers or from disk, and those that did not.

use super::entry::{Entry, Memory, State};
use super::machine::{Staging, Ticket};
use super::{Action, Name};

impl Staging {
    pub(super) fn made(&mut self, name: &Name, bytes: u64) {
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

    pub(super) fn failed(&mut self, name: &Name) {
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

    pub(super) fn spilled(&mut self, name: &Name) {
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

    pub(super) fn not_spilled(&mut self, name: &Name) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        let State::Spilling { bytes } = entry.state else { return };
        entry.state = State::Staged { bytes };
        self.freeing -= bytes;
        let free = entry.sending == 0 && entry.waiting.is_empty();
        if free { self.put_out(name) } else { self.review(name) }
    }

    pub(super) fn loaded(&mut self, name: &Name) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        let State::Disk { bytes, memory: Memory::Loading } = entry.state else { return };
        entry.state = State::Disk { bytes, memory: Memory::Here };
        self.accounts.loaded += 1;
        self.accounts.staged += 1;
        self.give(name);
        self.review(name);
    }

    pub(super) fn not_loaded(&mut self, name: &Name) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        let State::Disk { bytes, memory: Memory::Loading } = entry.state else { return };
        entry.state = State::Wanted;
        self.wanted.insert(Name::clone(name));
        self.release(bytes);
        self.actions.push(Action::Drop(Name::clone(name)));
        self.review(name);
    }
}
