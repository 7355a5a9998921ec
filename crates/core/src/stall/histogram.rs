//! Times counted by size: eight classes for each doubling, so that a quantile is right to some 6 % at any scale.

/// Classes that cover every number of nanoseconds.
pub const CLASSES: usize = 496;

/// Which class a time belongs to.
pub fn class_of(nanos: u64) -> usize {
    if nanos < 8 {
        return nanos as usize;
    }
    let doubling = 63 - nanos.leading_zeros() as usize;
    8 * (doubling - 2) + ((nanos >> (doubling - 3)) & 7) as usize
}

/// The smallest time of a class; of the one after the last it is the largest number.
fn floor_of(class: usize) -> u64 {
    if class < 8 {
        return class as u64;
    }
    if class >= CLASSES {
        return u64::MAX;
    }
    (8 + (class % 8) as u64) << (class / 8 - 1)
}

/// Times that were counted.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    sum: u64,
    longest: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; CLASSES], count: 0, sum: 0, longest: 0 }
    }
}

impl Histogram {
    /// From counts by class that somebody else kept, with the sum and the longest of the times.
    pub fn from_counts(counts: Vec<u64>, sum: u64, longest: u64) -> Self {
        let count = counts.iter().sum();
        Self { counts, count, sum, longest }
    }

    /// One more.
    pub fn add(&mut self, nanos: u64) {
        self.counts[class_of(nanos)] += 1;
        self.count += 1;
        self.sum = self.sum.saturating_add(nanos);
        self.longest = self.longest.max(nanos);
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// All of them together, in seconds.
    pub fn sum_seconds(&self) -> f64 {
        self.sum as f64 * 1e-9
    }

    /// The time that a share `q` of all times does not exceed, in seconds; 0 when there are none.
    pub fn quantile_seconds(&self, q: f64) -> f64 {
        let rank = ((q * self.count as f64).ceil() as u64).max(1);
        let mut seen = 0;
        for (class, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                let middle = floor_of(class) as f64 / 2.0 + floor_of(class + 1) as f64 / 2.0;
                return middle.min(self.longest as f64) * 1e-9;
            }
        }
        0.0
    }

    /// Times of at most `seconds`, to the width of a class.
    pub fn count_up_to(&self, seconds: f64) -> u64 {
        let last = class_of((seconds * 1e9) as u64);
        self.counts[..=last].iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_time_lies_in_its_class_and_classes_are_narrow(nanos in any::<u64>()) {
            let class = class_of(nanos);
            prop_assert!(class < CLASSES);
            prop_assert!(floor_of(class) <= nanos);
            prop_assert!(nanos < floor_of(class + 1) || class + 1 == CLASSES);
            if (8..1 << 60).contains(&nanos) {
                prop_assert!(floor_of(class + 1) - floor_of(class) <= nanos / 8);
            }
        }

        #[test]
        fn quantiles_are_right_to_seven_percent(mut times in prop::collection::vec(1_000u64..1 << 50, 1..400)) {
            let mut histogram = Histogram::default();
            for time in &times {
                histogram.add(*time);
            }
            times.sort_unstable();
            for q in [0.5, 0.95, 0.99, 1.0] {
                let rank = ((q * times.len() as f64).ceil() as usize).max(1);
                let exact = times[rank - 1] as f64 * 1e-9;
                let found = histogram.quantile_seconds(q);
                prop_assert!((found / exact - 1.0).abs() < 0.07, "{q}: {found} for {exact}");
            }
            prop_assert_eq!(histogram.count(), times.len() as u64);
            prop_assert_eq!(histogram.count_up_to(1e9), times.len() as u64);
        }
    }

    #[test]
    fn nothing_counted_is_zero() {
        assert_eq!(Histogram::default().quantile_seconds(0.5), 0.0);
    }
}
