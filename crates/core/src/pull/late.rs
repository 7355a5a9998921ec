//! Answers that are late: asked for elsewhere within a share, and workers given up that show no sign of life.

use super::{Action, Entry, Pull, State, WorkerKey};
use std::collections::BTreeMap;

impl Pull {
    pub(super) fn give_up_on_dead(&mut self, now: u64) {
        let mut oldest: BTreeMap<WorkerKey, u64> = BTreeMap::new();
        for ask in self.entries.iter().flat_map(|entry| &entry.asks) {
            let since = oldest.entry(ask.worker).or_insert(ask.at);
            *since = (*since).min(ask.at);
        }
        for (worker, since) in oldest {
            if self.workers.is_dead(now, worker, since) {
                self.actions.push(Action::Close { worker });
                self.lost(now, worker);
            }
        }
    }

    /// The batch that keeps everything waiting, if one does.
    pub(super) fn blocking(&self) -> Option<&Entry> {
        let blocked = self.offered == 0 || self.order.waits_for().is_some();
        self.entries.front().filter(|entry| blocked && entry.state == State::Open)
    }

    pub(super) fn hedge(&mut self, now: u64) {
        let Some(entry) = self.blocking() else { return };
        let Some(ask) = entry.asks.iter().max_by_key(|ask| ask.at) else { return };
        // Whoever could not be reached yet gets more time, and so does the second one that was asked.
        let patience = 10 * self.settings.late_ms;
        let late = match self.workers.running_since(ask.worker, ask.at) {
            Some(since) if entry.asks.len() == 1 => since + self.workers.late_after(),
            _ => ask.at + patience,
        };
        if now <= late {
            return;
        }
        let asked: Vec<WorkerKey> = entry.asks.iter().map(|ask| ask.worker).collect();
        // Past the share, one now and then still goes out: a worker that never answers must not end everything.
        let within = self.counts.hedged <= self.counts.asked / 20;
        if !within && now < self.last_hedge + patience {
            return;
        }
        if self.ask_elsewhere(now, self.first, &asked) {
            self.counts.hedged += 1;
            self.last_hedge = now;
            return;
        }
        // Nobody else is known here; somebody may know one.
        let Some(span) = self.span_of(self.first) else { return };
        if now >= self.scout_after && now >= self.locate_after && self.locating.insert(span) {
            self.scout_after = now + self.workers.late_after();
            let avoid = self.avoided(now, &asked);
            self.actions.push(Action::Locate { spans: vec![span], avoid, lost: None });
        }
    }
}
