//! A short drain of the link, to see its delay without the queue our own window keeps there.
//!
//! While the window is larger than bandwidth times delay, every request also waits in a queue, and latency only
//! says how large the window is. So now and then less than the link holds is kept in flight until the queue is
//! gone, and then the latency of the first few requests, the cohort, is the link's own delay. All of the cohort are
//! waited for, not the first answers: those would be the lucky ones.

/// Fewest and most requests whose latency is taken.
const COHORT: (f64, f64) = (2.0, 16.0);
/// A request this much slower than the middle one of the cohort is a straggler and left out.
const STRAGGLER: f64 = 3.0;
/// A drain lasts at most this many of the latencies seen before it, plus `GRACE_SECONDS`.
const LONGEST: f64 = 3.0;
const GRACE_SECONDS: f64 = 0.05;

/// A drain under way.
#[derive(Clone, Debug)]
pub(super) struct Drain {
    /// Marks the requests of this drain's cohort.
    number: u32,
    /// Bytes that may be in flight.
    pub(super) target: f64,
    /// When to give up waiting for the cohort.
    pub(super) until: f64,
    reached: bool,
    cohort: usize,
    started: usize,
    ended: usize,
    last_start: f64,
    /// Latency and bytes of each of the cohort that ended well.
    samples: Vec<(f64, f64)>,
}

impl Drain {
    /// A drain to `target` bytes, of requests that are `typical` bytes large and took `latency` until now.
    pub(super) fn new(number: u32, now: f64, target: f64, typical: f64, latency: f64) -> Self {
        let target = target.max(typical);
        Self {
            number,
            target,
            until: now + LONGEST * latency + GRACE_SECONDS,
            reached: false,
            cohort: (target / typical.max(1.0)).clamp(COHORT.0, COHORT.1) as usize,
            started: 0,
            ended: 0,
            last_start: 0.0,
            samples: Vec::new(),
        }
    }

    /// The mark of a request that starts now; 0 when it is not of the cohort.
    pub(super) fn mark(&mut self, now: f64) -> u32 {
        if !self.reached || self.started == self.cohort {
            return 0;
        }
        self.started += 1;
        self.last_start = now;
        self.number
    }

    /// A request ended, and `counted` bytes remain in flight; `answer` is its latency and bytes if it ended well.
    pub(super) fn end(&mut self, mark: u32, answer: Option<(f64, f64)>, counted: u64) {
        if mark == self.number {
            self.ended += 1;
            self.samples.extend(answer);
        }
        self.reached |= counted as f64 <= self.target;
    }

    /// Over when the cohort has ended, or all of it that is not hanging, or when it takes too long.
    pub(super) fn is_over(&self, now: f64) -> bool {
        if self.ended == self.cohort || now >= self.until {
            return true;
        }
        if self.started < self.cohort || self.samples.len() * 4 < self.cohort * 3 {
            return false;
        }
        let mean = self.samples.iter().map(|(latency, _)| latency).sum::<f64>() / self.samples.len() as f64;
        now > self.last_start + 2.0 * mean
    }

    /// The delay seen; `None` when too few of the cohort ended.
    pub(super) fn delay(&mut self) -> Option<f64> {
        if self.samples.is_empty() || self.samples.len() < self.cohort / 2 {
            return None;
        }
        self.samples.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let limit = STRAGGLER * self.samples[(self.samples.len() - 1) / 2].0;
        let kept = self.samples.iter().filter(|(latency, _)| *latency <= limit);
        let (sum, bytes) =
            kept.fold((0.0, 0.0), |(sum, all), (latency, bytes)| (sum + latency * bytes, all + bytes));
        (bytes > 0.0).then(|| sum / bytes)
    }
}
