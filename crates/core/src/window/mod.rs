//! How much may be in flight on a link: the window, found from the link's own answers.
//!
//! The rule is Little's: to keep a link of `rate` bytes a second and `delay` seconds full, `rate x delay` bytes must be
//! in flight. [`Window`] measures both: the rate as the best of the last rounds (`round`), the delay as the mean latency
//! when our own queue is not in the way (`drain`). It keeps twice that in flight, so that a faster
//! link shows itself within a round (the rate doubles, and so the window), and jitter and stragglers find room. It starts
//! small and doubles every round while the rate rises. What the server refuses is a separate limit (`ceiling`).
//!
//! Beside it: [`Hedge`] (second requests for hung ones), [`SlowStart`] (batches ahead at the beginning of a run) and
//! [`share()`] (ranks of one host). All pure: time is passed in, as [`Duration`] since an arbitrary start.

mod adapt;
mod ceiling;
mod drain;
mod flight;
mod hedge;
mod round;
mod share;
#[cfg(test)]
mod simulate;
mod slow_start;
#[cfg(test)]
mod tests;

pub use hedge::Hedge;
pub use share::share;
pub use slow_start::SlowStart;

use ceiling::Ceiling;
use drain::Drain;
use flight::Flight;
use round::{BestRate, Ended, Round, Seen};
use std::time::Duration;

/// Window in steady state, in units of rate x delay.
const GAIN: f64 = 2.0;
/// Bound of the window while it doubles: the rate is known one round late, and three times is never exceeded.
const START_GAIN: f64 = 2.8;
/// The start is over after this many rounds whose rate rose by less than `RISE`.
const FLAT_ROUNDS: u32 = 3;
const RISE: f64 = 1.2;
/// What a drain leaves in flight, in units of rate x delay: at the end of the start, and later.
const DRAIN_AFTER_START: f64 = 0.5;
const DRAIN: f64 = 0.75;
/// A full round below this part of the best rate, with latency above this many delays, may mean a changed route.
const FALL: f64 = 0.75;
const SLOWER: f64 = 1.25;
/// Seconds, and latencies, from one drain to the next: on suspicion, and without.
const SUSPECT_EVERY: (f64, f64) = (1.0, 8.0);
const DRAIN_EVERY: (f64, f64) = (10.0, 40.0);
/// A round whose latency is within this many delays confirms the delay.
const CONFIRMED: f64 = 1.15;
/// A request is overdue after this many delays, this many latencies of the last round, and this many seconds.
const OVERDUE: (f64, f64, f64) = (4.0, 3.0, 0.05);
/// Delays below this are our own scheduling, not the link.
const LEAST_DELAY: f64 = 0.001;
/// Requests of at most this size are tiny: four of them are always allowed, two of larger ones.
const TINY: f64 = 256.0 * 1024.0;
/// The longest pause a server can ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// Range requests: least, most, before anything is known; and the transfer time one should be worth.
const REQUEST_BYTES: (u64, u64, u64) = (256 << 10, 16 << 20, 1 << 20);
const REQUEST_SECONDS: f64 = 0.01;

/// Hard limits of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowLimits {
    /// Bytes in flight; a single larger request is still let through, alone.
    pub max_bytes: u64,
    /// Requests in flight, which is connections where one carries one request at a time.
    pub max_requests: usize,
    /// Requests in flight set by hand: nothing adapts, and pauses asked for by the server are still kept.
    pub fixed_requests: Option<usize>,
}

/// A request in flight; given back by [`Window::finish`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ticket {
    number: u64,
    bytes: u64,
    started: f64,
    in_flight: usize,
    mark: u32,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All its bytes came.
    Done {
        /// How many they were.
        bytes: u64,
    },
    /// The server refused it for now (429, 503) and asked for a pause; zero when it named none.
    Throttled {
        /// Nothing may start for this long.
        pause: Duration,
    },
    /// It failed for a reason that says nothing about load, or was cancelled.
    Failed,
}

/// What is known about the link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkEstimate {
    /// Bytes a second it delivers; 0 while unknown.
    pub bytes_per_second: f64,
    /// Latency of a request when nothing of ours queues on the link, its own transfer included; zero while unknown.
    pub delay: Duration,
    /// The start is over: the rate no longer rises with the window.
    pub settled: bool,
}

#[derive(Clone, Debug)]
enum Phase {
    Starting { best: f64, flat: u32 },
    Steady,
    Draining(Drain),
}

/// Decides how much may be in flight on one link.
///
/// At least one request is always allowed, whatever its size, except during a pause the server asked for.
#[derive(Clone, Debug)]
pub struct Window {
    limits: WindowLimits,
    phase: Phase,
    window: f64,
    flight: Flight,
    round: Round,
    best: BestRate,
    ceiling: Ceiling,
    /// Seconds; 0 while unknown.
    delay: f64,
    /// Latency of the last round, queue included.
    latency: f64,
    /// Mean bytes of a request, lately.
    typical: f64,
    confirmed_at: f64,
    drained_at: f64,
    drains: u32,
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
            window: 0.0,
            flight: Flight::default(),
            round: Round::default(),
            best: BestRate::default(),
            ceiling: Ceiling::default(),
            delay: 0.0,
            latency: 0.0,
            typical: 0.0,
            confirmed_at: 0.0,
            drained_at: 0.0,
            drains: 0,
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
        if self.typical == 0.0 {
            self.typical = bytes.max(1) as f64;
            self.round = Round::starting_at(now);
            self.window = self.least_requests() as f64 * self.typical;
        }
        self.tend(now);
        if !self.admits(bytes) {
            if let Some(since) = self.idle_since.take() {
                self.round.add_idle(now - since);
            }
            return None;
        }
        self.typical += (bytes.max(1) as f64 - self.typical) / 16.0;
        let mark = if let Phase::Draining(drain) = &mut self.phase { drain.mark() } else { 0 };
        let number = self.flight.start(now, bytes);
        Some(Ticket { number, bytes, started: now, in_flight: self.flight.requests(), mark })
    }

    /// The request ended. Must be called once per ticket.
    pub fn finish(&mut self, now: Duration, ticket: Ticket, end: End) {
        let clock = now;
        let now = now.as_secs_f64();
        if self.round.is_over(now, self.delay) {
            let seen = self.round.close();
            self.learn(now, seen);
        }
        let busy = self.counted() as f64 >= self.window / 2.0;
        let overdue = self.flight.end(ticket.number, ticket.bytes);
        let mut answer = None;
        match end {
            End::Done { bytes } => {
                let bytes = bytes.max(1) as f64;
                let quick = matches!(self.phase, Phase::Starting { .. });
                self.round.done(now, Ended { started: ticket.started, bytes, overdue }, quick);
                if quick && busy {
                    self.widen(bytes);
                }
                answer = Some(((now - ticket.started).max(0.0), bytes));
            }
            End::Throttled { pause } => {
                if self.ceiling.refuse(now, ticket.started, ticket.in_flight) {
                    self.phase = Phase::Steady;
                }
                self.round.mark_limited();
                let until = clock.saturating_add(pause.min(LONGEST_PAUSE));
                self.paused_until = self.paused_until.max(Some(until));
            }
            End::Failed => {
                if self.round.fail() {
                    self.ceiling.fail(now, ticket.started, ticket.in_flight);
                }
            }
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
        let least = self.least_requests() as f64 * self.typical;
        (self.window.max(least) as u64).min(self.limits.max_bytes)
    }

    /// The window now, in requests of the size they have lately.
    pub fn requests(&self) -> usize {
        if let Some(fixed) = self.limits.fixed_requests {
            return fixed.clamp(1, self.limits.max_requests.max(1));
        }
        let wanted = ((self.window / self.typical.max(1.0)) as usize).max(self.least_requests());
        wanted.min(self.limits.max_requests).min(self.ceiling.get()).max(1)
    }

    /// How large one range request should be now: several share the window, and each is worth its overhead.
    pub fn request_bytes(&self) -> u64 {
        let (least, most, unknown) = REQUEST_BYTES;
        let rate = self.best.get();
        if rate == 0.0 {
            return unknown;
        }
        let wanted = ((rate * REQUEST_SECONDS).max(self.window / 8.0) as u64).clamp(least, most);
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

    /// When time alone will let more start: the end of a pause the server asked for, or of a measurement. Ask again then, or when
    /// a request ends, whichever is first.
    pub fn retry_at(&self) -> Option<Duration> {
        match &self.phase {
            _ if self.paused_until.is_some() => self.paused_until,
            Phase::Draining(drain) => Duration::try_from_secs_f64(drain.until).ok(),
            _ => None,
        }
    }
}
