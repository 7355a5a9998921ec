//! When bytes arrive at the other end of a long line: pure decisions in virtual time, no clock and no socket.
//!
//! A [`Link`] is one direction of the line, shared by all connections: bytes pass one after the other at its rate. A
//! [`Lane`] is one direction of one connection: its own rate, its delay, and its bad luck. A moment is computed when
//! bytes come in, never by sleeping for each piece, so a timer that fires late delays a piece but costs no rate.

#[cfg(test)]
mod tests;

use forebay_core::rng::Rng;
use std::time::Duration;

/// Nanoseconds since the line was opened.
pub type Nanos = u64;

/// Where the delay of a round trip lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DelayOn {
    /// Half on the way to the server, half on the way back.
    #[default]
    BothWays,
    /// All of it on the way back.
    Answers,
}

/// What a stall is drawn for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StallOn {
    /// Each piece on the way to the server: with HTTP, where the next request follows an answer, each request.
    #[default]
    Requests,
    /// Each piece on the way back.
    Answers,
}

/// The way that bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To the server.
    Up,
    /// To the client.
    Down,
}

/// The line. The default is a line that changes nothing.
#[derive(Clone, Debug)]
pub struct WanOptions {
    /// Delay of a round trip. A new connection costs one more, as a TCP handshake does.
    pub round_trip: Duration,
    /// Where that delay lies.
    pub delay_on: DelayOn,
    /// Bytes a second of the whole line, for each direction; 0 for no cap.
    pub bytes_per_second: u64,
    /// Bytes a second of each connection, for each direction; 0 for no cap.
    pub connection_bytes_per_second: u64,
    /// Up to so much is added to each delay. Bytes of one connection never overtake each other.
    pub jitter: Duration,
    /// Share of pieces that are held up.
    pub stall_share: f64,
    /// For how long. What follows on the same connection waits too, as behind a lost packet.
    pub stall: Duration,
    /// Which pieces can be held up.
    pub stall_on: StallOn,
    /// Share of the pieces on the way back in whose middle the connection is reset.
    pub cut_share: f64,
    /// Decides jitter, stalls and cuts: the same for the same connection number and piece.
    pub seed: u64,
    /// Bytes that may wait for the line, beyond those on their way; then senders have to wait.
    pub queue_bytes: u64,
}

impl Default for WanOptions {
    fn default() -> Self {
        Self {
            round_trip: Duration::ZERO,
            delay_on: DelayOn::default(),
            bytes_per_second: 0,
            connection_bytes_per_second: 0,
            jitter: Duration::ZERO,
            stall_share: 0.0,
            stall: Duration::ZERO,
            stall_on: StallOn::default(),
            cut_share: 0.0,
            seed: 0,
            queue_bytes: 32 << 20,
        }
    }
}

impl WanOptions {
    /// Most bytes taken at once: a thousandth of a second of the slower cap, so that small rates stay smooth.
    pub fn piece_bytes(&self) -> usize {
        let rates = [self.bytes_per_second, self.connection_bytes_per_second];
        let slowest = rates.into_iter().filter(|rate| *rate > 0).min().unwrap_or(u64::MAX);
        (slowest / 1000).clamp(4 << 10, 128 << 10) as usize
    }

    /// Bytes that one of `active` connections may have under way: twice its fair part, and never nothing, so that
    /// connections nobody reads from cannot stop the others.
    pub fn connection_bytes(&self, active: usize) -> u64 {
        let on_the_way = u128::from(self.bytes_per_second) * self.round_trip.as_nanos() / 1_000_000_000;
        let all = self.queue_bytes.saturating_add(on_the_way as u64);
        (all.saturating_mul(2) / active.max(1) as u64).max(256 << 10)
    }
}

/// One direction of the line, shared by all its connections.
#[derive(Clone, Debug)]
pub struct Link {
    rate: u64,
    queue: Nanos,
    free: Nanos,
}

impl Link {
    /// A free line.
    pub fn new(options: &WanOptions) -> Self {
        let rate = options.bytes_per_second;
        Self { rate, queue: passing(options.queue_bytes, rate), free: 0 }
    }

    /// When the queue has room for more.
    pub fn ready_at(&self, now: Nanos) -> Nanos {
        if self.rate == 0 { now } else { now.max(self.free.saturating_sub(self.queue)) }
    }

    /// Lets bytes pass behind all that came before; returns when the last of them has left.
    fn pass(&mut self, now: Nanos, bytes: usize) -> Nanos {
        self.free = self.free.max(now) + passing(bytes as u64, self.rate);
        self.free
    }
}

/// What becomes of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    /// When it comes out at the other end.
    pub release: Nanos,
    /// It was held up.
    pub stalled: bool,
    /// Half of it comes out, then the connection is reset.
    pub cut: bool,
}

/// One direction of one connection.
#[derive(Clone, Debug)]
pub struct Lane {
    rate: u64,
    delay: Nanos,
    jitter: Nanos,
    stall: Nanos,
    stall_share: f64,
    cut_share: f64,
    opened: Nanos,
    free: Nanos,
    last: Nanos,
    rng: Rng,
}

/// A connection with a cap of its own is read this far ahead of it, so that late timers do not slow it down.
const AHEAD: Nanos = 20_000_000;

impl Lane {
    /// The lane of connection number `connection`, accepted at `now`.
    pub fn new(options: &WanOptions, way: Way, connection: u64, now: Nanos) -> Self {
        let round_trip = options.round_trip.as_nanos() as Nanos;
        let there = if options.delay_on == DelayOn::BothWays { round_trip / 2 } else { 0 };
        let stalls = (way == Way::Up) == (options.stall_on == StallOn::Requests);
        Self {
            rate: options.connection_bytes_per_second,
            delay: if way == Way::Up { there } else { round_trip - there },
            jitter: options.jitter.as_nanos() as Nanos,
            stall: options.stall.as_nanos() as Nanos,
            stall_share: if stalls { options.stall_share } else { 0.0 },
            cut_share: if way == Way::Down { options.cut_share } else { 0.0 },
            // The relay accepts at once; the client of a real line may send only after a round trip.
            opened: now + if way == Way::Up { round_trip } else { 0 },
            free: 0,
            last: 0,
            rng: Rng::keyed(options.seed, connection, way as u64),
        }
    }

    /// When the lane's own cap lets it take more from its sender.
    pub fn ready_at(&self, now: Nanos) -> Nanos {
        if self.rate == 0 { now } else { now.max(self.free.saturating_sub(AHEAD)) }
    }

    /// Takes a piece that came in at `now`.
    pub fn send(&mut self, link: &mut Link, now: Nanos, bytes: usize) -> Passage {
        self.free = self.free.max(now) + passing(bytes as u64, self.rate);
        let left = link.pass(now, bytes).max(self.free).max(self.opened);
        let jitter = if self.jitter > 0 { self.rng.below(self.jitter + 1) } else { 0 };
        let stalled = self.stall_share > 0.0 && self.rng.chance(self.stall_share);
        let cut = self.cut_share > 0.0 && self.rng.chance(self.cut_share);
        let held = if stalled { self.stall } else { 0 };
        self.last = self.last.max(left + self.delay + jitter + held);
        Passage { release: self.last, stalled, cut }
    }
}

/// How long bytes take at a rate; no time at all when there is no cap.
pub(crate) fn passing(bytes: u64, rate: u64) -> Nanos {
    if rate == 0 { 0 } else { (u128::from(bytes) * 1_000_000_000 / u128::from(rate)) as Nanos }
}
