//! What is still needed, by whom, and letting go of the rest.

use super::entry::{Entry, Memory, Need, Point, State, bound, point};
use super::machine::Staging;
use super::{Action, Name};
use crate::feed::BatchName;

impl Staging {
    /// What lies between two frontiers of a job may be of no more use.
    pub(super) fn review_between(&mut self, before: Option<Point>, after: Option<Point>) {
        let Some(after) = after.filter(|_| after > before) else { return };
        let begin = bound(before.unwrap_or((0, 0)));
        let passed = self.entries.range::<BatchName, _>(begin..bound(after));
        let passed: Vec<Name> = passed.map(|(name, _)| Name::clone(name)).collect();
        for name in passed {
            self.review(&name);
        }
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

    pub(super) fn review_all(&mut self) {
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
}
