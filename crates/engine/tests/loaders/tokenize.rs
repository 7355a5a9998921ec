//! Files of tokens made of a dataset's texts: the tokens of a loader with the same tokenizer, the same bytes however many
//! threads there are, and files that open and pack like any other.
#![allow(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

use crate::common::*;
use forebay_core::recipe::Recipe;
use forebay_core::rng::Rng;
use forebay_core::{Error, ErrorKind, Result};
use forebay_engine::source::{Dataset, OpenOptions, open, open_with_store};
use forebay_engine::tokenize::{TokenizeOptions, Tokenized, plan, run};
use forebay_engine::{Batch, LoaderConfig};
use forebay_ops::Column;
use forebay_store::{MemoryStore, Store};
use forebay_testkit::tar::tar_with;
use futures::executor::block_on;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const WORDS: [&str; 8] = ["the", "water", "Wasser", "água", "水", "🌊", "e\u{301}", "above"];

/// Words told apart by white space, 0 for others, between the tokens 9 and 10.
fn tokenizer(folder: &Path) -> PathBuf {
    let mut vocabulary = json!({"?": 0, "<s>": 9, "</s>": 10});
    for (number, word) in WORDS.iter().enumerate() {
        vocabulary[*word] = json!(number + 1);
    }
    let around = |token: &str, id: u64| json!({"id": token, "ids": [id], "tokens": [token]});
    let special = |token: &str| json!({"SpecialToken": {"id": token, "type_id": 0}});
    let text = |id: &str| json!({"Sequence": {"id": id, "type_id": 0}});
    let made = json!({"version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": null, "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": {"type": "TemplateProcessing", "single": [special("<s>"), text("A"), special("</s>")],
            "pair": [text("A"), text("B")],
            "special_tokens": {"<s>": around("<s>", 9), "</s>": around("</s>", 10)}},
        "decoder": null, "model": {"type": "WordLevel", "unk_token": "?", "vocab": vocabulary}});
    let path = folder.join("tokenizer.json");
    std::fs::write(&path, made.to_string()).unwrap();
    path
}

/// Texts of the words and of others, some of them empty.
fn texts(count: u64) -> Vec<String> {
    let text = |number: u64| {
        let mut rng = Rng::keyed(7, number, 0);
        let words = if number % 11 == 3 { 0 } else { rng.below(40) };
        let word = |at: u64| if at == 8 { "unknown" } else { WORDS[at as usize] };
        (0..words).map(|_| word(rng.below(9))).collect::<Vec<_>>().join(" ")
    };
    (0..count).map(text).collect()
}

/// What the tokenizer makes of a text, by hand.
fn tokens_of(text: &str) -> Vec<i64> {
    let token = |word| WORDS.iter().position(|known| *known == word).map_or(0, |at| at as i64 + 1);
    text.split_whitespace().map(token).collect()
}

fn stored(key: &str, bytes: Vec<u8>) -> Dataset {
    let store = MemoryStore::new();
    store.insert(key, bytes).unwrap();
    let store: Arc<dyn Store> = Arc::new(store);
    block_on(open_with_store(store, &[key.to_owned()], &OpenOptions::default())).unwrap()
}

fn lines(texts: &[String]) -> Dataset {
    let line = |text: &String| format!("{}\n", json!({"id": 1, "text": text}));
    stored("corpus.jsonl", texts.iter().map(line).collect::<String>().into_bytes())
}

fn tar(texts: &[(String, Vec<u8>)]) -> Dataset {
    let members: Vec<(&str, &[u8])> =
        texts.iter().map(|(name, text)| (name.as_str(), text.as_slice())).collect();
    stored("corpus.tar", tar_with(&members))
}

fn make(dataset: &Dataset, options: &TokenizeOptions) -> Result<Tokenized> {
    run(dataset, &plan(options.clone())?, &mut |_, _| Ok(()))
}

fn integers(batch: &Batch, size: usize) -> Vec<Vec<i64>> {
    let Column::Tensors(rows) = &batch.columns[0].1 else { panic!("{batch:?}") };
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0i64, |number, byte| number << 8 | i64::from(*byte));
    rows.iter().map(|row| row.data.as_slice().chunks_exact(size).map(number).collect()).collect()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn the_file_holds_the_tokens_of_a_loader_in_stored_order_whatever_the_source_and_the_threads() {
    let folder = tempfile::tempdir().unwrap();
    let file = tokenizer(folder.path());
    let texts = texts(700);
    let members: Vec<(String, Vec<u8>)> = texts
        .iter()
        .enumerate()
        .map(|(at, text)| (format!("{at:04}.txt"), text.clone().into_bytes()))
        .collect();
    let mut seen: Option<(Vec<u8>, Vec<u8>)> = None;
    for (dataset, field) in [(lines(&texts), "text"), (tar(&members), "txt")] {
        for (threads, memory_bytes) in [(1, 1 << 30), (2, 1 << 20), (7, 64 << 20)] {
            let out = folder.path().join(format!("made/{field}-{threads}"));
            let options = TokenizeOptions {
                threads,
                memory_bytes,
                add_special_tokens: false,
                ..TokenizeOptions::new(&out, field, &file)
            };
            let made = make(&dataset, &options).unwrap();
            let empty = texts.iter().filter(|text| text.is_empty()).count() as u64;
            assert_eq!((made.documents, made.empty, made.dtype.name()), (700, empty, "u16"));
            let bytes = (std::fs::read(&made.data).unwrap(), std::fs::read(&made.index).unwrap());
            assert_eq!((bytes.0.len() as u64, bytes.1.len() as u64), (made.data_bytes, made.index_bytes));
            assert!(*seen.get_or_insert_with(|| bytes.clone()) == bytes, "{field} {threads}");
        }
        // As a loader tokenizes, with what stands around every text.
        let options = TokenizeOptions {
            overwrite: true,
            ..TokenizeOptions::new(folder.path().join("a"), field, &file)
        };
        let made = make(&dataset, &options).unwrap();
        assert_eq!(made.empty, 0, "no text is without tokens then");
        let sha256 = plan_sha256(&file);
        let recipe = Recipe::from_value(json!([{"field": field, "decode": "text",
            "ops": [{"op": "tokenize", "file": file, "sha256": sha256}]}]));
        let mut loader = loader(&dataset, &recipe.unwrap(), alone(32));
        let live: Vec<Vec<i64>> = epoch(&mut loader).iter().flat_map(|batch| integers(batch, 8)).collect();
        assert_eq!(read_back(&made), live);
        let around = |text: &String| [vec![9], tokens_of(text), vec![10]].concat();
        assert_eq!(live, texts.iter().map(around).collect::<Vec<_>>());
    }
}

/// What `sha256sum` says of a file.
fn plan_sha256(file: &Path) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, &std::fs::read(file).unwrap());
    digest
        .as_ref()
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|half| char::from(b"0123456789abcdef"[usize::from(half)]))
        .collect()
}

/// The documents of a file, as the product opens it.
fn read_back(made: &Tokenized) -> Vec<Vec<i64>> {
    let dataset = opened(made);
    let recipe = Recipe::from_json(r#"[{"field": "tokens", "decode": "tokens"}]"#).unwrap();
    let mut loader = loader(&dataset, &recipe, alone(16));
    epoch(&mut loader).iter().flat_map(|batch| integers(batch, 8)).collect()
}

fn opened(made: &Tokenized) -> Dataset {
    let options = OpenOptions { manifest_dir: None, ..OpenOptions::default() };
    block_on(open(&[made.data.display().to_string()], &options)).unwrap()
}

#[test]
fn the_file_packs_on_any_number_of_ranks_without_losing_a_token() {
    let folder = tempfile::tempdir().unwrap();
    let texts = texts(200);
    let options = TokenizeOptions {
        add_special_tokens: false,
        eos: Some(70_000),
        ..TokenizeOptions::new(folder.path().join("corpus"), "text", tokenizer(folder.path()))
    };
    let made = make(&lines(&texts), &options).unwrap();
    assert_eq!(made.dtype.name(), "i32", "the end is beyond 16 bits");
    let with_end = |text: &String| [tokens_of(text), vec![70_000]].concat();
    let documents: Vec<Vec<i64>> = texts.iter().filter(|text| !text.is_empty()).map(with_end).collect();
    assert_eq!(read_back(&made), documents);
    let mut wanted: Vec<i64> = documents.concat();
    wanted.sort_unstable();
    let dataset = opened(&made);
    let recipe = Recipe::from_json(
        r#"[{"field": "tokens", "decode": "tokens", "ops": [{"op": "pack", "length": 64, "fit": "best", "value": -1}]}]"#,
    )
    .unwrap();
    for world in [1, 2, 3] {
        let mut found = Vec::new();
        for rank in 0..world {
            let config = LoaderConfig { consumer: consumer(rank, world, 2), ..LoaderConfig::default() };
            let mut loader = loader(&dataset, &recipe, config);
            for batch in epoch(&mut loader).iter().filter(|batch| !batch.padding[0]) {
                let Some(Column::Tensor { data, .. }) = batch.column("tokens") else { panic!("{batch:?}") };
                let tokens = data.as_slice().chunks_exact(8);
                found.extend(tokens.map(|token| i64::from_ne_bytes(token.try_into().unwrap())));
            }
            assert_eq!(loader.stats().cut_off_tokens, 0);
        }
        found.retain(|token| *token >= 0);
        found.sort_unstable();
        assert!(found == wanted, "{world} ranks");
    }
}

#[test]
fn a_text_that_cannot_be_read_is_named_and_nothing_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let file = tokenizer(folder.path());
    std::fs::create_dir(folder.path().join("out")).unwrap();
    let out = folder.path().join("out/a");
    let options = |field| TokenizeOptions::new(&out, field, &file);
    let mut members: Vec<(String, Vec<u8>)> =
        (0..50).map(|at| (format!("x/{at:02}.txt"), b"the water".to_vec())).collect();
    members[37].1 = b"the \xff\xfe".to_vec();
    let bad = tar(&members);
    let error = make(&bad, &options("txt")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.report().contains("x/37") && error.report().contains("UTF-8"), "{}", error.report());
    let missing = stored("a.jsonl", b"{\"text\": \"the\"}\n{\"other\": \"the\"}\n".to_vec());
    let error = make(&missing, &options("text")).unwrap_err();
    assert!(error.facts().sample_id.is_some_and(|sample| sample.0 == 1), "{}", error.report());
    let error = make(&missing, &options("txt")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
    // Whoever looks on may end it.
    let whole = lines(&texts(300));
    let mut calls = 0;
    let stopped = run(&whole, &plan(options("text")).unwrap(), &mut |_, total| {
        assert_eq!(total, 300);
        calls += 1;
        if calls > 1 { Err(Error::cancelled("interrupted")) } else { Ok(()) }
    });
    assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Cancelled);
    assert!(names(&folder.path().join("out")).is_empty());
    make(&whole, &options("text")).unwrap();
    assert_eq!(names(&folder.path().join("out")), ["a.bin", "a.idx"]);
    let before = std::fs::read(out.with_extension("bin")).unwrap();
    assert!(plan(options("text")).err().unwrap().message().contains("exists already"));
    let over = TokenizeOptions { overwrite: true, ..options("txt") };
    make(&bad, &over).unwrap_err();
    assert!(std::fs::read(out.with_extension("bin")).unwrap() == before, "what was there stays");
}
