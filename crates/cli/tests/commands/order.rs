//! `forebay order`: a poor order is told from a good one, and the way out is named.

use crate::harness::Harness;
use forebay_testkit::made::Made;
use serde_json::json;

#[test]
fn a_small_group_is_poor_and_the_larger_one_that_is_named_is_not() {
    let harness = Harness::new();
    Made { samples: 240, classes: 4, width: 8, height: 8, ..Made::default() }.tree(&harness.path("tree"));
    harness.ok(&["pack", "tree", "shards", "--max-count", "12"]);
    let args = ["order", "shards", "--batch-size", "32", "--block-bytes", "8KiB", "--group-blocks"];
    let poor = harness.json(&[&args[..], &["1"]].concat());
    assert_eq!(poor["poor"], json!(true), "{poor}");
    let group_blocks = poor["group_blocks"].as_u64().unwrap().to_string();
    assert!(poor["suggestion"].as_str().unwrap().contains(&format!("group_blocks={group_blocks}")));
    let good = harness.json(&[&args[..], &[group_blocks.as_str()]].concat());
    assert_eq!((&good["poor"], &good["suggestion"]), (&json!(false), &json!(null)));
    assert!(good["figures"]["shards_per_batch"].as_f64() > poor["figures"]["shards_per_batch"].as_f64());
    harness.ok(&[&args[..], &["1"]].concat()).has(&["shards a batch", "poorly mixed"]);
}

#[test]
fn classes_are_looked_at_where_the_manifest_has_them() {
    let harness = Harness::new();
    Made { samples: 80, classes: 4, width: 8, height: 8, ..Made::default() }.tree(&harness.path("tree"));
    let stored = harness.json(&["order", "tree", "--shuffle", "false", "--batch-size", "20"]);
    assert_eq!(stored["classes_of"], json!("cls"));
    assert!((stored["figures"]["class_imbalance"].as_f64().unwrap() - 0.75).abs() < 0.01, "{stored}");
    assert_eq!(stored["figures"]["neighbours"], json!(1.0));
    let full = harness.json(&["order", "tree", "--batch-size", "20"]);
    assert_eq!(full["poor"], json!(false));
    assert_eq!(harness.run(&["order", "tree", "--by", "color"]).code, 2);
}
