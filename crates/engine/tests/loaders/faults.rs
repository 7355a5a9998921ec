//! Promises about bad samples: raise, skip, substitute, limits, and a report that names each.
#![allow(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

use crate::common::*;
use forebay_core::ErrorKind;
use forebay_core::manifest::{FieldInfo, FieldKind, Manifest, ManifestBuilder, Value};
use forebay_engine::{LoaderConfig, MaxErrors, OnError};
use forebay_store::flaky::{Fault, FlakyStore, When};
use forebay_store::memory::MemoryStore;
use std::collections::BTreeSet;
use std::sync::Arc;

/// One object per sample, so that a failing key is a failing sample.
fn objects(samples: u64) -> (Manifest, Arc<MemoryStore>) {
    let store = Arc::new(MemoryStore::new());
    let fields = vec![FieldInfo { name: "bin".into(), kind: FieldKind::Payload }];
    let mut builder = ManifestBuilder::new(fields, serde_json::json!({}));
    for sample in 0..samples {
        let key = format!("{sample:05}");
        store.insert(&key, vec![sample as u8; 10]).unwrap();
        builder.add_object(&key, 10, 0).unwrap();
        builder.add_sample(&key, &[(0, Value::Payload { object: None, offset: 0, length: 10 })]).unwrap();
    }
    (Manifest::open(builder.finish().unwrap()).unwrap(), store)
}

fn recipe() -> forebay_core::recipe::Recipe {
    forebay_core::recipe::Recipe::from_json(r#"[{"field": "bin", "decode": {"kind": "bytes"}}]"#).unwrap()
}

/// Every hundredth sample cannot be read: 1 %.
fn bad_ids(samples: u64) -> BTreeSet<u64> {
    (0..samples).filter(|sample| sample % 100 == 37).collect()
}

fn failing(samples: u64) -> (Manifest, Arc<FlakyStore>) {
    let (manifest, store) = objects(samples);
    let keys = bad_ids(samples).iter().map(|sample| format!("{sample:05}")).collect();
    let flaky = FlakyStore::new(store, 1).with(When::Keys(keys), Fault::Fail(ErrorKind::NotFound));
    (manifest, Arc::new(flaky))
}

fn config(on_error: OnError, max_errors: MaxErrors) -> LoaderConfig {
    LoaderConfig { on_error, max_errors, shuffle: forebay_core::plan::Shuffle::Full, seed: 4, ..alone(32) }
}

#[test]
fn p012_skipping_below_the_limit_ends_with_the_exact_list_of_skipped_ids() {
    let (manifest, store) = failing(2000);
    let mut loader = loader_on(&manifest, store, &recipe(), config(OnError::Skip, MaxErrors::Rate(0.02)));
    let batches = epoch(&mut loader);
    assert_eq!(batches.len(), 2000usize.div_ceil(32), "steps stay equal");
    let bad = bad_ids(2000);
    let skipped: BTreeSet<u64> = loader.faults().iter().map(|fault| fault.sample_id.0).collect();
    assert_eq!(skipped, bad);
    assert_eq!(loader.faults().len(), bad.len());
    let mut delivered = ids(&batches);
    delivered.extend(&bad);
    assert_each_once(delivered, 2000);
    for fault in loader.faults() {
        assert_eq!(fault.key, format!("{:05}", fault.sample_id.0));
        assert_eq!(fault.error.kind(), ErrorKind::NotFound);
    }
    // Rows and payloads still belong together after rows were taken out.
    for batch in &batches {
        let Some(forebay_ops::Column::Bytes(payloads)) = batch.column("bin") else { panic!("raw column") };
        assert!(batch.ids.iter().zip(payloads).all(|(id, payload)| payload[0] == id.0 as u8));
    }
}

#[test]
fn p012_more_bad_samples_than_allowed_abort() {
    for limit in [MaxErrors::Rate(0.005), MaxErrors::Count(10)] {
        let (manifest, store) = failing(2000);
        let mut loader = loader_on(&manifest, store, &recipe(), config(OnError::Skip, limit));
        loader.begin().unwrap();
        let error = loop {
            match next(&mut loader) {
                Ok(Some(_)) => {}
                Ok(None) => panic!("20 bad samples are more than {limit:?}"),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::Exhausted);
        assert!(error.message().contains("11 bad samples of 2000, max_errors allows 10"), "{error}");
        assert_eq!(next(&mut loader).unwrap_err().kind(), ErrorKind::Exhausted, "the failure stays");
    }
}

#[test]
fn p012_raising_names_the_sample_and_keeps_the_cursor_before_it() {
    let (manifest, store) = failing(200);
    let sequential = LoaderConfig { on_error: OnError::Raise, ..alone(10) };
    let mut loader = loader_on(&manifest, store, &recipe(), sequential);
    loader.begin().unwrap();
    for _ in 0..3 {
        next(&mut loader).unwrap().unwrap();
    }
    let error = next(&mut loader).unwrap_err();
    assert_eq!(error.facts().sample_id.unwrap().0, 37);
    assert!(error.message().starts_with("fetch sample 37 (`00037`)"), "{error}");
    assert_eq!(loader.cursor().samples_received(), 30, "nothing of the failed batch counts as received");
}

#[test]
fn p012_a_substitute_is_stable_and_reported_and_batches_stay_full() {
    let run = || {
        let (manifest, store) = failing(1000);
        let mut loader =
            loader_on(&manifest, store, &recipe(), config(OnError::Substitute, MaxErrors::Unlimited));
        let batches = epoch(&mut loader);
        assert!(batches[..batches.len() - 1].iter().all(|batch| batch.len() == 32));
        let pairs: Vec<_> =
            loader.faults().iter().map(|fault| (fault.sample_id.0, fault.substitute.unwrap().0)).collect();
        (ids(&batches), pairs)
    };
    let (delivered, pairs) = run();
    assert_eq!(delivered.len(), 1000);
    let bad = bad_ids(1000);
    assert!(delivered.iter().all(|id| !bad.contains(id)));
    assert_eq!(pairs.iter().map(|(id, _)| *id).collect::<BTreeSet<_>>(), bad);
    assert_eq!((delivered, pairs), run(), "the same substitutes every time");
}

#[test]
fn a_batch_without_a_single_good_sample_is_an_error_not_an_empty_batch() {
    let (manifest, store) = objects(20);
    let flaky = FlakyStore::new(store, 1).with(When::Always, Fault::Fail(ErrorKind::Denied));
    let mut loader =
        loader_on(&manifest, Arc::new(flaky), &recipe(), config(OnError::Skip, MaxErrors::Unlimited));
    loader.begin().unwrap();
    let error = next(&mut loader).unwrap_err();
    assert!(error.message().contains("all 20 samples are bad"), "{error}");
}

/// One bad range of a request that was read together with its neighbours costs one sample, not all of them.
#[test]
fn a_truncated_answer_is_noticed_and_costs_only_its_own_sample() {
    let (manifest, store) = objects(100);
    let keys = BTreeSet::from(["00005".to_owned()]);
    let flaky = FlakyStore::new(store, 1).with(When::Keys(keys), Fault::Truncate);
    let mut loader =
        loader_on(&manifest, Arc::new(flaky), &recipe(), config(OnError::Skip, MaxErrors::Count(1)));
    assert_eq!(ids(&epoch(&mut loader)).len(), 99);
    assert_eq!(loader.faults()[0].error.kind(), ErrorKind::Corrupt);
}

#[test]
fn a_field_nobody_has_is_refused_before_the_first_batch() {
    let (manifest, store) = objects(3);
    let recipe =
        forebay_core::recipe::Recipe::from_json(r#"[{"field": "jpg;png", "decode": {"kind": "bytes"}}]"#)
            .unwrap();
    let Err(error) = forebay_engine::Loader::new(&manifest, store, &recipe, alone(1)) else {
        panic!("no such field")
    };
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    assert!(
        error.report().contains("`jpg;png`") && error.report().contains("the dataset has `bin`"),
        "{error:?}"
    );
}

/// A failed row's right to write must be gone before its batch is handed over, whichever thread finishes it last.
#[test]
fn p012_batches_with_bad_rows_are_handed_over_under_any_interleaving() {
    let (manifest, store) = objects(64);
    let keys = (0..64).filter(|sample| sample % 2 == 1).map(|sample| format!("{sample:05}")).collect();
    let flaky = Arc::new(FlakyStore::new(store, 1).with(When::Keys(keys), Fault::Fail(ErrorKind::NotFound)));
    // In stored order every batch of two has one good and one bad sample.
    let config = LoaderConfig { on_error: OnError::Skip, threads: 8, ..alone(2) };
    let mut loader = loader_on(&manifest, flaky, &recipe(), config);
    for _ in 0..60 {
        let batches = epoch(&mut loader);
        assert_eq!(ids(&batches), (0..64).step_by(2).collect::<Vec<_>>());
    }
}
