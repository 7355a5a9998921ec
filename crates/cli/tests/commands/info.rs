//! `forebay info` and `forebay index`.

use crate::harness::Harness;
use forebay_testkit::made::Made;
use serde_json::json;

#[test]
fn info_says_what_shards_hold() {
    let harness = Harness::new();
    Made::default().shards(&harness.path("shards"), 3);
    let said = harness.ok(&["info", "shards"]);
    said.has(&[
        "dataset      shards\n",
        "kind         tar\n",
        "samples      24\n",
        "objects      3\n",
        "fields       jpg      all samples, mean ",
        "cls      all samples, mean 1 B, max 1 B\n",
        "version      ",
        "manifest     <folder>/cache/forebay/manifests/",
        ".fbm, built now\n",
        "first keys   000000\n",
        "000004\n",
    ]);
    assert!(!said.stdout.contains("000005"), "five keys are shown");
    harness.ok(&["info", "shards"]).has(&[".fbm, kept by an earlier run\n"]);
}

#[test]
fn info_says_what_a_tree_holds() {
    let harness = Harness::new();
    Made::default().tree(&harness.path("tree"));
    let object = harness.json(&["info", "tree", "--keys", "1"]);
    assert_eq!(object["kind"], "tree");
    assert_eq!((&object["samples"], &object["objects"]), (&json!(24), &json!(24)));
    assert_eq!(object["class_names"], json!(["class_00", "class_01", "class_02"]));
    assert_eq!(object["classes"], 3);
    assert_eq!(object["keys"].as_array().unwrap().len(), 1);
    let fields = object["fields"].as_array().unwrap();
    let labels = fields.iter().find(|field| field["kind"] == "int").unwrap();
    assert_eq!((&labels["min"], &labels["max"], &labels["distinct"]), (&json!(0), &json!(2), &json!(3)));
    let images = fields.iter().find(|field| field["name"] == "jpg").unwrap();
    assert_eq!(images["bytes"], object["bytes"]);
}

#[test]
fn a_dataset_that_changed_is_indexed_again_and_that_is_said() {
    let harness = Harness::new();
    let paths = Made::default().shards(&harness.path("shards"), 2);
    let first = harness.json(&["info", "shards"]);
    assert_eq!(first["manifest"]["state"], "built");
    std::fs::remove_file(&paths[1]).unwrap();
    let said = harness.ok(&["info", "shards"]);
    said.has(&["samples      12\n", ".fbm, built again\n"]).warns(&["note: manifest is stale", "is gone"]);
    let second = harness.json(&["info", "shards"]);
    assert_eq!(second["manifest"]["state"], "kept");
    assert_ne!(first["version"], second["version"]);
}

#[test]
fn index_writes_a_manifest_that_opens_like_a_dataset() {
    let harness = Harness::new();
    Made::default().shards(&harness.path("shards"), 2);
    let built = harness.json(&["index", "shards", "--out", "train.fbm"]);
    assert_eq!((&built["samples"], &built["objects"]), (&json!(24), &json!(2)));
    let opened = harness.json(&["info", "train.fbm"]);
    assert_eq!(opened["version"], built["version"]);
    assert_eq!(opened["samples"], 24);
    assert_eq!(opened["manifest"], json!({ "path": "train.fbm", "state": "given" }));
    assert_eq!(harness.json(&["index", "shards"])["manifest"]["state"], "kept");
    assert_eq!(harness.json(&["index", "shards", "--rebuild"])["manifest"]["state"], "rebuilt");
}

#[test]
fn a_dataset_without_files_has_no_manifest_to_keep() {
    let object = Harness::new().json(&["info", "synthetic://?samples=10&bytes=100&classes=3"]);
    assert_eq!((&object["samples"], &object["kind"]), (&json!(10), &json!("synthetic")));
    assert_eq!(object["manifest"], json!({ "path": null, "state": "not_kept" }));
}

#[test]
fn index_refuses_a_name_that_could_not_be_opened() {
    let harness = Harness::new();
    Made::default().shards(&harness.path("shards"), 1);
    let said = harness.run(&["index", "shards", "--out", "train.idx"]);
    assert_eq!(said.code, 2);
    said.warns(&["`train.idx`", "does not end in `.fbm`", "hint: "]);
    assert!(!harness.path("train.idx").exists());
}

#[test]
fn p029_info_says_what_a_mix_holds_and_in_which_shares() {
    let harness = Harness::new();
    Made::default().shards(&harness.path("shards"), 3);
    Made::default().shards(&harness.path("more"), 2);
    harness.write(
        "mix.toml",
        "[[data.mix]]\nurl = 'shards'\nweight = 3\n[[data.mix]]\nurl = 'more'\nweight = 1\n",
    );
    let said = harness.ok(&["info", "--pipeline", "mix.toml"]);
    said.has(&[
        "dataset      mix(shards, more)\n",
        "samples      48\n",
        "75.0 %  24 samples  shards\n",
        "25.0 %  24 samples  more\n",
    ]);
    let object = harness.json(&["info", "--pipeline", "mix.toml"]);
    assert_eq!(object["mix"][0], json!({ "url": "shards", "samples": 24, "weight": 3.0, "share": 0.75 }));
    assert_eq!(harness.json(&["info", "shards"])["mix"], json!([]));
    harness.write(
        "mix.toml",
        "[[data.mix]]\nurl = 'shards'\nweight = 3\n[[data.mix]]\nurl = 'more'\nweight = 1\n[loader]\nshuffle = true",
    );
    let shown = harness.json(&["config", "show", "--pipeline", "mix.toml"]);
    assert_eq!(shown["data"]["mix"][1]["data"]["url"], json!(["more"]));
    harness
        .ok(&["config", "show", "--pipeline", "mix.toml"])
        .has(&["[[data.mix]]\nweight = 3\nurl = [\"shards\"]\n"]);
}
