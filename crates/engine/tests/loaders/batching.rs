//! Promises about batches by length and by bytes through whole loaders: what ranks receive, resuming on another number of
//! them, and padding.
#![allow(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

use crate::common::*;
use forebay_core::cursor::Cursor;
use forebay_core::manifest::{FieldInfo, FieldKind, Manifest, ManifestBuilder, Value};
use forebay_core::plan::batching::{Batching, Bucket, Oversize};
use forebay_core::plan::mix::MixPart;
use forebay_core::plan::{BlockShuffle, Shuffle};
use forebay_core::portion::LastBatch;
use forebay_core::recipe::Recipe;
use forebay_core::rng::Rng;
use forebay_core::{ErrorKind, SampleId};
use forebay_engine::feed::FeedSpec;
use forebay_engine::source::{SyntheticSpec, synthetic};
use forebay_engine::{DeliveryOrder, Loader, LoaderConfig};
use forebay_ops::Column;
use forebay_store::{MemoryStore, Store};
use std::sync::Arc;

/// Arrays of 16-bit numbers of many lengths in one shard, and how long each of them is.
pub(crate) fn arrays(samples: u64) -> (Manifest, Arc<dyn Store>, Vec<u64>) {
    let field = |name: &str, kind| FieldInfo { name: name.into(), kind };
    let fields = vec![field("npy", FieldKind::Payload), field("tokens", FieldKind::Int)];
    let mut builder = ManifestBuilder::new(fields, serde_json::json!({}));
    let (mut shard, mut tokens, mut places) = (Vec::new(), Vec::new(), Vec::new());
    for sample in 0..samples {
        let count = (4.0 + Rng::keyed(9, sample, 0).normal()).exp().clamp(1.0, 2000.0) as u64;
        let header = format!("{{'descr': '<u2', 'fortran_order': False, 'shape': ({count},), }}");
        let header = format!("{header:<117}\n");
        let mut payload = b"\x93NUMPY\x01\x00".to_vec();
        payload.extend((header.len() as u16).to_le_bytes());
        payload.extend(header.as_bytes());
        (0..count).for_each(|_| payload.extend((sample as u16).to_le_bytes()));
        places.push((shard.len() as u64, payload.len() as u64));
        shard.extend(payload);
        tokens.push(count);
    }
    builder.add_object("shard", shard.len() as u64, 0).unwrap();
    for (sample, (offset, length)) in places.into_iter().enumerate() {
        let place = Value::Payload { object: None, offset, length };
        let values = [(0, place), (1, Value::Int(tokens[sample] as i64))];
        builder.add_sample(&format!("{sample:05}"), &values).unwrap();
    }
    let store = MemoryStore::new();
    store.insert("shard", shard).unwrap();
    (Manifest::open(builder.finish().unwrap()).unwrap(), Arc::new(store), tokens)
}

fn padded(more: &str) -> Recipe {
    let ops = format!("[{{\"op\": \"pad_batch\"{more}}}]");
    Recipe::from_json(&format!("[{{\"field\": \"npy\", \"decode\": \"npy\", \"ops\": {ops}}}]")).unwrap()
}

fn config(rank: u64, world_size: u64, shuffle: Shuffle, batching: Batching) -> LoaderConfig {
    LoaderConfig {
        consumer: consumer(rank, world_size, 12),
        shuffle,
        batching: Some(batching),
        seed: 5,
        threads: 2,
        ..LoaderConfig::default()
    }
}

pub(crate) fn settings() -> Vec<Batching> {
    let tokens = Some("tokens".to_owned());
    vec![
        Batching { bucket: Some(Bucket::Ratio(1.4)), length_field: tokens.clone(), ..Batching::default() },
        Batching { batch_bytes: Some(600), length_field: tokens.clone(), ..Batching::default() },
        Batching {
            bucket: Some(Bucket::Bounds(vec![30, 90, 200])),
            batch_bytes: Some(900),
            oversize: Oversize::Drop,
            length_field: tokens,
            ..Batching::default()
        },
    ]
}

/// Reads an epoch by jobs of these sizes, each stopped after so many steps and resumed from one rank's cursor.
fn epoch_by(jobs: &[(u64, usize)], make: &dyn Fn(u64, u64) -> Loader) -> Vec<Vec<u64>> {
    let mut cursor = Cursor::start_of(1);
    let mut received = Vec::new();
    for (number, (world, stop)) in jobs.iter().enumerate() {
        let mut ranks: Vec<Loader> = (0..*world).map(|rank| make(rank, *world)).collect();
        for loader in &mut ranks {
            loader.seek(cursor.clone()).unwrap();
            loader.begin().unwrap();
        }
        let stop = if number + 1 == jobs.len() { usize::MAX } else { *stop };
        let mut step = 0;
        while step < stop {
            let batches: Vec<_> = ranks.iter_mut().filter_map(|loader| next(loader).unwrap()).collect();
            assert!(batches.is_empty() || batches.len() as u64 == *world, "ranks differ in steps");
            if batches.is_empty() {
                break;
            }
            step += 1;
            received.extend(batches.iter().filter(|batch| !batch.padding[0]).map(ids_of));
        }
        cursor = Cursor::from_json(&serde_json::to_string(&ranks[0].cursor()).unwrap()).unwrap();
    }
    received
}

fn ids_of(batch: &forebay_engine::Batch) -> Vec<u64> {
    batch.ids.iter().map(|id| id.0).collect()
}

#[test]
fn p031_p032_batches_through_loaders_are_those_of_the_plan_on_any_ranks_and_restarts() {
    let (manifest, store, tokens) = arrays(400);
    let block = Shuffle::Block(BlockShuffle { block_bytes: 4000, group_blocks: 4 });
    for batching in settings() {
        for (shuffle, mixed) in [(Shuffle::Full, false), (block, false), (Shuffle::Full, true)] {
            let make = |rank, world| {
                let mut config = config(rank, world, shuffle, batching.clone());
                config.mix = mixed.then(|| {
                    let part = |samples, weight| MixPart { samples, weight };
                    vec![part(0..100, 0.5), part(100..400, 0.5)]
                });
                loader_on(&manifest, Arc::clone(&store), &padded(""), config)
            };
            let straight = epoch_by(&[(1, 0)], &make);
            let sampler = make(0, 1).config().sampler(&manifest).unwrap();
            let plan = sampler.plan(1);
            let cuts = plan.cuts().unwrap();
            let planned: Vec<Vec<u64>> = (0..cuts.batches())
                .map(|batch| (cuts.start(batch)..cuts.start(batch + 1)).map(|at| plan.at(at).0).collect())
                .collect();
            assert_eq!(straight, planned, "{batching:?} {shuffle:?}");
            for batch in &straight {
                let lengths: Vec<u64> = batch.iter().map(|id| tokens[*id as usize]).collect();
                let (least, most) = (lengths.iter().min().unwrap(), lengths.iter().max().unwrap());
                if let Some(Bucket::Ratio(ratio)) = batching.bucket {
                    assert!(*most as f64 <= *least as f64 * ratio, "{least} and {most}");
                }
                let bytes = if batching.bucket.is_some() {
                    most * lengths.len() as u64
                } else {
                    lengths.iter().sum()
                };
                let alone = batch.len() == 1 && batching.oversize == Oversize::Alone;
                assert!(batching.batch_bytes.is_none_or(|limit| bytes <= limit) || alone, "{bytes} bytes");
            }
            let moved = epoch_by(&[(2, 3), (3, 2), (1, 4), (2, 0)], &make);
            assert_eq!(moved.concat(), planned.concat(), "{batching:?} {shuffle:?}");
            let whole = moved.len().min(planned.len()) - 2;
            assert_eq!(moved[..whole], planned[..whole], "only a last step is divided");
        }
    }
}

#[test]
fn p031_values_are_padded_to_the_longest_of_the_batch_with_lengths_and_mask() {
    let (manifest, store, tokens) = arrays(100);
    let batching = Batching { bucket: Some(Bucket::Ratio(2.0)), ..Batching::default() };
    let recipe = padded(", \"value\": 7, \"multiple\": 8, \"mask\": true");
    let mut loader = loader_on(&manifest, store, &recipe, config(0, 1, Shuffle::Full, batching));
    for batch in epoch(&mut loader) {
        let names: Vec<&str> = batch.columns.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["npy", "npy_length", "npy_mask"]);
        let column = |name| match batch.column(name).unwrap() {
            Column::Tensor { spec, rows, data } => (spec.shape.clone(), *rows, data.as_slice()),
            other => panic!("{other:?}"),
        };
        let (shape, rows, values) = column("npy");
        let lengths: Vec<u64> = batch.ids.iter().map(|id| tokens[id.0 as usize]).collect();
        assert_eq!(shape, [lengths.iter().max().unwrap().next_multiple_of(8) as usize]);
        assert_eq!(rows, batch.len());
        let told: Vec<u64> =
            column("npy_length").2.chunks(8).map(|n| u64::from_ne_bytes(n.try_into().unwrap())).collect();
        assert_eq!(told, lengths);
        let (mask_shape, _, mask) = column("npy_mask");
        assert_eq!(mask_shape, shape);
        for (place, (value, real)) in values.chunks(2).zip(mask).enumerate() {
            let (row, at) = (place / shape[0], place % shape[0]);
            let is_real = (at as u64) < lengths[row];
            assert_eq!(*real == 1, is_real);
            let wanted = if is_real { batch.ids[row].0 as u16 } else { 7 };
            assert_eq!(u16::from_ne_bytes(value.try_into().unwrap()), wanted);
        }
    }
    let stats = loader.stats();
    assert!(stats.padding_waste < stats.padding_waste_shuffled, "{stats:?}");
}

#[test]
fn p032_what_is_too_large_is_alone_or_left_out_and_counted() {
    let (manifest, store, tokens) = arrays(200);
    let limit = 150;
    let too_large = tokens.iter().filter(|length| **length > limit).count();
    assert!(too_large > 5);
    for (oversize, wanted) in [(Oversize::Alone, 200), (Oversize::Drop, 200 - too_large)] {
        let batching = Batching {
            batch_bytes: Some(limit),
            oversize,
            length_field: Some("tokens".into()),
            ..Batching::default()
        };
        let mut loader =
            loader_on(&manifest, Arc::clone(&store), &padded(""), config(0, 1, Shuffle::Full, batching));
        let batches = epoch(&mut loader);
        assert_eq!(batches.iter().map(forebay_engine::Batch::len).sum::<usize>(), wanted);
        assert_eq!(loader.stats().left_out, (200 - wanted) as u64);
        assert_eq!(batches.len() as u64, loader.rank_portion(&Cursor::start_of(0)).unwrap().steps());
    }
}

#[test]
fn settings_that_contradict_each_other_are_refused_and_feeds_carry_them() {
    let batching = Batching { batch_bytes: Some(100), ..Batching::default() };
    let fault = |change: &dyn Fn(&mut LoaderConfig)| {
        let mut config = config(0, 1, Shuffle::Full, batching.clone());
        change(&mut config);
        config.check().unwrap_err().message().to_owned()
    };
    let by_arrival = fault(&|config| config.order = DeliveryOrder::Arrival { window: 4 });
    assert!(by_arrival.contains("order by arrival"), "{by_arrival}");
    let sharded = fault(&|config| {
        config.sharding =
            Some(forebay_core::plan::parts::Sharding { policy: "data".parse().unwrap(), parts: 2 });
    });
    assert!(sharded.contains("leave one out"), "{sharded}");

    let dataset = synthetic(SyntheticSpec { samples: 50, ..SyntheticSpec::default() }).unwrap();
    let id = |rank, world, batching: Option<Batching>| {
        let config = LoaderConfig { batching, ..config(rank, world, Shuffle::Full, Batching::default()) };
        FeedSpec::new(&dataset, &raw_recipe(), &config).map(|spec| {
            let again = FeedSpec::from_json(&spec.to_json().unwrap()).unwrap();
            assert_eq!(again.config(&LoaderConfig::default()).unwrap().batching, config.batching);
            spec.id()
        })
    };
    match id(0, 1, Some(batching.clone())) {
        Ok(one) => {
            assert_eq!(one, id(1, 3, Some(batching.clone())).unwrap(), "ranks make no difference");
            assert_ne!(one, id(0, 1, None).unwrap());
        }
        Err(error) => assert_eq!(error.kind(), ErrorKind::Unsupported),
    }
}

#[test]
fn a_dropped_last_step_leaves_out_what_is_not_full() {
    let (manifest, store, _) = arrays(100);
    let batching = Batching { bucket: Some(Bucket::Ratio(1.5)), ..Batching::default() };
    let mut config = config(0, 1, Shuffle::Full, batching);
    config.consumer.last_batch = LastBatch::Drop;
    let batches = epoch(&mut loader_on(&manifest, store, &padded(""), config));
    assert!(!batches.is_empty() && batches.iter().all(|batch| batch.len() == 12));
    assert!(manifest.len() > batches.len() as u64 * 12 && manifest.key(SampleId(0)) == "00000");
}
