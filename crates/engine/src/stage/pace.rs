//! The limit of bytes a second, as arithmetic: time is passed in, nobody sleeps here.

use std::time::Duration;

/// Time unused that may be caught up at once: enough to bridge a pause between two requests.
const CATCH_UP: Duration = Duration::from_millis(100);

/// Spreads requests so that they ask for no more than a number of bytes a second.
///
/// Over any stretch of time no more is let through than the rate gives in it, a tenth of a second's worth that was left
/// unused before, and one request.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    bytes_per_second: u64,
    /// When all that was let through so far has had its time.
    paid: Duration,
}

impl Pace {
    /// A limit; 0 counts as 1.
    pub fn new(bytes_per_second: u64) -> Self {
        Self { bytes_per_second: bytes_per_second.max(1), paid: Duration::ZERO }
    }

    /// How long whoever asks for `bytes` at `now` has to wait first. Times count from one moment, whichever.
    pub fn take(&mut self, now: Duration, bytes: u64) -> Duration {
        let begin = self.paid.max(now.saturating_sub(CATCH_UP));
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second);
        self.paid = begin + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        begin.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn p049_a_second_is_worth_so_many_bytes() {
        let mut pace = Pace::new(1000);
        assert_eq!(pace.take(SECOND, 500), Duration::ZERO);
        assert_eq!(pace.take(SECOND, 500), Duration::from_millis(400), "a tenth of a second was caught up");
        assert_eq!(pace.take(2 * SECOND, 1000), Duration::ZERO);
        assert_eq!(pace.take(100 * SECOND, 1000), Duration::ZERO);
        assert_eq!(pace.take(100 * SECOND, 1), Duration::from_millis(900), "a long pause is not saved up");
    }

    proptest! {
        #[test]
        fn p049_no_stretch_of_time_sees_more_than_the_rate(
            asks in prop::collection::vec((0u64..500, 1u64..5000), 1..60),
            rate in 1u64..10_000,
        ) {
            let (mut pace, mut now, mut let_through) = (Pace::new(rate), Duration::ZERO, Vec::new());
            for (pause, bytes) in asks {
                now += Duration::from_millis(pause);
                now += pace.take(now, bytes);
                let_through.push((now, bytes));
            }
            for from in 0..let_through.len() {
                let mut sum = 0;
                for (at, bytes) in &let_through[from..] {
                    let stretch = (at.saturating_sub(let_through[from].0) + CATCH_UP).as_secs_f64();
                    // What stood before this request had to fit; the request itself then has its own time.
                    prop_assert!(sum as f64 <= stretch * rate as f64 + 1.0, "{sum} in {stretch} s");
                    sum += bytes;
                }
            }
        }
    }
}
