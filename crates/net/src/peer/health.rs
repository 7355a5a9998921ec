//! How long to wait for a peer, and when to leave it alone. Time is what the caller says, since a start of its own.

use forebay_core::window::Hedge;
use std::time::Duration;

/// How many times the usual is too long; `Hedge` itself says twice what nearly all answers take.
const BEYOND: u32 = 2;
/// No answer is worth more: the store is faster by then.
const LONGEST: Duration = Duration::from_secs(10);
/// How long a peer is left alone after it did not answer: at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What is known of one peer's answers.
#[derive(Clone, Debug)]
pub struct Health {
    usual: Hedge,
    first: Duration,
    shortest: Duration,
    failures: u32,
    down_until: Duration,
}

impl Health {
    /// Nothing is known: `first` is the deadline until enough is, `shortest` the least afterwards.
    pub fn new(first: Duration, shortest: Duration) -> Self {
        Self { usual: Hedge::new(1.0), first, shortest, failures: 0, down_until: Duration::ZERO }
    }

    /// How long an answer of so many bytes may take.
    pub fn deadline(&self, bytes: u64) -> Duration {
        match self.usual.delay(bytes) {
            Some(usual) => usual.saturating_mul(BEYOND).clamp(self.shortest, LONGEST.max(self.shortest)),
            None => self.first,
        }
    }

    /// Whether to ask it at all.
    pub fn is_up(&self, now: Duration) -> bool {
        now >= self.down_until
    }

    /// How long it is still left alone.
    pub fn down_for(&self, now: Duration) -> Duration {
        self.down_until.saturating_sub(now)
    }

    /// It answered, after so long.
    pub fn answered(&mut self, bytes: u64, latency: Duration) {
        self.usual.observe(bytes, latency);
        (self.failures, self.down_until) = (0, Duration::ZERO);
    }

    /// It did not answer in time, or is gone. Several requests that fail together count once.
    pub fn failed(&mut self, now: Duration) {
        if self.is_up(now) {
            let pause = FIRST_PAUSE.saturating_mul(1 << self.failures.min(10)).min(LONGEST_PAUSE);
            self.failures += 1;
            self.down_until = now + pause;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORTEST: Duration = Duration::from_millis(200);

    #[test]
    fn p047_a_peer_that_does_not_answer_is_left_alone_for_longer_and_longer() {
        let mut health = Health::new(Duration::from_secs(2), SHORTEST);
        let (mut now, mut asked) = (Duration::ZERO, 0);
        while now < Duration::from_secs(600) {
            if health.is_up(now) {
                asked += 1;
                health.failed(now);
                health.failed(now);
            }
            now += Duration::from_millis(100);
        }
        assert!((20..30).contains(&asked), "asked {asked} times in ten minutes");
        assert!(health.is_up(now + LONGEST_PAUSE));
        health.answered(1000, SHORTEST);
        assert!(health.is_up(now));
    }

    #[test]
    fn p047_answers_may_take_a_few_times_what_is_usual() {
        let mut health = Health::new(Duration::from_secs(2), SHORTEST);
        assert_eq!(health.deadline(1 << 20), Duration::from_secs(2));
        for _ in 0..40 {
            health.answered(1 << 20, Duration::from_millis(1));
        }
        assert_eq!(health.deadline(1 << 20), SHORTEST);
        for _ in 0..200 {
            health.answered(1 << 20, Duration::from_millis(300));
        }
        assert_eq!(health.deadline(1 << 20), Duration::from_millis(1200));
        assert!(health.deadline(u64::MAX) <= LONGEST);
    }
}
