//! How much may be in flight on a link: the window, found from the link's own answers.
//!
//! The rule is Little's: to keep a link of `rate` bytes a second and `delay` seconds full, `rate x delay` bytes
//! must be in flight. [`Window`] measures both: the rate as the best of the last rounds (`round`), the delay as the
//! mean latency when our own queue is not in the way (`drain`). It keeps twice that in flight, so that a faster
//! link shows itself within a round (the rate doubles, and so the window), and jitter and stragglers find room. It
//! starts small and doubles every round while the rate rises. What the server refuses is a separate limit
//! (`ceiling`), and a server that is not there at all is waited for (`absence`).
//!
//! Beside it: [`Hedge`] (second requests for hung ones), [`SlowStart`] (batches ahead at the beginning of a run) and
//! [`share()`] (ranks of one host). All pure: time is passed in, as [`Duration`] since an arbitrary start.

mod absence;
mod adapt;
mod ceiling;
mod drain;
mod flight;
mod hedge;
#[cfg(test)]
mod made_link;
mod pace;
#[cfg(test)]
mod properties;
mod round;
mod share;
#[cfg(test)]
mod simulate;
mod slow_start;
#[cfg(test)]
mod tests;
mod ticket;

pub use hedge::Hedge;
pub use share::share;
pub use slow_start::SlowStart;
pub use ticket::{End, LinkEstimate, Ticket, WindowLimits};

use absence::Absence;
use ceiling::Ceiling;
use drain::Drain;
use flight::{Flight, Sizes};
use pace::Pace;
use round::{BestRate, Ended, Round, Seen};
use std::time::Duration;

/// The longest pause a server can ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// Range requests: least, most, before anything is known; and the transfer time one should be worth.
const REQUEST_BYTES: (u64, u64, u64) = (256 << 10, 16 << 20, 1 << 20);
const REQUEST_SECONDS: f64 = 0.01;

#[derive(Clone, Debug)]
enum Phase {
    Starting { best: f64, flat: u32 },
    Steady,
    Draining(Drain),
}

/// Decides how much may be in flight on one link.
///
/// At least one request is always allowed, whatever its size, except during a pause: one that the server asked for, or
/// one between two requests that ask whether it is back.
#[derive(Clone, Debug)]
pub struct Window {
    limits: WindowLimits,
    phase: Phase,
    /// The window in bytes, before floors and limits.
    size: f64,
    flight: Flight,
    round: Round,
    best: BestRate,
    ceiling: Ceiling,
    absence: Absence,
    /// Seconds; 0 while unknown.
    delay: f64,
    /// Latency of the last round, queue included.
    latency: f64,
    sizes: Sizes,
    confirmed_at: f64,
    drained_at: f64,
    drains: u32,
    pace: Pace,
    /// When the pace lets the next request start, if that is what held the last one back.
    paced_until: Option<f64>,
    paused_until: Option<Duration>,
    /// Since when there is room that nobody has asked for.
    idle_since: Option<f64>,
}

impl Window {
    /// A window that knows nothing yet.
    pub fn new(limits: WindowLimits) -> Self {
        Self {
            limits,
            phase: Phase::Starting { best: 0.0, flat: 0 },
            size: 0.0,
            flight: Flight::default(),
            round: Round::default(),
            best: BestRate::default(),
            ceiling: Ceiling::default(),
            absence: Absence::default(),
            delay: 0.0,
            latency: 0.0,
            sizes: Sizes::default(),
            confirmed_at: 0.0,
            drained_at: 0.0,
            drains: 0,
            pace: Pace::default(),
            paced_until: None,
            paused_until: None,
            idle_since: None,
        }
    }

    /// Whether a request that will bring `bytes` may start now; if so it counts as in flight.
    pub fn try_start(&mut self, now: Duration, bytes: u64) -> Option<Ticket> {
        if self.paused_until.is_some_and(|until| now < until) {
            self.round.mark_limited();
            return None;
        }
        self.paused_until = None;
        let now = now.as_secs_f64();
        if self.sizes.is_empty() {
            self.sizes.add(bytes);
            self.round = Round::starting_at(now);
            self.size = self.least_bytes();
        }
        self.tend(now);
        if self.absence.is_on() {
            self.round.mark_limited();
            if !self.absence.may_ask(now) {
                return None;
            }
        } else if !self.admits(bytes) || self.must_wait(now) {
            if let Some(since) = self.idle_since.take() {
                self.round.add_idle(now - since);
            }
            return None;
        }
        self.sizes.add(bytes);
        self.pace.spend(bytes);
        self.round.ask(bytes);
        let mark = if let Phase::Draining(drain) = &mut self.phase { drain.mark(now) } else { 0 };
        let number = self.flight.start(now, bytes);
        if self.absence.is_on() {
            self.absence.ask(number);
        }
        Some(Ticket { number, bytes, started: now, in_flight: self.flight.requests(), mark })
    }

    /// The request ended. Must be called once per ticket.
    pub fn finish(&mut self, now: Duration, ticket: Ticket, end: End) {
        let clock = now;
        let now = now.as_secs_f64();
        if self.round.is_over(now, self.delay) {
            if let Some(since) = self.idle_since.replace(now) {
                self.round.add_idle(now - since);
            }
            let seen = self.round.close();
            self.learn(now, seen);
        }
        let busy = self.counted() as f64 >= self.size / 2.0;
        let overdue = self.flight.end(ticket.number, ticket.bytes);
        let mut answer = None;
        match end {
            End::Done { bytes } => {
                let bytes = bytes.max(1) as f64;
                let quick = matches!(self.phase, Phase::Starting { .. });
                let typical = if quick { 0.0 } else { self.sizes.typical() };
                self.round.done(now, Ended { started: ticket.started, bytes, overdue }, typical);
                if quick && busy {
                    self.widen(bytes);
                }
                answer = Some(((now - ticket.started).max(0.0), bytes));
            }
            End::Away => {
                self.round.mark_limited();
                self.absence.missed(now, &ticket);
            }
            End::Throttled { pause } => {
                if self.ceiling.refuse(now, ticket.started, ticket.in_flight) {
                    self.phase = Phase::Steady;
                }
                self.round.mark_limited();
                let until = clock.saturating_add(pause.min(LONGEST_PAUSE));
                self.paused_until = self.paused_until.max(Some(until));
            }
            End::Failed { again } => {
                let part = if self.delay > 0.0 { (now - ticket.started) / self.delay } else { 1.0 };
                let held = part.clamp(0.0, 1.0) * ticket.bytes.max(1) as f64;
                if matches!(self.phase, Phase::Starting { .. }) && busy {
                    self.widen(held);
                }
                if self.round.fail(held, again) {
                    self.ceiling.fail(now, ticket.started, ticket.in_flight);
                }
            }
        }
        let answered = matches!(end, End::Done { .. } | End::Throttled { .. });
        if end != End::Away && self.absence.met(now, &ticket, answered) {
            // What was measured meanwhile is the absence, not the link.
            self.round = Round::starting_at(now);
            self.idle_since = None;
        }
        let counted = self.counted();
        if let Phase::Draining(drain) = &mut self.phase {
            drain.end(ticket.mark, answer, counted);
        }
        self.tend(now);
        self.idle_since = self.idle_since.or(Some(now));
    }

    /// Requests and bytes in flight.
    pub fn in_flight(&self) -> (usize, u64) {
        (self.flight.requests(), self.flight.bytes())
    }

    /// The window now, in bytes.
    pub fn bytes(&self) -> u64 {
        (self.size.max(self.least_bytes()) as u64).min(self.limits.max_bytes)
    }

    /// The window now, in requests of the size they have lately.
    pub fn requests(&self) -> usize {
        if let Some(fixed) = self.limits.fixed_requests {
            return fixed.clamp(1, self.limits.max_requests.max(1));
        }
        let wanted = ((self.size / self.sizes.mean().max(1.0)) as usize).max(self.least_requests());
        wanted.min(self.limits.max_requests).min(self.ceiling.get()).max(1)
    }

    /// How large one range request should be now: several share the window, and each is worth its overhead.
    pub fn request_bytes(&self) -> u64 {
        let (least, most, unknown) = REQUEST_BYTES;
        let rate = self.best.get();
        if rate == 0.0 {
            return unknown;
        }
        let wanted = ((rate * REQUEST_SECONDS).max(self.size / 8.0) as u64).clamp(least, most);
        // A power of two, so that small changes of the estimate do not change how a shard is cut.
        1 << wanted.ilog2()
    }

    /// What is known about the link.
    pub fn estimate(&self) -> LinkEstimate {
        LinkEstimate {
            bytes_per_second: self.best.get(),
            delay: Duration::try_from_secs_f64(self.delay).unwrap_or_default(),
            settled: !matches!(self.phase, Phase::Starting { .. }),
        }
    }

    /// Seconds for which nobody has been at the other end, `None` while somebody is; and of all such times together.
    pub fn away_seconds(&self, now: Duration) -> (Option<f64>, f64) {
        self.absence.seconds(now.as_secs_f64())
    }

    /// When time alone will let more start, after a refusal: the end of a pause the server asked for, the next
    /// time to ask whether it is there, the next start by the pace, or the end of a measurement. Ask again then, or when a request ends, whichever is first.
    pub fn retry_at(&self) -> Option<Duration> {
        let seconds = match (&self.phase, self.paced_until) {
            _ if self.paused_until.is_some() => return self.paused_until,
            _ if self.absence.is_on() => self.absence.asks_at()?,
            (_, Some(paced)) => paced,
            (Phase::Draining(drain), None) => drain.until,
            _ => return None,
        };
        // Rounded up: asking a nanosecond early would be refused again.
        Duration::try_from_secs_f64(seconds).ok().map(|at| at + Duration::from_nanos(1))
    }
}
