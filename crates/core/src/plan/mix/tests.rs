//! Promises of a mix: proportions, passes without replacement, exact length, any position without replay.

use super::*;
use crate::plan::Plan;
use crate::{ErrorKind, SampleId};
use proptest::prelude::*;
use std::collections::HashMap;

/// Parts of these lengths and weights, one run of sample ids after the other.
pub(super) fn parts(of: &[(u64, f64)]) -> Vec<MixPart> {
    let mut start = 0;
    let part = |(len, weight): &(u64, f64)| {
        let samples = start..start + len;
        start = samples.end;
        MixPart { samples, weight: *weight }
    };
    of.iter().map(part).collect()
}

fn plan(of: &[(u64, f64)], epoch_samples: u64, seed: u64, epoch: u64) -> Plan {
    Sampler::mixed(&parts(of), epoch_samples, seed).unwrap().plan(epoch)
}

pub(super) fn order(plan: &Plan) -> Vec<u64> {
    (0..plan.len()).map(|position| plan.at(position).0).collect()
}

/// How often each sample of each part comes.
pub(super) fn counts(of: &[(u64, f64)], order: &[u64]) -> Vec<Vec<u64>> {
    let mut seen: HashMap<u64, u64> = HashMap::new();
    for sample in order {
        *seen.entry(*sample).or_default() += 1;
    }
    let count = |sample| seen.get(&sample).copied().unwrap_or(0);
    parts(of).into_iter().map(|part| part.samples.map(count).collect()).collect()
}

const THREE: [(u64, f64); 3] = [(40_000, 0.5), (700, 0.3), (90, 0.2)];

#[test]
fn p029_mixture_proportions_are_within_two_percent_over_10_000_samples() {
    for (seed, epoch) in [(0, 0), (1, 0), (1, 9), (99, 3)] {
        let plan = plan(&THREE, 10_000, seed, epoch);
        assert_eq!(plan.len(), 10_000);
        let counts = counts(&THREE, &order(&plan));
        for (part, (_, weight)) in counts.iter().zip(THREE) {
            let (got, wanted) = (part.iter().sum::<u64>() as f64, weight * 10_000.0);
            assert!((got / wanted - 1.0).abs() < 0.02, "{got} of {wanted} samples of weight {weight}");
        }
        assert_eq!(counts.iter().flatten().sum::<u64>(), 10_000, "every position is of some part");
    }
}

/// Proportions hold early too: after any whole round, and closely inside one.
#[test]
fn p029_mixture_proportions_hold_from_the_first_round_on() {
    let order = order(&plan(&THREE, 10_000, 5, 1));
    let first_counts = counts(&THREE, &order[..1024]);
    assert_eq!(first_counts.iter().map(|part| part.iter().sum()).collect::<Vec<u64>>(), [512, 307, 205]);
    for window in order.chunks(500) {
        let large = window.iter().filter(|sample| **sample < 40_000).count() as f64 / window.len() as f64;
        assert!((0.38..0.62).contains(&large), "a window of {} has {large} of weight 0.5", window.len());
    }
}

proptest! {
    /// Over whole rounds the picks of a part are `0..n`, so every sample was drawn `n / len` times or once more.
    #[test]
    fn p029_mixture_draws_each_part_without_replacement_inside_a_pass(
        of in proptest::collection::vec((1u64..600, 0.01f64..100.0), 1..6), rounds in 1u64..6, seed: u64, epoch: u64,
    ) {
        let plan = plan(&of, rounds * ROUND, seed, epoch);
        for part in counts(&of, &order(&plan)) {
            let (least, most) = (part.iter().min().unwrap(), part.iter().max().unwrap());
            prop_assert!(most - least <= 1, "a sample came {most} times, another {least} times");
        }
    }

    /// A round that is cut short repeats nothing either, while a part lasts.
    #[test]
    fn p029_mixture_epochs_end_exactly_at_n_without_a_repeat(epoch_samples in 1u64..5000, seed: u64) {
        let of = [(4000, 2.0), (5000, 1.0), (6000, 1.5)];
        let plan = plan(&of, epoch_samples, seed, 0);
        prop_assert_eq!(plan.len(), epoch_samples);
        let order = order(&plan);
        prop_assert_eq!(order.len() as u64, epoch_samples);
        prop_assert!(counts(&of, &order).iter().flatten().all(|count| *count <= 1));
        prop_assert_eq!(plan.position_of(SampleId(0)), None);
        prop_assert_eq!(plan.group_end(0), epoch_samples);
    }

    #[test]
    fn quotas_fill_a_round_and_follow_the_weights(
        weights in proptest::collection::vec((-30i32..30, 1.0f64..10.0), 1..=MAX_PARTS),
    ) {
        let weights: Vec<f64> = weights.into_iter().map(|(power, digits)| digits * 10f64.powi(power)).collect();
        let quotas = quotas(&weights);
        prop_assert_eq!(quotas.iter().sum::<u64>(), ROUND);
        prop_assert!(quotas.iter().all(|quota| *quota >= 1));
        for (a, b) in (0..weights.len()).zip(1..weights.len()) {
            // A heavier part never gets less, but for the last slot taken to lift the light ones.
            prop_assert!(weights[a] >= weights[b] || quotas[a] <= quotas[b] + 1);
        }
    }
}

#[test]
fn p029_mixture_depends_on_seed_and_epoch_and_needs_no_earlier_epoch() {
    let fourth = order(&plan(&THREE, 3000, 8, 4));
    let sampler = Sampler::mixed(&parts(&THREE), 3000, 8).unwrap();
    let _ = order(&sampler.plan(1));
    // Backwards, and by another sampler: a position needs no position before it.
    let again = sampler.plan(4);
    assert!((0..3000).rev().all(|position| again.at(position).0 == fourth[position as usize]));
    assert_ne!(fourth, order(&plan(&THREE, 3000, 8, 5)));
    assert_ne!(fourth, order(&plan(&THREE, 3000, 9, 4)));
    assert_eq!(
        fourth,
        order(&plan(&THREE, 9000, 8, 4))[..3000],
        "the length cuts the order, it does not change it"
    );
}

#[test]
fn weights_are_relative_and_extreme_ones_do_no_harm() {
    assert_eq!(quotas(&[1.0]), [1024]);
    assert_eq!(quotas(&[5.0, 3.0, 2.0]), quotas(&[0.5, 0.3, 0.2]));
    assert_eq!(quotas(&[f64::MAX, f64::MAX]), [512, 512]);
    assert_eq!(quotas(&[1.0, 1e-300, f64::MIN_POSITIVE]), [1022, 1, 1]);
    assert_eq!(quotas(&[1.0, 1.0, 1.0]), [342, 341, 341]);
}

#[test]
fn parts_that_overlap_are_empty_or_weigh_nothing_are_refused() {
    let part = |samples: Range<u64>, weight| MixPart { samples, weight };
    let many = parts(&vec![(1, 1.0); MAX_PARTS + 1]);
    let bad = [
        vec![],
        many,
        vec![part(0..5, 1.0), part(5..5, 1.0)],
        vec![part(0..5, 1.0), part(4..9, 1.0)],
        vec![part(7..9, 1.0), part(0..8, 1.0)],
        vec![part(0..5, 0.0)],
        vec![part(0..5, -1.0)],
        vec![part(0..5, f64::NAN)],
        vec![part(0..5, f64::INFINITY)],
    ];
    for parts in bad {
        let shown = format!("{parts:?}");
        let error = Sampler::mixed(&parts, 100, 0).expect_err(&shown);
        assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    }
    assert_eq!(Sampler::mixed(&parts(&THREE), 0, 0).unwrap_err().kind(), ErrorKind::InvalidConfig);
}

#[test]
fn the_mix_never_changes_between_releases() {
    let plan = plan(&THREE, 5000, 1, 2);
    assert_eq!((3000..3008).map(|position| plan.at(position).0).collect::<Vec<_>>(), GOLDEN);
}

const GOLDEN: [u64; 8] = [40_772, 40_050, 40_734, 39_878, 16_256, 29_508, 16_282, 30_716];
