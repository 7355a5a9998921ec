//! Promises of batches by length and by bytes: what is in one, that every sample comes once, and that none of it depends
//! on ranks or restarts. A naive model says what should come.

use super::*;
use crate::manifest::{FieldInfo, FieldKind, ManifestBuilder, Value};
use crate::plan::mix::MixPart;
use crate::plan::mix::schedule::MixChange;
use crate::plan::rounds::padding_waste;
use crate::plan::{BlockShuffle, Shuffle};
use crate::portion::{LastBatch, Place, Turn};
use crate::rng::Rng;
use proptest::prelude::*;

/// Samples whose field `txt` has these lengths, beside the same number in an integer field `tokens`.
fn dataset(lengths: &[u64]) -> Manifest {
    let field = |name: &str, kind| FieldInfo { name: name.into(), kind };
    let fields = vec![field("txt", FieldKind::Payload), field("tokens", FieldKind::Int)];
    let mut builder = ManifestBuilder::new(fields, serde_json::Value::Null);
    builder.add_object("shard", 1 << 40, 0).unwrap();
    let mut offset = 0;
    for (number, length) in lengths.iter().enumerate() {
        let payload = Value::Payload { object: None, offset, length: *length };
        let values = [(0, payload), (1, Value::Int(*length as i64))];
        builder.add_sample(&format!("{number:06}"), &values).unwrap();
        offset += length + 512;
    }
    Manifest::open(builder.finish().unwrap()).unwrap()
}

fn log_normal(samples: u64, sigma: f64) -> Vec<u64> {
    let draw = |sample| (6.0 + sigma * Rng::keyed(5, sample, 0).normal()).exp().max(1.0) as u64;
    (0..samples).map(draw).collect()
}

/// Orders that batches can be cut from.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Stored,
    Full,
    Block,
    Resample,
    Mix,
    Schedule,
}

fn sampler(kind: Kind, manifest: &Manifest, seed: u64) -> Sampler {
    let shuffle = match kind {
        Kind::Stored => Shuffle::Sequential,
        Kind::Full => Shuffle::Full,
        Kind::Block => Shuffle::Block(BlockShuffle { block_bytes: 2000, group_blocks: 3 }),
        Kind::Resample => Shuffle::Resample { epoch_samples: Some(manifest.len() + 7) },
        Kind::Mix | Kind::Schedule => {
            let middle = manifest.len() / 3 + 1;
            let parts = [
                MixPart { samples: 0..middle, weight: 0.6 },
                MixPart { samples: middle..manifest.len(), weight: 0.4 },
            ];
            if let Kind::Schedule = kind {
                let change = |epoch, position, weights: [f64; 2]| MixChange {
                    epoch,
                    position,
                    weights: weights.into(),
                };
                let changes =
                    [change(1, 0, [0.1, 0.9]), change(1, 700, [1.0, 0.0]), change(2, 3, [0.5, 0.5])];
                return Sampler::mixed_by(&parts, &changes, manifest.len() + 1100, seed).unwrap();
            }
            return Sampler::mixed(&parts, manifest.len() + 5, seed).unwrap();
        }
    };
    Sampler::new(manifest, shuffle, seed).unwrap()
}

/// What a program would do that has a list for every bucket: batches of ids, and how many of them became full.
fn model(ids: &[u64], lengths: &[u64], batching: &Batching, batch_size: u64) -> (Vec<Vec<u64>>, usize) {
    let length = |id: &u64| lengths[*id as usize];
    let bucket = |id: &u64| match &batching.bucket {
        None => 0,
        Some(bucket) => bucket.bounds().iter().filter(|first| **first <= length(id)).count(),
    };
    let limit = batching.batch_bytes.unwrap_or(u64::MAX);
    let mut open: std::collections::BTreeMap<usize, Vec<u64>> = std::collections::BTreeMap::new();
    let mut batches: Vec<Vec<u64>> = Vec::new();
    for id in ids {
        if length(id) > limit && batching.oversize == Oversize::Drop {
            continue;
        }
        let batch = open.entry(bucket(id)).or_default();
        let mut with = batch.clone();
        with.push(*id);
        let bytes = if batching.bucket.is_some() {
            with.iter().map(length).max().unwrap() * with.len() as u64
        } else {
            with.iter().map(length).sum()
        };
        if bytes > limit && !batch.is_empty() {
            batches.push(std::mem::take(batch));
        }
        batch.push(*id);
        if batch.len() as u64 == batch_size || length(id) > limit {
            batches.push(std::mem::take(batch));
        }
    }
    let full = batches.len();
    batches.extend(open.into_values().filter(|batch| !batch.is_empty()));
    (batches, full)
}

fn any_kind() -> impl Strategy<Value = Kind> {
    proptest::sample::select(
        &[Kind::Stored, Kind::Full, Kind::Block, Kind::Resample, Kind::Mix, Kind::Schedule][..],
    )
}

fn any_batching() -> impl Strategy<Value = Batching> {
    let bounds = proptest::collection::btree_set(1u64..300, 1..5);
    let bucket = prop_oneof![
        Just(None),
        (1.05f64..3.0).prop_map(|ratio| Some(Bucket::Ratio(ratio))),
        bounds.prop_map(|bounds| Some(Bucket::Bounds(bounds.into_iter().collect()))),
    ];
    let oversize = proptest::sample::select(&[Oversize::Alone, Oversize::Drop][..]);
    let field = proptest::sample::select(&[None, Some("txt"), Some("tokens")][..]);
    (bucket, proptest::option::of(100u64..2000), oversize, field).prop_map(
        |(bucket, batch_bytes, oversize, field)| Batching {
            bucket,
            batch_bytes,
            oversize,
            length_field: field.map(str::to_owned),
            pack: None,
        },
    )
}

fn any_policy() -> impl Strategy<Value = LastBatch> {
    let all = [LastBatch::Drop, LastBatch::Partial, LastBatch::Pad, LastBatch::Wrap];
    proptest::sample::select(all.to_vec())
}

/// What all ranks received: real rows of every batch in the order of its number, and the repeats.
#[derive(Default)]
struct Received {
    batches: Vec<Vec<u64>>,
    /// Batches of a last step that did not have one for every rank.
    divided: Vec<Vec<u64>>,
    repeats: Vec<Vec<u64>>,
}

/// One epoch read by jobs of these numbers of ranks, each stopped after so many steps, the last one never.
fn run(sampler: &Sampler, epoch: u64, jobs: &[(u64, u64)], batch_size: u64, policy: LastBatch) -> Received {
    let plan = sampler.plan(epoch);
    let ids = |places: &[Place]| places.iter().map(|place| plan.at(place.position).0).collect::<Vec<u64>>();
    let (mut received, mut cursor) = (Received::default(), Cursor::start_of(epoch));
    for (number, (world_size, steps)) in jobs.iter().enumerate() {
        let who = |rank| Consumer { rank, world_size: *world_size, batch_size, last_batch: policy };
        let portions: Vec<Portion> =
            (0..*world_size).map(|rank| sampler.portion(who(rank), &cursor).unwrap()).collect();
        let all = portions[0].steps();
        assert!(portions.iter().all(|portion| portion.steps() == all), "ranks differ in steps");
        let steps = if number + 1 == jobs.len() { all } else { (*steps).min(all) };
        for step in 0..steps {
            let batches: Vec<Vec<Place>> =
                portions.iter().map(|portion| portion.batch(step).collect()).collect();
            for (portion, places) in portions.iter().zip(&batches) {
                assert!(!places.is_empty() && places.len() as u64 == portion.batch_len(step));
                assert!(places.iter().all(|place| place.padding == places[0].padding));
            }
            let cuts = plan.cuts().unwrap();
            let left = cuts.batches() - cuts.batch_at(batches[0][0].position);
            let divided = policy == LastBatch::Partial && left < *world_size;
            for places in batches {
                let list = match (places[0].padding, divided) {
                    (true, _) => &mut received.repeats,
                    (_, true) => &mut received.divided,
                    _ => &mut received.batches,
                };
                list.push(ids(&places));
            }
        }
        cursor = portions[portions.len() - 1].cursor_after(epoch, steps);
        assert!(portions.iter().all(|portion| portion.cursor_after(epoch, steps) == cursor));
        let text = serde_json::to_string(&cursor).unwrap();
        cursor = Cursor::from_json(&text).unwrap();
        if cursor.epoch > epoch {
            break;
        }
    }
    assert_eq!(cursor, Cursor::start_of(epoch + 1));
    received
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Any order, any batching, any ranks, any restarts: what is delivered is what the model delivers.
    #[test]
    fn p031_p032_batches_are_those_of_a_naive_model_through_any_order_ranks_and_restarts(
        lengths in proptest::collection::vec(0u64..400, 2..300), kind in any_kind(), batching in any_batching(),
        batch_size in 1u64..20, policy in any_policy(), seed: u64, epoch in 0u64..3,
        jobs in proptest::collection::vec((1u64..6, 0u64..8), 1..5),
    ) {
        let manifest = dataset(&lengths);
        let beneath = sampler(kind, &manifest, seed);
        let inner = beneath.plan(epoch);
        let ids: Vec<u64> = (0..inner.len()).map(|position| inner.at(position).0).collect();
        let (mut wanted, full) = model(&ids, &lengths, &batching, batch_size);
        let sampler = beneath.batched(&manifest, &batching, batch_size).unwrap();
        let plan = sampler.plan(epoch);
        let cuts = plan.cuts().unwrap();
        prop_assert_eq!((cuts.batches() as usize, cuts.full_batches() as usize), (wanted.len(), full));
        let in_batches: u64 = wanted.iter().map(|batch| batch.len() as u64).sum();
        prop_assert_eq!(in_batches + cuts.left_out(), plan.len());
        for position in 0..plan.len() {
            if let Some(found) = plan.position_of(plan.at(position)) {
                prop_assert_eq!(found, position);
            }
        }

        let received = run(&sampler, epoch, &jobs, batch_size, policy);
        if policy == LastBatch::Drop {
            wanted.truncate(full);
            // What is dropped does not fill a step of the job that reads it.
            prop_assert!(wanted.len() - received.batches.len() < 6);
            wanted.truncate(received.batches.len());
        }
        let rest = wanted.split_off(received.batches.len());
        prop_assert_eq!(&received.batches, &wanted);
        prop_assert_eq!(received.divided.concat(), rest.concat());
        for piece in &received.divided {
            prop_assert!(rest.iter().any(|batch| batch.windows(piece.len()).any(|run| run == piece.as_slice())));
        }
        for repeat in &received.repeats {
            let is_batch = !plan.is_empty() && (wanted.contains(repeat) || rest.contains(repeat));
            prop_assert!(is_batch || (policy == LastBatch::Partial && repeat.len() == 1), "{repeat:?}");
        }
    }

    #[test]
    fn p031_no_batch_holds_lengths_further_apart_than_the_ratio(
        lengths in proptest::collection::vec(0u64..5000, 1..600), kind in any_kind(), ratio in 1.05f64..4.0,
        batch_size in 1u64..30, batch_bytes in proptest::option::of(1u64..20_000), seed: u64,
    ) {
        let manifest = dataset(&lengths);
        let batching = Batching { bucket: Some(Bucket::Ratio(ratio)), batch_bytes, ..Batching::default() };
        prop_assume!(lengths.len() > 1);
        let plan = sampler(kind, &manifest, seed).batched(&manifest, &batching, batch_size).unwrap().plan(1);
        let cuts = plan.cuts().unwrap();
        for batch in 0..cuts.batches() {
            let of = |position| lengths[plan.at(position).0 as usize];
            let held: Vec<u64> = (cuts.start(batch)..cuts.start(batch + 1)).map(of).collect();
            let (least, most) = (held.iter().min().unwrap(), held.iter().max().unwrap());
            prop_assert!(*most as f64 <= *least as f64 * ratio, "{least} and {most} in one batch");
            prop_assert!(held.len() as u64 <= batch_size);
            let bytes = most * held.len() as u64;
            prop_assert!(held.len() == 1 || batch_bytes.is_none_or(|limit| bytes <= limit));
        }
    }

    #[test]
    fn p032_every_batch_is_within_its_bytes_but_for_a_sample_alone_and_the_order_stays(
        lengths in proptest::collection::vec(0u64..500, 2..400), kind in any_kind(), limit in 1u64..2000,
        batch_size in 1u64..50, drop in any::<bool>(), seed: u64, epoch in 0u64..3,
    ) {
        let manifest = dataset(&lengths);
        let oversize = if drop { Oversize::Drop } else { Oversize::Alone };
        let batching = Batching { batch_bytes: Some(limit), oversize, ..Batching::default() };
        let beneath = sampler(kind, &manifest, seed);
        let inner = beneath.plan(epoch);
        let sampler = beneath.batched(&manifest, &batching, batch_size).unwrap();
        let plan = sampler.plan(epoch);
        let cuts = plan.cuts().unwrap();
        let mut delivered = Vec::new();
        for batch in 0..cuts.batches() {
            let ids: Vec<u64> = (cuts.start(batch)..cuts.start(batch + 1)).map(|at| plan.at(at).0).collect();
            let bytes: u64 = ids.iter().map(|id| lengths[*id as usize]).sum();
            prop_assert!(bytes <= limit || (!drop && ids.len() == 1), "{bytes} of {limit} bytes");
            // No batch ends early: its next sample would have been too much.
            if batch + 1 < cuts.batches() && (ids.len() as u64) < batch_size {
                let next = lengths[plan.at(cuts.start(batch + 1)).0 as usize];
                prop_assert!(bytes + next > limit);
            }
            delivered.extend(ids);
        }
        let fits = |id: &u64| !drop || lengths[*id as usize] <= limit;
        let wanted: Vec<u64> = (0..inner.len()).map(|at| inner.at(at).0).filter(fits).collect();
        prop_assert_eq!(delivered, wanted);
    }

    #[test]
    fn p032_batches_made_in_turn_are_those_of_the_rank(
        lengths in proptest::collection::vec(1u64..300, 2..200), of in 1u64..5, world in 1u64..4,
        policy in any_policy(), skipped in 0u64..10,
    ) {
        let manifest = dataset(&lengths);
        let batching = Batching { batch_bytes: Some(900), ..Batching::default() };
        let sampler = sampler(Kind::Full, &manifest, 3).batched(&manifest, &batching, 8).unwrap();
        let who = Consumer { rank: world - 1, world_size: world, batch_size: 8, last_batch: policy };
        let begun = sampler.portion(who, &Cursor::start_of(2)).unwrap();
        let cursor = begun.cursor_after(2, skipped.min(begun.steps().saturating_sub(1)));
        let whole = sampler.portion(who, &cursor).unwrap();
        let turn = |first| sampler.portion(who, &cursor).unwrap().in_turn(Turn { first, of });
        let turns: Vec<Portion> = (0..of).map(turn).collect();
        prop_assert_eq!(turns.iter().map(Portion::steps).sum::<u64>(), whole.steps());
        for step in 0..whole.steps() {
            let made: Vec<Place> = turns[(step % of) as usize].batch(step / of).collect();
            prop_assert_eq!(made, whole.batch(step).collect::<Vec<_>>());
        }
    }
}

#[test]
fn p031_padding_wastes_under_15_percent_of_log_normal_lengths_and_over_40_without_buckets() {
    for (sigma, kind) in [(1.0, Kind::Full), (0.8, Kind::Full), (1.0, Kind::Block)] {
        let manifest = dataset(&log_normal(50_000, sigma));
        let lengths = Lengths::counted(&manifest, Some("txt")).unwrap();
        let plain = sampler(kind, &manifest, 1);
        let waste = |sampler: &Sampler| padding_waste(&sampler.plan(0), 32, &lengths, u64::MAX);
        let shuffled = waste(&plain);
        let batching = Batching {
            bucket: Some(Bucket::Ratio(1.25)),
            length_field: Some("txt".into()),
            ..Batching::default()
        };
        let bucketed = waste(&plain.batched(&manifest, &batching, 32).unwrap());
        assert!(bucketed < 0.15, "{bucketed} is wasted of {kind:?} with deviation {sigma}");
        assert!(shuffled > 0.40, "only {shuffled} is wasted of {kind:?} with deviation {sigma}");
    }
}

/// Orders are for ever: these were written down when they first were.
#[test]
fn p031_p032_orders_of_batches_do_not_change_between_releases() {
    let lengths: Vec<u64> = (0..40).map(|sample| 10 + sample * 37 % 211).collect();
    let manifest = dataset(&lengths);
    let order = |batching: &Batching| {
        let plan = sampler(Kind::Full, &manifest, 7).batched(&manifest, batching, 4).unwrap().plan(1);
        let cuts = plan.cuts().unwrap();
        let ids: Vec<u64> = (0..12).map(|position| plan.at(position).0).collect();
        (ids, (0..=cuts.batches()).map(|batch| cuts.start(batch)).collect::<Vec<u64>>())
    };
    let bucket = order(&Batching { bucket: Some(Bucket::Ratio(1.5)), ..Batching::default() });
    let bytes = order(&Batching { batch_bytes: Some(400), ..Batching::default() });
    let golden = (
        (
            vec![31, 9, 37, 26, 38, 5, 15, 11, 28, 32, 10, 22],
            vec![0, 4, 8, 12, 16, 20, 24, 28, 29, 31, 34, 36, 38, 40],
        ),
        (
            vec![38, 5, 2, 31, 9, 13, 37, 26, 24, 1, 15, 11],
            vec![0, 2, 6, 10, 12, 15, 17, 20, 22, 26, 28, 32, 35, 38, 40],
        ),
    );
    assert_eq!((bucket, bytes), golden);
}

#[test]
fn settings_that_make_no_sense_are_refused_with_the_reason() {
    let manifest = dataset(&[1, 2, 3]);
    let sampler = |batching: Batching| {
        Sampler::new(&manifest, Shuffle::Full, 0)
            .unwrap()
            .batched(&manifest, &batching, 2)
            .unwrap_err()
            .to_string()
    };
    let with = |bucket| Batching { bucket: Some(bucket), ..Batching::default() };
    assert!(sampler(with(Bucket::Ratio(1.0))).contains("between 1.05 and"));
    assert!(sampler(with(Bucket::Ratio(f64::NAN))).contains("ratio"));
    assert!(sampler(with(Bucket::Bounds(vec![4, 4]))).contains("rise"));
    assert!(sampler(Batching { batch_bytes: Some(0), ..Batching::default() }).contains("at least 1"));
    let unknown = Batching { batch_bytes: Some(9), length_field: Some("x".into()), ..Batching::default() };
    assert!(sampler(unknown).contains("no such field"));
    for (bucket, bytes, oversize, field) in [
        (None, None, Some(Oversize::Drop), None),
        (None, None, None, Some("txt".to_owned())),
        (Some(Bucket::Ratio(2.0)), None, Some(Oversize::Drop), None),
    ] {
        assert!(Batching::from_settings(bucket, bytes, oversize, field).is_err());
    }
    assert_eq!(Batching::from_settings(None, None, None, None).unwrap(), None);
}
