//! Cutting a dataset into parts (train, validation, test) by ratio, class by class.
//!
//! Every sample lands in exactly one part. In every class each part has its share of that class rounded down or up,
//! and which parts are rounded up in one class depends on who came short in the classes before, so that small classes
//! do not add up to a bias. The cut depends on the classes, the ratios and the seed only.

use crate::permutation::Permutation;
use crate::rng::fold;
use crate::{Error, Result, SampleId};
use std::collections::BTreeMap;

/// Most parts of one split.
pub const MAX_PARTS: usize = 64;

/// What a sum of ratios and counts may miss by: far below one sample of any dataset.
const EPSILON: f64 = 1e-6;

/// How much of a dataset goes where.
#[derive(Clone, Debug, PartialEq)]
pub struct Ratios(Vec<f64>);

impl Ratios {
    /// Shares in any unit: `8, 1, 1` is `0.8, 0.1, 0.1`.
    pub fn new(shares: &[f64]) -> Result<Self> {
        let fault = |why: String| Error::invalid_config(format!("split by ratios {shares:?}: {why}"));
        if shares.is_empty() || shares.len() > MAX_PARTS {
            return Err(fault(format!("give 1 to {MAX_PARTS} ratios")));
        }
        if shares.iter().any(|share| !share.is_finite() || *share < 0.0) {
            return Err(fault("a ratio is a number, 0 or more".into()));
        }
        let sum: f64 = shares.iter().sum();
        if !(sum.is_finite() && sum > 0.0) {
            return Err(fault("their sum is not positive".into()));
        }
        Ok(Self(shares.iter().map(|share| share / sum).collect()))
    }

    /// The share of each part; they add up to 1.
    pub fn shares(&self) -> &[f64] {
        &self.0
    }
}

/// The samples of each part, in the order of their ids. `classes[i]` is the class of sample `i`; samples without one
/// make up a class of their own.
pub fn split(classes: &[Option<i64>], ratios: &Ratios, seed: u64) -> Vec<Vec<SampleId>> {
    let mut members: BTreeMap<Option<i64>, Vec<SampleId>> = BTreeMap::new();
    for (sample, class) in (0..).zip(classes) {
        members.entry(*class).or_default().push(SampleId(sample));
    }
    let mut parts = vec![Vec::new(); ratios.0.len()];
    // What each part should have had so far, less what it got.
    let mut short = vec![0.0; ratios.0.len()];
    for (class, members) in members {
        let counts = counts(members.len(), ratios, &mut short);
        let (known, number) = (u64::from(class.is_some()), class.unwrap_or_default() as u64);
        let order = Permutation::new(members.len() as u64, fold(&[seed, known, number]));
        let mut drawn = (0..members.len() as u64).map(|at| members[order.at(at) as usize]);
        for (part, count) in parts.iter_mut().zip(counts) {
            part.extend(drawn.by_ref().take(count));
        }
    }
    for part in &mut parts {
        part.sort_unstable();
    }
    parts
}

/// How many of a class's `total` samples each part gets: its share rounded down, and one more for those who came
/// shortest so far, until all are given away.
fn counts(total: usize, ratios: &Ratios, short: &mut [f64]) -> Vec<usize> {
    let share = |ratio: &f64| ratio * total as f64;
    let mut counts: Vec<usize> =
        ratios.0.iter().map(|ratio| (share(ratio) + EPSILON).floor() as usize).collect();
    for ((short, ratio), count) in short.iter_mut().zip(&ratios.0).zip(&counts) {
        *short += share(ratio) - *count as f64;
    }
    let left = total.saturating_sub(counts.iter().sum());
    let mut order: Vec<usize> = (0..counts.len()).collect();
    let whole = |part: usize| share(&ratios.0[part]) - counts[part] as f64 <= EPSILON;
    // Parts whose share is a whole number have it already and come last.
    order.sort_by(|a, b| whole(*a).cmp(&whole(*b)).then(short[*b].total_cmp(&short[*a])).then(a.cmp(b)));
    for part in order.into_iter().take(left) {
        counts[part] += 1;
        short[part] -= 1.0;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(classes: &[Option<i64>], shares: &[f64], seed: u64) {
        let ratios = Ratios::new(shares).unwrap();
        let parts = split(classes, &ratios, seed);
        let mut all: Vec<u64> = parts.iter().flatten().map(|sample| sample.0).collect();
        all.sort_unstable();
        assert_eq!(all, (0..classes.len() as u64).collect::<Vec<_>>(), "each sample once");
        let mut totals: BTreeMap<Option<i64>, f64> = BTreeMap::new();
        for class in classes {
            *totals.entry(*class).or_default() += 1.0;
        }
        for (part, share) in parts.iter().zip(ratios.shares()) {
            for (class, total) in &totals {
                let got = part.iter().filter(|sample| classes[sample.0 as usize] == *class).count();
                assert!((got as f64 - total * share).abs() < 1.0 + 1e-6, "class {class:?}: {got} of {total}");
            }
            let wanted = share * classes.len() as f64;
            assert!((part.len() as f64 - wanted).abs() <= shares.len() as f64, "{} not {wanted}", part.len());
        }
        assert_eq!(parts, split(classes, &ratios, seed), "the same again");
    }

    proptest! {
        #[test]
        fn p074_every_sample_is_in_one_part_and_every_class_is_cut_by_the_ratios(
            classes in proptest::collection::vec(proptest::option::of(0i64..9), 0..400),
            shares in proptest::collection::vec(0.0f64..10.0, 1..6),
            seed in any::<u64>(),
        ) {
            prop_assume!(shares.iter().sum::<f64>() > 0.01);
            check(&classes, &shares, seed);
        }
    }

    #[test]
    fn p074_small_classes_do_not_add_up_to_a_bias() {
        let classes: Vec<Option<i64>> = (0..5000).map(|sample| Some(sample % 1000)).collect();
        let parts = split(&classes, &Ratios::new(&[8.0, 1.0, 1.0]).unwrap(), 0);
        let sizes: Vec<usize> = parts.iter().map(Vec::len).collect();
        assert!(
            sizes.iter().zip([4000, 500, 500]).all(|(size, wanted)| size.abs_diff(wanted) <= 1),
            "{sizes:?}"
        );
    }

    #[test]
    fn p074_the_seed_decides_who_goes_where_and_the_cut_never_changes_between_releases() {
        let classes = vec![Some(3); 20];
        let ratios = Ratios::new(&[0.7, 0.3]).unwrap();
        let parts = split(&classes, &ratios, 0);
        assert_eq!((parts[0].len(), parts[1].len()), (14, 6));
        assert_ne!(parts, split(&classes, &ratios, 1));
        assert_eq!(parts[1].iter().map(|sample| sample.0).collect::<Vec<_>>(), GOLDEN);
    }

    const GOLDEN: [u64; 6] = [2, 3, 7, 12, 13, 15];

    #[test]
    fn ratios_that_make_no_sense_are_refused() {
        for bad in [&[][..], &[0.0, 0.0], &[-1.0, 2.0], &[f64::NAN], &[f64::INFINITY], &[1.0; 65]] {
            assert!(Ratios::new(bad).is_err(), "{bad:?}");
        }
        assert_eq!(Ratios::new(&[8.0, 2.0]).unwrap().shares(), [0.8, 0.2]);
    }
}
