//! How the window follows what the rounds say.

use super::{Drain, Phase, Round, Seen, Window};

/// Window in steady state, in units of rate x delay.
const GAIN: f64 = 2.0;
/// Bound of the window while it doubles, in the same units: the estimates are rough then, and three is to be kept.
const START_GAIN: f64 = 2.4;
/// How fast requests may start, in units of the rate; more during the start, when the rate is known one round late,
/// and less during a drain, which must not queue.
const PACE: f64 = 1.5;
const START_PACE: f64 = 4.0;
const DRAIN_PACE: f64 = 0.9;
/// The start is over after this many rounds whose rate rose by less than `RISE`.
const FLAT_ROUNDS: u32 = 3;
const RISE: f64 = 1.2;
/// Latency of more than this many delays means that requests queue on the link.
const QUEUED: f64 = 1.3;
/// A window that grew this much during the start needs no drain after it.
const MUCH_GROWN: f64 = 8.0;
/// What a drain leaves in flight, in units of rate x delay: at first, when another drain found a queue, and later.
const DEEP_DRAIN: f64 = 0.5;
const DRAIN: f64 = 0.75;
/// Rounds below this part of the best rate, with latency above this many delays, may mean a changed route; with
/// latency that our own window cannot explain they surely do.
const FALL: f64 = 0.75;
const SLOWER: f64 = 1.25;
const MUCH_SLOWER: f64 = 3.0;
/// Seconds, and latencies, from one drain to the next: when surely needed, on suspicion, and without.
const NEEDED_EVERY: (f64, f64) = (1.0, 8.0);
const SUSPECT_EVERY: (f64, f64) = (4.0, 32.0);
const DRAIN_EVERY: (f64, f64) = (5.0, 30.0);
/// A drain that finds this part of the delay or less had a queue before it, and may have one still: it is repeated.
const SHORTER: f64 = 0.85;
/// A round whose latency is within this many delays confirms the delay.
const CONFIRMED: f64 = 1.15;
/// A request is overdue after this many delays, this many latencies of the last round, and this many seconds.
const OVERDUE: (f64, f64, f64) = (4.0, 3.0, 0.05);
/// Delays below this are our own scheduling, not the link.
const LEAST_DELAY: f64 = 0.001;
/// Requests of at most this size are tiny: four of them are always allowed, two of larger ones.
const TINY: f64 = 64.0 * 1024.0;

impl Window {
    /// Requests that are always allowed, so that small windows still overlap one request's wait with another's bytes.
    pub(super) fn least_requests(&self) -> usize {
        if self.sizes.typical() <= TINY { 4 } else { 2 }
    }

    /// The same in bytes.
    pub(super) fn least_bytes(&self) -> f64 {
        self.least_requests() as f64 * self.sizes.typical()
    }

    /// Bytes that count against the window. Overdue requests are let off up to one more window.
    pub(super) fn counted(&self) -> u64 {
        self.flight.counted_bytes(self.size.max(self.least_bytes()) as u64)
    }

    /// What time alone changes: requests become overdue, and a drain gives up.
    pub(super) fn tend(&mut self, now: f64) {
        let (delays, latencies, seconds) = OVERDUE;
        let age = (delays * self.delay).max(latencies * self.latency).max(seconds);
        // While nothing is known nothing is overdue; ended requests are forgotten all the same.
        self.flight.set_aside(if self.delay > 0.0 { now - age } else { f64::NEG_INFINITY });
        if let Phase::Draining(drain) = &mut self.phase
            && drain.is_over(now)
        {
            let seen = drain.delay();
            let shorter = seen.is_some_and(|seen| seen < SHORTER * self.delay);
            if let Some(delay) = seen {
                (self.delay, self.latency) = (delay, delay);
            }
            (self.confirmed_at, self.drained_at) = (now, now);
            self.round = Round::starting_at(now);
            self.best.cut();
            self.resize();
            if shorter && self.size > self.least_bytes() {
                self.drain(now, DEEP_DRAIN, self.best.get());
            } else {
                self.phase = Phase::Steady;
            }
        }
    }

    pub(super) fn admits(&mut self, bytes: u64) -> bool {
        let requests = self.flight.requests();
        if requests == 0 {
            return true;
        }
        let fixed = self.limits.fixed_requests;
        let most = fixed.unwrap_or_else(|| self.ceiling.get()).min(self.limits.max_requests);
        if requests >= most || self.flight.bytes().saturating_add(bytes) > self.limits.max_bytes {
            return false;
        }
        if fixed.is_some() {
            return true;
        }
        let (counted, timely) = (self.counted() as f64, self.flight.timely_requests());
        if let Phase::Draining(drain) = &self.phase {
            self.round.mark_limited();
            return timely == 0 || counted + bytes as f64 <= drain.target;
        }
        // One request may reach over the edge: a large one must not wait until all small ones are gone.
        timely < self.least_requests() || counted < self.size.max(self.least_bytes())
    }

    /// Whether the pace holds the next request back. It never does when nothing is in flight.
    pub(super) fn must_wait(&mut self, now: f64) -> bool {
        let rate = self.best.get();
        self.paced_until = None;
        if rate > 0.0 && self.limits.fixed_requests.is_none() {
            let pace = match self.phase {
                Phase::Starting { .. } => START_PACE,
                Phase::Steady => PACE,
                Phase::Draining(_) => DRAIN_PACE,
            };
            // Requests that are always allowed may all start within one delay.
            let least = self.least_bytes() / self.delay.max(LEAST_DELAY);
            let until = self.pace.wait(now, (pace * rate).max(least), self.delay);
            if self.flight.requests() > 0 {
                self.paced_until = until;
            }
        }
        self.paced_until.is_some()
    }

    /// A request was answered during the start: one more of its size may be in flight, so the window doubles every
    /// round.
    pub(super) fn widen(&mut self, bytes: f64) {
        let known = self.best.get() * self.delay;
        let bound = if known > 0.0 { START_GAIN * known } else { f64::INFINITY };
        self.size = (self.size + bytes).min(bound.max(self.size));
    }

    fn resize(&mut self) {
        self.size = GAIN * self.best.get() * self.delay.max(LEAST_DELAY);
    }

    fn drain(&mut self, now: f64, share: f64, rate: f64) {
        self.drains = self.drains.wrapping_add(1).max(1);
        self.phase = Phase::Draining(Drain::new(
            self.drains,
            now,
            share * rate * self.delay,
            self.sizes.typical(),
            self.latency,
        ));
    }

    /// A round is over.
    pub(super) fn learn(&mut self, now: f64, seen: Seen) {
        let rounds = if matches!(self.phase, Phase::Starting { .. }) { 2 } else { 3 };
        self.best.add(seen, rounds);
        self.ceiling.quiet_round(seen.start, self.limits.max_requests);
        let Some(latency) = seen.latency else { return };
        if matches!(self.phase, Phase::Draining(_)) {
            return;
        }
        self.latency = latency;
        if self.delay == 0.0 {
            self.delay = latency;
        } else if latency < self.delay {
            // Half way at most: a few lucky requests do not shrink the window, a shorter route does within a few
            // rounds.
            self.delay += (latency - self.delay) * (f64::from(seen.done) / 16.0).min(0.5);
        }
        if latency <= CONFIRMED * self.delay {
            self.confirmed_at = now;
        }
        let capped = self.flight.requests() >= self.ceiling.get().min(self.limits.max_requests);
        match &mut self.phase {
            Phase::Starting { best, flat } if !seen.limited => {
                if seen.rate > RISE * *best {
                    (*best, *flat) = (seen.rate, 0);
                } else {
                    *flat += 1;
                }
                // A full link shows as a queue. Without one the rate is flat by chance: sizes vary, requests stall.
                if *flat >= FLAT_ROUNDS && (capped || latency > QUEUED * self.delay) {
                    self.best.settle();
                    let grown = self.size > MUCH_GROWN * self.least_bytes();
                    if grown || self.drains > 0 {
                        // The delay was measured while the window was far too small to queue, or by a drain.
                        self.phase = Phase::Steady;
                        self.resize();
                    } else {
                        self.drain(now, DEEP_DRAIN, seen.rate);
                    }
                }
            }
            Phase::Steady => {
                self.resize();
                let fallen = !seen.limited && self.best.mean(2) < FALL * self.best.get();
                let waited = |since: f64, (seconds, latencies): (f64, f64)| {
                    now - since > (latencies * latency).max(seconds)
                };
                if fallen && latency > MUCH_SLOWER * self.delay && waited(self.drained_at, NEEDED_EVERY)
                    || fallen && latency > SLOWER * self.delay && waited(self.drained_at, SUSPECT_EVERY)
                    || waited(self.confirmed_at, DRAIN_EVERY)
                {
                    self.drain(now, DRAIN, seen.rate);
                } else if !seen.limited && !capped && latency < QUEUED * self.delay {
                    // Twice what the link holds is in flight and nothing queues: it holds more than was thought.
                    self.phase = Phase::Starting { best: self.best.get(), flat: 0 };
                }
            }
            _ => {}
        }
    }
}
