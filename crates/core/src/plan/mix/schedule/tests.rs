//! Promises of changing weights: the order is that of a walk from the first position on, and nothing received changes.

use super::super::tests::{order, parts};
use super::*;
use crate::cursor::Remaining;
use crate::permutation::Permutation;
use crate::plan::{MIX, MIX_PART, Sampler};
use crate::portion::{Consumer, LastBatch};
use crate::rng::fold;
use proptest::prelude::*;

fn change(epoch: u64, position: u64, weights: &[f64]) -> MixChange {
    MixChange { epoch, position, weights: weights.to_vec() }
}

/// An epoch found by walking it: weights are looked up at every round, picks are counted one by one.
fn walked(of: &[(u64, f64)], changes: &[MixChange], samples: u64, seed: u64, epoch: u64) -> Vec<u64> {
    let mut picks = vec![0u64; of.len()];
    let starts: Vec<u64> = parts(of).iter().map(|part| part.samples.start).collect();
    let mut found = Vec::new();
    for round in 0..samples.div_ceil(ROUND) {
        let mut weights: Vec<f64> = of.iter().map(|(_, weight)| *weight).collect();
        let mut latest = None;
        for change in changes {
            let mut from = (change.epoch, change.position.div_ceil(ROUND));
            if from.1 > 0 && from.1 * ROUND >= samples {
                from = (from.0 + 1, 0);
            }
            if from <= (epoch, round) && latest.is_none_or(|latest| latest <= from) {
                latest = Some(from);
                weights.clone_from(&change.weights);
            }
        }
        let quotas = quotas(&weights);
        let slots = quotas.iter().enumerate().flat_map(|(part, quota)| (0..*quota).map(move |at| (part, at)));
        let slots: Vec<(usize, u64)> = slots.collect();
        let permutation = Permutation::new(ROUND, fold(&[seed, epoch, MIX, round]));
        for place in 0..ROUND.min(samples - round * ROUND) {
            let (part, at) = slots[permutation.at(place) as usize];
            let (pick, len) = (picks[part] + at, of[part].0);
            let key = fold(&[seed, epoch, MIX_PART, part as u64, pick / len]);
            found.push(starts[part] + Permutation::new(len, key).at(pick % len));
        }
        picks.iter_mut().zip(&quotas).for_each(|(picks, quota)| *picks += quota);
    }
    found
}

/// Parts, changes with a weight for each, and the length of an epoch.
fn scheduled() -> impl Strategy<Value = (Vec<(u64, f64)>, Vec<MixChange>, u64)> {
    (1usize..5).prop_flat_map(|count| {
        let of = proptest::collection::vec((1u64..900, 0.01f64..10.0), count);
        let weight = prop_oneof![3 => 0.01f64..10.0, 1 => Just(0.0)];
        let weights = proptest::collection::vec(weight, count)
            .prop_filter("some weight", |weights| weights.iter().any(|weight| *weight > 0.0));
        let change = (0u64..3, 0u64..7000, weights).prop_map(|(epoch, position, weights)| MixChange {
            epoch,
            position,
            weights,
        });
        (of, proptest::collection::vec(change, 0..5), 1u64..6000)
    })
}

/// Reads epoch after epoch by jobs of so many ranks, each stopped after some steps and resumed from its cursor.
fn read(sampler: &dyn Fn(usize) -> Sampler, jobs: &[(u64, u64)], epochs: u64) -> Vec<Vec<u64>> {
    let mut epochs_read = vec![Vec::new(); epochs as usize];
    let mut cursor = Cursor::start_of(0);
    let mut job = 0;
    while cursor.epoch < epochs {
        let (world_size, stop) = jobs[job % jobs.len()];
        let sampler = sampler(job);
        let plan = sampler.plan(cursor.epoch);
        let consumer = |rank| Consumer { rank, world_size, batch_size: 48, last_batch: LastBatch::Partial };
        let portions: Vec<_> =
            (0..world_size).map(|rank| sampler.portion(consumer(rank), &cursor).unwrap()).collect();
        let steps = portions[0].steps();
        // The last job of an epoch reads the rest of it, so that epochs end.
        let steps = if job % 3 == 2 { steps } else { steps.min(stop) };
        let mut received: Vec<u64> = Vec::new();
        for portion in &portions {
            for step in 0..steps {
                let places = portion.batch(step).filter(|place| !place.padding);
                received.extend(places.map(|place| place.position));
            }
        }
        received.sort_unstable();
        epochs_read[cursor.epoch as usize].extend(received.into_iter().map(|position| plan.at(position).0));
        cursor = portions[0].cursor_after(cursor.epoch, steps);
        job += 1;
    }
    epochs_read
}

proptest! {
    #[test]
    fn p029_a_mix_whose_weights_change_is_that_of_a_walk_at_every_position(
        (of, changes, samples) in scheduled(), seed: u64,
    ) {
        let sampler = Sampler::mixed_by(&parts(&of), &changes, samples, seed).unwrap();
        for epoch in 0..4 {
            prop_assert_eq!(order(&sampler.plan(epoch)), walked(&of, &changes, samples, seed, epoch));
        }
    }

    #[test]
    fn p029_a_mix_whose_weights_change_is_read_once_on_any_ranks_and_restarts(
        (of, changes, samples) in scheduled(), seed: u64, jobs in proptest::collection::vec((1u64..6, 0u64..30), 1..5),
    ) {
        let sampler = Sampler::mixed_by(&parts(&of), &changes, samples, seed).unwrap();
        let epochs = read(&|_| sampler.clone(), &jobs, 3);
        for (epoch, found) in epochs.iter().enumerate() {
            prop_assert_eq!(found, &walked(&of, &changes, samples, seed, epoch as u64));
        }
    }

    /// A change that is accepted at a cursor changes nothing before it, and one that is refused would or takes one away.
    #[test]
    fn p029_what_was_received_never_depends_on_a_change_that_was_added(
        (of, changes, samples) in scheduled(), seed: u64, kept in 0usize..5, epoch in 0u64..3, received in 0u64..6000,
    ) {
        let cursor = Cursor::at(epoch, Remaining::new(samples, received.min(samples - 1), Vec::new()).unwrap());
        let before = &changes[..kept.min(changes.len())];
        let ask = Reschedule { before, after: &changes, epoch_samples: samples, cursor: &cursor, is_moved: false };
        let orders = [before, &changes[..]].map(|changes| {
            let sampler = Sampler::mixed_by(&parts(&of), changes, samples, seed).unwrap();
            let mut all: Vec<u64> = (0..epoch).flat_map(|epoch| order(&sampler.plan(epoch))).collect();
            all.extend(&order(&sampler.plan(epoch))[..received.min(samples - 1) as usize]);
            all
        });
        match ask.check() {
            Ok(()) => prop_assert_eq!(&orders[0], &orders[1]),
            Err(error) => {
                let (told, at) = (error.to_string(), ask.received());
                let early = changes.iter().any(|change| change.holds_from(samples) < at);
                prop_assert!(early && (told.contains("too late") || told.contains("it was")), "{}", told);
            }
        }
        // Going back is refused, unless nothing is taken away by it.
        let back = Reschedule { before: &changes, after: before, epoch_samples: samples, cursor: &cursor, is_moved: false };
        let places = |changes: &[MixChange]| {
            changes.iter().map(|change| change.holds_from(samples)).collect::<std::collections::BTreeSet<_>>()
        };
        if places(&changes) != places(before) {
            prop_assert!(back.check().is_err());
        }
    }
}

#[test]
fn p029_shares_follow_a_change_from_the_next_round_on() {
    let of = [(50_000, 3.0), (50_000, 1.0)];
    let changes = [change(0, 1500, &[1.0, 1.0]), change(1, 0, &[0.0, 1.0])];
    let sampler = Sampler::mixed_by(&parts(&of), &changes, 4096, 7).unwrap();
    let of_first = |epoch: u64| -> Vec<usize> {
        let order = order(&sampler.plan(epoch));
        order.chunks(ROUND as usize).map(|round| round.iter().filter(|id| **id < 50_000).count()).collect()
    };
    assert_eq!(of_first(0), [768, 768, 512, 512], "position 1500 lies in the second round");
    assert_eq!(of_first(1), [0; 4]);
    assert_eq!(of_first(9), [0; 4], "a change holds until the next one");
    // The last round is behind every position of the third change's epoch, so it waits for the next epoch.
    assert_eq!(change(2, 3500, &[1.0, 1.0]).holds_from(4096), (3, 0));
    assert_eq!(change(2, 0, &[1.0, 1.0]).holds_from(10), (2, 0));
}

#[test]
fn cuts_and_arrival_take_changes_from_a_later_epoch_on() {
    let cursor = Cursor::at(4, Remaining::new(9000, 100, Vec::new()).unwrap());
    let ask = |after: &[MixChange], is_moved| {
        Reschedule { before: &[], after, epoch_samples: 9000, cursor: &cursor, is_moved }.check()
    };
    let soon = [change(4, 2000, &[1.0])];
    assert!(ask(&soon, false).is_ok());
    assert!(ask(&soon, true).unwrap_err().to_string().contains("too late"));
    assert!(ask(&[change(5, 0, &[1.0])], true).is_ok());
    let fresh = Cursor::start_of(4);
    let ask = Reschedule { before: &[], after: &soon, epoch_samples: 9000, cursor: &fresh, is_moved: true };
    assert!(ask.check().is_ok(), "nothing of the epoch was received");
}

#[test]
fn changes_that_make_no_sense_are_refused() {
    let bad = [
        vec![change(0, 0, &[1.0])],
        vec![change(0, 0, &[1.0, 0.0, 0.0])],
        vec![change(0, 0, &[0.0, 0.0])],
        vec![change(0, 0, &[-1.0, 1.0])],
        vec![change(0, 0, &[f64::NAN, 1.0])],
        vec![change(0, 0, &[f64::INFINITY, 1.0])],
        vec![change(0, 0, &[1.0, 1.0]); MAX_CHANGES + 1],
    ];
    for changes in bad {
        assert!(check_changes(&changes, 2).is_err(), "{changes:?}");
    }
    assert!(check_changes(&[change(u64::MAX, u64::MAX, &[0.0, 1.0])], 2).is_ok());
    let late = [change(u64::MAX, u64::MAX, &[0.0, 1.0])];
    assert!(Sampler::mixed_by(&parts(&[(5, 1.0), (5, 1.0)]), &late, 10, 0).is_ok());
}
