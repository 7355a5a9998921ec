//! A rate that was measured, and how far it can be trusted.

use serde::Serialize;

/// Two-sided 95 % points of Student's t for 1 to 15 degrees of freedom; beyond that the last one errs on the safe side.
const STUDENT: [f64; 15] =
    [12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131];

/// Samples a second, with a 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rate {
    /// All samples over all time.
    pub per_second: f64,
    /// The lower end of the interval, at least 0.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Rate {
    /// A rate that is known.
    pub fn exact(per_second: f64) -> Self {
        Self { per_second, low: per_second, high: per_second }
    }

    /// From stretches of time that were measured one after the other: seconds and samples of each. `None` when nothing
    /// was measured. The interval takes stretches as independent; two of them at least, or it says nothing.
    pub fn of(stretches: &[(f64, f64)]) -> Option<Self> {
        let (seconds, samples) =
            stretches.iter().fold((0.0, 0.0), |sum, (seconds, samples)| (sum.0 + seconds, sum.1 + samples));
        if !(seconds > 0.0 && samples > 0.0) {
            return None;
        }
        let per_second = samples / seconds;
        let rates: Vec<f64> = stretches
            .iter()
            .filter(|(seconds, _)| *seconds > 0.0)
            .map(|(seconds, samples)| samples / seconds)
            .collect();
        let count = rates.len() as f64;
        if rates.len() < 2 {
            return Some(Self { per_second, low: 0.0, high: f64::INFINITY });
        }
        let mean = rates.iter().sum::<f64>() / count;
        let variance = rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / (count - 1.0);
        let half = STUDENT[(rates.len() - 2).min(STUDENT.len() - 1)] * (variance / count).sqrt();
        Some(Self { per_second, low: (per_second - half).max(0.0), high: per_second + half })
    }

    /// From moments at which batches were taken: seconds since the beginning, ascending, and samples. What came in the first
    /// `warm_up` seconds is left out, the rest is cut into ten stretches.
    pub fn of_batches(taken: &[(f64, u64)], warm_up: f64) -> Option<Self> {
        let first = taken.iter().position(|(at, _)| *at >= warm_up)?;
        let rest = since_a_wait(&taken[first..]);
        let stretch = (rest.len() - 1).div_ceil(10).max(1);
        let mut stretches = Vec::new();
        let mut since = rest[0].0;
        for batches in rest[1..].chunks(stretch) {
            let until = batches.last()?.0;
            let samples = batches.iter().map(|(_, samples)| *samples).sum::<u64>();
            stretches.push((until - since, samples as f64));
            since = until;
        }
        Self::of(&stretches)
    }
}

/// Batches from the first one on after which the loop had to wait again: what piled up behind a late one came earlier than
/// it was handed over, and says nothing about a rate.
fn since_a_wait(taken: &[(f64, u64)]) -> &[(f64, u64)] {
    let [first, .., last] = taken else { return taken };
    let usual = (last.0 - first.0) / (taken.len() - 1) as f64;
    let begin = taken.windows(2).position(|pair| pair[1].0 - pair[0].0 >= usual / 2.0);
    &taken[begin.unwrap_or(0)..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_stretches_leave_no_doubt_and_uneven_ones_do() {
        assert_eq!(Rate::of(&[(2.0, 100.0), (2.0, 100.0)]), Some(Rate::exact(50.0)));
        let uneven = Rate::of(&[(1.0, 40.0), (1.0, 60.0), (1.0, 50.0)]).unwrap();
        // A standard deviation of 10 over the root of 3, times 4.303.
        assert!(
            (uneven.per_second - 50.0).abs() < 1e-9 && (uneven.high - 50.0 - 24.843).abs() < 0.01,
            "{uneven:?}"
        );
        let one = Rate::of(&[(1.0, 40.0)]).unwrap();
        assert_eq!((one.per_second, one.low, one.high), (40.0, 0.0, f64::INFINITY));
        assert_eq!(Rate::of(&[]), None);
        assert_eq!(Rate::of(&[(0.0, 3.0)]), None);
    }

    #[test]
    fn what_piled_up_behind_a_late_batch_is_left_out() {
        // Fifty a second; the first batch is a second late, and six come with it.
        let taken: Vec<(f64, u64)> = (1..=19).map(|batch| ((f64::from(batch) * 0.16).max(1.0), 8)).collect();
        let rate = Rate::of_batches(&taken, 0.9).unwrap();
        assert!((rate.per_second - 50.0).abs() < 2.0, "{rate:?}");
        // Pairs that come together are no pile.
        let pairs: Vec<(f64, u64)> = (0..20).map(|batch| (f64::from(batch / 2) * 0.32, 8)).collect();
        let rate = Rate::of_batches(&pairs, 0.0).unwrap();
        assert!((rate.per_second - 50.0).abs() < 1e-6, "{rate:?}");
    }

    #[test]
    fn a_slow_beginning_is_left_out() {
        let mut taken: Vec<(f64, u64)> = (1..=5).map(|batch| (f64::from(batch), 8)).collect();
        taken.extend((1..=100).map(|batch| (5.0 + f64::from(batch) * 0.1, 8)));
        let rate = Rate::of_batches(&taken, 5.0).unwrap();
        assert!((rate.per_second - 80.0).abs() < 1e-6 && rate.high - rate.low < 1e-3, "{rate:?}");
        assert_eq!(Rate::of_batches(&taken, 100.0), None);
        assert_eq!(Rate::of_batches(&taken[..1], 0.0), None);
    }
}
