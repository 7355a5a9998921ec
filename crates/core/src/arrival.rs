//! Arrival order: which sample goes into the next row of a batch when rows are filled by what has arrived.
//!
//! The rule bounds displacement: with window `w`, no sample is delivered more than `w` rows after its place in plan
//! order. When a sample's last moment has come, the next row waits for it. A window of 0 is plan order. Pure: the
//! engine reports arrivals and asks for the next row.

use std::collections::BTreeSet;

/// Chooses the order of delivery for one epoch of one rank.
#[derive(Clone, Debug)]
pub struct ArrivalOrder {
    window: u64,
    /// Rows filled so far.
    rows: u64,
    /// The lowest number that was not delivered yet.
    lowest: u64,
    /// Delivered numbers above `lowest`.
    ahead: BTreeSet<u64>,
    /// Arrived and not delivered.
    waiting: BTreeSet<u64>,
}

impl ArrivalOrder {
    /// An order in which no sample is delivered more than `window` rows late.
    pub fn new(window: u64) -> Self {
        Self { window, rows: 0, lowest: 0, ahead: BTreeSet::new(), waiting: BTreeSet::new() }
    }

    /// The sample with this number in plan order (counted from 0 within what is left of the epoch) is here.
    pub fn arrive(&mut self, number: u64) {
        debug_assert!(
            number >= self.lowest && !self.ahead.contains(&number),
            "sample {number} was delivered before"
        );
        self.waiting.insert(number);
    }

    /// The sample for the next row, or `None` when nothing may be delivered yet.
    pub fn next_row(&mut self) -> Option<u64> {
        let due = self.lowest + self.window <= self.rows;
        let number = if due { self.waiting.take(&self.lowest)? } else { self.waiting.pop_first()? };
        self.rows += 1;
        self.ahead.insert(number);
        while self.ahead.remove(&self.lowest) {
            self.lowest += 1;
        }
        Some(number)
    }

    /// The number that the next row must wait for, when its last moment has come and it is not here.
    pub fn waits_for(&self) -> Option<u64> {
        (self.lowest + self.window <= self.rows && !self.waiting.contains(&self.lowest))
            .then_some(self.lowest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use proptest::prelude::*;

    /// Delivers `count` samples that arrive in a random order with bounded run-ahead.
    fn deliver(count: u64, window: u64, run_ahead: u64, seed: u64) -> Vec<u64> {
        let mut order = ArrivalOrder::new(window);
        let mut rng = Rng::keyed(seed, 0, 0);
        let mut in_flight: Vec<u64> = Vec::new();
        let (mut started, mut delivered) = (0, Vec::new());
        while (delivered.len() as u64) < count {
            while started < count && started < delivered.len() as u64 + run_ahead {
                in_flight.push(started);
                started += 1;
            }
            if !in_flight.is_empty() {
                order.arrive(in_flight.swap_remove(rng.below(in_flight.len() as u64) as usize));
            }
            while let Some(number) = order.next_row() {
                delivered.push(number);
            }
        }
        delivered
    }

    proptest! {
        #[test]
        fn p005_no_sample_is_delivered_more_than_the_window_after_its_place(
            count in 0u64..600, window in 0u64..80, run_ahead in 1u64..200, seed: u64,
        ) {
            let delivered = deliver(count, window, run_ahead, seed);
            let mut sorted = delivered.clone();
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..count).collect::<Vec<_>>());
            for (row, number) in delivered.iter().enumerate() {
                prop_assert!(row as u64 <= number + window, "sample {} came at row {}", number, row);
            }
        }

        #[test]
        fn p005_a_window_of_zero_is_plan_order(count in 0u64..300, run_ahead in 1u64..100, seed: u64) {
            prop_assert_eq!(deliver(count, 0, run_ahead, seed), (0..count).collect::<Vec<_>>());
        }
    }
}
