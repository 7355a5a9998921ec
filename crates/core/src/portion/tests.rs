//! Promises of the split among ranks and of resuming it.

use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

const POLICIES: [LastBatch; 4] = [LastBatch::Drop, LastBatch::Partial, LastBatch::Pad, LastBatch::Wrap];

fn consumer(rank: u64, world_size: u64, batch_size: u64, last_batch: LastBatch) -> Consumer {
    Consumer { rank, world_size, batch_size, last_batch }
}

fn portion(samples: u64, who: Consumer, cursor: &Cursor) -> Portion {
    Portion::new(samples, who, cursor).unwrap()
}

fn any_policy() -> impl Strategy<Value = LastBatch> {
    proptest::sample::select(&POLICIES[..])
}

/// Real (unpadded) positions of the next `steps` batches of all ranks, or of all that are left.
fn take(samples: u64, world: u64, batch: u64, policy: LastBatch, cursor: &Cursor, steps: u64) -> Vec<u64> {
    let mut taken = Vec::new();
    for rank in 0..world {
        let portion = portion(samples, consumer(rank, world, batch, policy), cursor);
        for step in 0..portion.steps().min(steps) {
            taken.extend(portion.batch(step).filter(|place| !place.padding).map(|place| place.position));
        }
    }
    taken
}

fn assert_each_once(mut positions: Vec<u64>, samples: u64) {
    positions.sort_unstable();
    assert_eq!(positions, (0..samples).collect::<Vec<_>>());
}

proptest! {
    /// Processes that are asked in turn give a rank's batches in the rank's order, whatever the policy, also from the
    /// middle of an epoch; each of them can be sent on to where it stood.
    #[test]
    fn p026_batches_made_in_turn_are_the_batches_of_the_rank_in_its_order(
        samples in 0u64..400, world in 1u64..5, batch in 1u64..20, of in 1u64..7, policy in any_policy(),
        skipped in 0u64..30, rank in 0u64..5,
    ) {
        let who = consumer(rank % world, world, batch, policy);
        let begun = portion(samples, who, &Cursor::start_of(3));
        let cursor = begun.cursor_after(3, skipped.min(begun.steps().saturating_sub(1)));
        let whole = portion(samples, who, &cursor);
        let turns: Vec<Portion> =
            (0..of).map(|first| portion(samples, who, &cursor).in_turn(Turn { first, of })).collect();
        prop_assert_eq!(turns.iter().map(Portion::steps).sum::<u64>(), whole.steps());
        for step in 0..whole.steps() {
            let turn = &turns[(step % of) as usize];
            prop_assert_eq!(turn.batch_len(step / of), whole.batch_len(step));
            let (made, wanted): (Vec<Place>, Vec<Place>) =
                (turn.batch(step / of).collect(), whole.batch(step).collect());
            prop_assert_eq!(&made, &wanted);
            let again = portion(samples, who, &turn.cursor_after(3, step / of))
                .in_turn(Turn { first: step % of, of });
            let positions = |places: &[Place]| places.iter().map(|p| (p.position, p.padding)).collect::<Vec<_>>();
            prop_assert_eq!(positions(&again.batch(0).collect::<Vec<_>>()), positions(&wanted));
        }
        for turn in turns {
            prop_assert_eq!(turn.cursor_after(3, turn.steps()), Cursor::start_of(4));
        }
    }

    #[test]
    fn p027_all_ranks_have_equal_steps_and_no_batch_is_empty(
        samples in 0u64..500, world in 1u64..9, batch in 1u64..40, policy in any_policy(),
    ) {
        let steps: Vec<u64> = (0..world)
            .map(|rank| portion(samples, consumer(rank, world, batch, policy), &Cursor::start_of(0)).steps())
            .collect();
        prop_assert!(steps.iter().all(|count| *count == steps[0]));
        for rank in 0..world {
            let portion = portion(samples, consumer(rank, world, batch, policy), &Cursor::start_of(0));
            for step in 0..portion.steps() {
                let places: Vec<Place> = portion.batch(step).collect();
                prop_assert_eq!(places.len() as u64, portion.batch_len(step));
                prop_assert!(!places.is_empty());
                if policy != LastBatch::Partial {
                    prop_assert_eq!(places.len() as u64, batch);
                }
                prop_assert!(places.iter().all(|place| place.position < samples));
                prop_assert!(policy != LastBatch::Drop || places.iter().all(|place| !place.padding));
            }
        }
    }

    #[test]
    fn portions_are_disjoint_and_cover_the_plan(
        samples in 0u64..800, world in 1u64..9, batch in 1u64..40, policy in any_policy(),
    ) {
        let mut taken = take(samples, world, batch, policy, &Cursor::start_of(0), u64::MAX);
        taken.sort_unstable();
        let expected = match policy {
            LastBatch::Drop => samples / (world * batch) * world * batch,
            _ => samples,
        };
        prop_assert_eq!(taken, (0..expected).collect::<Vec<_>>());
    }

    #[test]
    fn a_batch_does_not_depend_on_the_number_of_ranks(samples in 100u64..800, batch in 1u64..20, policy in any_policy()) {
        let whole = |world: u64| -> HashMap<u64, Vec<u64>> {
            (0..world).flat_map(|rank| {
                let portion = portion(samples, consumer(rank, world, batch, policy), &Cursor::start_of(0));
                let full_steps = samples / (batch * world);
                (0..portion.steps().min(full_steps))
                    .map(|step| (step * world + rank, portion.batch(step).map(|place| place.position).collect()))
                    .collect::<Vec<_>>()
            }).collect()
        };
        let alone = whole(1);
        for world in 2..5 {
            for (index, positions) in whole(world) {
                prop_assert_eq!(&alone[&index], &positions);
            }
        }
    }

    #[test]
    fn p059_a_checkpoint_resumes_on_any_number_of_ranks_exactly_once(
        samples in 1u64..1200, world in 1u64..9, batch in 1u64..24, stop in 0u64..30,
        new_world in 1u64..9, new_batch in 1u64..24, second_stop in 0u64..10, last_world in 1u64..5,
    ) {
        let policy = LastBatch::Partial;
        let start = Cursor::start_of(4);
        let mut taken = take(samples, world, batch, policy, &start, stop);
        let cursors: Vec<Cursor> = (0..world)
            .map(|rank| portion(samples, consumer(rank, world, batch, policy), &start).cursor_after(4, stop))
            .collect();
        prop_assert!(cursors.iter().all(|cursor| *cursor == cursors[0]), "every rank saves the same cursor");
        let text = serde_json::to_string(&cursors[0]).unwrap();
        let cursor = Cursor::from_json(&text).unwrap();
        if cursor.epoch == 4 {
            taken.extend(take(samples, new_world, new_batch, policy, &cursor, second_stop));
            let middle = portion(samples, consumer(0, new_world, new_batch, policy), &cursor).cursor_after(4, second_stop);
            if middle.epoch == 4 {
                taken.extend(take(samples, last_world, batch, policy, &middle, u64::MAX));
            }
        }
        taken.sort_unstable();
        prop_assert_eq!(taken, (0..samples).collect::<Vec<_>>());
    }

    /// Ranks receive in arrival order, each with its own displacement; the job stops and goes on elsewhere.
    #[test]
    fn p059_arrival_order_resumes_on_any_number_of_ranks_exactly_once(
        samples in 1u64..900, world in 1u64..6, batch in 1u64..16, stop in 1u64..12,
        window in 0u64..40, new_world in 1u64..6, seed: u64,
    ) {
        let mut received = Vec::new();
        let mut cursors = Vec::new();
        for rank in 0..world {
            let who = consumer(rank, world, batch, LastBatch::Partial);
            let portion = portion(samples, who, &Cursor::start_of(2));
            let steps = stop.min(portion.steps());
            let rows: u64 = (0..steps).map(|step| portion.batch_len(step)).sum();
            let total: Vec<Place> = portion.places().collect();
            let taken = arrive(&total, rows, window, seed ^ rank);
            received.extend(taken.iter().filter(|place| !place.padding).map(|place| place.position));
            let locals: Vec<u64> = taken.iter().map(|place| place.local).collect();
            let cursor = portion.cursor_after_arrival(2, steps, &portion.local().without(&locals));
            // The same rank goes on with exactly what it has not received.
            if cursor.epoch == 2 {
                let rest = Portion::new(samples, who, &cursor).unwrap();
                let mut both: Vec<u64> = rest.places().map(|place| place.local).chain(locals).collect();
                both.sort_unstable();
                prop_assert_eq!(both, (0..total.len() as u64).collect::<Vec<_>>());
            }
            cursors.push(Cursor::from_json(&serde_json::to_string(&cursor).unwrap()).unwrap());
        }
        let merged = Cursor::merge(&cursors, samples).unwrap();
        if merged.epoch == 2 {
            received.extend(take(samples, new_world, batch, LastBatch::Partial, &merged, u64::MAX));
        }
        received.sort_unstable();
        prop_assert_eq!(received, (0..samples).collect::<Vec<_>>());
    }
}

/// The first `rows` places in a random order that displaces by at most `window`.
fn arrive(places: &[Place], rows: u64, window: u64, seed: u64) -> Vec<Place> {
    let mut order = crate::arrival::ArrivalOrder::new(window);
    let mut rng = crate::rng::Rng::keyed(seed, 1, 2);
    let mut in_flight: Vec<u64> = (0..places.len() as u64).collect();
    let mut taken = Vec::new();
    while (taken.len() as u64) < rows {
        if !in_flight.is_empty() {
            let near = (in_flight.len() as u64).min(window + 1);
            order.arrive(in_flight.remove(rng.below(near) as usize));
        }
        if let Some(number) = order.next_row() {
            taken.push(places[number as usize]);
        }
    }
    taken
}

#[test]
fn p026_a_thousand_and_three_samples_on_four_ranks_are_split_exactly() {
    for batch in [1, 7, 32, 250, 400] {
        let mut union = Vec::new();
        let mut sizes = Vec::new();
        for rank in 0..4 {
            let portion = portion(1003, consumer(rank, 4, batch, LastBatch::Partial), &Cursor::start_of(0));
            let mine: Vec<u64> =
                portion.places().filter(|place| !place.padding).map(|place| place.position).collect();
            sizes.push(mine.len());
            union.extend(mine);
        }
        assert_each_once(union, 1003);
        assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1, "{sizes:?} at batch {batch}");
    }
}

#[test]
fn p030_last_batches_have_the_promised_sizes() {
    let batch = 8;
    for (samples, drop, partial) in [
        (64, vec![8; 8], vec![8; 8]),
        (65, vec![8; 8], vec![8, 8, 8, 8, 8, 8, 8, 8, 1]),
        (71, vec![8; 8], vec![8, 8, 8, 8, 8, 8, 8, 8, 7]),
    ] {
        for policy in POLICIES {
            let portion = portion(samples, consumer(0, 1, batch, policy), &Cursor::start_of(0));
            let sizes: Vec<u64> = (0..portion.steps()).map(|step| portion.batch_len(step)).collect();
            let padding = portion.places().filter(|place| place.padding).count() as u64;
            match policy {
                LastBatch::Drop => assert_eq!((sizes, padding), (drop.clone(), 0)),
                LastBatch::Partial => assert_eq!((sizes, padding), (partial.clone(), 0)),
                LastBatch::Pad | LastBatch::Wrap => {
                    let steps = samples.div_ceil(batch);
                    assert_eq!((sizes, padding), (vec![batch; steps as usize], steps * batch - samples));
                }
            }
        }
    }
}

#[test]
fn padding_repeats_the_last_sample_and_wrapping_the_first_ones() {
    let positions = |policy| -> Vec<u64> {
        let portion = portion(10, consumer(0, 1, 8, policy), &Cursor::start_of(0));
        portion.batch(1).map(|place| place.position).collect()
    };
    assert_eq!(positions(LastBatch::Pad), [8, 9, 9, 9, 9, 9, 9, 9]);
    assert_eq!(positions(LastBatch::Wrap), [8, 9, 0, 1, 2, 3, 4, 5]);
}

#[test]
fn a_finished_epoch_resumes_at_the_next_one() {
    let portion = portion(100, consumer(0, 1, 10, LastBatch::Partial), &Cursor::start_of(6));
    assert_eq!(portion.cursor_after(6, 10), Cursor::start_of(7));
}

#[test]
fn a_cursor_stays_small_with_a_thousand_samples_ahead() {
    let who = consumer(0, 1, 64, LastBatch::Partial);
    let portion = portion(1_000_000, who, &Cursor::start_of(0));
    let taken: Vec<u64> =
        (0..64 * 100).map(|number| if number < 5376 { number } else { 5376 + (number - 5376) * 2 }).collect();
    let cursor = portion.cursor_after_arrival(0, 100, &portion.local().without(&taken));
    let text = serde_json::to_string(&cursor).unwrap();
    assert!(text.len() < 1024, "{} bytes", text.len());
}

#[test]
fn cursors_of_another_job_are_refused_with_the_reason() {
    let who = consumer(1, 4, 8, LastBatch::Partial);
    let mine = portion(1000, who, &Cursor::start_of(0));
    let cursor = mine.cursor_after_arrival(0, 1, &mine.local().without(&[0, 1, 2, 3, 4, 5, 6, 9]));
    let other = Portion::new(1000, consumer(0, 2, 8, LastBatch::Partial), &cursor).unwrap_err();
    assert!(other.message().contains("rank 1 of 4"), "{other}");
    let missing = Cursor::merge(std::slice::from_ref(&cursor), 1000).unwrap_err();
    assert!(missing.message().contains("rank 0 of 4 is missing"), "{missing}");
    assert!(
        Cursor::from_json("{\"version\":9,\"epoch\":0,\"base\":0}").unwrap_err().message().contains("newer")
    );
    assert!(Portion::new(10, who, &Cursor::at(0, Remaining::new(1000, 500, vec![]).unwrap())).is_err());
}
