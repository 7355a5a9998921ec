//! `forebay ledger`: a run is proved exact, what is missing is named, and a sample is found.

#![expect(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

use crate::harness::{Harness, files};
use serde_json::json;

/// A dataset that was read twice, with the ledger of it.
fn trained() -> Harness {
    let harness = Harness::new();
    let args = ["demo", "--samples", "100", "--batch-size", "16", "--epochs", "2", "--step-ms", "0"];
    harness.ok(&[&args[..], &["--dir", "made", "--keep", "--ledger", "ledger"]].concat());
    let made = std::fs::read_dir(harness.path("made")).unwrap().next().unwrap().unwrap().path();
    std::fs::rename(made, harness.path("data")).unwrap();
    harness
}

#[test]
fn a_run_is_exact_by_id_with_its_dataset_and_by_position_without() {
    let harness = trained();
    let said = harness.json(&["ledger", "check", "ledger", "data"]);
    let stream = &said["streams"][0];
    assert_eq!((&said["exact"], &stream["by_id"]), (&json!(true), &json!(true)));
    assert_eq!(stream["epochs"].as_array().unwrap().len(), 2);
    assert_eq!(
        (&stream["epochs"][1]["state"], &stream["epochs"][1]["received"]),
        (&json!("exact"), &json!(100))
    );
    harness.ok(&["ledger", "check", "ledger"]).has(&[
        "by position",
        "1 rank, batches of 16, from step 0 in epoch 0, 14 batches",
        "0: exact, 100 of 100 received",
        "exact: 2 epochs finished",
    ]);
    harness.write("p.toml", "[data]\nurl = 'data'\n[loader]\nledger = 'ledger'\n");
    assert_eq!(harness.json(&["ledger", "check", "--pipeline", "p.toml"])["streams"], said["streams"]);
}

#[test]
fn what_is_missing_is_named_and_the_exit_code_says_so() {
    let harness = trained();
    let (name, bytes) = files(&harness.path("ledger")).remove(0);
    // A byte of the fourth batch of the second epoch: it and what follows cannot be trusted.
    let mut changed = bytes.clone();
    let at = changed.len() - 40;
    changed[at] ^= 1;
    harness.write(&format!("ledger/{name}"), &changed);
    let said = harness.run(&["ledger", "check", "ledger"]);
    assert_eq!(said.code, 0, "an epoch that was not finished is open: {}", said.stdout);
    said.warns(&["nothing behind it was read"]).has(&["1: open, nothing twice"]);
    // Two processes that both took themselves for rank 0.
    harness.write(&format!("ledger/{name}"), &bytes);
    harness.write("ledger/twin.ledger", &bytes);
    let said = harness.run(&["ledger", "check", "ledger", "data", "--limit", "2"]);
    assert_eq!(said.code, 3);
    said.has(&[
        "0: not exact",
        "100 double",
        "error: epoch 0, sample",
        "received at step",
        "not exact: 2 epochs",
    ]);
}

#[test]
fn a_sample_is_found_by_id_and_by_key() {
    let harness = trained();
    let key = harness.json(&["info", "data", "--keys", "100"])["keys"][42].as_str().unwrap().to_owned();
    let by_id = harness.json(&["ledger", "where", "42", "ledger", "data"]);
    assert_eq!(by_id["key"], json!(key));
    let seen = by_id["seen"].as_array().unwrap();
    assert_eq!(seen.iter().map(|seen| seen["at"]["epoch"].clone()).collect::<Vec<_>>(), [json!(0), json!(1)]);
    assert_eq!(harness.json(&["ledger", "where", &key, "ledger", "data"]), by_id);
    harness.ok(&["ledger", "where", "42", "ledger", "data"]).has(&["epoch 0, step", "rank 0 of 1, run 1"]);
    let unknown = harness.run(&["ledger", "where", "42", "ledger"]);
    assert_eq!(unknown.code, 2);
    unknown.warns(&["depends on the dataset", "hint: name the dataset too"]);
    assert_eq!(harness.run(&["ledger", "where", "nobody", "ledger", "data"]).code, 3);
    assert_eq!(harness.run(&["ledger", "check", "data"]).code, 3, "no ledger there");
}
