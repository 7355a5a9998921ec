//! What is made next, and what gives way for it.
//!
//! Batches that somebody asks for now come first, in the order of asking; then those that are planned, the nearest
//! need first. For them gives way what is needed last: with jobs of different speed that leaves the slow one the batches
//! it comes to next, where dropping the oldest would take exactly those. Only under [`Late::Skip`] the oldest go, because
//! there the slow job is meant to catch up.

use super::entry::{Entry, Memory, Need, Point, State, bound, point};
use super::machine::Staging;
use super::people::Job;
use super::{Action, Late, Name};
use crate::feed::BatchName;

/// Names of dropped batches that are remembered, to count what is made again.
const REMEMBERED: usize = 1 << 14;

/// For what room is wanted.
#[derive(Clone, Copy, Debug)]
enum Purpose {
    /// Somebody waits for it.
    Now,
    /// As before, and everybody waits for room: nothing else can make any.
    Stuck,
    /// Somebody will want it: so far ahead of that job, and at this place.
    Soon { distance: u128, at: Point },
}

impl Staging {
    /// Starts whatever can be started.
    pub(super) fn settle(&mut self) {
        // A batch may turn out larger than what was set aside for it.
        while self.accounts.held_bytes - self.freeing > self.options.limit_bytes
            && self.accounts.staged + self.accounts.making > 1
            && self.give_way(Purpose::Now)
        {}
        self.start_asked();
        self.start_planned();
        if self.options.late == Late::Wait
            && let Some(name) = self.everybody_waits()
            && self.find_room(self.reserve, Purpose::Stuck)
        {
            self.start(&name);
        }
    }

    /// What is waited for now, as far as its taker can be sent anything.
    fn start_asked(&mut self) {
        let wanted = |name: &Name| {
            self.entries.get(name).is_some_and(|entry| {
                matches!(entry.state, State::Wanted | State::Disk { memory: Memory::Absent, .. })
            })
        };
        let can_take = |consumer| {
            self.people.consumers.get(consumer).is_some_and(|one| one.sending < self.options.sends)
        };
        let asked = self.tickets.values().filter(|ticket| can_take(&ticket.consumer) && wanted(&ticket.name));
        let asked: Vec<Name> = asked.map(|ticket| Name::clone(&ticket.name)).collect();
        for name in asked {
            match self.entries.get(&name).map(|entry| entry.state) {
                Some(State::Wanted) => {
                    if !self.find_room(self.reserve, Purpose::Now) {
                        break;
                    }
                    self.start(&name);
                }
                Some(State::Disk { bytes, memory: Memory::Absent }) => {
                    if !self.find_room(bytes, Purpose::Now) {
                        break;
                    }
                    if let Some(entry) = self.entries.get_mut(&name) {
                        entry.state = State::Disk { bytes, memory: Memory::Loading };
                        self.hold(bytes);
                        self.actions.push(Action::Load(name));
                    }
                }
                _ => {}
            }
        }
    }

    /// What will be wanted.
    fn start_planned(&mut self) {
        if self.accounts.making >= self.options.making_batches as u64 || self.wanted.is_empty() {
            return;
        }
        let mut planned: Vec<(u128, Name)> = self
            .wanted
            .iter()
            .filter_map(|name| Some((self.ahead(name, self.entries.get(name)?)?, Name::clone(name))))
            .collect();
        planned.sort();
        for (distance, name) in planned {
            let at = point(&name);
            if self.accounts.making >= self.options.making_batches as u64
                || !self.find_room(self.reserve, Purpose::Soon { distance, at })
            {
                break;
            }
            self.start(&name);
        }
    }

    /// How far a planned batch is ahead of the nearest of those who plan it.
    fn ahead(&self, name: &BatchName, entry: &Entry) -> Option<u128> {
        let waiting = entry.waiting.iter().filter_map(|ticket| Some(self.tickets.get(ticket)?.consumer));
        let who = entry.planned.iter().copied().chain(waiting);
        let frontiers = who.filter_map(|id| self.people.consumers.get(&id)?.place());
        frontiers.map(|passed| self.distance(passed, point(name))).min()
    }

    fn start(&mut self, name: &Name) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        entry.state = State::Making { reserved: self.reserve };
        self.wanted.remove(name);
        self.accounts.making += 1;
        if self.dropped.remove(name) {
            self.accounts.remade += 1;
        }
        self.hold(self.reserve);
        self.actions.push(Action::Make(Name::clone(name)));
    }

    /// Whether `bytes` more can be held, after others gave way.
    fn find_room(&mut self, bytes: u64, purpose: Purpose) -> bool {
        let limit = match (self.options.late, purpose) {
            // One place is left for those who ask now, so that plans of one job do not keep another from its turn.
            (Late::Wait, Purpose::Soon { .. }) if self.options.limit_bytes >= 2 * self.reserve => {
                self.options.limit_bytes - self.reserve
            }
            _ => self.options.limit_bytes,
        };
        loop {
            let held = self.accounts.held_bytes;
            if held == 0 || held.saturating_add(bytes) <= limit {
                return true;
            }
            // What is on its way to disk is as good as gone, only not yet.
            if (held - self.freeing).saturating_add(bytes) <= limit && self.freeing > 0 {
                return false;
            }
            if !self.give_way(purpose) {
                return false;
            }
        }
    }

    /// Lets one batch go; false when none may.
    fn give_way(&mut self, purpose: Purpose) -> bool {
        if let Some(name) = self.spare.last().cloned() {
            self.put_out(&name);
            return true;
        }
        let found = match (self.options.late, purpose) {
            (Late::Wait, Purpose::Now | Purpose::Soon { .. }) => None,
            (Late::Skip, Purpose::Soon { at, .. }) => self.oldest_taken(Some(at)),
            (Late::Skip, _) => self.oldest_taken(None).or_else(|| self.needed_last(0)),
            (_, Purpose::Soon { distance, .. }) => self.needed_last(distance.saturating_add(1)),
            _ => self.needed_last(0),
        };
        let Some(name) = found else { return false };
        if self.options.late == Late::Spill
            && let Some(entry) = self.entries.get_mut(&name)
            && let State::Staged { bytes } = entry.state
        {
            entry.state = State::Spilling { bytes };
            self.freeing += bytes;
            self.actions.push(Action::Spill(name));
            return true;
        }
        self.put_out(&name);
        true
    }

    /// Drops a batch for room.
    pub(super) fn put_out(&mut self, name: &Name) {
        let Some(entry) = self.entries.get(name) else { return };
        let State::Staged { bytes } = entry.state else { return };
        let at = point(name);
        let needed = self.need(name, entry) == Need::Yes;
        if needed {
            self.accounts.dropped += 1;
            self.dropped.insert(Name::clone(name));
            if self.dropped.len() > REMEMBERED {
                self.dropped.pop_first();
            }
        }
        let taken = entry.taken.clone();
        self.forget_bytes(name, bytes, 1);
        if needed && self.options.late == Late::Skip && !taken.is_empty() {
            let late = self.people.jobs.values_mut().filter(|job| !taken.contains(&job.id));
            for job in late.filter(|job| job.passed.is_none_or(|passed| passed <= at)) {
                job.skipped_to = job.skipped_to.max(Some(at));
            }
            self.forget_late_plans(name);
        }
    }

    /// Under `Skip` a plan for what is too late is no plan.
    fn forget_late_plans(&mut self, name: &Name) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        let late: Vec<_> =
            entry.planned.iter().copied().filter(|id| self.people.is_too_late(*id, point(name))).collect();
        for id in late {
            entry.planned.remove(&id);
            if let Some(consumer) = self.people.consumers.get_mut(&id) {
                consumer.planned.remove(name);
            }
        }
        self.review(name);
    }

    /// The staged batch whose next need is furthest ahead, at least `from`.
    fn needed_last(&self, from: u128) -> Option<Name> {
        let slowest = self.people.jobs.values().map(|job| job.passed.unwrap_or((0, 0))).min()?;
        let mut best: Option<(u128, &Name)> = None;
        for (name, entry) in self.entries.iter().rev() {
            // No need of it, nor of anything before it, is further ahead than its distance to the slowest job.
            if best.is_some_and(|(found, _)| self.distance(slowest, point(name)) <= found) {
                break;
            }
            if !matches!(entry.state, State::Staged { .. }) || entry.sending > 0 {
                continue;
            }
            let distance = self.next_need(name, entry);
            if distance >= from && best.is_none_or(|(found, _)| distance > found) {
                best = Some((distance, name));
            }
        }
        best.map(|(_, name)| Name::clone(name))
    }

    fn next_need(&self, name: &BatchName, entry: &Entry) -> u128 {
        if !entry.waiting.is_empty() {
            return 0;
        }
        let at = point(name);
        let jobs = self.people.jobs.values().filter(|job| !entry.taken.contains(&job.id));
        let frontiers = jobs.map(|job| job.passed.unwrap_or((0, 0))).filter(|passed| *passed <= at);
        frontiers.map(|passed| self.distance(passed, at)).min().unwrap_or(u128::MAX)
    }

    /// The first staged batch in the order of the plan that somebody took already, before `before`.
    fn oldest_taken(&self, before: Option<Point>) -> Option<Name> {
        let mut entries =
            self.entries.iter().take_while(|(name, _)| before.is_none_or(|to| point(name) < to));
        let found = entries.find(|(_, entry)| {
            matches!(entry.state, State::Staged { .. })
                && entry.sending == 0
                && entry.waiting.is_empty()
                && !entry.taken.is_empty()
        });
        found.map(|(name, _)| Name::clone(name))
    }

    /// The first name in the order of the plan that is waited for, when every job waits for room and nothing is on its
    /// way that could make some.
    fn everybody_waits(&self) -> Option<Name> {
        if self.accounts.making > 0 || self.sending > 0 || self.tickets.is_empty() {
            return None;
        }
        let waits = |ticket: &u64| {
            let name = &self.tickets.get(ticket)?.name;
            let entry = self.entries.get(name)?;
            (entry.state == State::Wanted).then_some(name)
        };
        let mut first: Option<&Name> = None;
        for job in self.people.jobs.values() {
            let consumers = job.consumers.iter().filter_map(|id| self.people.consumers.get(id));
            match consumers.flat_map(|consumer| consumer.tickets.iter().filter_map(waits)).min() {
                Some(name) => first = Some(first.map_or(name, |first| first.min(name))),
                // It will take or pass something that is here, and make room.
                None if self.needs_something(job) => return None,
                None => {}
            }
        }
        first.cloned()
    }

    fn needs_something(&self, job: &Job) -> bool {
        let mut ahead = self.entries.range::<BatchName, _>(bound(job.passed.unwrap_or((0, 0)))..);
        ahead.any(|(_, entry)| matches!(entry.state, State::Staged { .. }) && !entry.taken.contains(&job.id))
    }

    fn distance(&self, from: Point, to: Point) -> u128 {
        let order = |(epoch, position): Point| {
            u128::from(epoch) * u128::from(self.options.epoch_samples) + u128::from(position)
        };
        order(to).saturating_sub(order(from))
    }
}
