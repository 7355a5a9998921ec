//! How many workers a service should have. A pure machine: what is measured comes in with the time, a number and the
//! reason for it come out. Who starts and stops workers is no concern of it; for those who do, [`Actor`] says when a wish
//! is a reason to change what was asked for.
//!
//! Consumers say how much they took and how long they waited, which gives two rates: what they get (*supply*) and what
//! they would take if they never waited (*demand*). While they wait, workers are busy, so supply over workers is what
//! one worker gives. More are wanted only when consumers wait for more than the share that is put up with; fewer only
//! when consumers would then wait for less than half of it, and that for some time. Between the two nothing changes, so
//! noise moves nothing. Until somebody waits it is not known what a worker can give: half as many are tried then. What is
//! known may have been measured at a bad time, so that one fewer is tried even when it would be a little too low. Fewer that
//! were not enough after all are not tried again for a long time, unless the load is another one.
//!
//! More workers do not help when the store or a link is the bottleneck: when a raise brought little of what it should
//! have, it is taken back, and the number is not raised again until something has changed or a long time has passed.

mod acting;
mod found;
#[cfg(test)]
mod tests;
mod words;

pub use acting::Actor;
use found::{Ceiling, Floor, Lowered, MOVED, Raise, is_near};
pub use words::{ScaleSettings, Seen, Wanted, Why};

/// How much a new measurement counts.
const WEIGHT: f64 = 0.3;

/// A raise at most doubles the number of workers: what one gives is known better once two do it.
const MOST_RAISE: f64 = 2.0;

/// Share of the waiting that is put up with, at which fewer workers would be enough.
const LOWER_SHARE: f64 = 0.5;

/// What a worker gives without being busy counts only beyond this share above what was known: the highest of many noisy
/// measurements is too high.
const NOISE: f64 = 0.05;

/// What a worker was seen to give when it was busy may be too low by this share: others had the machine then, or the store
/// was slower. When that makes the difference, one fewer is tried.
const DOUBT: f64 = 0.15;

/// The machine.
#[derive(Clone, Debug)]
pub struct Scaler {
    settings: ScaleSettings,
    seen: Option<Seen>,
    /// How often these workers were looked at since they were at work.
    looks: u32,
    target: u64,
    changed_at: u64,
    /// Since when fewer would do, and since when nobody reads.
    spare_since: Option<u64>,
    idle_since: Option<u64>,
    worker_rate: f64,
    /// Whether it was measured with workers that were busy.
    is_rate_known: bool,
    raise: Option<Raise>,
    lowered: Option<Lowered>,
    floor: Option<Floor>,
    ceiling: Option<Ceiling>,
    /// How long until more are tried again that did not help, and fewer that were not enough.
    retry_ms: u64,
    fewer_ms: u64,
}

impl Scaler {
    /// Nothing is known yet.
    pub fn new(settings: ScaleSettings) -> Self {
        Self {
            settings,
            seen: None,
            looks: 0,
            target: 0,
            changed_at: 0,
            spare_since: None,
            idle_since: None,
            worker_rate: 0.0,
            is_rate_known: false,
            raise: None,
            lowered: None,
            floor: None,
            ceiling: None,
            retry_ms: settings.retry_ms,
            fewer_ms: settings.retry_ms,
        }
    }

    /// Takes in what was measured at `now`, about once a second, and says how many workers there should be.
    pub fn observe(&mut self, now: u64, measured: Seen) -> Wanted {
        let workers_changed = self.seen.is_none_or(|seen| seen.workers != measured.workers);
        if workers_changed {
            self.changed_at = now;
            self.spare_since = None;
        }
        // New ones register before they give anything: what is measured meanwhile would count long after.
        if now <= self.changed_at.saturating_add(self.settings.settle_ms / 2) {
            self.looks = 0;
        }
        let seen = self.follow(measured);
        let why = self.decide(now, seen);
        if why == Why::Idle {
            // A pause between epochs is no reason to stop workers, a long one is.
            let since = *self.idle_since.get_or_insert(now);
            let is_long = now.saturating_sub(since) >= self.settings.retry_ms;
            self.target = self.bounded(if is_long { 0 } else { measured.workers });
        } else {
            self.idle_since = None;
        }
        Wanted { workers: self.target, why, seen, worker_rate: self.worker_rate }
    }

    fn bounded(&self, workers: u64) -> u64 {
        let least = self.settings.least_workers;
        workers.clamp(least, self.settings.most_workers.max(least))
    }

    /// Follows rates, so that one late report does not make them jump. What was measured with another number of workers, or
    /// while some of these were not at work yet, says little about them. Batches are few in a second, so that the first
    /// looks count alike.
    fn follow(&mut self, measured: Seen) -> Seen {
        self.looks = self.looks.saturating_add(1);
        let weight = WEIGHT.max(1.0 / f64::from(self.looks));
        let followed = |before: f64, now: f64| before + weight * (now - before);
        let seen = match self.seen {
            Some(before) if self.looks > 1 => Seen {
                workers: measured.workers,
                demand: followed(before.demand, measured.demand),
                supply: followed(before.supply, measured.supply),
                waiting: followed(before.waiting, measured.waiting),
            },
            _ => measured,
        };
        self.seen = Some(seen);
        seen
    }

    fn decide(&mut self, now: u64, seen: Seen) -> Why {
        if seen.workers == 0 || seen.demand <= 0.0 || seen.supply <= 0.0 {
            return Why::Idle;
        }
        if now < self.changed_at + self.settings.settle_ms {
            if self.target == 0 {
                self.target = self.bounded(seen.workers);
            }
            return Why::Settling;
        }
        let waits = seen.waiting > self.settings.waiting_share;
        let each = seen.supply / seen.workers as f64;
        // Whoever is waited for is busy. Otherwise it gives at least what it gave.
        if waits {
            (self.worker_rate, self.is_rate_known) = (each, true);
        } else if each > self.worker_rate * (1.0 + NOISE) {
            self.worker_rate = each;
        }
        self.judge_raise(now, seen, waits);
        self.lift_ceiling(now, seen);
        if waits { self.raise(now, seen) } else { self.lower(now, seen) }
    }

    /// Consumers wait: as many workers as their demand takes.
    fn raise(&mut self, now: u64, seen: Seen) -> Why {
        self.spare_since = None;
        if let Some(ceiling) = self.ceiling {
            self.target = self.bounded(ceiling.workers);
            return Why::LinkBound;
        }
        let mut needed = self.needed(seen, self.worker_rate);
        self.lowered = self.lowered.filter(|before| before.is_of_now(seen));
        if let Some(before) = &mut self.lowered {
            if !std::mem::replace(&mut before.was_wrong, true) {
                self.fewer_ms = self.fewer_ms.saturating_mul(2);
            }
            // What was enough then is enough now.
            needed = needed.min(before.workers as f64);
        }
        let until = now.saturating_add(self.fewer_ms);
        self.floor = Some(Floor { workers: seen.workers + 1, demand: seen.demand, until });
        let most = (seen.workers as f64 * MOST_RAISE).floor();
        let wanted = self.bounded((needed.min(most) as u64).max(seen.workers + 1));
        if wanted <= seen.workers {
            self.target = wanted;
            return Why::AtMost;
        }
        if self.raise.is_none_or(|raise| raise.workers != seen.workers) {
            self.raise = Some(Raise { workers: seen.workers, supply: seen.supply });
        }
        self.target = wanted;
        Why::Waiting
    }

    /// As many workers as let consumers wait for half of what is put up with.
    fn needed(&self, seen: Seen, worker_rate: f64) -> f64 {
        (seen.demand * (1.0 - self.settings.waiting_share * LOWER_SHARE) / worker_rate).ceil()
    }

    /// Nobody waits: fewer workers, when they would do and have done so for some time.
    fn lower(&mut self, now: u64, seen: Seen) -> Why {
        let tried = if self.is_rate_known { seen.workers } else { seen.workers.div_ceil(2) };
        if self.floor.is_some_and(|floor| !is_near(seen.demand, floor.demand)) {
            (self.floor, self.fewer_ms) = (None, self.settings.retry_ms);
        }
        self.floor = self.floor.filter(|floor| now < floor.until);
        let least = self.floor.map_or(0, |floor| floor.workers);
        let mut needed = self.needed(seen, self.worker_rate);
        if self.needed(seen, self.worker_rate * (1.0 + DOUBT)) < needed {
            needed -= 1.0;
        }
        let wanted = self.bounded(tried.min(needed as u64).max(least));
        if wanted >= seen.workers {
            self.spare_since = None;
            self.target = self.bounded(seen.workers);
            return Why::Enough;
        }
        let since = *self.spare_since.get_or_insert(now);
        if now < since.saturating_add(self.settings.lower_after_ms) {
            self.target = self.bounded(seen.workers);
            return Why::Enough;
        }
        self.lowered = Some(Lowered { workers: seen.workers, demand: seen.demand, was_wrong: false });
        self.target = wanted;
        Why::Spare
    }

    /// Whether the last raise brought what it should have; if not, it is taken back.
    fn judge_raise(&mut self, now: u64, seen: Seen, waits: bool) {
        let Some(before) = self.raise.filter(|before| seen.workers != before.workers) else { return };
        self.raise = None;
        if !waits || seen.workers < before.workers {
            self.retry_ms = self.settings.retry_ms;
            return;
        }
        let linear = before.supply * seen.workers as f64 / before.workers as f64;
        let hoped = linear.min(seen.demand) - before.supply;
        if seen.supply - before.supply < hoped * self.settings.least_gain {
            self.ceiling = Some(Ceiling {
                workers: before.workers,
                supply: seen.supply.max(before.supply),
                until: now.saturating_add(self.retry_ms),
            });
            self.retry_ms = self.retry_ms.saturating_mul(2);
        } else {
            self.retry_ms = self.settings.retry_ms;
        }
    }

    fn lift_ceiling(&mut self, now: u64, seen: Seen) {
        self.ceiling = self.ceiling.filter(|ceiling| {
            now < ceiling.until
                && seen.supply < ceiling.supply * (1.0 + MOVED)
                && seen.demand > ceiling.supply * (1.0 - MOVED)
        });
    }
}
