//! A simulated link in virtual time, to try a [`Window`] on.
//!
//! Requests wait out the delay of the route (with jitter, and now and then a stall), then share the link's rate
//! evenly, each at most at the rate of one connection. Every event is exact and every draw is seeded, so a run is
//! the same each time.

use super::made_link::{Demand, Link};
use super::{End, Ticket, Window, WindowLimits};
use crate::rng::Rng;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

/// A time in a heap.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Key(f64, u64);
impl Eq for Key {}
impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Key {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0).then(self.1.cmp(&other.1))
    }
}

/// A window at work on a link.
pub(super) struct Simulation {
    pub(super) link: Link,
    pub(super) window: Window,
    demand: Demand,
    rng: Rng,
    pub(super) now: f64,
    /// Bytes the link has carried, requests answered and refused.
    pub(super) served: f64,
    pub(super) answered: u64,
    pub(super) refused: u64,
    /// Refusals on their way.
    refusals: usize,
    /// Most bytes in flight since this was last set to 0.
    pub(super) peak: u64,
    asked: f64,
    next: f64,
    requests: Vec<(Ticket, f64)>,
    free: Vec<usize>,
    /// Requests by when they reach the link, or (refused) the client again.
    travelling: BinaryHeap<Reverse<(Key, bool)>>,
    /// Requests on the link by the share of work after which they are done, and the share worked so far.
    carried: BinaryHeap<Reverse<Key>>,
    share: f64,
    /// Completions by when they are noticed.
    noticed: VecDeque<(f64, u64)>,
}

impl Simulation {
    pub(super) fn new(link: Link, limits: WindowLimits, demand: Demand) -> Self {
        let mut rng = Rng::keyed(link.seed, 0, 0);
        let next = demand.draw(&mut rng);
        Self {
            window: Window::new(limits),
            demand,
            rng,
            now: 0.0,
            served: 0.0,
            answered: 0,
            refused: 0,
            refusals: 0,
            peak: 0,
            asked: 0.0,
            next,
            requests: Vec::new(),
            free: Vec::new(),
            travelling: BinaryHeap::new(),
            carried: BinaryHeap::new(),
            share: 0.0,
            noticed: VecDeque::new(),
            link,
        }
    }

    /// Runs to `end`; gives the mean rate the link carried since the call.
    pub(super) fn run(&mut self, end: f64) -> f64 {
        let (from, served) = (self.now, self.served);
        while self.step(end) {}
        (self.served - served) / (end - from)
    }

    /// From now on so many bytes a second are asked for.
    pub(super) fn ask(&mut self, rate: f64) {
        self.demand.rate = rate;
        self.asked = if rate.is_finite() { rate * self.now } else { 0.0 };
    }

    fn each(&self) -> f64 {
        (self.link.rate / self.carried.len() as f64).min(self.link.connection_rate)
    }

    fn work_until(&mut self, time: f64) {
        if !self.carried.is_empty() {
            let worked = self.each() * (time - self.now);
            self.share += worked;
            self.served += worked * self.carried.len() as f64;
        }
        self.now = time;
    }

    /// One event; false at the end.
    fn step(&mut self, end: f64) -> bool {
        self.start_all();
        let arrives = self.travelling.peek().map_or(f64::INFINITY, |Reverse((key, _))| key.0);
        let carried = self
            .carried
            .peek()
            .map_or(f64::INFINITY, |Reverse(key)| self.now + ((key.0 - self.share) / self.each()).max(0.0));
        let notices = self.noticed.front().map_or(f64::INFINITY, |(time, _)| *time);
        let asks = if self.demand.rate.is_finite() {
            (self.asked + self.next) / self.demand.rate
        } else {
            f64::INFINITY
        };
        let asks = if asks > self.now { asks } else { f64::INFINITY };
        let retries = self.window.retry_at().map_or(f64::INFINITY, |at| at.as_secs_f64() + 1e-9);
        let retries = if retries > self.now { retries } else { f64::INFINITY };
        let time = arrives.min(carried).min(notices).min(asks).min(retries);
        assert!(
            time.is_finite() || self.demand.rate.is_finite(),
            "nothing in flight and nothing to wait for"
        );
        if time > end {
            self.work_until(end);
            return false;
        }
        self.work_until(time);
        if time == notices {
            while let Some((at, id)) = self.noticed.front().copied()
                && at <= time
            {
                self.noticed.pop_front();
                let (_, bytes) = self.requests[id as usize];
                self.answered += 1;
                self.finish(id, End::Done { bytes: bytes as u64 });
            }
        } else if time == carried {
            if let Some(Reverse(Key(_, id))) = self.carried.pop() {
                let tick = self.link.tick;
                let at = if tick > 0.0 { (time / tick).ceil() * tick } else { time };
                self.noticed.push_back((at, id));
            }
        } else if time == arrives
            && let Some(Reverse((Key(_, id), refused))) = self.travelling.pop()
        {
            if refused {
                self.refused += 1;
                self.refusals -= 1;
                self.finish(id, End::Throttled { pause: Duration::from_secs_f64(self.link.pause) });
            } else {
                self.carried.push(Reverse(Key(self.share + self.requests[id as usize].1, id)));
            }
        }
        true
    }

    fn finish(&mut self, id: u64, end: End) {
        let (ticket, _) = self.requests[id as usize];
        self.window.finish(Duration::from_secs_f64(self.now), ticket, end);
        self.free.push(id as usize);
    }

    fn start_all(&mut self) {
        while self.asked + self.next <= self.demand.rate * self.now.max(f64::MIN_POSITIVE) {
            let now = Duration::from_secs_f64(self.now);
            let Some(ticket) = self.window.try_start(now, self.next as u64) else { return };
            let id = self.free.pop().unwrap_or(self.requests.len());
            if id == self.requests.len() {
                self.requests.push((ticket, self.next));
            } else {
                self.requests[id] = (ticket, self.next);
            }
            let (requests, bytes) = self.window.in_flight();
            self.peak = self.peak.max(bytes);
            // Refused requests do not occupy the server.
            let refused = requests - self.refusals > self.link.refuse_above;
            self.refusals += usize::from(refused);
            let mut wait = self.link.delay + self.rng.uniform(0.0, self.link.jitter);
            if !refused && self.rng.chance(self.link.stall.0) {
                wait += self.link.stall.1;
            }
            self.travelling.push(Reverse((Key(self.now + wait, id as u64), refused)));
            self.asked += self.next;
            self.next = self.demand.draw(&mut self.rng);
        }
    }
}
