//! `forebay split`: every sample in one part, every class cut by the ratios, the same cut on every run.

#![expect(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

use crate::harness::Harness;
use forebay_testkit::made::Made;
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn read(harness: &Harness, name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(harness.path(name)).unwrap()).unwrap()
}

#[test]
fn p074_every_key_is_in_one_part_and_every_class_is_cut_by_the_ratios() {
    let harness = Harness::new();
    Made { samples: 90, classes: 3, width: 8, height: 8, ..Made::default() }.tree(&harness.path("tree"));
    let said = harness.json(&["split", "tree", "--ratios", "0.8,0.1,0.1", "--output", "splits.json"]);
    assert_eq!(said["counts"], json!({ "train": 72, "val": 9, "test": 9 }));
    let file = read(&harness, "splits.json");
    assert_eq!(
        (&file["seed"], &file["by"], &file["dataset"]["samples"]),
        (&json!(0), &json!("cls"), &json!(90))
    );
    assert_eq!(file["dataset"]["version"], harness.json(&["info", "tree"])["version"]);
    let keys =
        |part: &str| -> Vec<String> { serde_json::from_value(file["splits"][part]["keys"].clone()).unwrap() };
    let mut all = BTreeSet::new();
    for (part, wanted) in [("train", 24), ("val", 3), ("test", 3)] {
        for class in 0..3 {
            let folder = format!("class_{class:02}/");
            assert_eq!(keys(part).iter().filter(|key| key.starts_with(&folder)).count(), wanted, "{part}");
        }
        all.extend(keys(part));
    }
    assert_eq!(all.len(), 90);
    harness.ok(&["split", "tree", "--ratios", "8,1,1", "--output", "again.json"]);
    assert_eq!(read(&harness, "again.json")["splits"], file["splits"]);
    harness.ok(&["split", "tree", "--ratios", "8,1,1", "--seed", "1", "--output", "other.json"]);
    assert_ne!(read(&harness, "other.json")["splits"], file["splits"]);
}

#[test]
fn labels_in_shards_are_classes_too() {
    let harness = Harness::new();
    Made { samples: 30, classes: 3, width: 8, height: 8, ..Made::default() }.tree(&harness.path("tree"));
    harness.ok(&["pack", "tree", "shards"]);
    let args = ["split", "shards", "--ratios", "1,1", "--names", "a,b", "--by", "cls", "--output", "s.json"];
    let said = harness.json(&args);
    assert_eq!((&said["counts"], &said["classes"]), (&json!({ "a": 15, "b": 15 }), &json!(3)));
}

#[test]
fn a_split_that_makes_no_sense_is_refused() {
    let harness = Harness::new();
    Made::default().tree(&harness.path("tree"));
    let bad: [&[&str]; 4] = [
        &["--ratios", "0,0"],
        &["--ratios", "1,1", "--names", "a"],
        &["--ratios", "1,1", "--names", "a,a"],
        &["--ratios", "1,1", "--by", "color"],
    ];
    for args in bad {
        let said = harness.run(&[&["split", "tree", "--output", "s.json"], args].concat());
        assert_eq!(said.code, 2, "{args:?}: {}", said.stderr);
    }
    assert!(!harness.path("s.json").exists());
}
