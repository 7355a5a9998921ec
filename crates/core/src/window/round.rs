//! One round of a link: what was delivered between two completions that lie at least one request's life apart.
//!
//! Rates are taken over whole rounds, never over single requests, because a burst of completions in one instant
//! (a late timer, many answers in one packet train) would make a single request look as fast as the whole burst.
//! A round is closed by the first completion *after* the burst that ended it, so a burst is never cut in two.

/// Typical requests' bytes a round needs in steady state: with fewer, half-done requests at its two ends blur the
/// rate.
const ENOUGH_REQUESTS: f64 = 8.0;
/// Completions closer than this part of the delay belong to one burst.
const BURST_SHARE: f64 = 1.0 / 32.0;
/// A round with more room left unused than this part of it says what was wanted, not what the link can do.
const IDLE_SHARE: f64 = 0.1;
/// More overdue bytes than this part of a round are no longer stragglers.
const OVERDUE_SHARE: f64 = 0.25;
/// So many requests must fail again, and so many for each that ends well, before the server is thought to be failing. One
/// that fails each request once and answers the second try is not: sparing it would only make everyone wait. First tries
/// are not counted for that reason: while the window grows, more of them fail in a round than second tries can end.
const MANY_FAILURES: u32 = 16;
const FAILURES_TO_ONE: u32 = 4;

/// What a closed round says about the link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// Bytes a second delivered, and those that failed requests took the place of.
    pub(super) rate: f64,
    /// Mean seconds a byte waited from the start of its request to its end; `None` when nothing usable ended.
    pub(super) latency: Option<f64>,
    /// The window was not what held the rate down.
    pub(super) limited: bool,
    /// When the round started, and how long it was.
    pub(super) start: f64,
    pub(super) seconds: f64,
    /// Requests that ended well in it, and bytes asked for.
    pub(super) done: u32,
    pub(super) asked: f64,
}

/// The round now running. Times are seconds since an arbitrary start.
#[derive(Clone, Debug, Default)]
pub(super) struct Round {
    start: f64,
    last: f64,
    asked: f64,
    bytes: f64,
    /// Latency times bytes, and bytes: of requests in time, and of overdue ones.
    in_time: [f64; 2],
    overdue: [f64; 2],
    done: u32,
    failed_again: u32,
    idle: f64,
    /// When the round became long enough; it is closed by the next completion after this burst.
    full_at: Option<f64>,
    limited: bool,
}

/// One request that ended well.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub(super) started: f64,
    pub(super) bytes: f64,
    /// It took so long that it says nothing about the link.
    pub(super) overdue: bool,
}

impl Round {
    pub(super) fn starting_at(now: f64) -> Self {
        Self { start: now, last: now, ..Self::default() }
    }

    /// Something other than the window held requests back in this round.
    pub(super) fn mark_limited(&mut self) {
        self.limited = true;
    }

    /// A request for `bytes` started.
    pub(super) fn ask(&mut self, bytes: u64) {
        self.asked += bytes.max(1) as f64;
    }

    /// Room in the window went unused for this long.
    pub(super) fn add_idle(&mut self, seconds: f64) {
        self.idle += seconds;
    }

    /// Counts a failed request; true when nearly all of the round's second tries have failed.
    ///
    /// `held` is what it asked for, times the part of a delay that it was in flight: its place in the window was used
    /// as that of a request that brought so much. Without it half of the requests failing would halve the rate, hence the
    /// window, hence the rate again.
    pub(super) fn fail(&mut self, held: f64, again: bool) -> bool {
        self.bytes += held;
        self.failed_again += u32::from(again);
        again
            && self.failed_again >= MANY_FAILURES
            && self.failed_again > FAILURES_TO_ONE.saturating_mul(self.done)
    }

    /// Overdue requests are left out while they are few; when many are, that is what the link is like now.
    fn latency(&self) -> Option<f64> {
        let ([in_time, bytes], [overdue, overdue_bytes]) = (self.in_time, self.overdue);
        let total = bytes + overdue_bytes;
        if overdue_bytes > OVERDUE_SHARE * total {
            return Some((in_time + overdue) / total);
        }
        (bytes > 0.0).then(|| in_time / bytes)
    }

    /// Whether the round was already long enough and `now` lies outside the burst that ended it.
    pub(super) fn is_over(&self, now: f64, delay: f64) -> bool {
        self.full_at.is_some_and(|full| now > full + delay * BURST_SHARE)
    }

    /// Closes the round; the next one starts where this one's last completion was.
    pub(super) fn close(&mut self) -> Seen {
        let elapsed = (self.last - self.start).max(1e-9);
        let seen = Seen {
            rate: self.bytes / elapsed,
            latency: self.latency(),
            limited: self.limited || self.idle > IDLE_SHARE * elapsed,
            start: self.start,
            seconds: elapsed,
            done: self.done,
            asked: self.asked,
        };
        *self = Self::starting_at(self.last);
        seen
    }

    /// Counts a request that ended well, where requests are `typical` bytes large; 0 for a round as short as can be.
    pub(super) fn done(&mut self, now: f64, ended: Ended, typical: f64) {
        self.bytes += ended.bytes;
        self.done += 1;
        self.last = now;
        let sum = if ended.overdue { &mut self.overdue } else { &mut self.in_time };
        sum[0] += (now - ended.started).max(0.0) * ended.bytes;
        sum[1] += ended.bytes;
        let enough = self.bytes >= ENOUGH_REQUESTS * typical;
        if self.full_at.is_none() && enough && ended.started >= self.start && now > self.start {
            self.full_at = Some(now);
        }
    }
}

/// The best rate of the last rounds, each taken together with those just before it.
///
/// Completions come in waves: what ends in one round may have been carried in the round before. Over two or three
/// rounds that evens out, and the best of many no longer picks the crest of a wave. And when a window shrinks, more
/// ends than is asked for until the queue is gone; so the smaller of both is what the link carries for long.
#[derive(Clone, Debug, Default)]
pub(super) struct BestRate {
    best: [f64; BestRate::ROUNDS],
    next: usize,
    /// Bytes that came, bytes asked for, and seconds of the last rounds, newest first.
    last: [[f64; 3]; 3],
}

impl BestRate {
    const ROUNDS: usize = 10;

    pub(super) fn get(&self) -> f64 {
        self.best.iter().copied().fold(0.0, f64::max)
    }

    /// The rate of the last `rounds` rounds together, at most three.
    pub(super) fn mean(&self, rounds: usize) -> f64 {
        let sum = |part: usize| self.last[..rounds].iter().map(|round| round[part]).sum::<f64>();
        if sum(2) > 0.0 { sum(0).min(sum(1)) / sum(2) } else { 0.0 }
    }

    /// Counts a round, together with up to `rounds - 1` before it. A round of little demand may show that the link is
    /// faster than thought, never that it is slower.
    pub(super) fn add(&mut self, seen: Seen, rounds: usize) {
        if seen.limited && seen.rate <= self.get() {
            return;
        }
        self.last = [[seen.rate * seen.seconds, seen.asked, seen.seconds], self.last[0], self.last[1]];
        self.best[self.next] = self.mean(rounds);
        self.next = (self.next + 1) % Self::ROUNDS;
    }

    /// Forgets all but the rate of the last three rounds.
    pub(super) fn settle(&mut self) {
        let rate = self.mean(3);
        if rate > 0.0 {
            self.best = [0.0; Self::ROUNDS];
            self.best[0] = rate;
            self.next = 1;
        }
    }

    /// Rounds before now and after are not to be taken together.
    pub(super) fn cut(&mut self) {
        self.last = Default::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(started: f64) -> Ended {
        Ended { started, bytes: 100.0, overdue: false }
    }

    #[test]
    fn a_burst_of_completions_belongs_to_one_round() {
        let mut round = Round::starting_at(0.0);
        for _ in 0..20 {
            assert!(!round.is_over(1.0, 1.0), "the burst is not over");
            round.done(1.0, ended(0.0), 100.0);
        }
        assert!(round.is_over(2.0, 1.0));
        let seen = round.close();
        assert_eq!(seen.rate, 2000.0);
        assert_eq!(seen.latency, Some(1.0));
    }

    #[test]
    fn a_limited_round_never_lowers_the_rate() {
        let seen = |rate, limited| Seen {
            rate,
            latency: None,
            limited,
            start: 0.0,
            seconds: 1.0,
            done: 8,
            asked: 100.0,
        };
        let mut best = BestRate::default();
        best.add(seen(50.0, false), 3);
        for _ in 0..100 {
            best.add(seen(10.0, true), 3);
        }
        assert_eq!(best.get(), 50.0);
        best.add(seen(70.0, true), 2);
        assert_eq!(best.get(), 60.0, "the mean of two rounds");
        for _ in 0..BestRate::ROUNDS + 2 {
            best.add(seen(20.0, false), 3);
        }
        assert_eq!(best.get(), 20.0, "full rounds do");
    }
}
