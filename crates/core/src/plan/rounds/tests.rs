//! Promises of rounds: one size class at every step of all ranks, every sample once, and little padding.

use super::*;
use crate::ErrorKind;
use crate::cursor::Cursor;
use crate::manifest::{FieldInfo, FieldKind, ManifestBuilder, Value};
use crate::plan::{Plan, Shuffle};
use crate::portion::{Consumer, LastBatch, Portion};
use crate::rng::Rng;
use proptest::prelude::*;
use std::collections::HashSet;

/// Samples whose field `txt` has these lengths, beside a field `img` of 1000 bytes and a label.
fn dataset(lengths: &[u64]) -> Manifest {
    let field = |name: &str, kind| FieldInfo { name: name.into(), kind };
    let fields = vec![
        field("txt", FieldKind::Payload),
        field("img", FieldKind::Payload),
        field("cls", FieldKind::Int),
    ];
    let mut builder = ManifestBuilder::new(fields, serde_json::Value::Null);
    builder.add_object("shard", 1 << 40, 0).unwrap();
    for (number, length) in lengths.iter().enumerate() {
        let payload = |length| Value::Payload { object: None, offset: 0, length };
        let values = [(0, payload(*length)), (1, payload(1000)), (2, Value::Int(1))];
        builder.add_sample(&format!("{number:06}"), &values).unwrap();
    }
    Manifest::open(builder.finish().unwrap()).unwrap()
}

fn classes(bounds: ClassBounds) -> SizeClasses {
    SizeClasses { bounds, field: Some("txt".into()) }
}

fn order(plan: &Plan) -> Vec<u64> {
    (0..plan.len()).map(|position| plan.at(position).0).collect()
}

/// Log-normal lengths around 400 bytes.
fn log_normal(samples: u64, sigma: f64) -> Vec<u64> {
    let draw = |sample| (6.0 + sigma * Rng::keyed(5, sample, 0).normal()).exp().max(1.0) as u64;
    (0..samples).map(draw).collect()
}

fn any_bounds() -> impl Strategy<Value = ClassBounds> {
    let bytes = proptest::collection::btree_set(1u64..90, 1..6);
    prop_oneof![
        (1u32..8).prop_map(ClassBounds::Count),
        bytes.prop_map(|bytes| ClassBounds::Bytes(bytes.into_iter().collect())),
    ]
}

proptest! {
    #[test]
    fn p060_in_every_full_round_all_ranks_have_one_class_and_every_sample_comes_once(
        lengths in proptest::collection::vec(0u64..100, 0..600), bounds in any_bounds(),
        world_size in 1u64..5, batch_size in 1u64..9, seed: u64, epoch in 0u64..3,
    ) {
        let round_positions = world_size * batch_size;
        let manifest = dataset(&lengths);
        let sampler = Sampler::rounds(&manifest, &classes(bounds.clone()), round_positions, seed).unwrap();
        let plan = sampler.plan(epoch);
        let order = order(&plan);
        prop_assert_eq!(order.iter().collect::<HashSet<_>>().len(), lengths.len());
        let mut per_class = vec![0; 64];
        for (position, sample) in (0u64..).zip(&order) {
            prop_assert_eq!(plan.position_of(SampleId(*sample)), Some(position));
            let class = plan.class_of(position).unwrap();
            per_class[class as usize] += 1;
            if let ClassBounds::Bytes(bounds) = &bounds {
                let length = lengths[*sample as usize];
                prop_assert_eq!(bounds.iter().filter(|first| **first <= length).count() as u32, class);
            }
        }
        // Whole rounds come first and have one class; the rest is sorted by size and mixes what it must.
        let whole: u64 = per_class.iter().map(|count| count / round_positions).sum();
        let rounds: Vec<HashSet<u32>> = (0..plan.len().div_ceil(round_positions))
            .map(|round| {
                let end = ((round + 1) * round_positions).min(plan.len());
                (round * round_positions..end).map(|position| plan.class_of(position).unwrap()).collect()
            })
            .collect();
        prop_assert!(rounds[..whole as usize].iter().all(|classes| classes.len() == 1));
        let rest: Vec<u64> =
            order[(whole * round_positions) as usize..].iter().map(|s| lengths[*s as usize]).collect();
        prop_assert!(rest.is_sorted());
        let counts = sampler.round_counts().unwrap();
        prop_assert_eq!(counts.rounds, rounds.len() as u64);
        prop_assert_eq!(counts.mixed, rounds.iter().filter(|classes| classes.len() > 1).count() as u64);
        prop_assert_eq!(counts.classes, per_class.iter().filter(|count| **count > 0).count() as u64);
        prop_assert_eq!(plan.position_of(SampleId(plan.len())), None);
        prop_assert_eq!(plan.class_of(plan.len()), None);
    }
}

/// Three ranks take steps in any order of time; one is started again from its cursor at every round. What each gets
/// at round `k` depends on `k` alone.
#[test]
fn p060_a_delay_or_a_restart_of_a_rank_never_mixes_rounds() {
    let (world_size, batch_size, seed) = (3, 8, 5);
    let round_positions = world_size * batch_size;
    let manifest = dataset(&log_normal(1000, 0.5));
    let sampler = Sampler::rounds(&manifest, &classes(ClassBounds::Count(4)), round_positions, seed).unwrap();
    let plan = sampler.plan(0);
    let counts = sampler.round_counts().unwrap();
    let portion = |rank, cursor: &Cursor| {
        let consumer = Consumer { rank, world_size, batch_size, last_batch: LastBatch::Partial };
        Portion::new(plan.len(), consumer, cursor).unwrap()
    };
    let start = Cursor::start_of(0);
    let mut mixed = 0;
    for round in 0..counts.rounds {
        let mut seen = HashSet::new();
        for rank in 0..world_size {
            let straight: Vec<u64> = portion(rank, &start).batch(round).map(|place| place.position).collect();
            // A cursor of any rank at this round, as a checkpoint or a restart has it.
            for saved_by in 0..world_size {
                let cursor = portion(saved_by, &start).cursor_after(0, round);
                let resumed: Vec<u64> = portion(rank, &cursor).batch(0).map(|place| place.position).collect();
                assert_eq!(resumed, straight, "rank {rank} at round {round} by the cursor of {saved_by}");
            }
            assert!(straight.iter().all(|position| position / round_positions == round));
            seen.extend(straight.iter().map(|position| plan.class_of(*position).unwrap()));
        }
        mixed += u64::from(seen.len() > 1);
    }
    assert_eq!(mixed, counts.mixed);
    assert!(mixed < 4 && counts.rounds > 40, "{mixed} of {} rounds are mixed", counts.rounds);
}

#[test]
fn p060_padding_wastes_less_than_15_percent_where_it_would_waste_more_than_40() {
    for (sigma, count) in [(0.5, 12), (0.7, 16), (1.0, 24)] {
        let manifest = dataset(&log_normal(20_000, sigma));
        let settings = classes(ClassBounds::Count(count));
        let sampler = Sampler::rounds(&manifest, &settings, 3 * 16, 1).unwrap();
        let waste =
            PaddingWaste::measure(&sampler, &manifest, settings.field.as_deref(), 16, u64::MAX).unwrap();
        assert!(waste.rounds < 0.15, "sigma {sigma}: {waste:?}");
        assert!(waste.shuffled > 0.40, "sigma {sigma}: {waste:?}");
        // A look at some of the batches says about the same.
        let some = PaddingWaste::measure(&sampler, &manifest, settings.field.as_deref(), 16, 4000).unwrap();
        assert!((some.rounds - waste.rounds).abs() < 0.05, "{some:?} of {waste:?}");
    }
}

/// Row 31: inside a class the longest is at most so many times the shortest as its boundaries say.
#[test]
fn p031_lengths_of_a_batch_stay_within_the_ratio_of_its_class() {
    let bounds: Vec<u64> = (0..12).map(|power| 64 << power).collect();
    let lengths: Vec<u64> = log_normal(20_000, 0.7).into_iter().map(|length| length.max(64)).collect();
    let sampler =
        Sampler::rounds(&dataset(&lengths), &classes(ClassBounds::Bytes(bounds)), 2 * 16, 1).unwrap();
    let plan = sampler.plan(3);
    let whole_rounds = sampler.round_counts().unwrap().rounds - 13;
    for batch in 0..whole_rounds * 2 {
        let of_batch = (batch * 16..(batch + 1) * 16).map(|position| lengths[plan.at(position).0 as usize]);
        let (least, most) = (of_batch.clone().min().unwrap(), of_batch.max().unwrap());
        assert!(most < 2 * least, "batch {batch} has lengths {least} to {most}");
    }
}

#[test]
fn rounds_depend_on_seed_and_epoch_and_nothing_else() {
    let manifest = dataset(&log_normal(500, 0.5));
    let of = |seed, epoch| {
        let sampler = Sampler::rounds(&manifest, &classes(ClassBounds::Count(3)), 16, seed).unwrap();
        order(&sampler.plan(epoch))
    };
    assert_eq!(of(1, 4), of(1, 4));
    assert_ne!(of(1, 4), of(1, 5));
    assert_ne!(of(1, 4), of(2, 4));
}

#[test]
fn order_in_rounds_never_changes_between_releases() {
    let manifest = dataset(&(0..500).map(|number| number * 37 % 100).collect::<Vec<_>>());
    let sampler = Sampler::rounds(&manifest, &classes(ClassBounds::Bytes(vec![30, 60])), 16, 1).unwrap();
    assert_eq!(order(&sampler.plan(2))[..8], GOLDEN);
}

const GOLDEN: [u64; 8] = [145, 410, 162, 372, 286, 180, 489, 26];

#[test]
fn size_classes_are_checked_and_a_wrong_field_is_named() {
    let manifest = dataset(&[5, 6, 7]);
    let wrong = [
        ClassBounds::Count(0),
        ClassBounds::Count(1025),
        ClassBounds::Bytes(vec![]),
        ClassBounds::Bytes(vec![0, 5]),
        ClassBounds::Bytes(vec![5, 5]),
    ];
    for bounds in wrong {
        let error = Sampler::rounds(&manifest, &classes(bounds), 8, 0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig);
        assert!(error.message().contains("size_classes"), "{error}");
    }
    for (field, why) in [("nothing", "no such field"), ("cls", "holds integers")] {
        let settings = SizeClasses { bounds: ClassBounds::Count(2), field: Some(field.into()) };
        let error = Sampler::rounds(&manifest, &settings, 8, 0).unwrap_err();
        assert!(error.message().contains(why) && error.report().contains("`txt`, `img`"), "{error}");
    }
    assert!(Sampler::rounds(&manifest, &classes(ClassBounds::Count(2)), 0, 0).is_err());
    assert!(SizeClasses::from_settings(None, Some("txt".into())).is_err());
    assert!(SizeClasses::from_settings(Some(ClassBounds::Count(0)), None).is_err());
    assert_eq!(SizeClasses::from_settings(None, None).unwrap(), None);
    // Without a field all payloads count; equal lengths are one class; nothing at all is no round.
    let all = SizeClasses { bounds: ClassBounds::Bytes(vec![1006]), field: None };
    let plan = Sampler::rounds(&manifest, &all, 8, 0).unwrap().plan(0);
    assert_eq!((0..3).map(|p| plan.class_of(p).unwrap()).collect::<Vec<_>>(), [0, 1, 1]);
    let equal = Sampler::rounds(&dataset(&[9; 40]), &classes(ClassBounds::Count(4)), 8, 0).unwrap();
    assert_eq!(equal.round_counts(), Some(RoundCounts { classes: 1, rounds: 5, mixed: 0 }));
    let none = Sampler::rounds(&dataset(&[]), &classes(ClassBounds::Count(4)), 8, 0).unwrap();
    assert_eq!(none.round_counts(), Some(RoundCounts { classes: 0, rounds: 0, mixed: 0 }));
    assert!(Sampler::new(&manifest, Shuffle::Full, 0).unwrap().round_counts().is_none());
}
