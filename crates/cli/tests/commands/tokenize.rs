//! `forebay tokenize`: texts of any source as files of tokens, whole or not at all, and the reasons where it cannot be.

#![expect(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

use crate::harness::{Harness, files};
use serde_json::json;

/// Words told apart by white space: 1 to 5, and 0 for others.
fn tokenizer(harness: &Harness, more: &serde_json::Value) {
    let vocabulary = json!({"?": 0, "the": 1, "water": 2, "basin": 3, "above": 4, "水": 5});
    let mut made = json!({"version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": null, "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "unk_token": "?", "vocab": vocabulary}});
    for (name, value) in more.as_object().into_iter().flatten() {
        made[name] = value.clone();
    }
    harness.write("tokenizer.json", made.to_string());
}

fn tokens(harness: &Harness, name: &str) -> Vec<u16> {
    let bytes = std::fs::read(harness.path(name)).unwrap();
    bytes.chunks_exact(2).map(|two| u16::from_le_bytes(two.try_into().unwrap())).collect()
}

#[test]
fn texts_of_lines_tables_and_folders_become_the_same_file_of_tokens() {
    let harness = Harness::new();
    tokenizer(&harness, &json!({}));
    harness.write(
        "corpus.jsonl",
        "{\"text\": \"the basin above\"}\n{\"text\": \"\"}\n{\"text\": \"水 flows\"}\n",
    );
    // An empty cell of a table is no text.
    harness.write("corpus.csv", "text,n\nthe basin above,1\n水 flows,3\n");
    for (name, text) in [("a", "the basin above"), ("b", ""), ("c", "水 flows")] {
        harness.write(&format!("notes/{name}.txt"), text);
    }
    let made =
        |args: &[&str]| harness.json(&[&["tokenize"], args, &["--tokenizer", "tokenizer.json"]].concat());
    let said = made(&["corpus.jsonl", "made/lines"]);
    for (name, value) in [
        ("documents", json!(3)),
        ("empty", json!(1)),
        ("tokens", json!(5)),
        ("dtype", json!("u16")),
        ("vocabulary", json!(6)),
        ("data", json!("made/lines.bin")),
        ("data_bytes", json!(10)),
        ("index", json!("made/lines.idx")),
        ("eos", json!(null)),
    ] {
        assert_eq!(said[name], value, "{name} of {said:#}");
    }
    assert_eq!(tokens(&harness, "made/lines.bin"), [1, 3, 4, 5, 0]);
    made(&["corpus.csv", "table", "--threads", "1"]);
    assert_eq!(tokens(&harness, "table.bin"), tokens(&harness, "made/lines.bin"));
    made(&["notes", "made/notes", "--field", "txt", "--extensions", "txt", "--memory", "64MiB"]);
    let found = files(&harness.path("made"));
    assert_eq!(found.len(), 4);
    let of = |ending: &str| {
        let named = found.iter().filter(|(name, _)| name.ends_with(ending));
        named.map(|(_, bytes)| bytes).collect::<Vec<_>>()
    };
    assert!(of(".bin").windows(2).all(|two| two[0] == two[1]));
    assert!(of(".idx").windows(2).all(|two| two[0] == two[1]));
    let info = harness.json(&["info", "made/lines.bin"]);
    assert_eq!((&info["samples"], &info["kind"]), (&json!(2), &json!("tokens")));
    let said = made(&["corpus.jsonl", "ended", "--eos", "70000"]);
    assert_eq!((&said["dtype"], &said["tokens"]), (&json!("i32"), &json!(7)));
}

#[test]
fn what_is_written_is_said_and_what_the_tokenizer_does_to_a_corpus_too() {
    let harness = Harness::new();
    let truncation = json!({"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0});
    tokenizer(&harness, &json!({ "truncation": truncation }));
    harness.write("corpus.jsonl", "{\"text\": \"the basin above\"}\n{\"text\": \"\"}\n");
    let said = harness.ok(&["tokenize", "corpus.jsonl", "made", "--tokenizer", "tokenizer.json"]);
    said.has(&[
        "made.bin: 2 tokens of u16, since the largest token is 5, 4 B",
        "made.idx: 2 documents",
        "tokenized 2 samples in",
    ]);
    said.warns(&[
        "warning: the tokenizer cuts every text off behind 2 tokens",
        "note: 1 document without any token",
    ]);
}

#[test]
fn senseless_requests_are_refused_with_the_reason_and_leave_nothing() {
    let harness = Harness::new();
    tokenizer(&harness, &json!({}));
    harness.write("corpus.jsonl", "{\"text\": \"the basin\"}\n{\"text\": \"\\ud800\"}\n");
    harness.write("empty.jsonl", "{\"text\": \"\"}\n");
    harness.write("no.json", "{}");
    let refused = |args: &[&str], code: i32, why: &[&str]| {
        let said = harness.run(&[&["tokenize"], args].concat());
        assert_eq!(said.code, code, "{args:?}: {}", said.stderr);
        said.warns(why);
        assert!(!harness.path("out").exists() || files(&harness.path("out")).is_empty(), "{args:?}");
    };
    let by = ["--tokenizer", "tokenizer.json"];
    let with = |more: &[&'static str]| [&["corpus.jsonl", "out/a"], &by[..], more].concat();
    refused(&["corpus.jsonl", "out/a"], 2, &["--tokenizer"]);
    refused(&["corpus.jsonl", "out/a", "--tokenizer", "none.json"], 3, &["read tokenizer `", "none.json`"]);
    refused(&["corpus.jsonl", "out/a", "--tokenizer", "no.json"], 3, &["no.json", "tokenizer", "hint: "]);
    refused(&with(&["--field", "txt"]), 2, &["txt", "hint: the dataset has "]);
    refused(&with(&["--dtype", "u16", "--eos", "70000"]), 2, &["write tokens as u16: the largest is 70000"]);
    refused(&with(&["--memory", "1 stone"]), 2, &["--memory"]);
    refused(&with(&["--threads", "0"]), 2, &["--threads"]);
    refused(&with(&[]), 3, &["corpus/", "1"]);
    refused(&[&["empty.jsonl", "out/a"], &by[..]].concat(), 2, &["none of 1 samples has a token"]);
    harness.write("corpus.jsonl", "{\"text\": \"the basin\"}\n");
    harness.ok(&[&["tokenize"], &with(&[])[..]].concat());
    let said = harness.run(&[&["tokenize"], &with(&[])[..]].concat());
    assert_eq!(said.code, 2);
    said.warns(&["out/a.bin", "it exists already", "hint: "]);
    harness.ok(&[&["tokenize"], &with(&["--overwrite"])[..]].concat());
}
