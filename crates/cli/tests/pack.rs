//! `forebay pack`: the same bytes on every run, never a half shard, nothing overwritten unasked.

mod harness;

use forebay_testkit::made::Made;
use harness::{Harness, files};
use serde_json::json;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

#[test]
fn p020_packing_twice_gives_identical_shards_that_rotate_on_count_and_bytes() {
    let harness = Harness::new();
    Made::default().tree(&harness.path("tree"));
    let packed = harness.json(&["pack", "tree", "one", "--max-count", "10"]);
    let samples: Vec<_> =
        packed["shards"].as_array().unwrap().iter().map(|shard| &shard["samples"]).collect();
    assert_eq!(samples, [&json!(10), &json!(10), &json!(4)]);
    // Another folder with other times, and the same files.
    Made::default().tree(&harness.path("other/tree"));
    harness.ok(&["pack", "other/tree", "two", "--max-count", "10"]);
    assert_eq!(files(&harness.path("one")), files(&harness.path("two")));

    let by_bytes = harness.json(&["pack", "tree", "three", "--max-bytes", "16KiB"]);
    let shards = by_bytes["shards"].as_array().unwrap();
    assert!(shards.len() > 1);
    assert!(shards.iter().all(|shard| shard["bytes"].as_u64().unwrap() <= 16 << 10), "{by_bytes:#}");
}

#[test]
fn packed_samples_keep_their_payloads_and_labels() {
    let harness = Harness::new();
    let made = Made::default();
    made.tree(&harness.path("tree"));
    harness.ok(&["pack", "tree", "out"]).has(&[
        "out/train-000000.tar: 24 samples",
        "out/train-classes.txt: 3 class names",
        "packed 24 samples into 1 shard",
    ]);
    let info = harness.json(&["info", "out"]);
    assert_eq!((&info["samples"], &info["keys"][0]), (&json!(24), &json!("class_00/000000")));
    assert_eq!(
        std::fs::read_to_string(harness.path("out/train-classes.txt")).unwrap(),
        "class_00\nclass_01\nclass_02\n"
    );
    harness.ok(&["verify", "out", "--strict"]);
    let bytes = std::fs::read(harness.path("out/train-000000.tar")).unwrap();
    let image = made.jpeg(0);
    assert_eq!(&bytes[512..512 + image.len()], &image[..]);
}

#[test]
fn labels_from_a_file_become_cls_and_shuffling_depends_on_the_seed_only() {
    let harness = Harness::new();
    Made::default().table(&harness.path("images"));
    std::fs::rename(harness.path("images/labels.csv"), harness.path("my.csv")).unwrap();
    let pack = |out: &str, seed: &str| {
        harness.ok(&["pack", "images", out, "--labels", "my.csv", "--shuffle", "--seed", seed]);
        files(&harness.path(out))
    };
    let first = pack("a", "7");
    assert_eq!(first, pack("b", "7"));
    assert_ne!(first, pack("c", "8"));
    let info = harness.json(&["info", "a", "--keys", "24"]);
    let names: Vec<_> =
        info["fields"].as_array().unwrap().iter().map(|field| field["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"cls"), "{names:?}");
    let mut keys: Vec<_> = info["keys"].as_array().unwrap().iter().map(|key| key.as_str().unwrap()).collect();
    assert!(!keys.is_sorted(), "shuffled");
    keys.sort_unstable();
    assert_eq!(keys, (0..24).map(|i| format!("{i:06}")).collect::<Vec<_>>());
}

#[test]
fn existing_shards_are_refused_and_replaced_only_on_demand() {
    let harness = Harness::new();
    Made::default().tree(&harness.path("tree"));
    harness.ok(&["pack", "tree", "out", "--max-count", "5"]);
    let before = files(&harness.path("out"));
    let said = harness.run(&["pack", "tree", "out"]);
    assert_eq!(said.code, 2);
    said.warns(&["out/train-000000.tar", "5 shards of that name exist already", "hint: add `--overwrite`"]);
    assert_eq!(files(&harness.path("out")), before);
    harness.ok(&["pack", "tree", "out", "--prefix", "val"]);
    let said = harness.ok(&["pack", "tree", "out", "--overwrite", "--max-count", "20"]);
    said.warns(&["warning: 3 shards of an earlier run remain", "train-000002.tar"]);
}

#[test]
fn files_that_differ_only_in_their_extension_stay_two_samples() {
    let harness = Harness::new();
    let image = Made::default().jpeg(0);
    for name in ["c/a.jpg", "c/a.jpeg", "c/b.x.jpg"] {
        harness.write(&format!("tree/{name}"), &image);
    }
    harness.ok(&["pack", "tree", "out"]);
    let info = harness.json(&["info", "out"]);
    assert_eq!(info["keys"], json!(["c/a_jpeg", "c/a_jpg", "c/b_x"]));
}

#[test]
fn p020_a_killed_pack_leaves_nothing_half_readable() {
    let harness = Harness::new();
    let made = Made { samples: 1000, width: 8, height: 8, ..Made::default() };
    made.tree(&harness.path("tree"));
    for shards_before in [1, 3, 10] {
        let out = format!("out-{shards_before}");
        // Every shard is synced, so a hundred of them take longer than seeing the first ones.
        let args = ["pack", "tree", &out, "--max-count", "10"];
        let mut child = harness.command(&args).stdout(Stdio::null()).spawn().unwrap();
        let names = || -> Vec<String> {
            let entries = std::fs::read_dir(harness.path(&out)).into_iter().flatten();
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
        };
        let shards = |names: &[String]| names.iter().filter(|name| name.starts_with("train-")).count();
        while shards(&names()) < shards_before && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9), "it was killed at work");
        let left = names();
        assert!((shards_before..100).contains(&shards(&left)), "{left:?}");
        for name in left {
            if name.starts_with("train-") {
                harness.ok(&["verify", &format!("{out}/{name}"), "--strict"]).has(&["sound: 10 samples"]);
            } else {
                assert!(name.starts_with(".tmp-"), "{name} is no shard and not hidden");
            }
        }
    }
}

#[test]
fn senseless_requests_are_refused_before_anything_is_touched() {
    let harness = Harness::new();
    Made::default().tree(&harness.path("tree"));
    for (args, why) in [
        (&["--max-bytes", "1 stone"][..], "--max-bytes"),
        (&["--max-count", "0"], "--max-count"),
        (&["--prefix", "../up"], "--prefix"),
    ] {
        let said = harness.run(&[&["pack", "tree", "out"], args].concat());
        assert_eq!(said.code, 2, "{}", said.stderr);
        said.warns(&[why]);
        assert!(!harness.path("out").exists());
    }
}
