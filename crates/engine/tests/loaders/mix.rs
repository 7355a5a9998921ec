//! Promises about mixes and resampling through the whole engine: proportions, payloads, resuming.
#![allow(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

use crate::common::*;
use forebay_core::cursor::Cursor;
use forebay_core::manifest::{FieldInfo, FieldKind, Manifest, ManifestBuilder, Value};
use forebay_core::plan::Shuffle;
use forebay_core::{ErrorKind, SampleId};
use forebay_engine::source::{
    Dataset, FieldValue, SourceKind, SyntheticPayload, SyntheticSpec, mix, synthetic,
};
use forebay_engine::{Batch, DeliveryOrder, Loader, LoaderConfig, MaxErrors, OnError};
use forebay_ops::Column;
use forebay_store::ByteRange;
use forebay_store::flaky::{Fault, FlakyStore, When};
use futures::executor::block_on;
use futures::{StreamExt, TryStreamExt};
use std::sync::Arc;

fn noise_of(samples: u64, seed: u64) -> Dataset {
    let payload = SyntheticPayload::Noise { bytes: 48 };
    synthetic(SyntheticSpec { samples, payload, shards: 3, seed, ..SyntheticSpec::default() }).unwrap()
}

/// 3000 samples by weight 3 and 100 by weight 1, so that the second is passed through several times.
fn two() -> (Dataset, Dataset, Dataset) {
    let (large, small) = (noise_of(3000, 1), noise_of(100, 2));
    let mixed = mix(&[(large.clone(), 3.0), (small.clone(), 1.0)]).unwrap();
    (large, small, mixed)
}

fn config(dataset: &Dataset, rank: u64, world: u64) -> LoaderConfig {
    LoaderConfig {
        consumer: consumer(rank, world, 25),
        shuffle: Shuffle::Full,
        mix: dataset.mix().map(<[_]>::to_vec),
        epoch_samples: Some(2048),
        seed: 6,
        threads: 2,
        ..LoaderConfig::default()
    }
}

fn through_json(cursor: &Cursor) -> Cursor {
    Cursor::from_json(&serde_json::to_string(cursor).unwrap()).unwrap()
}

/// Sample ids of the epoch's plan, by position.
fn planned(dataset: &Dataset, config: &LoaderConfig, epoch: u64) -> Vec<u64> {
    let plan = config.sampler(dataset.manifest()).unwrap().plan(epoch);
    (0..plan.len()).map(|position| plan.at(position).0).collect()
}

fn sorted(mut ids: Vec<u64>) -> Vec<u64> {
    ids.sort_unstable();
    ids
}

fn payloads(batches: &[Batch]) -> Vec<Vec<u8>> {
    let column = |batch: &Batch| match &batch.columns[0].1 {
        Column::Bytes(payloads) => payloads.iter().map(|payload| payload.to_vec()).collect::<Vec<_>>(),
        other => panic!("the payload is {other:?}"),
    };
    batches.iter().flat_map(column).collect()
}

#[test]
fn p029_mixture_delivers_both_datasets_in_proportion_with_their_own_payloads() {
    let (large, small, mixed) = two();
    let config = config(&mixed, 0, 1);
    let batches = epoch(&mut loader(&mixed, &raw_recipe(), config.clone()));
    let ids = ids(&batches);
    assert_eq!(ids, planned(&mixed, &config, 0), "the plan is delivered as it is");
    assert_eq!(ids.len(), 2048, "an epoch has exactly as many samples as were asked for");
    let of_large = ids.iter().filter(|id| **id < 3000).count();
    assert_eq!(of_large, 1536, "three quarters of two whole rounds");
    for (id, payload) in ids.iter().zip(payloads(&batches)) {
        let (part, sample) = if *id < 3000 { (&large, *id) } else { (&small, *id - 3000) };
        let stored = block_on(part.read_field(SampleId(sample), 0, ByteRange::Full)).unwrap();
        assert_eq!(payload, stored, "sample {id}");
    }
}

#[test]
fn p029_mixture_resumes_mid_epoch_at_the_exact_next_batch() {
    let (_, _, mixed) = two();
    let whole = epoch(&mut loader(&mixed, &raw_recipe(), config(&mixed, 0, 1)));
    assert_eq!(whole.len(), 82);
    let mut first = loader(&mixed, &raw_recipe(), config(&mixed, 0, 1));
    steps(&mut first, 31);
    let cursor = through_json(&first.cursor());
    drop(first);
    let mut second = loader(&mixed, &raw_recipe(), config(&mixed, 0, 1));
    second.seek(cursor).unwrap();
    assert_eq!(second.steps().unwrap(), 51);
    let rest = epoch(&mut second);
    assert!(rest.iter().map(bytes).eq(whole[31..].iter().map(bytes)));
    let next = epoch(&mut second);
    assert_eq!((next[0].epoch, ids(&next).len()), (1, 2048));
}

/// The samples before the checkpoint and after it make up the plan's, each as often as it stands there.
#[test]
fn p029_mixture_and_resampling_resume_on_another_number_of_ranks() {
    let (_, _, mixed) = two();
    let resampled = noise_of(700, 5);
    let resample =
        LoaderConfig { shuffle: Shuffle::Resample { epoch_samples: None }, ..config(&resampled, 0, 1) };
    for (dataset, base) in [(&mixed, config(&mixed, 0, 1)), (&resampled, resample)] {
        let wanted = sorted(planned(dataset, &base, 0));
        for order in [DeliveryOrder::Plan, DeliveryOrder::Arrival { window: 40 }] {
            let of =
                |rank, world| LoaderConfig { consumer: consumer(rank, world, 25), order, ..base.clone() };
            let mut before = Vec::new();
            let mut cursors = Vec::new();
            let mut epoch_samples = 0;
            for rank in 0..3 {
                let mut loader = loader(dataset, &raw_recipe(), of(rank, 3));
                before.extend(ids(&steps(&mut loader, 9)));
                cursors.push(through_json(&loader.cursor()));
                epoch_samples = loader.epoch_samples();
            }
            let merged = Cursor::merge(&cursors, epoch_samples).unwrap();
            for world in [1, 2, 5] {
                let mut all = before.clone();
                for rank in 0..world {
                    let mut loader = loader(dataset, &raw_recipe(), of(rank, world));
                    loader.seek(merged.clone()).unwrap();
                    all.extend(ids(&epoch(&mut loader)));
                }
                assert_eq!(sorted(all), wanted, "{order:?} from 3 ranks to {world}");
            }
        }
    }
}

/// Epochs longer than the dataset, batches larger than the dataset: the length of an epoch is its own number.
#[test]
fn p029_resampling_epochs_may_be_longer_than_the_dataset() {
    let dataset = noise_of(10, 3);
    let shuffle = Shuffle::Resample { epoch_samples: Some(1000) };
    let config = LoaderConfig { shuffle, seed: 2, ..alone(64) };
    let mut loader = loader(&dataset, &raw_recipe(), config.clone());
    assert_eq!((loader.steps().unwrap(), loader.epoch_samples()), (16, 1000));
    for number in 0..2 {
        let batches = epoch(&mut loader);
        assert_eq!(batches[0].len(), 64);
        assert_eq!(ids(&batches), planned(&dataset, &config, number));
    }
    let allowed = loader.stats().memory_limit_bytes;
    assert!(loader.stats().payload_peak_bytes <= allowed);
}

/// A substitute is a sample of the dataset, however long the epoch is.
#[test]
fn substitutes_come_from_the_dataset_when_an_epoch_is_longer() {
    let dataset = noise_of(30, 3);
    let bad = dataset.manifest().object(1).key.into_owned();
    let store = FlakyStore::new(Arc::clone(dataset.store()), 1)
        .with(When::Keys([bad].into()), Fault::Fail(ErrorKind::NotFound));
    let config = LoaderConfig {
        shuffle: Shuffle::Resample { epoch_samples: Some(600) },
        on_error: OnError::Substitute,
        max_errors: MaxErrors::Unlimited,
        ..alone(50)
    };
    let mut loader = loader_on(dataset.manifest(), Arc::new(store), &raw_recipe(), config);
    let delivered = ids(&epoch(&mut loader));
    assert_eq!(delivered.len(), 600);
    assert!(!loader.faults().is_empty());
    assert!(loader.faults().iter().all(|fault| fault.substitute.is_some_and(|id| id.0 < 30)));
}

#[test]
fn a_mix_reads_like_its_parts_and_has_the_fields_of_all() {
    let image = SyntheticSpec { samples: 4, field: "raw".into(), ..SyntheticSpec::default() };
    let (bin, raw) = (noise_of(5, 1), synthetic(image).unwrap());
    let templates = SyntheticPayload::Templates(vec!["one".into(), "other".into()]);
    let shared =
        synthetic(SyntheticSpec { samples: 6, payload: templates, ..SyntheticSpec::default() }).unwrap();
    let all = [(bin, 1.0), (raw, 2.0), (shared, 1.0)];
    let mixed = mix(&all).unwrap();
    assert_eq!((mixed.kind(), mixed.manifest().len()), (SourceKind::Mix, 15));
    let names: Vec<&str> = mixed.manifest().fields().iter().map(|field| field.name.as_str()).collect();
    assert_eq!(names, ["bin", "cls", "raw"]);
    let named = |mut values: Vec<(String, FieldValue)>| {
        values.sort_by(|a, b| a.0.cmp(&b.0));
        values
    };
    let mut at = 0;
    for (part, _) in &all {
        for sample in 0..part.manifest().len() {
            let own = block_on(part.read_sample(SampleId(sample))).unwrap();
            let here = block_on(mixed.read_sample(SampleId(at))).unwrap();
            assert_eq!(named(here), named(own));
            assert_eq!(mixed.manifest().key(SampleId(at)), part.manifest().key(SampleId(sample)));
            at += 1;
        }
    }
    // A mix inside a mix is taken apart, with its weight shared out.
    let outer = mix(&[(mixed.clone(), 1.0), (noise_of(7, 9), 1.0)]).unwrap();
    let weights: Vec<(u64, f64)> =
        outer.mix().unwrap().iter().map(|part| (part.samples.end, part.weight)).collect();
    assert_eq!(weights, [(5, 0.25), (9, 0.5), (15, 0.25), (22, 1.0)]);
    let first = block_on(outer.read_sample(SampleId(14))).unwrap();
    assert_eq!(named(first), named(block_on(mixed.read_sample(SampleId(14))).unwrap()));
}

#[test]
fn the_store_of_a_mix_lists_in_the_order_of_keys_and_takes_no_writes() {
    let parts: Vec<(Dataset, f64)> = (0..12).map(|seed| (noise_of(3, seed), 1.0)).collect();
    let mixed = mix(&parts).unwrap();
    let store = mixed.store();
    let list = |prefix: &'static str| -> Vec<String> {
        block_on(store.list(prefix).map_ok(|meta| meta.key).try_collect()).unwrap()
    };
    let all = list("");
    assert_eq!(all.len(), 36);
    assert!(all.is_sorted());
    assert_eq!(list("1"), all.iter().filter(|key| key.starts_with('1')).cloned().collect::<Vec<_>>());
    assert_eq!(list("1/"), ["1/noise-000000", "1/noise-000001", "1/noise-000002"]);
    assert_eq!(list("11/noise-000002"), ["11/noise-000002"]);
    assert_eq!(block_on(store.head("11/noise-000002")).unwrap().key, "11/noise-000002");
    assert_eq!(store.url("11/noise-000002"), "synthetic://noise-000002");
    assert_eq!(block_on(store.list("12/").count()), 0);
    for key in ["", "noise-000000", "12/noise-000000", "01/noise-000000", "+1/noise-000000", "-1/x", "1/no"] {
        assert_eq!(block_on(store.head(key)).unwrap_err().kind(), ErrorKind::NotFound, "{key}");
        assert_eq!(block_on(store.read(key, ByteRange::Full)).unwrap_err().kind(), ErrorKind::NotFound);
        let parts = block_on(store.read_parts(key, &[0..1, 1..2]));
        assert_eq!(parts.unwrap_err().kind(), ErrorKind::NotFound);
    }
    assert_eq!(block_on(store.write("1/x", "x".into())).unwrap_err().kind(), ErrorKind::Unsupported);
}

#[test]
fn settings_that_do_not_fit_a_mix_are_refused_before_the_first_sample() {
    let (large, _, mixed) = two();
    let refused = |dataset: &Dataset, config: LoaderConfig| {
        let built = Loader::new(dataset.manifest(), Arc::clone(dataset.store()), &raw_recipe(), config);
        let error = built.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
        error.to_string()
    };
    let good = config(&mixed, 0, 1);
    let sequential = LoaderConfig { shuffle: Shuffle::Sequential, ..good.clone() };
    assert!(refused(&mixed, sequential).contains("shuffle"));
    let resample = LoaderConfig { shuffle: Shuffle::Resample { epoch_samples: None }, ..good.clone() };
    assert!(refused(&mixed, resample).contains("resample"));
    // The runs of one mix do not fit another dataset.
    assert!(refused(&large, good.clone()).contains("3100"));
    assert!(refused(&large, LoaderConfig { mix: None, ..good.clone() }).contains("epoch_samples"));
    let twice = Shuffle::Resample { epoch_samples: Some(7) };
    assert!(refused(&large, LoaderConfig { mix: None, shuffle: twice, ..good }).contains("give it once"));
    for weight in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert_eq!(mix(&[(large.clone(), weight)]).unwrap_err().kind(), ErrorKind::InvalidConfig);
    }
    assert_eq!(mix(&[]).unwrap_err().kind(), ErrorKind::InvalidConfig);
    // The same name for a payload here and a number there cannot be one column.
    let number = vec![FieldInfo { name: "bin".into(), kind: FieldKind::Int }];
    let mut builder = ManifestBuilder::new(number, serde_json::json!({ "kind": "synthetic" }));
    builder.add_object("a", 0, 0).unwrap();
    builder.add_sample("a", &[(0, Value::Int(1))]).unwrap();
    let manifest = Manifest::open(builder.finish().unwrap()).unwrap();
    let numbers = Dataset::new(manifest, Arc::clone(large.store()), "numbers").unwrap();
    let error = mix(&[(large, 1.0), (numbers, 1.0)]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    assert!(error.to_string().contains("numbers"), "{error}");
}
