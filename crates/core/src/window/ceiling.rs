//! How many requests a server has shown it will bear: lowered by refusals (429, 503), raised again with care.
//!
//! A server's limit is counted in requests, not in bytes, so it is kept apart from the window: the window says what
//! the link can carry, the ceiling what the server answers. After a refusal the ceiling falls below the number that
//! was refused and then rises by steps that start tiny and grow, so a lasting limit is touched once in about fifteen
//! rounds and a passing one is forgotten within thirty.

/// The ceiling after a refusal, as a part of the number of requests that was refused.
const AFTER_REFUSAL: f64 = 0.8;
/// The ceiling after a round in which nearly all requests failed.
const AFTER_FAILURES: f64 = 0.5;
/// First step up after a refusal, as a part of the ceiling; each quiet round's step is larger by `STEP_GROWTH`.
const FIRST_STEP: f64 = 0.0025;
const STEP_GROWTH: f64 = 1.25;
const LARGEST_STEP: f64 = 0.25;

/// The largest number of requests the server bears, as far as is known.
#[derive(Clone, Debug, Default)]
pub(super) struct Ceiling {
    requests: Option<f64>,
    step: f64,
    lowered_at: f64,
}

impl Ceiling {
    /// The ceiling in requests, at least one.
    pub(super) fn get(&self) -> usize {
        self.requests.map_or(usize::MAX, |requests| requests.max(1.0) as usize)
    }

    /// A request that started at `started`, when `in_flight` requests were, has been refused. Says whether the
    /// ceiling fell: refusals of requests sent before it last fell are old news.
    pub(super) fn refuse(&mut self, now: f64, started: f64, in_flight: usize) -> bool {
        self.lower(now, started, AFTER_REFUSAL * in_flight as f64)
    }

    /// Nearly all of a round failed; this one started when `in_flight` requests were.
    pub(super) fn fail(&mut self, now: f64, started: f64, in_flight: usize) -> bool {
        self.lower(now, started, AFTER_FAILURES * in_flight as f64)
    }

    fn lower(&mut self, now: f64, started: f64, to: f64) -> bool {
        if self.requests.is_some() && started <= self.lowered_at {
            return false;
        }
        self.requests = Some(to.min(self.requests.unwrap_or(f64::INFINITY)).max(1.0));
        self.step = FIRST_STEP;
        self.lowered_at = now;
        true
    }

    /// A round went by; it counts when all its requests were sent after the ceiling last fell.
    pub(super) fn quiet_round(&mut self, round_start: f64, most: usize) {
        let Some(requests) = self.requests else { return };
        if round_start < self.lowered_at {
            return;
        }
        // Small ceilings rise by a part of a request at least, or one request would never become two.
        let raised = requests + (requests * self.step).max(0.05 * (self.step / FIRST_STEP).min(4.0));
        self.step = (self.step * STEP_GROWTH).min(LARGEST_STEP);
        self.requests = (raised < most as f64).then_some(raised);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_of_one_burst_lower_the_ceiling_once() {
        let mut ceiling = Ceiling::default();
        assert!(ceiling.refuse(1.0, 0.5, 100));
        assert!(!ceiling.refuse(1.1, 0.9, 90));
        assert_eq!(ceiling.get(), 80);
        assert!(ceiling.refuse(2.0, 1.5, 80));
        assert_eq!(ceiling.get(), 64);
    }

    #[test]
    fn a_passing_refusal_is_forgotten_and_a_lasting_one_is_touched_seldom() {
        let mut ceiling = Ceiling::default();
        ceiling.refuse(1.0, 0.5, 100);
        let mut rounds = 0;
        while ceiling.get() < 100 {
            ceiling.quiet_round(2.0, 2000);
            rounds += 1;
        }
        assert!((10..20).contains(&rounds), "back at the refused number after {rounds} rounds");
        while ceiling.get() < usize::MAX {
            ceiling.quiet_round(2.0, 2000);
            rounds += 1;
        }
        assert!(rounds < 40, "free after {rounds} rounds");
    }
}
