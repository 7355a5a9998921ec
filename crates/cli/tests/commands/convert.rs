//! `forebay convert`: any source into any format that is written, the same bytes on every run, also after a kill.
#![expect(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

use crate::harness::{Harness, files};
use forebay_testkit::made::Made;
use serde_json::json;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

fn shards(harness: &Harness, folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(harness.path(folder)).into_iter().flatten();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut shards: Vec<String> = names.filter(|name| name.starts_with("train-0")).collect();
    shards.sort();
    shards
}

#[test]
fn tar_to_tfrecord_and_back_is_the_same_tar() {
    let harness = Harness::new();
    Made::default().tree(&harness.path("tree"));
    harness
        .ok(&["convert", "tree", "first", "--to", "tar", "--max-count", "10"])
        .has(&["first/train-classes.txt: 3 class names", "24 samples in 3 shards"]);
    for form in ["tfrecord", "tfrecord-gz"] {
        let (between, back) = (format!("between-{form}"), format!("back-{form}"));
        harness.ok(&["convert", "first", &between, "--to", form, "--max-count", "7"]);
        harness.ok(&["verify", &between, "--strict"]);
        harness.ok(&["convert", &between, &back, "--to", "tar", "--max-count", "10"]);
        // Features stand in the order of their names, so a second tar has its members in that order too.
        let again = format!("again-{form}");
        harness.ok(&["convert", &back, &again, "--to", "tar", "--max-count", "10"]);
        assert_eq!(shards(&harness, &back), shards(&harness, "first"));
        let payloads = |folder: &str| {
            let tars =
                files(&harness.path(folder)).into_iter().filter(|(name, _)| name.starts_with("train-0"));
            let mut members: Vec<(String, Vec<u8>)> = tars.flat_map(|(_, bytes)| members(&bytes)).collect();
            members.sort();
            members
        };
        assert_eq!(payloads(&back), payloads("first"));
        assert_eq!(payloads("first").len(), 48);
        let tars = |folder: &str| {
            files(&harness.path(folder))
                .into_iter()
                .filter(|(name, _)| name.starts_with("train-0"))
                .collect::<Vec<_>>()
        };
        assert_eq!(tars(&again), tars(&back));
    }
}

/// Names and payloads of a plain tar with short names, read without the product's code.
fn members(tar: &[u8]) -> Vec<(String, Vec<u8>)> {
    let (mut found, mut at) = (Vec::new(), 0);
    while tar.get(at).is_some_and(|first| *first != 0) {
        let text = |range: std::ops::Range<usize>| {
            let field = &tar[at + range.start..at + range.end];
            let end = field.iter().position(|byte| matches!(byte, 0 | b' ')).unwrap_or(field.len());
            String::from_utf8(field[..end].to_vec()).unwrap()
        };
        let size = usize::from_str_radix(&text(124..136), 8).unwrap();
        found.push((text(0..100), tar[at + 512..at + 512 + size].to_vec()));
        at += 512 + size.div_ceil(512) * 512;
    }
    found
}

#[test]
fn rows_and_lines_become_shards_with_their_fields() {
    let harness = Harness::new();
    harness.write("images/a.bin", b"first");
    harness.write("images/b.bin", b"second");
    harness.write("train.csv", b"path,label,caption\nimages/a.bin,dog,\"a, \"\"b\"\"\"\nimages/b.bin,cat,\n");
    harness.ok(&["convert", "train.csv", "out", "--to", "tar"]).has(&["2 samples in 1 shard"]);
    let bytes = std::fs::read(harness.path("out/train-000000.tar")).unwrap();
    let mut found = members(&bytes);
    found.sort();
    let member = |name: &str, bytes: &[u8]| (format!("train/{name}"), bytes.to_vec());
    let wanted = [
        member("00000000.caption", b"a, \"b\""),
        member("00000000.label", b"1"),
        member("00000000.path", b"first"),
        member("00000001.label", b"0"),
        member("00000001.path", b"second"),
    ];
    assert_eq!(found, wanted);
    assert_eq!(std::fs::read_to_string(harness.path("out/train-classes.txt")).unwrap(), "cat\ndog\n");
    harness.write("train.jsonl", b"{\"text\": \"x\", \"n\": 7}\n{\"text\": \"y\"}\n");
    let made = harness.json(&["convert", "train.jsonl", "records", "--to", "tfrecord"]);
    assert_eq!((&made["samples"], &made["classes"]), (&json!(2), &json!(null)));
    harness.ok(&["convert", "records", "again", "--to", "tar"]);
    let mut found = members(&std::fs::read(harness.path("again/train-000000.tar")).unwrap());
    found.sort();
    let wanted = [member("00000000.n", b"7"), member("00000000.text", b"x"), member("00000001.text", b"y")];
    assert_eq!(found, wanted);
}

#[test]
fn a_member_of_a_late_line_is_written_and_what_is_left_out_is_said() {
    let harness = Harness::new();
    let line = |at| {
        let late = if at == 100 { ", \"late/member\": \"found\"" } else { "" };
        format!("{{\"n\": {at}{late}}}\n")
    };
    harness.write("train.jsonl", (0..120).map(line).collect::<Vec<_>>().concat().as_bytes());
    harness.ok(&["convert", "train.jsonl", "records", "--to", "tfrecord"]);
    harness.ok(&["convert", "records", "copied", "--to", "tfrecord"]);
    harness.ok(&["convert", "copied", "converted", "--to", "tar"]);
    harness.ok(&["pack", "train.jsonl", "packed"]);
    for folder in ["converted", "packed"] {
        let found = members(&std::fs::read(harness.path(&format!("{folder}/train-000000.tar"))).unwrap());
        assert_eq!(found.len(), 121, "{folder}");
        assert!(found.contains(&("train/00000100.late.member".to_owned(), b"found".to_vec())), "{folder}");
    }
    let columns = concat!(env!("CARGO_MANIFEST_DIR"), "/../engine/tests/fixtures/mds");
    let said = harness.ok(&["convert", columns, "columns", "--to", "tar"]);
    assert!(said.stderr.contains("left out of every sample: take column `secret`"), "{}", said.stderr);
    let made = harness.json(&["pack", columns, "again"]);
    assert!(made["left_out"][0].as_str().unwrap().contains("pickle"), "{made}");
}

#[test]
fn a_table_is_known_to_every_command() {
    let harness = Harness::new();
    Made::default().table(&harness.path("images"));
    let names =
        files(&harness.path("images")).into_iter().map(|(name, _)| name).filter(|name| name != "labels.csv");
    let row = |(at, name)| format!("images/{name},{}\n", ["no", "yes"][at % 2]);
    let rows = names.enumerate().map(row).collect::<Vec<String>>().concat();
    harness.write("train.csv", format!("image,label\n{rows}").as_bytes());
    let info = harness.json(&["info", "train.csv"]);
    assert_eq!(
        (&info["kind"], &info["samples"], &info["keys"][0]),
        (&json!("csv"), &json!(24), &json!("train/00000000"))
    );
    harness.ok(&["verify", "train.csv", "--strict"]).has(&["sound: 24 samples"]);
    harness.ok(&["index", "train.csv", "--out", "train.fbm"]);
    harness.write("recipe.toml", "recipe = [{field = 'image', decode = 'image', ops = [{op = 'resize', size = [16, 16]}]}, {field = 'label', decode = 'label'}]\n");
    let show = |spec: &str| {
        let shown = harness.json(&[
            "show",
            spec,
            "--recipe",
            "recipe.toml",
            "--epoch",
            "0",
            "--batch",
            "1",
            "--batch-size",
            "5",
        ]);
        shown["columns"].clone()
    };
    assert_eq!(show("train.csv"), show("train.fbm"));
    let packed = harness.json(&["pack", "train.csv", "out"]);
    assert_eq!(packed["samples"], json!(24));
    harness.write("train.csv", format!("image,label\n{rows}images/none.jpg,no\nx\n").as_bytes());
    let said = harness.run(&["verify", "train.csv"]);
    assert_eq!(said.code, 3);
    said.has(&["line 27: the row has 1 cells", "line 26, column 1 (`image`): no file"]);
}

#[test]
fn p073_a_killed_conversion_goes_on_and_gives_the_same_bytes() {
    let harness = Harness::new();
    let made = Made { samples: 1000, width: 8, height: 8, ..Made::default() };
    made.tree(&harness.path("tree"));
    let convert = |out: &str| {
        ["convert", "tree", out, "--to", "tfrecord", "--max-count", "10", "--memory", "1KB"]
            .map(str::to_owned)
    };
    let whole = convert("whole");
    harness.ok(&whole.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(shards(&harness, "whole").len(), 100);
    for before in [1, 7] {
        let out = format!("out-{before}");
        let args = convert(&out);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let mut child = harness.command(&args).stdout(Stdio::null()).spawn().unwrap();
        while shards(&harness, &out).len() < before && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9), "it was killed at work");
        let left = shards(&harness, &out).len();
        assert!((before..100).contains(&left), "{left}");
        let said = harness.json(&args);
        assert_eq!((&said["kept"], &said["samples"]), (&json!(left), &json!(1000)));
        assert_eq!(said["spilled_bytes"], json!(0));
        let hidden = files(&harness.path(&out)).into_iter().filter(|(name, _)| name.contains(".tmp-"));
        assert_eq!(hidden.count(), 0, "the shard that was being written when the run was killed is gone");
        let whole: Vec<_> = shards(&harness, "whole")
            .iter()
            .map(|name| std::fs::read(harness.path(&format!("whole/{name}"))).unwrap())
            .collect();
        let found: Vec<_> = shards(&harness, &out)
            .iter()
            .map(|name| std::fs::read(harness.path(&format!("{out}/{name}"))).unwrap())
            .collect();
        assert!(whole == found, "other bytes after {left} shards");
    }
}

#[test]
fn what_is_there_is_replaced_only_when_asked() {
    let harness = Harness::new();
    Made::default().tree(&harness.path("tree"));
    harness.ok(&["convert", "tree", "out", "--to", "tar"]);
    let said = harness.run(&["convert", "tree", "out", "--to", "tar"]);
    assert_eq!(said.code, 2);
    said.warns(&["it exists already"]);
    harness.ok(&["convert", "tree", "out", "--to", "tar", "--overwrite"]);
    assert_eq!(harness.run(&["convert", "tree", "out", "--to", "csv"]).code, 2);
}
