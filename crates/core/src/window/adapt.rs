//! How the window follows what the rounds say.

use super::{
    CONFIRMED, DRAIN, DRAIN_AFTER_START, DRAIN_EVERY, Drain, FALL, FLAT_ROUNDS, GAIN, LEAST_DELAY, OVERDUE,
    Phase, RISE, Round, SLOWER, START_GAIN, SUSPECT_EVERY, Seen, TINY, Window,
};

impl Window {
    /// Requests that are always allowed, so that small windows still overlap one request's wait with another's bytes.
    pub(super) fn least_requests(&self) -> usize {
        if self.typical <= TINY { 4 } else { 2 }
    }

    /// Bytes that count against the window. Overdue requests are let off up to one more window.
    pub(super) fn counted(&self) -> u64 {
        self.flight.counted_bytes(self.window.max(self.least_requests() as f64 * self.typical) as u64)
    }

    /// What time alone changes: requests become overdue, and a drain gives up.
    pub(super) fn tend(&mut self, now: f64) {
        if self.delay > 0.0 {
            let (delays, latencies, seconds) = OVERDUE;
            self.flight.set_aside(now - (delays * self.delay).max(latencies * self.latency).max(seconds));
        }
        if let Phase::Draining(drain) = &mut self.phase
            && drain.is_over(now)
        {
            if let Some(delay) = drain.delay() {
                self.delay = delay;
                self.latency = delay;
            }
            self.confirmed_at = now;
            self.drained_at = now;
            self.phase = Phase::Steady;
            self.round = Round::starting_at(now);
            self.resize();
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
        timely < self.least_requests() || counted + bytes as f64 / 2.0 <= self.window
    }

    /// A request was answered during the start: one more of its size may be in flight, so the window doubles every round.
    pub(super) fn widen(&mut self, bytes: f64) {
        let known = self.best.get() * self.delay;
        let bound = if known > 0.0 { START_GAIN * known } else { f64::INFINITY };
        self.window = (self.window + bytes).min(bound.max(self.window));
    }

    fn resize(&mut self) {
        self.window = GAIN * self.best.get() * self.delay.max(LEAST_DELAY);
    }

    fn drain(&mut self, now: f64, share: f64, rate: f64) {
        self.drains = self.drains.wrapping_add(1).max(1);
        self.phase = Phase::Draining(Drain::new(
            self.drains,
            now,
            share * rate * self.delay,
            self.typical,
            self.latency,
        ));
    }

    /// A round is over.
    pub(super) fn learn(&mut self, now: f64, seen: Seen) {
        if let Some(since) = self.idle_since {
            self.idle_since = Some(since.max(now));
        }
        self.best.add(seen.rate, seen.limited);
        self.ceiling.quiet_round(seen.start, self.limits.max_requests);
        let Some(latency) = seen.latency else { return };
        if matches!(self.phase, Phase::Draining(_)) {
            return;
        }
        self.latency = latency;
        if self.delay == 0.0 {
            self.delay = latency;
        } else if latency < self.delay {
            // Half way: one lucky round does not shrink the window, a shorter route does within a few.
            self.delay = f64::midpoint(self.delay, latency);
        }
        if latency <= CONFIRMED * self.delay {
            self.confirmed_at = now;
        }
        match &mut self.phase {
            Phase::Starting { best, flat } if !seen.limited => {
                if seen.rate > RISE * *best {
                    (*best, *flat) = (seen.rate, 0);
                } else {
                    *flat += 1;
                }
                if *flat >= FLAT_ROUNDS {
                    self.drain(now, DRAIN_AFTER_START, seen.rate);
                }
            }
            Phase::Steady => {
                self.resize();
                let waited = |since: f64, (seconds, latencies): (f64, f64)| {
                    now - since > latencies.mul_add(latency, 0.0).max(seconds)
                };
                let suspect =
                    !seen.limited && seen.rate < FALL * self.best.get() && latency > SLOWER * self.delay;
                if suspect && waited(self.drained_at, SUSPECT_EVERY) || waited(self.confirmed_at, DRAIN_EVERY)
                {
                    self.drain(now, DRAIN, seen.rate);
                }
            }
            _ => {}
        }
    }
}
