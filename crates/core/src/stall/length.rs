//! Step time against batch length: tells batches that are long from a reader, or a rank, that is slow.
//!
//! A straight line through the last steps by least squares. A step that takes longer because its batch is longer lies on
//! the line; a step that takes longer for another reason lies beside it.

use super::Split;
use serde::Serialize;

/// Fewer steps say nothing.
const LEAST_STEPS: usize = 16;
/// Lengths that differ by less than this share of their mean are one length.
const LEAST_SPREAD: f64 = 0.01;

/// How step time follows from batch length.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StepByLength {
    /// Steps that were looked at.
    pub steps: u64,
    /// What a step takes whatever its batch.
    pub base_seconds: f64,
    /// What each byte of a batch adds.
    pub seconds_per_byte: f64,
    /// The share of the differences between steps that the length of batches explains, 0 to 1.
    pub explained: f64,
}

impl StepByLength {
    /// Of steps that are over. `None` when there are too few, or batches are all of one length.
    pub fn of<'a>(steps: impl Iterator<Item = &'a Split>) -> Option<Self> {
        let points: Vec<(f64, f64)> = steps
            .filter(|step| step.step_seconds > 0.0)
            .map(|step| (step.bytes as f64, step.step_seconds))
            .collect();
        if points.len() < LEAST_STEPS {
            return None;
        }
        let count = points.len() as f64;
        let sum = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (bytes, seconds) = (sum(|point| point.0), sum(|point| point.1));
        let mut squares = (0.0, 0.0, 0.0);
        for (x, y) in &points {
            let (x, y) = (x - bytes, y - seconds);
            squares = (squares.0 + x * x, squares.1 + x * y, squares.2 + y * y);
        }
        let (xx, xy, yy) = squares;
        if (xx / count).sqrt() <= LEAST_SPREAD * bytes {
            return None;
        }
        let slope = xy / xx;
        let explained = if yy > 0.0 { (xy * xy / (xx * yy)).clamp(0.0, 1.0) } else { 0.0 };
        Some(Self {
            steps: points.len() as u64,
            base_seconds: seconds - slope * bytes,
            seconds_per_byte: slope,
            explained,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn step(bytes: u64, step_seconds: f64) -> Split {
        Split { bytes, step_seconds, ..Split::default() }
    }

    proptest! {
        #[test]
        fn a_line_is_found_and_what_lies_beside_it_is_not_explained(
            base in 1e-4..1.0f64,
            per_byte in 1e-9..1e-4f64,
            lengths in prop::collection::vec(1u64..1_000_000, 16..200),
        ) {
            prop_assume!(lengths.iter().max().unwrap() > &(2 * lengths.iter().min().unwrap()));
            let steps: Vec<Split> =
                lengths.iter().map(|bytes| step(*bytes, base + per_byte * *bytes as f64)).collect();
            let found = StepByLength::of(steps.iter()).unwrap();
            prop_assert!((found.base_seconds - base).abs() < 1e-6 * (base + per_byte * 1e6));
            prop_assert!((found.seconds_per_byte / per_byte - 1.0).abs() < 1e-6);
            prop_assert!(found.explained > 0.999_999);
        }
    }

    #[test]
    fn slow_steps_of_any_length_are_not_explained_by_it() {
        let steps: Vec<Split> =
            (0..100).map(|n| step(1000 + 100 * (n % 10), if n / 10 % 2 == 0 { 0.1 } else { 0.3 })).collect();
        assert!(StepByLength::of(steps.iter()).unwrap().explained < 0.05);
        let alike: Vec<Split> = (0..100).map(|n| step(1000, 0.001 * f64::from(n))).collect();
        assert_eq!(StepByLength::of(alike.iter()), None);
        assert_eq!(StepByLength::of(steps.iter().take(15)), None);
    }
}
