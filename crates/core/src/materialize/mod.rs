//! Saving prepared samples as a dataset: how an epoch is cut into chunks, what their shards are called, and who makes
//! which when several processes write at once.
//!
//! A chunk is a fixed run of positions of one epoch and becomes one shard whose name follows from its number, so the
//! shards that are there say what is done, and nothing else has to be kept. [`Sharing`] keeps writers out of each
//! other's way. That costs time when it fails and nothing else: two who make the same chunk write the same bytes under
//! the same name. What a sample looks like in a shard, and every read and write, is the engine's.

mod sharing;

pub use sharing::{Choice, MAX_CLAIMS, Notice, Sharing};

use crate::{Error, Result};
use std::ops::Range;

/// What names of shards begin with.
const PREFIX: &str = "data-";

/// Digits of a shard's number; more are written when they are needed.
const DIGITS: usize = 6;

/// Most chunks of a dataset: as many names are listed and compared.
pub const MAX_CHUNKS: u64 = 1_000_000;

/// An epoch cut into chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunks {
    positions: u64,
    chunk_positions: u64,
}

impl Chunks {
    /// `positions` positions in chunks of `chunk_positions`; the last one may be shorter.
    pub fn new(positions: u64, chunk_positions: u64) -> Result<Self> {
        if positions == 0 || chunk_positions == 0 {
            return Err(Error::invalid_config("materialize: there is nothing to save"));
        }
        let chunks = Self { positions, chunk_positions };
        if chunks.count() > MAX_CHUNKS {
            let (count, least) = (chunks.count(), positions.div_ceil(MAX_CHUNKS));
            return Err(Error::invalid_config(format!(
                "materialize: {positions} samples in chunks of {chunk_positions} are {count} shards, at most \
                 {MAX_CHUNKS} are allowed"
            ))
            .with_hint(format!("save at least {least} samples in a chunk")));
        }
        Ok(chunks)
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.positions.div_ceil(self.chunk_positions)
    }

    /// Positions of the whole epoch.
    pub fn positions(&self) -> u64 {
        self.positions
    }

    /// The positions of one chunk.
    pub fn span(&self, chunk: u64) -> Range<u64> {
        let first = (chunk * self.chunk_positions).min(self.positions);
        first..first.saturating_add(self.chunk_positions).min(self.positions)
    }
}

/// The name of a chunk's shard.
pub fn shard_name(chunk: u64) -> String {
    format!("{PREFIX}{chunk:0DIGITS$}.tar")
}

/// The chunk whose shard has this name.
pub fn chunk_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(PREFIX)?.strip_suffix(".tar")?;
    let chunk = digits.parse().ok().filter(|chunk| *chunk < MAX_CHUNKS)?;
    (shard_name(chunk) == name).then_some(chunk)
}

/// The spec of the first `count` shards, at least one, below `folder`, in order.
pub fn spec_of_first(folder: &str, count: u64) -> String {
    let last = count.saturating_sub(1);
    format!("{}/{PREFIX}{{{:0DIGITS$}..{last:0DIGITS$}}}.tar", folder.trim_end_matches('/'), 0)
}

/// How many chunks from the first on are there without a gap.
pub fn unbroken(committed: impl IntoIterator<Item = u64>) -> u64 {
    let committed: std::collections::BTreeSet<u64> = committed.into_iter().collect();
    committed.iter().zip(0..).take_while(|(chunk, expected)| **chunk == *expected).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn p064_chunks_cover_an_epoch_once_and_their_names_say_which_they_are(
            positions in 1u64..100_000, chunk in 1u64..5_000,
        ) {
            let chunks = Chunks::new(positions, chunk).unwrap();
            let mut next = 0;
            for number in 0..chunks.count() {
                let span = chunks.span(number);
                prop_assert_eq!(span.start, next);
                prop_assert!(span.end > span.start && span.end - span.start <= chunk);
                prop_assert_eq!(chunk_of(&shard_name(number)), Some(number));
                next = span.end;
            }
            prop_assert_eq!(next, positions);
        }

        #[test]
        fn no_other_name_is_taken_for_a_shard(name in "(data-)?[0-9]{0,8}(\\.tar)?") {
            if let Some(chunk) = chunk_of(&name) {
                prop_assert_eq!(shard_name(chunk), name);
            }
        }
    }

    #[test]
    fn what_cannot_be_cut_is_refused_with_a_number_that_can() {
        assert!(Chunks::new(0, 1).is_err() && Chunks::new(1, 0).is_err());
        let error = Chunks::new(10_000_001, 1).unwrap_err();
        assert!(error.hint().unwrap().contains("at least 11 samples"), "{error}");
        assert!(Chunks::new(10_000_001, 11).is_ok());
        assert_eq!(Chunks::new(u64::MAX, u64::MAX).unwrap().span(0), 0..u64::MAX);
    }

    #[test]
    fn the_unbroken_beginning_is_found() {
        assert_eq!(unbroken([]), 0);
        assert_eq!(unbroken([1, 2]), 0);
        assert_eq!(unbroken([2, 0, 1, 4]), 3);
        assert_eq!(spec_of_first("a/", 2), "a/data-{000000..000001}.tar");
        let expanded = crate::spec::expand(&spec_of_first("a", 2), &|_| None).unwrap();
        assert_eq!(expanded[1].text, format!("a/{}", shard_name(1)));
    }
}
