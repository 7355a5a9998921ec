//! Files of tokens through whole loaders: windows and documents are those of the file, and packing gives every token
//! once, whoever reads and however often they were restarted.
#![allow(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

use crate::common::*;
use forebay_core::ErrorKind;
use forebay_core::cursor::Cursor;
use forebay_core::plan::{BlockShuffle, Shuffle};
use forebay_core::recipe::Recipe;
use forebay_core::rng::Rng;
use forebay_engine::source::{
    Dataset, OpenOptions, SourceKind, TokenDocuments, TokenOptions, TokenTail, open_with_store,
};
use forebay_engine::{Batch, Loader, LoaderConfig};
use forebay_ops::Column;
use forebay_store::{CountingStore, MemoryStore, Store};
use futures::executor::block_on;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A `.bin` of documents, 16 bits a token, and its index. Every token is another number.
fn megatron(lengths: &[u64]) -> (Vec<u8>, Vec<u8>) {
    let total: u64 = lengths.iter().sum();
    let data = (0..total).flat_map(|token| (token as u16).to_le_bytes()).collect();
    let mut index = b"MMIDIDX\0\0".to_vec();
    index.extend(1u64.to_le_bytes());
    index.push(8);
    index.extend((lengths.len() as u64).to_le_bytes());
    index.extend((lengths.len() as u64 + 1).to_le_bytes());
    for length in lengths {
        index.extend((*length as i32).to_le_bytes());
    }
    let mut at = 0u64;
    for length in lengths {
        index.extend((at * 2).to_le_bytes());
        at += length;
    }
    (0..=lengths.len() as u64).for_each(|document| index.extend(document.to_le_bytes()));
    (data, index)
}

fn stored(files: &[(&str, &[u8])]) -> Arc<dyn Store> {
    let store = MemoryStore::new();
    for (key, bytes) in files {
        store.insert(*key, bytes.to_vec()).unwrap();
    }
    Arc::new(store)
}

fn opened(store: &Arc<dyn Store>, spec: &str, tokens: Option<TokenOptions>) -> forebay_core::Result<Dataset> {
    let options = OpenOptions { tokens, ..OpenOptions::default() };
    block_on(open_with_store(Arc::clone(store), &[spec.to_owned()], &options))
}

fn windows(window: u64) -> TokenOptions {
    TokenOptions { window: Some(window), ..TokenOptions::default() }
}

fn recipe(more: &str) -> Recipe {
    let text = format!(r#"[{{"field": "tokens", "decode": "tokens", "dtype": "i32"{more}}}]"#);
    Recipe::from_json(&text).unwrap()
}

fn numbers(batch: &Batch, name: &str) -> Vec<i32> {
    let Some(Column::Tensor { data, .. }) = batch.column(name) else { panic!("{name} of {batch:?}") };
    data.as_slice().chunks_exact(4).map(|four| i32::from_ne_bytes(four.try_into().unwrap())).collect()
}

/// What every sample of a dataset holds, in stored order.
fn samples(dataset: &Dataset) -> Vec<Vec<i32>> {
    let mut loader = loader(dataset, &recipe(""), alone(1));
    epoch(&mut loader).iter().map(|batch| numbers(batch, "tokens")).collect()
}

fn run(range: std::ops::Range<i32>) -> Vec<i32> {
    range.collect()
}

#[test]
fn documents_and_windows_are_those_of_the_file() {
    let (data, index) = megatron(&[3, 9, 1, 7]);
    let store = stored(&[("d/a.bin", &data), ("d/a.idx", &index), ("d/notes.txt", b"x")]);
    for spec in ["d/a.bin", "d/"] {
        let dataset = opened(&store, spec, None).unwrap();
        assert_eq!((dataset.kind(), dataset.manifest().len()), (SourceKind::Tokens, 4));
        assert_eq!(samples(&dataset), [run(0..3), run(3..12), run(12..13), run(13..20)]);
    }
    let exact = opened(&store, "d/a.bin", Some(windows(4))).unwrap();
    assert_eq!(samples(&exact), [run(0..3), run(3..8), run(7..12), run(13..18), run(17..20)]);
    let cross = TokenOptions { documents: Some(TokenDocuments::Cross), ..windows(4) };
    let cross = opened(&store, "d/a.bin", Some(cross)).unwrap();
    assert_eq!(samples(&cross), [run(0..5), run(4..9), run(8..13), run(12..17)]);
    // The same tokens without an index.
    let bare = stored(&[("a.u16", &data)]);
    let bare = opened(&bare, "a.u16", Some(windows(4))).unwrap();
    assert_eq!(samples(&bare), samples(&cross));
    let named = stored(&[("a.bin", &data)]);
    let dtype = Some(forebay_core::tensor::Dtype::U16);
    let options = TokenOptions { dtype, tail: Some(TokenTail::Keep), target: Some(false), ..windows(8) };
    let named = opened(&named, "a.bin", Some(options)).unwrap();
    assert_eq!(samples(&named), [run(0..8), run(8..16), run(16..20)]);
}

#[test]
fn files_that_do_not_fit_their_index_or_options_are_refused_with_the_reason() {
    let (data, index) = megatron(&[3, 9]);
    let refused = |files: &[(&str, &[u8])], spec: &str, tokens: Option<TokenOptions>| {
        opened(&stored(files), spec, tokens).unwrap_err()
    };
    let error = refused(&[("a.bin", &data[2..]), ("a.idx", &index)], "a.bin", None);
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    let error = refused(&[("a.bin", &data), ("a.idx", &index[..40])], "a.bin", None);
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    let error = refused(&[("a.bin", &data), ("a.idx", b"MMIDIDX")], "a.bin", None);
    assert!(error.to_string().contains("truncated"), "{error}");
    let error = refused(&[("a.bin", &data)], "a.bin", Some(windows(4)));
    assert!(error.hint().unwrap().contains("dtype"), "{error}");
    let error = refused(&[("a.u16", &data)], "a.u16", None);
    assert!(error.hint().unwrap().contains("window"), "{error}");
    let error = refused(&[("a.u32", &data[..6])], "a.u32", Some(windows(4)));
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    // Beside shards of another kind such a file is one among others.
    let store = stored(&[("d/a.jsonl", b"{\"a\": 1}\n"), ("d/x.bin", &data)]);
    assert_eq!(opened(&store, "d/", None).unwrap().kind(), SourceKind::Jsonl);
}

#[test]
fn windows_that_share_a_token_are_read_together() {
    let data: Vec<u8> = (0..5000u32).flat_map(|token| (token as u16).to_le_bytes()).collect();
    let store = stored(&[("a.u16", &data)]);
    let dataset = opened(&store, "a.u16", Some(windows(16))).unwrap();
    let counting = Arc::new(CountingStore::new(Arc::clone(dataset.store())));
    let counted: Arc<dyn Store> = Arc::clone(&counting) as _;
    let fixed = recipe(r#", "ops": [{"op": "slice", "start": 1, "length": 16}]"#);
    let config = LoaderConfig { shuffle: Shuffle::Block(BlockShuffle::default()), seed: 2, ..alone(8) };
    let mut loader = loader_on(dataset.manifest(), counted, &fixed, config);
    let mut tokens: Vec<i32> = epoch(&mut loader).iter().flat_map(|batch| numbers(batch, "tokens")).collect();
    tokens.sort_unstable();
    assert_eq!(tokens, run(1..4993));
    let reads = counting.counts().reads;
    assert!(reads < 20, "{reads} reads");
}

/// The tokens of every rank's batches, from a cursor on; `stop` steps or to the end.
fn steps_of(
    make: &dyn Fn(u64, u64) -> Loader,
    world: u64,
    cursor: &Cursor,
    stop: usize,
) -> (Vec<Batch>, Cursor) {
    let mut ranks: Vec<Loader> = (0..world).map(|rank| make(rank, world)).collect();
    let mut found = Vec::new();
    for loader in &mut ranks {
        loader.seek(cursor.clone()).unwrap();
        loader.begin().unwrap();
    }
    for _ in 0..stop {
        let batches: Vec<Batch> = ranks.iter_mut().filter_map(|loader| next(loader).unwrap()).collect();
        if batches.is_empty() {
            break;
        }
        found.extend(batches.into_iter().filter(|batch| !batch.padding[0]));
    }
    (found, ranks[0].cursor())
}

#[test]
fn packing_gives_every_token_once_on_any_ranks_and_restarts() {
    let lengths: Vec<u64> = (0..300).map(|at| Rng::keyed(4, at, 0).below(90) + 1).collect();
    let (data, index) = megatron(&lengths);
    let total = lengths.iter().sum::<u64>() as i32;
    let store = stored(&[("a.bin", &data), ("a.idx", &index)]);
    let dataset = opened(&store, "a.bin", None).unwrap();
    let bounds: BTreeSet<i32> = lengths
        .iter()
        .scan(0, |at, length| {
            *at += *length as i32;
            Some(*at)
        })
        .collect();
    for fit in ["greedy", "best"] {
        let op = format!(
            r#", "ops": [{{"op": "pack", "length": 64, "fit": "{fit}", "value": -1, "labels": true}}]"#
        );
        let recipe = recipe(&op);
        let make = |rank, world| {
            let config = LoaderConfig {
                consumer: consumer(rank, world, 4),
                shuffle: Shuffle::Full,
                seed: 5,
                threads: 2,
                ..LoaderConfig::default()
            };
            loader(&dataset, &recipe, config)
        };
        let (mut cursor, mut tokens, mut rows) = (Cursor::start_of(1), Vec::new(), 0);
        for (world, stop) in [(2, 3), (3, 2), (1, 4), (2, usize::MAX)] {
            let (batches, after) = steps_of(&make, world, &cursor, stop);
            for batch in &batches {
                let row = numbers(batch, "tokens");
                assert_eq!(row.len(), 4 * 64, "every batch has its rows");
                let (labels, positions) =
                    (numbers(batch, "tokens_labels"), numbers(batch, "tokens_position"));
                let segments = numbers(batch, "tokens_segment");
                for (at, token) in row.iter().copied().enumerate().filter(|(_, token)| *token >= 0) {
                    let last = bounds.contains(&(token + 1));
                    assert_eq!(labels[at], if last { -100 } else { token + 1 });
                    let begins = at % 64 == 0 || segments[at] != segments[at - 1];
                    assert_eq!(positions[at] == 0, begins);
                }
                let cumulative = numbers(batch, "tokens_cu_seqlens");
                assert!(cumulative.first() == Some(&0) && cumulative.last() == Some(&256));
                assert!(cumulative.windows(2).all(|pair| pair[0] < pair[1]));
                tokens.extend(row.into_iter().filter(|token| *token >= 0));
                rows += 4;
            }
            cursor = Cursor::from_json(&serde_json::to_string(&after).unwrap()).unwrap();
        }
        tokens.sort_unstable();
        assert_eq!(tokens, run(0..total), "{fit}");
        let waste = 1.0 - f64::from(total) / f64::from(rows * 64);
        assert!(waste < if fit == "best" { 0.15 } else { 0.5 }, "{fit}: {waste}");
    }
}

#[test]
fn tokens_that_no_batch_has_room_for_are_counted_and_windows_of_a_batch_lose_none() {
    let (data, index) = megatron(&[3, 90, 4]);
    let store = stored(&[("a.bin", &data), ("a.idx", &index)]);
    let packed = |tokens| {
        let dataset = opened(&store, "a.bin", tokens).unwrap();
        let recipe = recipe(r#", "ops": [{"op": "pack", "length": 8, "value": -1}]"#);
        let mut loader = loader(&dataset, &recipe, alone(2));
        let batches = epoch(&mut loader);
        let mut found: Vec<i32> = batches.iter().flat_map(|batch| numbers(batch, "tokens")).collect();
        found.retain(|token| *token >= 0);
        (found, loader.stats().cut_off_tokens)
    };
    assert_eq!(packed(None), ([run(0..3), run(3..19), run(93..97)].concat(), 74));
    // What is no longer than a batch goes on in the next row.
    let windows = TokenOptions { target: Some(false), ..windows(16) };
    assert_eq!(packed(Some(windows)), (run(0..97), 0));
}

#[test]
fn packing_says_what_it_cannot_do() {
    let (data, index) = megatron(&[3, 9, 4]);
    let store = stored(&[("a.bin", &data), ("a.idx", &index), ("b.jsonl", b"{\"tokens\": [1, 2]}\n")]);
    let tokens = opened(&store, "a.bin", None).unwrap();
    let op = r#", "ops": [{"op": "pack", "length": 8}]"#;
    let refused = |dataset: &Dataset, config| {
        Loader::new(dataset.manifest(), Arc::clone(dataset.store()), &recipe(op), config).err().unwrap()
    };
    let substitute = LoaderConfig { on_error: forebay_engine::OnError::Substitute, ..alone(2) };
    assert!(refused(&tokens, substitute).message().contains("substitute"));
    let batching = crate::batching::settings().into_iter().next();
    assert!(refused(&tokens, LoaderConfig { batching, ..alone(2) }).message().contains("bucket"));
    let lines = opened(&store, "b.jsonl", None).unwrap();
    assert_eq!(refused(&lines, alone(2)).kind(), ErrorKind::Unsupported);
    // Lists of JSON are tokens like any others, when they are not packed.
    assert_eq!(samples(&lines), [[1, 2]]);
}
