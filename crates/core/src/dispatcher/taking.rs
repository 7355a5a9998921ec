//! Dynamic sharding: which spans of an epoch are left, in hand, or done.
//!
//! What is left is kept as ranges, so that a fresh epoch of a million spans is one pair of numbers. Spans that come
//! back are put among them and go out first, because they are the lowest.

use std::collections::{BTreeMap, BTreeSet};

/// Numbers as disjoint ranges that do not touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    pub(super) fn new(ranges: &[(u64, u64)]) -> Self {
        let mut all = Self::default();
        for (first, end) in ranges {
            all.add(*first, *end);
        }
        all
    }

    /// Adds `[first, end)`.
    pub(super) fn add(&mut self, mut first: u64, mut end: u64) {
        if first >= end {
            return;
        }
        if let Some((before, its_end)) = self.0.range(..=first).next_back().map(|(a, b)| (*a, *b))
            && its_end >= first
        {
            first = before;
            end = end.max(its_end);
        }
        while let Some((next, its_end)) = self.0.range(first..=end).next().map(|(a, b)| (*a, *b)) {
            self.0.remove(&next);
            end = end.max(its_end);
        }
        self.0.insert(first, end);
    }

    pub(super) fn remove(&mut self, number: u64) {
        let Some((first, end)) = self.0.range(..=number).next_back().map(|(a, b)| (*a, *b)) else { return };
        if number >= end {
            return;
        }
        self.0.remove(&first);
        if first < number {
            self.0.insert(first, number);
        }
        if number + 1 < end {
            self.0.insert(number + 1, end);
        }
    }

    pub(super) fn first(&self) -> Option<u64> {
        self.0.first_key_value().map(|(first, _)| *first)
    }

    pub(super) fn list(&self) -> Vec<(u64, u64)> {
        self.0.iter().map(|(first, end)| (*first, *end)).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// One epoch of a job whose spans are given out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Taking {
    pub(super) epoch: u64,
    /// The start number that was obeyed last.
    pub(super) start: u64,
    pub(super) left: Ranges,
    /// Number of a span in hand, and the rank that has it.
    pub(super) in_hand: BTreeMap<u64, u64>,
    /// The same by rank; ranks without any are left out.
    pub(super) hands: BTreeMap<u64, BTreeSet<u64>>,
    pub(super) done: u64,
    pub(super) dropped: u64,
}

impl Taking {
    pub(super) fn give(&mut self, rank: u64, number: u64) {
        self.left.remove(number);
        self.in_hand.insert(number, rank);
        self.hands.entry(rank).or_default().insert(number);
    }

    /// Whether this rank has that span in hand.
    pub(super) fn has(&self, rank: u64, number: u64) -> bool {
        self.in_hand.get(&number) == Some(&rank)
    }

    pub(super) fn finish(&mut self, rank: u64, number: u64) {
        if self.has(rank, number) {
            self.in_hand.remove(&number);
            self.done += 1;
            if let Some(hand) = self.hands.get_mut(&rank) {
                hand.remove(&number);
                if hand.is_empty() {
                    self.hands.remove(&rank);
                }
            }
        }
    }

    /// What a lost rank had in hand comes back, or is dropped.
    pub(super) fn lose(&mut self, rank: u64, gives_again: bool) {
        for number in self.hands.remove(&rank).unwrap_or_default() {
            self.in_hand.remove(&number);
            if gives_again {
                self.left.add(number, number + 1);
            } else {
                self.dropped += 1;
            }
        }
    }

    /// How many spans a rank has in hand.
    pub(super) fn count(&self, rank: u64) -> usize {
        self.hands.get(&rank).map_or(0, BTreeSet::len)
    }

    pub(super) fn is_over(&self) -> bool {
        self.left.is_empty() && self.in_hand.is_empty()
    }

    /// The lowest span that is not done; none when the epoch is over.
    pub(super) fn floor(&self) -> Option<u64> {
        self.left.first().into_iter().chain(self.in_hand.keys().next().copied()).min()
    }

    /// Spans that are not done, in hand or not.
    pub(super) fn not_done(&self) -> Vec<(u64, u64)> {
        let mut all = self.left.clone();
        for number in self.in_hand.keys() {
            all.add(*number, *number + 1);
        }
        all.list()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranges_hold_what_a_set_holds(changes in proptest::collection::vec((0u64..40, 0u64..6, any::<bool>()), 0..60)) {
            let (mut ranges, mut set) = (Ranges::default(), BTreeSet::new());
            for (first, length, adds) in changes {
                if adds {
                    ranges.add(first, first + length);
                    set.extend(first..first + length);
                } else {
                    ranges.remove(first);
                    set.remove(&first);
                }
                let listed = ranges.list();
                prop_assert_eq!(listed.iter().flat_map(|(a, b)| *a..*b).collect::<BTreeSet<_>>(), set.clone());
                prop_assert!(listed.windows(2).all(|pair| pair[0].1 < pair[1].0), "{:?}", listed);
                prop_assert_eq!(ranges.first(), set.first().copied());
            }
        }
    }
}
