//! Who answers, how fast, and whom to leave alone for a while.

use super::WorkerKey;
use std::collections::BTreeMap;

/// Answer times that the median is taken of.
const RECENT: usize = 64;

/// First pause after a worker was lost, in milliseconds; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: u64 = 100;
const LONGEST_PAUSE: u64 = 5_000;

/// All workers that were ever named.
#[derive(Debug)]
pub(super) struct Workers {
    known: BTreeMap<WorkerKey, Worker>,
    late_ms: u64,
    /// Recent answer times, the oldest at `oldest`.
    recent: Vec<u64>,
    oldest: usize,
    late_after: u64,
}

#[derive(Debug, Default)]
struct Worker {
    attached: Option<u64>,
    failures: u32,
    avoid_until: u64,
    draining: bool,
    last_answer: u64,
    /// Whether another one answered in its place since it answered last.
    beaten: bool,
    outstanding: usize,
}

impl Workers {
    pub(super) fn new(late_ms: u64) -> Self {
        let late_ms = late_ms.max(1);
        Self { known: BTreeMap::new(), late_ms, recent: Vec::new(), oldest: 0, late_after: late_ms }
    }

    pub(super) fn name(&mut self, worker: WorkerKey) {
        self.known.entry(worker).or_default();
    }

    pub(super) fn attached_now(&mut self, now: u64, worker: WorkerKey) {
        self.known.entry(worker).or_default().attached = Some(now);
    }

    pub(super) fn asked(&mut self, worker: WorkerKey) {
        self.known.entry(worker).or_default().outstanding += 1;
    }

    /// Requests that it was asked and has not answered.
    pub(super) fn outstanding(&self, worker: WorkerKey) -> usize {
        self.known.get(&worker).map_or(0, |known| known.outstanding)
    }

    pub(super) fn answered(&mut self, now: u64, worker: WorkerKey, asked_at: u64) {
        let took = now.saturating_sub(self.running_since(worker, asked_at).unwrap_or(asked_at));
        let known = self.known.entry(worker).or_default();
        known.outstanding = known.outstanding.saturating_sub(1);
        known.last_answer = now;
        known.failures = 0;
        known.beaten = false;
        if self.recent.len() < RECENT {
            self.recent.push(took);
        } else {
            self.recent[self.oldest] = took;
            self.oldest = (self.oldest + 1) % RECENT;
        }
        let mut sorted = self.recent.clone();
        sorted.sort_unstable();
        self.late_after = sorted[sorted.len() / 2].saturating_mul(3).max(self.late_ms);
    }

    /// Another one answered what this one was asked for.
    pub(super) fn beaten(&mut self, worker: WorkerKey) {
        let known = self.known.entry(worker).or_default();
        known.outstanding = known.outstanding.saturating_sub(1);
        known.beaten = true;
    }

    pub(super) fn lost(&mut self, now: u64, worker: WorkerKey) {
        let known = self.known.entry(worker).or_default();
        let pause = (FIRST_PAUSE << known.failures.min(8)).min(LONGEST_PAUSE);
        *known = Worker {
            failures: known.failures + 1,
            avoid_until: now + pause,
            last_answer: known.last_answer,
            ..Worker::default()
        };
    }

    pub(super) fn draining(&mut self, worker: WorkerKey) {
        self.known.entry(worker).or_default().draining = true;
    }

    pub(super) fn is_draining(&self, worker: WorkerKey) -> bool {
        self.known.get(&worker).is_some_and(|known| known.draining)
    }

    /// Whether it may be asked.
    pub(super) fn is_usable(&self, now: u64, worker: WorkerKey) -> bool {
        self.known.get(&worker).is_none_or(|known| !known.draining && known.avoid_until <= now)
    }

    /// Those that may not be asked now.
    pub(super) fn avoided(&self, now: u64) -> Vec<WorkerKey> {
        self.known.keys().copied().filter(|worker| !self.is_usable(now, *worker)).collect()
    }

    /// The least busy worker that may be asked and is none of these.
    pub(super) fn other(&self, now: u64, not: &[WorkerKey]) -> Option<WorkerKey> {
        let may = |worker: &WorkerKey| !not.contains(worker) && self.is_usable(now, *worker);
        let candidates = self.known.iter().filter(|(worker, _)| may(worker));
        candidates.min_by_key(|(worker, known)| (known.outstanding, **worker)).map(|(worker, _)| *worker)
    }

    /// When the first pause ends.
    pub(super) fn next_pause_end(&self, now: u64) -> Option<u64> {
        self.known.values().map(|known| known.avoid_until).filter(|until| *until > now).min()
    }

    /// Since when a request has been a worker's to answer: not before it could be reached.
    pub(super) fn running_since(&self, worker: WorkerKey, asked_at: u64) -> Option<u64> {
        self.known.get(&worker)?.attached.map(|attached| attached.max(asked_at))
    }

    /// A request that takes longer is late.
    pub(super) fn late_after(&self) -> u64 {
        self.late_after
    }

    /// Whether a worker gives no sign of life while others answer in its place. `oldest` is its oldest open request.
    pub(super) fn is_dead(&self, now: u64, worker: WorkerKey, oldest: u64) -> bool {
        let Some(known) = self.known.get(&worker) else { return false };
        let silent = |since: u64| now.saturating_sub(since);
        match self.running_since(worker, oldest) {
            Some(since) => known.beaten && silent(since.max(known.last_answer)) > 30 * self.late_ms,
            None => silent(oldest) > 60 * self.late_ms && self.other(now, &[worker]).is_some(),
        }
    }

    pub(super) fn attached(&self) -> usize {
        self.known.values().filter(|known| known.attached.is_some()).count()
    }
}
