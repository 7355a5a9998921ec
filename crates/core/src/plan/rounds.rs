//! Rounds: every step gives all ranks batches of samples of about one size, so that none of them waits for a rank that
//! happened to get the long ones, and padding to the longest of a batch wastes little.
//!
//! Samples fall into size classes by the length that the manifest knows ([`classes`]). The samples of a class are
//! permuted and cut into rounds of `round_positions`, which is the number of ranks times the batch size; the rounds of
//! all classes are permuted. What does not fill a round of its class comes at the end of the epoch, in the order of
//! size: those rounds hold neighbours in size, and some of them two or more classes ([`RoundCounts`] says how many).
//! Every sample comes exactly once.
//!
//! Position `p` lies in round `p / round_positions`. A step of a job of that many ranks and that batch size is one
//! round, whoever is late or was restarted: the round is in the position, and the position is in the cursor.

mod classes;
mod waste;

pub use classes::{ClassBounds, Lengths, MAX_CLASSES, SizeClasses};
pub use waste::{PaddingWaste, padding_waste};

use super::{CLASS, ROUNDS, Rule, Sampler};
use crate::manifest::Manifest;
use crate::permutation::Permutation;
use crate::rng::fold;
use crate::{Error, Result, SampleId};
use classes::Classes;
use std::sync::{Arc, OnceLock};

/// How many rounds an epoch has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundCounts {
    /// Classes that have samples.
    pub classes: u64,
    /// All rounds, the last one full or not.
    pub rounds: u64,
    /// Rounds at the end that hold samples of more than one class.
    pub mixed: u64,
}

impl Sampler {
    /// The rule that gives rounds of `round_positions` positions, each of one size class as far as they go.
    pub fn rounds(
        manifest: &Manifest,
        classes: &SizeClasses,
        round_positions: u64,
        seed: u64,
    ) -> Result<Self> {
        if round_positions == 0 {
            return Err(Error::invalid_config("round_positions is 0: give at least 1"));
        }
        let classes = Classes::new(manifest, classes)?;
        let rounds = Rounds::new(classes, round_positions);
        Ok(Self { samples: manifest.len(), seed, rule: Rule::Rounds(Arc::new(rounds)) })
    }

    /// How many rounds an epoch has; `None` for orders without.
    pub fn round_counts(&self) -> Option<RoundCounts> {
        match &self.rule {
            Rule::Rounds(rounds) => Some(rounds.counts()),
            _ => None,
        }
    }
}

/// All that is the same for all epochs.
#[derive(Debug)]
pub(super) struct Rounds {
    classes: Classes,
    round_positions: u64,
    /// Number of the first whole round of each class, before rounds are permuted, and the number of all.
    firsts: Vec<u64>,
}

impl Rounds {
    fn new(classes: Classes, round_positions: u64) -> Self {
        let mut firsts = vec![0];
        for class in 0..classes.len() {
            firsts.push(firsts[class] + classes.samples(class) / round_positions);
        }
        Self { classes, round_positions, firsts }
    }

    fn whole_rounds(&self) -> u64 {
        self.firsts.last().copied().unwrap_or(0)
    }

    /// Samples of a class in whole rounds.
    fn placed(&self, class: usize) -> u64 {
        (self.firsts[class + 1] - self.firsts[class]) * self.round_positions
    }

    fn counts(&self) -> RoundCounts {
        let (mut rest, mut mixed, mut last_mixed) = (0u64, 0, None);
        for class in 0..self.classes.len() {
            let left = self.classes.samples(class) - self.placed(class);
            // A class whose rest begins inside a round shares that round; it may be the third or fourth to do so.
            let round = rest / self.round_positions;
            if left > 0 && rest % self.round_positions > 0 && last_mixed != Some(round) {
                mixed += 1;
                last_mixed = Some(round);
            }
            rest += left;
        }
        let filled = (0..self.classes.len()).filter(|class| self.classes.samples(*class) > 0);
        RoundCounts {
            classes: filled.count() as u64,
            rounds: self.whole_rounds() + rest.div_ceil(self.round_positions),
            mixed,
        }
    }
}

/// The order of one epoch.
#[derive(Debug)]
pub(super) struct RoundsPlan {
    rounds: Arc<Rounds>,
    /// Which whole round comes when.
    order: Permutation,
    /// The order of the samples of each class.
    inside: Vec<Permutation>,
    /// Samples after the whole rounds, by length and id; gathered when first asked for.
    rest: OnceLock<Vec<u32>>,
}

impl RoundsPlan {
    pub(super) fn new(rounds: Arc<Rounds>, seed: u64, epoch: u64) -> Self {
        let order = Permutation::new(rounds.whole_rounds(), fold(&[seed, epoch, ROUNDS]));
        let classes = &rounds.classes;
        let inside = (0..classes.len())
            .map(|class| Permutation::new(classes.samples(class), fold(&[seed, epoch, CLASS, class as u64])));
        let inside = inside.collect();
        Self { rounds, order, inside, rest: OnceLock::new() }
    }

    pub(super) fn at(&self, position: u64) -> u64 {
        let Rounds { classes, round_positions, firsts } = &*self.rounds;
        if position >= self.rest_start() {
            return self.rest()[(position - self.rest_start()) as usize].into();
        }
        let round = self.order.at(position / round_positions);
        // Classes without a whole round begin where the next one does: the last of them is meant.
        let class = firsts.partition_point(|first| *first <= round) - 1;
        let place = (round - firsts[class]) * round_positions + position % round_positions;
        classes.sample(class, self.inside[class].at(place)).into()
    }

    pub(super) fn position_of(&self, sample: u64) -> Option<u64> {
        let Rounds { classes, round_positions, firsts } = &*self.rounds;
        let (class, index) = classes.find(sample)?;
        let place = self.inside[class].index_of(index);
        if place < self.rounds.placed(class) {
            let round = firsts[class] + place / round_positions;
            return Some(self.order.index_of(round) * round_positions + place % round_positions);
        }
        let key = |sample: u64| (classes.length(sample), sample);
        let found = self.rest().binary_search_by_key(&key(sample), |other| key((*other).into()));
        found.ok().map(|number| self.rest_start() + number as u64)
    }

    pub(super) fn class_of(&self, position: u64) -> u32 {
        self.rounds.classes.class_of(SampleId(self.at(position))) as u32
    }

    fn rest_start(&self) -> u64 {
        self.order.len() * self.rounds.round_positions
    }

    fn rest(&self) -> &[u32] {
        self.rest.get_or_init(|| {
            let classes = &self.rounds.classes;
            let mut rest: Vec<u32> = (0..classes.len())
                .flat_map(|class| {
                    let left = self.rounds.placed(class)..classes.samples(class);
                    left.map(move |place| classes.sample(class, self.inside[class].at(place)))
                })
                .collect();
            rest.sort_unstable_by_key(|sample| (classes.length((*sample).into()), *sample));
            rest
        })
    }
}

#[cfg(test)]
mod tests;
