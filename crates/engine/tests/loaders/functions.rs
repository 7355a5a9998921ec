//! Promises about functions and quarantine in a loader: filters move nothing, and known bad samples are never read.
#![allow(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

use crate::common::*;
use forebay_core::plan::Shuffle;
use forebay_core::quarantine::Quarantine;
use forebay_core::recipe::Recipe;
use forebay_core::{Error, ErrorKind, Result, SampleId};
use forebay_engine::{Loader, LoaderConfig, OnError, quarantine};
use forebay_ops::{Call, Column, Function, Functions, Named, Slot, Value};
use forebay_store::MemoryStore;
use std::sync::Arc;

const SAMPLES: u64 = 304;

/// Payloads are numbers: keeps those that three divides, and is not able to do anything with 42.
struct Thirds;

impl Function for Thirds {
    fn map(&self, _: &Call<'_>, mut values: Vec<Value>, slots: &mut [Slot<'_>]) -> Result<()> {
        if number(&values[0]) == 42 {
            return Err(Error::function("it is 42"));
        }
        let Slot::Value(free) = &mut slots[0] else { panic!("no shape was said") };
        **free = values.pop();
        Ok(())
    }

    fn keep(&self, _: &Call<'_>, values: Vec<Value>) -> Result<(bool, Vec<Value>)> {
        Ok((number(&values[0]).is_multiple_of(3), values))
    }

    fn map_batch(&self, _: &Call<'_>, ids: &[SampleId], mut columns: Named) -> Result<Named> {
        columns.push(("ids".into(), Column::Text(ids.iter().map(ToString::to_string).collect())));
        Ok(columns)
    }
}

fn number(value: &Value) -> u64 {
    let Value::Bytes(payload) = value else { panic!("{value:?}") };
    u64::from_le_bytes(payload[..].try_into().unwrap())
}

fn made() -> (forebay_core::manifest::Manifest, Arc<MemoryStore>) {
    let store = Arc::new(MemoryStore::new());
    for sample in 0..SAMPLES {
        store.insert(object_key(sample), sample.to_le_bytes().to_vec()).unwrap();
    }
    (manifest_of_objects(SAMPLES, 8), store)
}

fn recipe(ops: &str, after: &str) -> Recipe {
    Recipe::from_json(&format!(r#"[{{"field": "bin", "decode": "bytes", "ops": [{ops}]}}{after}]"#)).unwrap()
}

fn with(recipe: &Recipe, config: LoaderConfig) -> Loader {
    let (manifest, store) = made();
    let functions: Vec<Arc<dyn Function>> =
        recipe.functions().map(|_| Arc::new(Thirds) as Arc<dyn Function>).collect();
    let config = LoaderConfig { functions: Functions::Given(functions), shuffle: Shuffle::Full, ..config };
    loader_on(&manifest, store, recipe, config)
}

const FILTER: &str = r#"{"op": "filter", "function": "m:f"}"#;
const MAP: &str = r#"{"op": "map", "function": "m:f"}"#;

#[test]
fn a_filter_leaves_steps_and_positions_as_they_are_on_any_number_of_ranks() {
    for world_size in [1, 3] {
        let mut seen = Vec::new();
        for rank in 0..world_size {
            let config = LoaderConfig { consumer: consumer(rank, world_size, 8), ..LoaderConfig::default() };
            let plain = epoch(&mut with(&recipe("", ""), config.clone()));
            let batches_op = r#", {"op": "map_batch", "function": "m:f"}"#;
            let mut loader = with(&recipe(FILTER, batches_op), config);
            let kept = epoch(&mut loader);
            assert_eq!(plain.len(), kept.len());
            for (all, kept) in plain.iter().zip(&kept) {
                let wanted: Vec<SampleId> = all.ids.iter().copied().filter(|id| id.0 % 3 == 0).collect();
                assert_eq!(kept.ids, wanted);
                if wanted.is_empty() {
                    assert!(kept.column("ids").is_none(), "nothing is called with an empty batch");
                    continue;
                }
                let Some(Column::Text(told)) = kept.column("ids") else { panic!("{kept:?}") };
                assert_eq!(told, &wanted.iter().map(ToString::to_string).collect::<Vec<_>>());
            }
            let left_out = ids(&plain).iter().filter(|id| *id % 3 != 0).count() as u64;
            assert_eq!(loader.stats().filtered, left_out);
            seen.extend(ids(&kept));
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..SAMPLES).step_by(3).collect::<Vec<_>>());
    }
}

#[test]
fn a_state_inside_of_a_filtered_epoch_goes_on_exactly() {
    let config = alone(8);
    let mut first = with(&recipe(FILTER, ""), config.clone());
    let before = ids(&steps(&mut first, 11));
    let cursor = first.cursor();
    let mut second = with(&recipe(FILTER, ""), config.clone());
    second.seek(cursor).unwrap();
    let after = ids(&epoch(&mut second));
    let whole = ids(&epoch(&mut with(&recipe(FILTER, ""), config)));
    assert_eq!([before, after].concat(), whole);
}

#[test]
fn p035_a_function_that_fails_is_a_bad_sample_with_its_op() {
    let mut loader = with(&recipe(MAP, ""), alone(8));
    loader.begin().unwrap();
    let error = loop {
        match next(&mut loader) {
            Ok(batch) => assert!(batch.is_some(), "sample 42 is bad"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Function);
    assert_eq!(error.facts().sample_id, Some(SampleId(42)));
    assert_eq!(error.facts().op.as_deref(), Some("map(m:f)"));

    let mut loader = with(&recipe(MAP, ""), LoaderConfig { on_error: OnError::Skip, ..alone(8) });
    assert_eq!(ids(&epoch(&mut loader)).len() as u64, SAMPLES - 1);
    assert_eq!(loader.faults()[0].sample_id, SampleId(42));
}

#[test]
fn a_recipe_with_functions_that_nobody_gave_is_refused() {
    let (manifest, store) = made();
    let error = Loader::new(&manifest, store, &recipe(MAP, ""), alone(8)).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.message().contains("`m:f`"), "{error}");
}

#[test]
fn p012_what_is_in_quarantine_is_replaced_by_those_that_would_have_been_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bad.jsonl");
    let substitute = LoaderConfig { on_error: OnError::Substitute, ..alone(8) };
    let config = LoaderConfig { quarantine_file: Some(path.clone()), ..substitute };
    let found: Vec<_> =
        epoch(&mut with(&recipe(MAP, ""), config)).iter().map(|batch| batch.ids.clone()).collect();
    let (manifest, _) = made();
    let known = quarantine::read(&path, manifest.version(), SAMPLES).unwrap();
    assert_eq!(known.ids(), [42]);
    assert_eq!(quarantine::read(&path, "another version", SAMPLES).unwrap(), Quarantine::default());
    for world_size in [1, 2] {
        let ranks: Vec<Vec<Vec<SampleId>>> = (0..world_size)
            .map(|rank| {
                let consumer = consumer(rank, world_size, 8);
                let quarantine = Arc::new(known.clone());
                let config = LoaderConfig { consumer, quarantine, ..LoaderConfig::default() };
                epoch(&mut with(&recipe(MAP, ""), config)).iter().map(|batch| batch.ids.clone()).collect()
            })
            .collect();
        for (step, wanted) in found.iter().enumerate() {
            let world = usize::try_from(world_size).unwrap();
            assert_eq!(&ranks[step % world][step / world], wanted, "step {step} of {world_size} ranks");
        }
    }
}
