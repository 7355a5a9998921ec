//! Promises of packing, against a packer that knows nothing of plans: every token once, whoever reads and however often
//! they were restarted, but for what no batch has room for, which is counted; no row too long; the same batches for any
//! number of ranks.

use super::*;
use crate::cursor::Cursor;
use crate::manifest::{FieldInfo, FieldKind, Manifest, ManifestBuilder, Value};
use crate::plan::batching::Batching;
use crate::plan::{Sampler, Shuffle};
use crate::portion::{Consumer, LastBatch};
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Most documents of a batch.
const MOST: u64 = 12;

/// Documents of these lengths, two bytes a token.
fn dataset(lengths: &[u64]) -> Manifest {
    let fields = vec![FieldInfo { name: "@tokens".into(), kind: FieldKind::Payload }];
    let mut builder = ManifestBuilder::new(fields, serde_json::Value::Null);
    builder.add_object("a.bin", 1 << 40, 0).unwrap();
    let mut offset = 0;
    for (number, length) in lengths.iter().enumerate() {
        let payload = Value::Payload { object: None, offset, length: length * 2 };
        builder.add_sample(&format!("{number:06}"), &[(0, payload)]).unwrap();
        offset += length * 2;
    }
    Manifest::open(builder.finish().unwrap()).unwrap()
}

fn packing(fit: Fit, long: Long, rows: u64, length: u64, look_ahead: u64) -> Packing {
    Packing { rows, length, fit, look_ahead, long, token_bytes: 2, extra: 0, most: u64::MAX }
}

fn sampler(manifest: &Manifest, packing: &Packing, shuffle: Shuffle) -> Sampler {
    let field = Some("@tokens".to_owned());
    let batching = Batching { pack: Some(packing.clone()), length_field: field, ..Batching::default() };
    Sampler::new(manifest, shuffle, 3).unwrap().batched(manifest, &batching, MOST).unwrap()
}

fn consumer(rank: u64, world_size: u64) -> Consumer {
    Consumer { rank, world_size, batch_size: MOST, last_batch: LastBatch::Partial }
}

/// Documents of each rank's batch at a step, repeats that only fill the step left out.
fn step(sampler: &Sampler, epoch: u64, cursor: &Cursor, world: u64, step: u64) -> Vec<Vec<u64>> {
    let plan = sampler.plan(epoch);
    let of = |rank| {
        let portion = sampler.portion(consumer(rank, world), cursor).unwrap();
        let places = portion.batch(step).filter(|place| !place.padding);
        places.map(|place| plan.at(place.position).0).collect()
    };
    (0..world).map(of).collect()
}

/// The tokens that a batch holds, as document and number; panics when two stand in one place or outside of the rows.
fn tokens(batch: &[u64], lengths: &[u64], packing: &Packing) -> Vec<(u64, u64)> {
    let mut rows = Rows::new(packing.rows, packing.length, packing.long);
    let (mut found, mut taken) = (Vec::new(), BTreeSet::new());
    for (document, id) in batch.iter().enumerate() {
        for piece in rows.add(document, lengths[*id as usize]) {
            assert!(piece.row < packing.rows && piece.at + piece.length <= packing.length);
            for token in 0..piece.length {
                assert!(taken.insert((piece.row, piece.at + token)), "two tokens in one place");
                found.push((*id, piece.from + token));
            }
        }
    }
    found
}

/// Every token that is to come: of a document no more than a batch takes.
fn wanted(lengths: &[u64], packing: &Packing) -> BTreeSet<(u64, u64)> {
    let document = |(id, length): (usize, &u64)| {
        let left = match packing.long {
            Long::Truncate => (*length).min(packing.length),
            Long::Drop if *length > packing.length => 0,
            Long::Split => (*length).min(packing.rows * packing.length),
            Long::Drop => *length,
        };
        (0..left).map(move |token| (id as u64, token))
    };
    lengths.iter().enumerate().flat_map(document).collect()
}

/// A packer that holds one batch and asks for nothing else.
fn naive(ids: &[u64], lengths: &[u64], packing: &Packing) -> Vec<Vec<u64>> {
    let (mut batches, mut rows, mut begun) = (vec![Vec::new()], vec![0u64], false);
    for id in ids {
        let tokens = match packing.long {
            Long::Split => lengths[*id as usize],
            _ => lengths[*id as usize].min(packing.length),
        };
        if packing.long == Long::Drop && lengths[*id as usize] > packing.length {
            continue;
        }
        let fill = |rows: &mut Vec<u64>| {
            let mut left = tokens;
            while left > 0 {
                let piece = left.min(packing.length);
                if rows.last().unwrap() + piece > packing.length {
                    rows.push(0);
                }
                *rows.last_mut().unwrap() += piece;
                left -= piece;
            }
        };
        let mut with = rows.clone();
        fill(&mut with);
        let full = batches.last().unwrap().len() as u64 == MOST;
        if begun && (with.len() as u64 > packing.rows || full) {
            batches.push(Vec::new());
            with = vec![0];
            fill(&mut with);
        }
        rows = with;
        begun = true;
        batches.last_mut().unwrap().push(*id);
    }
    batches.retain(|batch| !batch.is_empty());
    batches
}

fn any_packing() -> impl Strategy<Value = Packing> {
    let fit = prop_oneof![Just(Fit::Greedy), Just(Fit::Best)];
    let long = prop_oneof![Just(Long::Split), Just(Long::Truncate), Just(Long::Drop)];
    (fit, long, 4u64..6, 5u64..12, 1u64..9)
        .prop_map(|(fit, long, rows, length, ahead)| packing(fit, long, rows, length, ahead))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// Four rows of five are the smallest batch, so that some documents are longer than a batch.
    #[test]
    fn resuming_on_another_number_of_ranks_neither_repeats_nor_skips_a_token_but_those_counted_as_cut_off(
        lengths in proptest::collection::vec(prop_oneof![9 => 0u64..20, 1 => 20u64..150], 1..60), packing in any_packing(),
        worlds in proptest::collection::vec((1u64..5, 1u64..4), 1..5), shuffled in any::<bool>(), epoch in 0u64..3,
    ) {
        let manifest = dataset(&lengths);
        let shuffle = if shuffled { Shuffle::Full } else { Shuffle::Sequential };
        let sampler = sampler(&manifest, &packing, shuffle);
        let mut cursor = Cursor::start_of(epoch);
        let mut found = Vec::new();
        let mut worlds = worlds.into_iter().chain([(2, u64::MAX)]);
        while cursor.epoch == epoch {
            let (world, steps) = worlds.next().unwrap();
            let portion = sampler.portion(consumer(0, world), &cursor).unwrap();
            let steps = steps.min(portion.steps());
            for at in 0..steps {
                for batch in step(&sampler, epoch, &cursor, world, at) {
                    found.extend(tokens(&batch, &lengths, &packing));
                }
            }
            cursor = portion.cursor_after(epoch, steps);
        }
        let once: BTreeSet<(u64, u64)> = found.iter().copied().collect();
        prop_assert_eq!(once.len(), found.len(), "a token came twice");
        prop_assert_eq!(&once, &wanted(&lengths, &packing));
        if packing.long == Long::Split {
            let all: u64 = lengths.iter().sum();
            prop_assert_eq!(once.len() as u64 + sampler.plan(epoch).cuts().unwrap().cut_off(), all);
        } else {
            prop_assert_eq!(sampler.plan(epoch).cuts().unwrap().cut_off(), 0);
        }
    }

    #[test]
    fn greedy_is_what_a_naive_packer_makes_of_the_plan(
        lengths in proptest::collection::vec(0u64..20, 1..60), packing in any_packing(), world in 1u64..4,
    ) {
        let packing = Packing { fit: Fit::Greedy, ..packing };
        let manifest = dataset(&lengths);
        let plan = Sampler::new(&manifest, Shuffle::Full, 3).unwrap().plan(1);
        let ids: Vec<u64> = (0..plan.len()).map(|position| plan.at(position).0).collect();
        let naive = naive(&ids, &lengths, &packing);
        let sampler = sampler(&manifest, &packing, Shuffle::Full);
        let packed = sampler.plan(1);
        let cuts = packed.cuts().unwrap();
        let batches: Vec<Vec<u64>> = (0..cuts.batches())
            .map(|batch| (cuts.start(batch)..cuts.start(batch + 1)).map(|at| packed.at(at).0).collect())
            .collect();
        prop_assert_eq!(&batches, &naive);
        // Whole steps give the same batches to any number of ranks.
        let portion = sampler.portion(consumer(0, world), &Cursor::start_of(1)).unwrap();
        let whole = (naive.len() as u64 / world).min(portion.steps());
        let taken: Vec<Vec<u64>> =
            (0..whole).flat_map(|at| step(&sampler, 1, &Cursor::start_of(1), world, at)).collect();
        prop_assert_eq!(&taken[..], &naive[..taken.len()]);
    }

    #[test]
    fn best_fit_moves_no_document_further_than_it_may(
        lengths in proptest::collection::vec(1u64..11, 40..80), ahead in 8u64..40,
    ) {
        let manifest = dataset(&lengths);
        let best = packing(Fit::Best, Long::Split, 4, 11, ahead);
        let sampler_of = |packing: &Packing| sampler(&manifest, packing, Shuffle::Sequential).plan(0);
        let plan = sampler_of(&best);
        let order: Vec<u64> = (0..plan.len()).map(|at| plan.at(at).0).collect();
        // At any position no more than `ahead` documents were looked at beyond those taken.
        for (at, id) in order.iter().enumerate() {
            let cuts = plan.cuts().unwrap();
            let begin = cuts.start(cuts.batch_at(at as u64));
            prop_assert!(*id < begin + ahead, "document {id} at {at}");
        }
    }
}

#[test]
fn a_document_longer_than_a_batch_has_one_of_its_own_as_far_as_it_goes_and_the_rest_is_counted() {
    let lengths = [3, 100, 3];
    let manifest = dataset(&lengths);
    for fit in [Fit::Greedy, Fit::Best] {
        let packing = packing(fit, Long::Split, 2, 8, 4);
        let plan = sampler(&manifest, &packing, Shuffle::Sequential).plan(0);
        let cuts = plan.cuts().unwrap();
        let mut longest = 0;
        for batch in 0..cuts.batches() {
            let ids: Vec<u64> = (cuts.start(batch)..cuts.start(batch + 1)).map(|at| plan.at(at).0).collect();
            let found = tokens(&ids, &lengths, &packing);
            let whole = ids.iter().filter(|id| **id != 1).count() * 3;
            if ids.contains(&1) {
                longest = found.len() - whole;
                assert_eq!(ids.len(), 1);
            } else {
                assert_eq!(found.len(), whole);
            }
        }
        assert_eq!((longest, cuts.cut_off()), (16, 84));
    }
}
