//! Feeds and the names of their batches: what several jobs, or a job and its workers, mean by *the same batch*.
//!
//! A [`FeedId`] stands for everything that makes a batch out of positions: dataset version, recipe, seed, order, what
//! a bad sample does. A [`BatchName`] lists the positions. Together they say which bytes come out, on any machine,
//! whoever asks and however often. A job of another world size asks for the same names, and shares.
//!
//! Spans are runs of positions of one epoch that are leased to one worker, so that all who read a feed meet at it.

use crate::portion::Place;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Most rows of one batch that is asked for by name.
pub const MAX_ROWS: u64 = 1 << 20;

/// Most runs of one name: positions left over by arrival order come in pieces, never in more than a window.
pub const MAX_RUNS: usize = 1 << 14;

/// What makes batches out of positions, as 128 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FeedId(pub u128);

impl fmt::Display for FeedId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for FeedId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let digits = (text.len() == 32).then(|| u128::from_str_radix(text, 16).ok()).flatten();
        digits.map(Self).ok_or_else(|| Error::invalid_config(format!("read feed id: `{text}` is none")))
    }
}

/// Neighbouring positions of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Run {
    /// The first position.
    pub first: u64,
    /// How many.
    pub len: u32,
    /// Whether they repeat samples only to fill the batch.
    pub padding: bool,
}

/// One batch of a feed: an epoch and the positions of its rows, in order.
///
/// Names sort by epoch and first position: the order in which a plan wants them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BatchName {
    /// The epoch.
    pub epoch: u64,
    /// Its rows.
    pub runs: Vec<Run>,
}

impl BatchName {
    /// The name of the batch with these places.
    pub fn new(epoch: u64, places: impl IntoIterator<Item = Place>) -> Self {
        let mut runs: Vec<Run> = Vec::new();
        for Place { position, padding, .. } in places {
            match runs.last_mut() {
                Some(run)
                    if run.padding == padding
                        && run.first + u64::from(run.len) == position
                        && run.len < u32::MAX =>
                {
                    run.len += 1;
                }
                _ => runs.push(Run { first: position, len: 1, padding }),
            }
        }
        Self { epoch, runs }
    }

    /// Rows, padding included.
    pub fn rows(&self) -> u64 {
        self.runs.iter().map(|run| u64::from(run.len)).sum()
    }

    /// The position of the first row; 0 for a name without rows.
    pub fn first(&self) -> u64 {
        self.runs.first().map_or(0, |run| run.first)
    }

    /// Position and padding of every row, in order.
    pub fn positions(&self) -> impl Iterator<Item = (u64, bool)> + '_ {
        self.runs.iter().flat_map(|run| {
            (0..u64::from(run.len)).map(move |row| (run.first.saturating_add(row), run.padding))
        })
    }

    /// The span of `span_positions` positions in which the batch begins.
    pub fn span(&self, span_positions: u64) -> Span {
        Span { epoch: self.epoch, number: self.first() / span_positions.max(1) }
    }

    /// Checks a name that came from outside against an epoch of `samples` positions.
    pub fn check(&self, samples: u64) -> Result<()> {
        let why = if self.runs.len() > MAX_RUNS {
            format!("it has {} runs, at most {MAX_RUNS} are allowed", self.runs.len())
        } else if !(1..=MAX_ROWS).contains(&self.rows()) {
            format!("it has {} rows, 1 to {MAX_ROWS} are allowed", self.rows())
        } else if let Some(run) =
            self.runs.iter().find(|run| run.first.checked_add(run.len.into()).is_none_or(|end| end > samples))
        {
            format!("position {} and {} more lie beyond the end of {samples}", run.first, run.len)
        } else {
            return Ok(());
        };
        Err(Error::invalid_config(format!("make batch of epoch {}: {why}", self.epoch)))
    }
}

impl fmt::Display for BatchName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epoch {} positions", self.epoch)?;
        let more = self.runs.len().saturating_sub(3);
        for (index, run) in self.runs.iter().take(3).enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma} {}..{}", run.first, run.first.saturating_add(run.len.into()))?;
        }
        if more > 0 { write!(f, " and {more} more runs") } else { Ok(()) }
    }
}

/// A run of positions of one epoch that one worker prepares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Span {
    /// The epoch.
    pub epoch: u64,
    /// Its number: positions `[number * span_positions, (number + 1) * span_positions)`.
    pub number: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cursor::Cursor;
    use crate::portion::{Consumer, LastBatch, Portion};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_name_lists_the_positions_of_its_batch(
            samples in 1u64..500, batch_size in 1u64..40, world_size in 1u64..5, rank in 0u64..5,
            policy in 0usize..4, taken in proptest::collection::vec(0u64..500, 0..20),
        ) {
            let last_batch = [LastBatch::Drop, LastBatch::Partial, LastBatch::Pad, LastBatch::Wrap][policy];
            let consumer = Consumer { rank: rank % world_size, world_size, batch_size, last_batch };
            let taken = taken.into_iter().filter(|number| *number < samples).collect();
            let remaining = crate::cursor::Remaining::new(samples, 0, taken).unwrap();
            let portion = Portion::new(samples, consumer, &Cursor::at(3, remaining)).unwrap();
            for step in 0..portion.steps() {
                let name = BatchName::new(3, portion.batch(step));
                name.check(samples).unwrap();
                prop_assert_eq!(name.rows(), portion.batch_len(step));
                let rows: Vec<_> = portion.batch(step).map(|place| (place.position, place.padding)).collect();
                prop_assert_eq!(name.positions().collect::<Vec<_>>(), rows);
                prop_assert_eq!(name.span(16).number, name.first() / 16);
            }
        }
    }

    #[test]
    fn equal_batches_have_equal_names_on_any_number_of_ranks() {
        let names = |world_size: u64| {
            let consumer = |rank| Consumer { rank, world_size, batch_size: 8, last_batch: LastBatch::Drop };
            let portions: Vec<Portion> = (0..world_size)
                .map(|rank| Portion::new(128, consumer(rank), &Cursor::start_of(0)).unwrap())
                .collect();
            let mut names: Vec<BatchName> = portions
                .iter()
                .flat_map(|portion| (0..portion.steps()).map(|step| BatchName::new(0, portion.batch(step))))
                .collect();
            names.sort();
            names
        };
        assert_eq!(names(1).len(), 16);
        assert!([2, 4, 8].into_iter().all(|world_size| names(world_size) == names(1)));
    }

    #[test]
    fn names_from_outside_are_checked() {
        let name = |first, len| BatchName { epoch: 0, runs: vec![Run { first, len, padding: false }] };
        assert!(name(0, 10).check(10).is_ok());
        for bad in [name(0, 11), name(u64::MAX, 2), name(0, 0), name(0, u32::MAX)] {
            assert!(bad.check(10).is_err(), "{bad}");
        }
        let many = BatchName { epoch: 0, runs: vec![Run { first: 0, len: 1, padding: false }; MAX_RUNS + 1] };
        assert!(many.check(10).is_err());
        assert_eq!("00ff".repeat(8).parse::<FeedId>().unwrap().to_string(), "00ff".repeat(8));
        assert!("xyz".parse::<FeedId>().is_err());
    }
}
