//! What the loader tests share: small datasets, recipes without images, and loops over epochs.
#![allow(dead_code, reason = "every test file uses its own part")]
#![allow(clippy::unwrap_used, reason = "a test helper fails by panicking")]

use forebay_core::manifest::{FieldInfo, FieldKind, Manifest, ManifestBuilder, Value};
use forebay_core::portion::{Consumer, LastBatch};
use forebay_core::recipe::Recipe;
use forebay_engine::source::{Dataset, SyntheticPayload, SyntheticSpec, synthetic};
use forebay_engine::{Batch, Loader, LoaderConfig, Next};
use forebay_ops::Column;
use forebay_store::{MemoryStore, Store};
use std::sync::Arc;
use std::time::Duration;

/// Noise of `bytes` bytes a sample in `shards` objects.
pub(crate) fn noise(samples: u64, bytes: u64, shards: u32) -> Dataset {
    let payload = SyntheticPayload::Noise { bytes };
    synthetic(SyntheticSpec { samples, payload, shards, ..SyntheticSpec::default() }).unwrap()
}

/// Payload and label as they are.
pub(crate) fn raw_recipe() -> Recipe {
    Recipe::from_json(
        r#"[{"field": "bin", "decode": {"kind": "bytes"}}, {"field": "cls", "decode": {"kind": "label"}}]"#,
    )
    .unwrap()
}

/// Payloads as they are, of a dataset without labels.
pub(crate) fn bytes_recipe() -> Recipe {
    Recipe::from_json(r#"[{"field": "bin", "decode": {"kind": "bytes"}}]"#).unwrap()
}

/// Only the label: no payload is fetched.
pub(crate) fn label_recipe() -> Recipe {
    Recipe::from_json(r#"[{"field": "cls", "decode": {"kind": "label"}}]"#).unwrap()
}

pub(crate) fn consumer(rank: u64, world_size: u64, batch_size: u64) -> Consumer {
    Consumer { rank, world_size, batch_size, last_batch: LastBatch::Partial }
}

/// Settings of one rank alone.
pub(crate) fn alone(batch_size: u64) -> LoaderConfig {
    LoaderConfig { consumer: consumer(0, 1, batch_size), ..LoaderConfig::default() }
}

pub(crate) fn loader(dataset: &Dataset, recipe: &Recipe, config: LoaderConfig) -> Loader {
    Loader::new(dataset.manifest(), Arc::clone(dataset.store()), recipe, config).unwrap()
}

pub(crate) fn loader_on(
    manifest: &Manifest,
    store: Arc<dyn Store>,
    recipe: &Recipe,
    config: LoaderConfig,
) -> Loader {
    Loader::new(manifest, store, recipe, config).unwrap()
}

/// One object of `bytes` bytes for each sample, under [`object_key`].
pub(crate) fn manifest_of_objects(samples: u64, bytes: u64) -> Manifest {
    let fields = vec![FieldInfo { name: "bin".into(), kind: FieldKind::Payload }];
    let mut builder = ManifestBuilder::new(fields, serde_json::json!({}));
    for sample in 0..samples {
        let key = object_key(sample);
        builder.add_object(&key, bytes, 0).unwrap();
        builder.add_sample(&key, &[(0, Value::Payload { object: None, offset: 0, length: bytes })]).unwrap();
    }
    Manifest::open(builder.finish().unwrap()).unwrap()
}

pub(crate) fn object_key(sample: u64) -> String {
    format!("{sample:05}")
}

/// The next batch, or `None` at the end of the epoch.
pub(crate) fn next(loader: &mut Loader) -> forebay_core::Result<Option<Batch>> {
    loop {
        match loader.next(Duration::from_secs(5))? {
            Next::Batch(batch) => return Ok(Some(*batch)),
            Next::End => return Ok(None),
            Next::Waiting => {}
        }
    }
}

/// All batches of the next iteration.
pub(crate) fn epoch(loader: &mut Loader) -> Vec<Batch> {
    loader.begin().unwrap();
    std::iter::from_fn(|| next(loader).unwrap()).collect()
}

/// The first `steps` batches of the next iteration.
pub(crate) fn steps(loader: &mut Loader, steps: usize) -> Vec<Batch> {
    loader.begin().unwrap();
    (0..steps).map(|_| next(loader).unwrap().expect("the epoch is longer")).collect()
}

/// Sample ids in order, padding left out.
pub(crate) fn ids(batches: &[Batch]) -> Vec<u64> {
    let rows = batches.iter().flat_map(|batch| batch.ids.iter().zip(&batch.padding));
    rows.filter(|(_, padding)| !**padding).map(|(id, _)| id.0).collect()
}

/// Everything a batch holds, for comparing byte for byte.
pub(crate) fn bytes(batch: &Batch) -> Vec<u8> {
    let mut all = format!("{} {:?} {:?}", batch.epoch, batch.ids, batch.padding).into_bytes();
    for (name, column) in &batch.columns {
        all.extend(name.as_bytes());
        match column {
            Column::Tensor { data, .. } => all.extend(data.as_slice()),
            Column::Tensors(tensors) => all.extend(tensors.iter().flat_map(|tensor| tensor.data.as_slice())),
            Column::Ragged(ragged) => {
                all.extend(ragged.offset_bytes());
                all.extend(ragged.values.data.as_slice());
            }
            Column::Bytes(payloads) => all.extend(payloads.iter().flatten()),
            Column::Text(texts) | Column::Json(texts) => all.extend(texts.concat().as_bytes()),
        }
    }
    all
}

pub(crate) fn assert_each_once(mut ids: Vec<u64>, samples: u64) {
    ids.sort_unstable();
    assert_eq!(ids.len() as u64, samples);
    assert!(ids.iter().copied().eq(0..samples), "every sample exactly once");
}

/// One object of `bytes` bytes per sample; the first byte tells the sample.
pub(crate) fn objects(samples: u64, bytes: u64) -> (Manifest, MemoryStore) {
    let store = MemoryStore::new();
    for sample in 0..samples {
        store.insert(object_key(sample), vec![sample as u8; bytes as usize]).unwrap();
    }
    (manifest_of_objects(samples, bytes), store)
}
