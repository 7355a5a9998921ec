//! Starts are spread in time, so that a burst of completions does not become a burst of requests.
//!
//! Requests that share a link evenly and start together also end together; started again at once they would leave the
//! link empty for a whole delay in every cycle, however large the window. Spread starts take that rhythm away.

/// Starts may run ahead of the pace by this part of the delay, and by this many seconds: timers are late.
const AHEAD: (f64, f64) = (1.0 / 8.0, 0.002);

/// Bytes that may be asked for now, refilled at a pace.
#[derive(Clone, Debug, Default)]
pub(super) struct Pace {
    /// Below zero after a request larger than what was left.
    credit: f64,
    at: f64,
}

impl Pace {
    /// When the next request may start, at `rate` bytes a second; `None` when it may now.
    pub(super) fn wait(&mut self, now: f64, rate: f64, delay: f64) -> Option<f64> {
        let ahead = rate * (AHEAD.0 * delay).max(AHEAD.1);
        self.credit = (self.credit + (now - self.at).max(0.0) * rate).min(ahead);
        self.at = now;
        (self.credit < 0.0).then(|| now - self.credit / rate)
    }

    /// A request for `bytes` starts.
    pub(super) fn spend(&mut self, bytes: u64) {
        self.credit -= bytes as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_keep_the_pace_and_late_timers_catch_up() {
        let (mut pace, mut started) = (Pace::default(), 0u32);
        for millisecond in 0..1000 {
            while pace.wait(f64::from(millisecond) * 0.001, 1e6, 0.1).is_none() {
                pace.spend(1000);
                started += 1;
            }
        }
        assert!((990..=1030).contains(&started), "{started} requests of 1 kB in a second at 1 MB/s");
        assert!(pace.wait(100.0, 1e6, 0.1).is_none());
        assert_eq!(pace.credit, 12_500.0, "a long rest earns an eighth of the delay, no more");
    }
}
