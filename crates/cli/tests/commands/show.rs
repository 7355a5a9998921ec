//! `forebay show`: the same batch, whoever makes it.
#![expect(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

use crate::harness::{Harness, Said};
use forebay_testkit::made::Made;
use serde_json::{Value, json};

const RECIPE: &str = "
[[recipe]]
field = 'jpg'
decode = 'image'
ops = [{op = 'random_resized_crop', size = 16}, {op = 'flip'}, {op = 'normalize', mean = [0.5, 0.5, 0.5], std = [0.2, 0.2, 0.2]}]

[[recipe]]
field = 'cls'
decode = 'label'

[[recipe]]
field = 'jpg'
name = 'raw'
decode = 'bytes'
";

fn harness() -> Harness {
    let harness = Harness::new();
    Made::default().shards(&harness.path("shards"), 3);
    harness.write("recipe.toml", RECIPE);
    harness
}

const BATCH: [&str; 13] = [
    "show",
    "shards",
    "--recipe",
    "recipe.toml",
    "--epoch",
    "1",
    "--batch",
    "2",
    "--batch-size",
    "5",
    "--shuffle",
    "--seed",
    "9",
];

fn checksums(object: &Value) -> Vec<&str> {
    object["columns"].as_array().unwrap().iter().map(|column| column["xxh3"].as_str().unwrap()).collect()
}

#[test]
fn two_processes_make_the_same_batch() {
    let harness = harness();
    let first = harness.json(&BATCH);
    let second = harness.json(&BATCH);
    assert_eq!(first, second);
    assert_eq!(first["ids"].as_array().unwrap().len(), 5);
    assert_eq!(first["columns"][0]["shape"], json!([5, 3, 16, 16]));
    assert_eq!(first["columns"][0]["dtype"], "f32");
    assert_eq!(first["columns"][1]["dtype"], "i64");
    let mut other_seed = BATCH.to_vec();
    other_seed[12] = "10";
    assert_ne!(checksums(&first), checksums(&harness.json(&other_seed)));
}

#[test]
fn every_batch_of_an_epoch_together_holds_every_sample_once_whatever_the_ranks() {
    let harness = harness();
    let mut seen = Vec::new();
    for batch in ["0", "1"] {
        for rank in ["0", "1", "2"] {
            let args = [
                "show",
                "shards",
                "--recipe",
                "recipe.toml",
                "--batch-size",
                "4",
                "--shuffle",
                "block",
                "--batch",
                batch,
                "--rank",
                rank,
                "--world-size",
                "3",
            ];
            let object = harness.json(&args);
            assert_eq!(object["batches"], 2);
            seen.extend(object["ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()));
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..24).collect::<Vec<_>>());
}

#[test]
fn a_pipeline_says_the_same_as_flags_and_flags_win() {
    let harness = harness();
    let pipeline =
        format!("[data]\nurl = 'shards'\n{RECIPE}\n[loader]\nbatch_size = 5\nshuffle = true\nseed = 9\n");
    harness.write("pipeline.toml", pipeline);
    let by_flags = harness.json(&BATCH);
    let args = ["show", "--pipeline", "pipeline.toml", "--epoch", "1", "--batch", "2"];
    assert_eq!(harness.json(&args), by_flags);
    let smaller = harness.json(&[&args[..], &["--batch-size", "2"]].concat());
    assert_eq!(smaller["ids"].as_array().unwrap().len(), 2);
}

#[test]
fn text_names_ids_keys_shapes_and_checksums() {
    let harness = harness();
    let object = harness.json(&BATCH);
    let said: Said = harness.ok(&BATCH);
    let key = object["keys"][0].as_str().unwrap();
    said.has(&[
        "dataset      shards, version ",
        "batch        2 of epoch 1: 5 rows\n",
        "samples ",
        key,
        "columns      jpg  f32 [5, 3, 16, 16]  min ",
        checksums(&object)[0],
        "cls  i64 [5]  min ",
        "raw  bytes ",
    ]);
}

#[test]
fn out_writes_arrays_and_payloads() {
    let harness = harness();
    let object = harness.json(&[&BATCH[..], &["--out", "batch"]].concat());
    assert_eq!(object["files"].as_array().unwrap().len(), 7);
    let array = std::fs::read(harness.path("batch/jpg.npy")).unwrap();
    assert!(array.starts_with(b"\x93NUMPY"));
    assert_eq!(array.len() % 64, (5 * 3 * 16 * 16 * 4) % 64);
    let header = String::from_utf8_lossy(&array[..128]).into_owned();
    assert!(header.contains("'<f4'") && header.contains("(5, 3, 16, 16)"), "{header}");
    let sample = object["ids"][0].as_u64().unwrap() as usize;
    assert_eq!(std::fs::read(harness.path("batch/raw-0000.bin")).unwrap(), Made::default().jpeg(sample));
}

#[test]
fn faults_of_recipe_and_place_are_refused_with_a_hint() {
    let harness = harness();
    harness
        .write("bad.toml", "[[recipe]]\nfield = 'jpg'\ndecode = 'image'\nops = [{op = 'resise', size = 4}]");
    let said = harness.run(&["show", "shards", "--recipe", "bad.toml"]);
    assert_eq!(said.code, 2);
    said.warns(&["`bad.toml`", "did you mean `resize`?", "hint: ", "docs/reference/recipe.md"]);
    let said = harness.run(&["show", "shards", "--recipe", "recipe.toml", "--batch", "24"]);
    assert_eq!(said.code, 2);
    said.warns(&["show batch 24 of epoch 0", "24"]);
    let said = harness.run(&["show", "shards", "--recipe", "missing.toml"]);
    assert_eq!(said.code, 3);
    let said = harness.run(&["show", "shards", "--recipe", "recipe.toml", "--shuffle", "some"]);
    assert_eq!(said.code, 2);
    said.warns(&["loader.shuffle: \"some\" is not one of true, false"]);
}

#[test]
fn a_bad_sample_is_named_with_its_shard() {
    let harness = Harness::new();
    harness.write("s/x.tar", forebay_testkit::tar::tar_with(&[("a.jpg", b"no image"), ("a.cls", b"1")]));
    harness.write("recipe.toml", RECIPE);
    let said = harness.run(&["show", "s", "--recipe", "recipe.toml", "--json"]);
    assert_eq!(said.code, 3);
    let error = &said.object()["error"];
    assert_eq!((&error["kind"], &error["facts"]["key"]), (&json!("corrupt"), &json!("a")));
    assert!(error["facts"]["object"].as_str().unwrap().ends_with("x.tar"));
}

/// All batches of an epoch of a pipeline, by sample id.
fn epoch(harness: &Harness, pipeline: &str, batches: u64) -> Vec<u64> {
    harness.write("p.toml", format!("{pipeline}\n{RECIPE}"));
    let mut ids = Vec::new();
    for batch in 0..batches {
        let object = harness.json(&["show", "--pipeline", "p.toml", "--batch", &batch.to_string()]);
        assert_eq!(object["batches"], batches);
        ids.extend(object["ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()));
    }
    ids
}

#[test]
fn p029_a_batch_of_a_mix_and_of_resampling_can_be_made_again() {
    let harness = harness();
    Made::default().shards(&harness.path("more"), 2);
    let mix = "[[data.mix]]\nurl = 'shards'\nweight = 3\n[[data.mix]]\nurl = 'more'\nweight = 1\n
        [loader]\nshuffle = true\nbatch_size = 40\nepoch_samples = 80";
    let ids = epoch(&harness, mix, 2);
    assert_eq!(ids.len(), 80);
    assert_eq!(ids, epoch(&harness, mix, 2));
    let first = ids.iter().filter(|id| **id < 24).count();
    assert!((45..=75).contains(&first), "{first} of 80 samples are of the first dataset");
    // From the second round on nothing comes of the first dataset.
    let changing = "[[data.mix]]\nurl = 'shards'\nweight = 3\n[[data.mix]]\nurl = 'more'\nweight = 1\n
        [loader]\nshuffle = true\nbatch_size = 1024\nepoch_samples = 2048\n
        [[loader.mix_schedule]]\nepoch = 0\nposition = 1024\nweights = [0, 1]";
    let ids = epoch(&harness, changing, 2);
    let first = |ids: &[u64]| ids.iter().filter(|id| **id < 24).count();
    assert_eq!((first(&ids[..1024]), first(&ids[1024..])), (768, 0));
    let resampled =
        "[data]\nurl = 'shards'\n[loader]\nshuffle = 'resample'\nbatch_size = 25\nepoch_samples = 75";
    let ids = epoch(&harness, resampled, 3);
    assert_eq!(ids.len(), 75);
    assert!(ids.iter().all(|id| *id < 24));
}

/// Batches were counted by samples, so that the second half of an epoch that has each sample twice was denied.
#[test]
fn every_batch_of_an_epoch_that_repeats_samples_can_be_shown() {
    let harness = harness();
    let off = "[data]\nurl = 'shards'\n[loader]\nsharding = 'off'\nparts = 2\nbatch_size = 24";
    let mut ids = epoch(&harness, off, 2);
    ids.sort_unstable();
    assert_eq!(ids, (0..48).map(|at| at / 2).collect::<Vec<u64>>());
}
