//! When the number of workers that is wanted is set where they run, such as in a Kubernetes Deployment.
//!
//! [`Scaler`](super::Scaler) says how many workers there should be, [`Actor`] whether that is reason to change how many
//! are asked for. The two numbers differ by those that are on their way: new ones start, those that were told to leave
//! finish what they have, one that crashed comes back. None of that may be taken for a wish. So more are asked for
//! only when all that were asked for are there and more than these are wanted, fewer only when fewer than those that
//! are there are wanted, and after a change nothing more until it shows or long enough has passed. Somebody else may
//! change the number too: it is read before every change, theirs stands until another is wanted, and 0 means that
//! nothing is to be done.
//!
//! Who reads and sets the number is no concern of it.

use super::{ScaleSettings, Wanted, Why};

/// How often the number is read when nothing is to be changed: somebody else may have changed it.
const LOOK_MS: u64 = 30_000;

/// How long a change may take to show: until then workers start, or finish what they have.
const PATIENCE_MS: u64 = 60_000;

/// Pauses after failures, from the first to the longest.
const PAUSE_MS: u64 = 1000;
const LONGEST_PAUSE_MS: u64 = 60_000;

/// The machine. Times are milliseconds of a clock that never goes back.
#[derive(Clone, Debug)]
pub struct Actor {
    least: u64,
    most: u64,
    /// How many were asked for when that was last read or set.
    known: Option<u64>,
    /// Our last change, and when it was made.
    last: Option<(u64, u64)>,
    next_look: u64,
    not_before: u64,
    failures: u32,
}

impl Actor {
    /// Nothing is known yet. It never asks for fewer workers than one: without any, nobody would find out that some
    /// are wanted.
    pub fn new(settings: &ScaleSettings) -> Self {
        let least = settings.least_workers.max(1);
        Self {
            least,
            most: settings.most_workers.max(least),
            known: None,
            last: None,
            next_look: 0,
            not_before: 0,
            failures: 0,
        }
    }

    /// Whether it is time to read how many workers are asked for, and then to [`Self::decide`].
    pub fn is_due(&self, now: u64, wanted: &Wanted) -> bool {
        now >= self.not_before
            && (now >= self.next_look
                || self.known.is_some_and(|asked| self.choose(now, wanted, asked).is_some()))
    }

    /// That many workers are asked for: the number to set instead, if any.
    pub fn decide(&mut self, now: u64, wanted: &Wanted, asked: u64) -> Option<u64> {
        (self.known, self.failures) = (Some(asked), 0);
        self.next_look = now.saturating_add(LOOK_MS);
        self.choose(now, wanted, asked)
    }

    /// It was set.
    pub fn was_set(&mut self, now: u64, asked: u64) {
        (self.known, self.last) = (Some(asked), Some((asked, now)));
    }

    /// It could not be read or set. Milliseconds until the next try.
    pub fn failed(&mut self, now: u64) -> u64 {
        let pause = PAUSE_MS.saturating_mul(1 << self.failures.min(20)).min(LONGEST_PAUSE_MS);
        self.failures = self.failures.saturating_add(1);
        self.not_before = now.saturating_add(pause);
        // What was known may not hold any more.
        (self.known, self.next_look) = (None, self.not_before);
        pause
    }

    fn choose(&self, now: u64, wanted: &Wanted, asked: u64) -> Option<u64> {
        if asked == 0 {
            return None;
        }
        if !(self.least..=self.most).contains(&asked) {
            return Some(asked.clamp(self.least, self.most));
        }
        // What was wanted of those that were there before is no wish for those that are there now.
        if wanted.why == Why::Settling {
            return None;
        }
        let (there, wanted) = (wanted.seen.workers, wanted.workers.clamp(self.least, self.most));
        let is_settled = self
            .last
            .is_none_or(|(set, at)| set != asked || there == asked || now >= at.saturating_add(PATIENCE_MS));
        let more = wanted > asked && wanted > there && there >= asked;
        let fewer = wanted < asked && wanted < there;
        (is_settled && (more || fewer)).then_some(wanted)
    }
}

#[cfg(test)]
#[path = "acting_tests.rs"]
mod tests;
