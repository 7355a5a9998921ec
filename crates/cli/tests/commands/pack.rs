//! `forebay pack`: the same bytes on every run, never a half shard, nothing overwritten unasked.

use crate::harness::{Harness, files};
use forebay_testkit::made::Made;
use forebay_testkit::server::{Act, Fault, Objects, SlowServer};
use serde_json::json;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

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
fn p020_packing_to_a_store_gives_the_bytes_that_packing_to_a_folder_does() {
    let harness = Harness::new();
    Made::default().tree(&harness.path("tree"));
    harness.ok(&["pack", "tree", "out", "--max-count", "10"]);
    let server = SlowServer::start(Objects::new()).unwrap();
    // The first request for every object is refused.
    server.script(|seen| if seen.attempt == 1 && !seen.listing { Act::status(503) } else { Act::default() });
    let (web, endpoint) = (format!("{}/web/in", server.url()), format!("endpoint={}", server.url()));
    let s3 = ["--to", "s3://bucket/s3/", "--to-option", &endpoint, "--to-option", "anonymous=true"];
    for (to, stored) in [(&["--to", web.as_str()][..], "web/in"), (&s3, "s3")] {
        let pack = |more: &[&str]| harness.run(&[&["pack", "tree"], to, more].concat());
        let said = pack(&["--max-count", "10"]);
        assert_eq!(said.code, 0, "{}", said.stderr);
        said.has(&[
            "train-000002.tar: 4 samples",
            "train-classes.txt: 3 class names",
            "packed 24 samples into 3",
        ]);
        let copy = format!("copy-{}", &stored[..2]);
        let spec = format!("{}/{stored}/train-{{{{000000..000002}}.tar,classes.txt}}", server.url());
        harness.ok(&["stage", &spec, &copy]);
        assert!(files(&harness.path(&copy).join(stored)) == files(&harness.path("out")), "{stored}");
        let again = pack(&[]);
        assert_eq!(again.code, 2, "{}", again.stderr);
        again.warns(&["train-000000.tar", "exist already", "hint: add `--overwrite`"]);
        let over = pack(&["--overwrite", "--max-count", "20"]);
        assert_eq!(over.code, 0, "{}", over.stderr);
        if stored == "s3" {
            over.warns(&["warning: 1 shard of an earlier run remain", "s3://bucket/s3/train-000002.tar"]);
        }
    }
    let left = std::fs::read_dir(harness.path("")).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(left.into_iter().all(|name| !name.to_string_lossy().starts_with("forebay-pack")));
    for (args, why) in [
        (&["--to", "shards/"][..], "no URL of a store"),
        (&["out", "--to", "s3://b/"], "cannot be used with"),
        (&[], "<OUT>"),
    ] {
        let said = harness.run(&[&["pack", "tree"], args].concat());
        assert_eq!(said.code, 2, "{}", said.stderr);
        said.warns(&[why]);
    }
}

#[test]
fn p020_a_pack_to_a_store_that_is_killed_leaves_whole_shards_only() {
    let harness = Harness::new();
    Made::default().tree(&harness.path("tree"));
    harness.ok(&["pack", "tree", "out", "--max-count", "10"]);
    let server = SlowServer::start(Objects::new()).unwrap();
    server.script(|seen| {
        let held = seen.method == "PUT" && seen.key == "x/train-000001.tar";
        if held { Act::fault(Fault::Hang) } else { Act::default() }
    });
    let to = format!("{}/x/", server.url());
    let args = ["pack", "tree", "--to", &to, "--max-count", "10"];
    let mut child = harness.command(&args).stdout(Stdio::null()).spawn().unwrap();
    // Looked for, then sent.
    let began = Instant::now();
    while server.attempts("x/train-000001.tar") < 2 && began.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9), "it was killed at work");
    server.script(|_| Act::default());
    let name = |n: u32| format!("{to}train-{n:06}.tar");
    harness.ok(&["stage", &name(0), "copy"]);
    let (found, whole) = (harness.path("copy/x/train-000000.tar"), harness.path("out/train-000000.tar"));
    assert!(std::fs::read(found).unwrap() == std::fs::read(whole).unwrap());
    assert_eq!(harness.run(&["info", &name(1)]).code, 3, "nothing of the second one");
    harness.ok(&["pack", "tree", "--to", &to, "--max-count", "10", "--overwrite"]);
    harness.ok(&["verify", &format!("{to}train-{{000000..000002}}.tar"), "--strict"]);
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
