//! Weights of a mix that change on the way: which are in force at a position, and who may go on under other changes.
//!
//! A change holds from the first whole round at or behind its place, through all epochs after it, until the next one. So
//! a round has one set of quotas, and how many picks of a part lie before a change is a product: positions are still
//! found without those before them.

use super::{MixPart, ROUND, quotas};
use crate::cursor::Cursor;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// Most changes of one mix. They are told to workers and kept in checkpoints.
pub const MAX_CHANGES: usize = 1024;

/// Other weights from a place on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MixChange {
    /// The epoch.
    pub epoch: u64,
    /// The position in it. The change waits for the next round, and for the next epoch when this one has no more.
    #[serde(default)]
    pub position: u64,
    /// One weight for each part. A part whose weight is 0 is not read.
    pub weights: Vec<f64>,
}

impl MixChange {
    /// Epoch and round from which on it holds.
    fn place(&self, epoch_samples: u64) -> (u64, u64) {
        let round = self.position.div_ceil(ROUND);
        if round > 0 && round.saturating_mul(ROUND) >= epoch_samples {
            return (self.epoch.saturating_add(1), 0);
        }
        (self.epoch, round)
    }

    /// Epoch and position from which on it holds, in epochs of this length.
    pub fn holds_from(&self, epoch_samples: u64) -> (u64, u64) {
        let (epoch, round) = self.place(epoch_samples);
        (epoch, round * ROUND)
    }
}

/// The quotas in force from a round on.
#[derive(Clone, Debug, PartialEq)]
struct Era {
    epoch: u64,
    round: u64,
    quotas: Vec<u64>,
}

/// All quotas of a mix, in the order of time. The first ones hold from the beginning.
#[derive(Debug, PartialEq)]
pub(super) struct Schedule {
    eras: Vec<Era>,
}

/// The rounds of one epoch that have the same quotas.
#[derive(Debug)]
pub(super) struct Stretch {
    /// The first of them.
    pub(super) round: u64,
    pub(super) shares: Vec<Share>,
}

/// What a part has of every round of a stretch.
#[derive(Debug)]
pub(super) struct Share {
    /// First of its slots before slots are permuted; the next part's is one past the last.
    pub(super) first_slot: u64,
    pub(super) quota: u64,
    /// Picks of the part in the epoch's rounds before the stretch.
    pub(super) before: u64,
}

impl Schedule {
    /// Quotas by the weights of the parts, and by the changes.
    pub(super) fn new(parts: &[MixPart], changes: &[MixChange], epoch_samples: u64) -> Self {
        let weights: Vec<f64> = parts.iter().map(|part| part.weight).collect();
        let mut eras = vec![Era { epoch: 0, round: 0, quotas: quotas(&weights) }];
        let mut changes: Vec<_> =
            changes.iter().map(|change| (change.place(epoch_samples), &change.weights)).collect();
        // Among those that hold from one place on the last one counts.
        changes.sort_by_key(|(place, _)| *place);
        for ((epoch, round), weights) in changes {
            eras.retain(|era| (era.epoch, era.round) != (epoch, round));
            eras.push(Era { epoch, round, quotas: quotas(weights) });
        }
        Self { eras }
    }

    /// The stretches of an epoch, in order.
    pub(super) fn epoch(&self, epoch: u64) -> Vec<Stretch> {
        let first = self.eras.partition_point(|era| (era.epoch, era.round) <= (epoch, 0)) - 1;
        let of_epoch = self.eras[first + 1..].iter().take_while(|era| era.epoch == epoch);
        let rounds = std::iter::once(0).chain(of_epoch.map(|era| era.round));
        let mut stretches: Vec<Stretch> = Vec::new();
        for (era, round) in self.eras[first..].iter().zip(rounds) {
            let mut next_slot = 0;
            let shares = era.quotas.iter().enumerate().map(|(part, quota)| {
                let first_slot = next_slot;
                next_slot += quota;
                let before = stretches.last().map_or(0, |last: &Stretch| {
                    let share = &last.shares[part];
                    share.before + (round - last.round) * share.quota
                });
                Share { first_slot, quota: *quota, before }
            });
            let shares = shares.collect();
            stretches.push(Stretch { round, shares });
        }
        stretches
    }
}

/// Checks that every change has a weight for each of so many parts.
pub fn check_changes(changes: &[MixChange], parts: usize) -> Result<()> {
    let fail = |why: String| Err(Error::invalid_config(format!("change the weights of a mix: {why}")));
    if changes.len() > MAX_CHANGES {
        return fail(format!("{} changes were given, it takes {MAX_CHANGES}", changes.len()));
    }
    for MixChange { epoch, position, weights } in changes {
        let place = format!("position {position} of epoch {epoch}");
        if weights.len() != parts {
            return fail(format!("{} weights for {parts} datasets from {place} on", weights.len()));
        }
        if let Some(weight) = weights.iter().find(|weight| !(weight.is_finite() && **weight >= 0.0)) {
            return fail(format!("{weight} from {place} on is no weight"));
        }
        if weights.iter().all(|weight| *weight == 0.0) {
            return fail(format!("all weights are 0 from {place} on"));
        }
    }
    Ok(())
}

/// Who stands at a cursor and wants to go on under other changes.
#[derive(Debug)]
pub struct Reschedule<'a> {
    /// What was in force until now.
    pub before: &'a [MixChange],
    /// What shall be.
    pub after: &'a [MixChange],
    /// Positions of an epoch.
    pub epoch_samples: u64,
    /// What was received.
    pub cursor: &'a Cursor,
    /// Whether a position received may be none of the first ones of the mix: batches that are cut by length, or order by
    /// arrival. Then only changes from a later epoch on are surely still to come.
    pub is_moved: bool,
}

impl Reschedule<'_> {
    /// Epoch and position before which nothing may change.
    pub fn received(&self) -> (u64, u64) {
        let epoch = self.cursor.epoch;
        match self.cursor.received_run() {
            Some(0) => (epoch, 0),
            Some(position) if !self.is_moved => (epoch, position),
            _ => (epoch.saturating_add(1), 0),
        }
    }

    /// Whether everything that was received is what it would have been, and nothing that was to come is missing.
    pub fn check(&self) -> Result<()> {
        let received = self.received();
        let places = |changes: &[MixChange]| {
            let mut places: Vec<((u64, u64), Vec<f64>)> = Vec::new();
            let mut sorted: Vec<_> = changes
                .iter()
                .map(|change| (change.holds_from(self.epoch_samples), &change.weights))
                .collect();
            sorted.sort_by_key(|(place, _)| *place);
            for (place, weights) in sorted {
                places.retain(|(other, _)| *other != place);
                places.push((place, weights.clone()));
            }
            places
        };
        let (before, after) = (places(self.before), places(self.after));
        let told = |(epoch, position): (u64, u64)| format!("position {position} of epoch {epoch}");
        let fail = |why: String| {
            Err(Error::stale(format!("change the weights of a mix: {why}")).with_hint(
                "changes may be added behind what was received; leave those before it as they were",
            ))
        };
        for (place, weights) in &before {
            match after.iter().find(|(other, _)| other == place) {
                None => return fail(format!("{weights:?} from {} on is missing", told(*place))),
                Some((_, other)) if other != weights && *place < received => {
                    return fail(format!("from {} on it was {weights:?}, not {other:?}", told(*place)));
                }
                Some(_) => {}
            }
        }
        let added =
            after.iter().find(|(place, _)| *place < received && !before.iter().any(|(b, _)| b == place));
        match added {
            Some((place, weights)) => fail(format!(
                "{weights:?} from {} on comes too late, everything before {} was received",
                told(*place),
                told(received)
            )),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
