//! From the prefetcher to the loop: fetching tasks, preparing threads, the board between them, and closing.

use super::draw;
use super::late::Late;
use crate::common::*;
use forebay_core::ErrorKind;
use forebay_core::manifest::Manifest;
use forebay_core::plan::Shuffle;
use forebay_core::recipe::Recipe;
use forebay_engine::{Batch, DeliveryOrder, Loader, LoaderConfig, MaxErrors, OnError};
use forebay_ops::Column;
use forebay_store::flaky::{Fault, FlakyStore, When};
use forebay_store::{MemoryStore, Store};
use std::sync::Arc;

const SAMPLES: u64 = 7;

/// Numbers that are written into the rows of one buffer and text that is gathered, both by threads; and bytes, which are
/// handed on where they arrive.
fn recipes() -> [Recipe; 3] {
    let number =
        r#"[{"field": "bin", "decode": {"kind": "label"}, "ops": [{"op": "delay", "seconds": 1e-9}]}]"#;
    let text = r#"[{"field": "bin", "decode": {"kind": "text"}}]"#;
    [Recipe::from_json(number).unwrap(), Recipe::from_json(text).unwrap(), bytes_recipe()]
}

fn config(order: DeliveryOrder) -> LoaderConfig {
    // Room for a few batches and a few payloads more: everybody waits for somebody.
    LoaderConfig {
        shuffle: Shuffle::Full,
        order,
        threads: 2,
        memory_bytes: Some(90),
        epochs: Some(2),
        ..alone(2)
    }
}

/// That the batch holds what its ids say.
fn assert_own_payloads(batch: &Batch) {
    let number = |text: &[u8]| std::str::from_utf8(text).unwrap().parse::<u64>().unwrap();
    let numbers: Vec<u64> = match batch.column("bin") {
        Some(Column::Text(texts)) => texts.iter().map(|text| number(text.as_bytes())).collect(),
        Some(Column::Bytes(payloads)) => payloads.iter().map(|payload| number(payload)).collect(),
        Some(Column::Tensor { data, .. }) => {
            let rows = data.as_slice().chunks_exact(8);
            rows.map(|row| u64::from_le_bytes(row.try_into().unwrap())).collect()
        }
        other => panic!("one column of payloads, not {other:?}"),
    };
    assert!(numbers.iter().eq(batch.ids.iter().map(|id| &id.0)));
}

/// Every sample is its own number in ten digits.
fn made() -> (Manifest, MemoryStore) {
    let store = MemoryStore::new();
    for sample in 0..SAMPLES {
        store.insert(object_key(sample), format!("{sample:010}").into_bytes()).unwrap();
    }
    (manifest_of_objects(SAMPLES, 10), store)
}

#[test]
fn two_epochs_come_whole_and_as_planned() {
    for recipe in recipes() {
        draw(600, move || {
            let (manifest, store) = made();
            let mut loader = loader_on(&manifest, Late::over(store), &recipe, config(DeliveryOrder::Plan));
            let planned = |epoch| {
                let sampler = loader.config().sampler(&manifest).unwrap();
                let plan = sampler.plan(epoch);
                (0..SAMPLES).map(|position| plan.at(position).0).collect::<Vec<_>>()
            };
            let wanted = [planned(0), planned(1)];
            for wanted in wanted {
                let batches = epoch(&mut loader);
                assert_eq!(ids(&batches), wanted);
                batches.iter().for_each(assert_own_payloads);
            }
        });
    }
}

#[test]
fn arrival_order_delivers_each_once_within_its_window_and_epoch() {
    for recipe in recipes() {
        draw(600, move || {
            let (manifest, store) = made();
            let order = DeliveryOrder::Arrival { window: 3 };
            let mut loader = loader_on(&manifest, Late::over(store), &recipe, config(order));
            for number in 0..2 {
                let batches = epoch(&mut loader);
                assert!(batches.iter().all(|batch| batch.epoch == number));
                assert_each_once(ids(&batches), SAMPLES);
                batches.iter().for_each(assert_own_payloads);
            }
        });
    }
}

fn failing(store: MemoryStore) -> Arc<dyn Store> {
    let keys = [1, 3, 5].map(object_key).into();
    Late::over(FlakyStore::new(Arc::new(store), 1).with(When::Keys(keys), Fault::Fail(ErrorKind::NotFound)))
}

/// A failed row's right to write must be gone before its batch is handed over, whichever thread finishes it last. In
/// stored order every second row is bad.
#[test]
fn p012_bad_samples_are_skipped_under_any_interleaving() {
    for recipe in recipes() {
        draw(1500, move || {
            let (manifest, store) = made();
            let on_error = OnError::Skip;
            let config = LoaderConfig {
                on_error,
                shuffle: Shuffle::Sequential,
                max_errors: MaxErrors::Unlimited,
                ..config(DeliveryOrder::Plan)
            };
            let mut loader = loader_on(&manifest, failing(store), &recipe, config);
            for _ in 0..2 {
                let batches = epoch(&mut loader);
                assert_eq!(ids(&batches), [0, 2, 4, 6]);
                batches.iter().for_each(assert_own_payloads);
            }
            let bad: Vec<u64> = loader.faults().iter().map(|fault| fault.sample_id.0).collect();
            assert_eq!(bad, [1, 3, 5, 1, 3, 5]);
        });
    }
}

#[test]
fn p012_bad_samples_are_substituted_under_any_interleaving() {
    for recipe in recipes() {
        draw(600, move || {
            let (manifest, store) = made();
            let on_error = OnError::Substitute;
            let config =
                LoaderConfig { on_error, max_errors: MaxErrors::Unlimited, ..config(DeliveryOrder::Plan) };
            let mut loader = loader_on(&manifest, failing(store), &recipe, config);
            let batches = epoch(&mut loader);
            let delivered = ids(&batches);
            assert_eq!(delivered.len() as u64, SAMPLES, "no row is left empty");
            assert!(delivered.iter().all(|id| id % 2 == 0));
            batches.iter().for_each(assert_own_payloads);
        });
    }
}

/// Closing waits for the preparing threads: one that sleeps through it would keep this test waiting for ever.
#[test]
fn p077_a_loader_dropped_after_any_step_ends_its_threads() {
    for recipe in recipes() {
        draw(600, move || {
            let (manifest, store) = made();
            let mut loader: Loader =
                loader_on(&manifest, Late::over(store), &recipe, config(DeliveryOrder::Plan));
            loader.begin().unwrap();
            let taken = shuttle::rand::Rng::gen_range(&mut shuttle::rand::thread_rng(), 1..5);
            for _ in 0..taken {
                assert!(next(&mut loader).unwrap().is_some());
            }
            drop(loader);
        });
    }
}
