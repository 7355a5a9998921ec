//! `forebay materialize`: killed again and again, shared by processes, dry, on a full disk, and to a store.
#![allow(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

use crate::harness::Harness;
use forebay_testkit::made::Made;
use forebay_testkit::server::{Objects, SlowServer};
use serde_json::{Value, json};
use std::process::{Command, Stdio};
use std::time::Duration;

const PIPELINE: &str = r#"
[data]
url = "train-{000000..000002}.tar"
[[recipe]]
field = "jpg"
decode = "image"
ops = [{ op = "random_resized_crop", size = 16 }]
[[recipe]]
field = "cls"
decode = "label"
[loader]
batch_size = 4
seed = 7
shuffle = "full"
"#;

fn made() -> Harness {
    let harness = Harness::new();
    Made { samples: 96, ..Made::default() }.shards(&harness.path(""), 3);
    harness.write("p.toml", PIPELINE);
    // Two seconds of work, so that there is something to kill.
    let slow = PIPELINE.replace("size = 16 }", "size = 16 }, { op = \"delay\", seconds = 0.02 }");
    harness.write("slow.toml", slow + "num_workers = 1\n");
    harness
}

fn shards(harness: &Harness, out: &str) -> Vec<(String, Vec<u8>)> {
    let mut files = files_of(harness, out);
    files.retain(|(name, _)| name.strip_suffix(".tar").is_some());
    files
}

/// All files of a folder with their bytes, by name; what writers keep below it is left out.
fn files_of(harness: &Harness, out: &str) -> Vec<(String, Vec<u8>)> {
    let Ok(entries) = std::fs::read_dir(harness.path(out)) else { return Vec::new() };
    let entries = entries.map(|entry| entry.unwrap()).filter(|entry| entry.file_type().unwrap().is_file());
    let name = |entry: &std::fs::DirEntry| entry.file_name().into_string().unwrap();
    // Being written, or left by a process that was killed while it wrote one of the small files.
    let named = entries.filter(|entry| !name(entry).starts_with('.'));
    let mut found: Vec<_> = named.map(|entry| (name(&entry), std::fs::read(entry.path()).unwrap())).collect();
    found.sort();
    found
}

/// Drawn without a clock, so that a failure can be repeated.
fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

#[test]
fn p064_a_run_killed_at_random_points_resumes_and_ends_with_the_same_bytes() {
    let harness = made();
    harness.ok(&["materialize", "slow.toml", "whole", "--chunk-samples", "4"]);
    let whole = shards(&harness, "whole");
    assert_eq!(whole.len(), 24);
    let (mut state, mut kills, mut before) = (64, 0, 0);
    for _ in 0..40 {
        let mut child = harness
            .command(&["materialize", "slow.toml", "cut", "--chunk-samples", "4"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // From before its first write to somewhere in the middle, slower machines get further behind: either is a case.
        std::thread::sleep(Duration::from_millis(draw(&mut state) % 400));
        child.kill().unwrap();
        let status = child.wait().unwrap();
        kills += u64::from(status.code().is_none());
        let now = shards(&harness, "cut");
        assert!(now.len() >= before, "a finished shard stays");
        before = now.len();
        assert!(now.iter().all(|shard| whole.contains(shard)), "what has a shard's name is whole");
        if before == whole.len() {
            break;
        }
    }
    assert!(kills > 0);
    let rest = harness.json(&["materialize", "slow.toml", "cut", "--chunk-samples", "4"]);
    assert_eq!((&rest["found"], &rest["made"]), (&json!(before), &json!(whole.len() - before)));
    assert_eq!(files_of(&harness, "cut"), files_of(&harness, "whole"));
    assert!(!harness.path("cut/.forebay-writers").exists(), "nothing of the killed stays");
}

#[test]
fn p064_processes_share_the_work_and_one_that_is_killed_is_replaced() {
    let harness = made();
    harness.ok(&["materialize", "slow.toml", "whole", "--chunk-samples", "4"]);
    let start = || {
        let args = ["materialize", "slow.toml", "shared", "--chunk-samples", "4", "--json"];
        harness.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let (mut first, others) = (start(), [start(), start()]);
    while shards(&harness, "shared").is_empty() && first.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    first.kill().unwrap();
    first.wait().unwrap();
    let mut made = 0;
    for other in others {
        let output = other.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let said: Value = serde_json::from_slice(&output.stdout).unwrap();
        made += said["made"].as_u64().unwrap();
    }
    assert_eq!(files_of(&harness, "shared"), files_of(&harness, "whole"));
    assert!(made <= 24, "nothing was made twice: {made}");
}

#[test]
fn p064_a_dry_run_writes_nothing_and_resuming_is_said() {
    let harness = made();
    let said = harness.ok(&["materialize", "p.toml", "out", "--chunk-samples", "32", "--dry-run"]);
    said.has(&["out: would make 3 of 3 shards, 96 samples; 0 there already"]);
    said.warns(&["random_resized_crop in the recipe", "every later epoch sees the same"]);
    assert!(!harness.path("out").exists());
    let done = harness.ok(&["materialize", "p.toml", "out", "--chunk-samples", "32"]);
    done.has(&["out: 96 samples of 96 in 3 shards"]);
    std::fs::remove_file(harness.path("out/data-000001.tar")).unwrap();
    let refused = harness.run(&["info", "out"]);
    assert_eq!(refused.code, 4);
    refused.warns(&["it is not whole, 2 of 3 shards are there", "hint: run `forebay materialize` again"]);
    let again = harness.ok(&["materialize", "p.toml", "out"]);
    again
        .warns(&["resuming: 2 of 3 shards are there, 1 to make"])
        .has(&["32 samples of 96 in 1 shard", "2 there already"]);
    harness.ok(&["show", "out", "--recipe", "out/recipe.json", "--batch-size", "4", "--batch", "5"]);
    let live = harness.ok(&["show", "--pipeline", "p.toml", "--batch", "5"]);
    let back =
        harness.ok(&["show", "out", "--recipe", "out/recipe.json", "--batch-size", "4", "--batch", "5"]);
    let sums = |text: &str| {
        text.lines().filter_map(|line| Some(line.split_once("xxh3 ")?.1.to_owned())).collect::<Vec<_>>()
    };
    assert!(!sums(&live.stdout).is_empty());
    assert_eq!(sums(&live.stdout), sums(&back.stdout));
}

#[test]
fn p064_a_full_disk_is_said_with_its_cure_and_loses_nothing() {
    let harness = made();
    // Shards of 4 samples fit under the limit, those of 16 do not, whatever a block is to the shell.
    let limited = |chunk: u64| {
        let program = env!("CARGO_BIN_EXE_forebay");
        let run = format!(
            "ulimit -f 30 && trap '' XFSZ && exec '{program}' materialize p.toml full-{chunk} --chunk-samples {chunk}"
        );
        let mut command = Command::new("sh");
        command.args(["-c", &run]).current_dir(harness.path("")).env("XDG_CACHE_HOME", harness.path("cache"));
        harness.said(&command.output().unwrap())
    };
    harness.ok(&["info", "train-{000000..000002}.tar"]);
    let said = limited(4);
    assert_eq!(said.code, 0, "{}", said.stderr);
    let said = limited(16);
    assert_eq!(said.code, 4, "{}", said.stderr);
    said.warns(&[
        "error: ",
        "data-000000.tar",
        "hint: free space there, then run the same again: finished shards stay",
    ]);
    assert!(shards(&harness, "full-16").is_empty(), "no half shard has a name");
    let done = harness.json(&["materialize", "p.toml", "full-16"]);
    assert_eq!((&done["made"], &done["chunk_samples"]), (&json!(6), &json!(16)));
}

#[test]
fn p064_a_store_takes_the_same_shards_as_a_folder() {
    let harness = made();
    harness.ok(&["materialize", "p.toml", "here", "--chunk-samples", "16"]);
    let server = SlowServer::start(Objects::new()).unwrap();
    let endpoint = format!("endpoint={}", server.url());
    let to = ["--to-option", &endpoint, "--to-option", "anonymous=true"];
    let there = ["materialize", "p.toml", "s3://bucket/made/it", "--chunk-samples", "16"];
    let done = harness.json(&[&there[..], &to].concat());
    assert_eq!((&done["made"], &done["shards"]), (&json!(6), &json!(6)));
    let again = harness.json(&[&there[..], &to].concat());
    assert_eq!((&again["found"], &again["made"]), (&json!(6), &json!(0)));
    let option = ["--storage-option", &endpoint, "--storage-option", "anonymous=true"];
    harness
        .ok(&[&["stage", "s3://bucket/made/it/", "copy", "--template", "data-*.tar"][..], &option].concat());
    let copied: Vec<_> = shards(&harness, "here");
    let staged = walk(&harness.path("copy"));
    for (name, bytes) in copied {
        assert!(staged.iter().any(|(path, found)| path.ends_with(&name) && *found == bytes), "{name}");
    }
    let left = std::fs::read_dir(harness.path("")).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(left.into_iter().all(|name| !name.to_string_lossy().starts_with("forebay-materialize")));
}

fn walk(folder: &std::path::Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
        if entry.file_type().unwrap().is_dir() {
            found.extend(walk(&entry.path()));
        } else {
            found.push((entry.path().display().to_string(), std::fs::read(entry.path()).unwrap()));
        }
    }
    found
}
