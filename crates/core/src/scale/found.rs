//! What a scaler found out by trying, and for how long that holds.

use super::Seen;

/// What was found out is of the past when supply or demand moved by this share.
pub(super) const MOVED: f64 = 0.2;

/// A raise whose effect is not known yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Raise {
    pub(super) workers: u64,
    pub(super) supply: f64,
}

/// What the store or a link gives at most, and how many workers it took to get that.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ceiling {
    pub(super) workers: u64,
    pub(super) supply: f64,
    pub(super) until: u64,
}

/// Fewer than these were not enough, for this demand.
#[derive(Clone, Copy, Debug)]
pub(super) struct Floor {
    pub(super) workers: u64,
    pub(super) demand: f64,
    pub(super) until: u64,
}

/// How many there were when fewer were wanted last, and were enough for this demand.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lowered {
    pub(super) workers: u64,
    pub(super) demand: f64,
    pub(super) was_wrong: bool,
}

impl Lowered {
    /// Whether fewer are there, and the demand is that of before.
    pub(super) fn is_of_now(&self, seen: Seen) -> bool {
        seen.workers < self.workers && is_near(seen.demand, self.demand)
    }
}

/// Whether a demand is still the one of before.
pub(super) fn is_near(demand: f64, before: f64) -> bool {
    (demand / before - 1.0).abs() < MOVED
}
