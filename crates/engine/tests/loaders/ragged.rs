//! Promises of columns whose values stand one behind the other, through whole loaders: what they hold is what a list of
//! the values would, in any order, cut in any way, on any ranks, after any restart.
#![allow(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

use crate::batching::{arrays, settings};
use crate::common::*;
use forebay_core::cursor::Cursor;
use forebay_core::manifest::Manifest;
use forebay_core::plan::batching::Batching;
use forebay_core::plan::{BlockShuffle, Shuffle};
use forebay_core::recipe::Recipe;
use forebay_engine::{Batch, Loader, LoaderConfig};
use forebay_ops::{Column, Ragged};
use forebay_store::Store;
use proptest::prelude::*;
use std::sync::Arc;

fn recipe(ops: &str) -> Recipe {
    let columns = format!(
        r#"[{{"field": "npy", "decode": "npy", "ops": [{ops}]}}, {{"field": "npy", "name": "raw", "decode": "bytes", "ops": [{ops}]}}]"#
    );
    Recipe::from_json(&columns).unwrap()
}

/// The bytes of every sample of a column, whatever its form.
fn rows(column: &Column) -> Vec<Vec<u8>> {
    match column {
        Column::Tensor { spec, data, .. } => {
            data.as_slice().chunks_exact(spec.bytes()).map(<[u8]>::to_vec).collect()
        }
        Column::Tensors(tensors) => tensors.iter().map(|tensor| tensor.data.as_slice().to_vec()).collect(),
        Column::Bytes(payloads) => payloads.iter().map(|payload| payload.to_vec()).collect(),
        Column::Ragged(Ragged { values, offsets, axis: 0, .. }) => {
            let size = values.spec.dtype.size();
            assert_eq!((values.spec.shape.len(), offsets[0]), (1, 0));
            assert_eq!(*offsets.last().unwrap() as usize * size, values.data.len());
            let part = |pair: &[u64]| {
                values.data.as_slice()[pair[0] as usize * size..pair[1] as usize * size].to_vec()
            };
            offsets.windows(2).map(part).collect()
        }
        other => panic!("{other:?}"),
    }
}

/// Ids of a batch, and the rows of each of its columns.
type Received = Vec<(Vec<u64>, Vec<Vec<Vec<u8>>>)>;

/// Ids and values of every batch that jobs of these sizes receive, each but the last stopped after so many steps.
fn received(jobs: &[(u64, usize)], make: &dyn Fn(u64, u64) -> Loader) -> Received {
    let (mut cursor, mut all) = (Cursor::start_of(1), Vec::new());
    for (number, (world, stop)) in jobs.iter().enumerate() {
        let mut ranks: Vec<Loader> = (0..*world).map(|rank| make(rank, *world)).collect();
        for loader in &mut ranks {
            loader.seek(cursor.clone()).unwrap();
            loader.begin().unwrap();
        }
        let steps = if number + 1 == jobs.len() { usize::MAX } else { *stop };
        for _ in 0..steps {
            let batches: Vec<Batch> = ranks.iter_mut().filter_map(|loader| next(loader).unwrap()).collect();
            if batches.is_empty() {
                break;
            }
            for batch in &batches {
                let ids: Vec<u64> = batch.ids.iter().map(|id| id.0).collect();
                all.push((ids, batch.columns.iter().map(|(_, column)| rows(column)).collect()));
            }
        }
        cursor = Cursor::from_json(&serde_json::to_string(&ranks[0].cursor()).unwrap()).unwrap();
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn p031_ragged_columns_hold_what_a_list_would_whatever_orders_ranks_and_restarts(
        jobs in proptest::collection::vec((1u64..4, 0usize..5), 1..4), cut in 0usize..4, shuffle in 0usize..3, seed: u64,
    ) {
        let (manifest, store, _): (Manifest, Arc<dyn Store>, _) = arrays(120);
        let block = Shuffle::Block(BlockShuffle { block_bytes: 4000, group_blocks: 4 });
        let shuffle = [Shuffle::Sequential, Shuffle::Full, block][shuffle];
        let batching: Option<Batching> = settings().get(cut).cloned();
        let loaders = |recipe: Recipe| {
            let (manifest, store, batching) = (&manifest, &store, &batching);
            move |rank, world| {
                let config = LoaderConfig {
                    consumer: consumer(rank, world, 7),
                    shuffle,
                    batching: batching.clone(),
                    seed,
                    threads: 2,
                    ..LoaderConfig::default()
                };
                loader_on(manifest, Arc::clone(store), &recipe, config)
            }
        };
        let listed = received(&jobs, &loaders(recipe("")));
        let ragged = received(&jobs, &loaders(recipe(r#""ragged""#)));
        prop_assert_eq!(&ragged, &listed);
        let narrow = received(&jobs, &loaders(recipe(r#"{"op": "ragged", "offsets": "i32"}"#)));
        prop_assert_eq!(narrow, listed);
    }
}
