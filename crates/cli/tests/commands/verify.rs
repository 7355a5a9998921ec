//! `forebay verify`: each fault is named with its shard, member and offset.
#![expect(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

use crate::harness::Harness;
use forebay_testkit::made::{Made, noise_jpeg};
use forebay_testkit::tar::{TarMaker, tar_with};
use serde_json::{Value, json};

fn finding<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let findings = object["findings"].as_array().unwrap();
    findings
        .iter()
        .find(|finding| finding["kind"] == kind)
        .unwrap_or_else(|| panic!("no {kind} in {object:#}"))
}

#[test]
fn sound_data_passes() {
    let harness = Harness::new();
    Made::default().shards(&harness.path("shards"), 2);
    Made::default().tree(&harness.path("tree"));
    harness
        .ok(&["verify", "shards"])
        .has(&["sound: 24 samples, ", "in 2 objects, 48 payloads decoded, no findings"]);
    harness.ok(&["verify", "tree"]).has(&["sound: 24 samples, ", "24 payloads decoded, no findings"]);
    harness.ok(&["verify", "shards", "--no-decode"]).has(&["headers only, no findings"]);
}

#[test]
fn a_truncated_tar_is_named_with_shard_member_and_offset() {
    let harness = Harness::new();
    let whole = tar_with(&[("a.txt", &[b'x'; 600]), ("b.txt", &[b'y'; 600])]);
    // Each member takes a header and two blocks; the second payload is cut.
    harness.write("s/cut.tar", &whole[..1536 + 512 + 100]);
    let said = harness.run(&["verify", "s/cut.tar"]);
    assert_eq!(said.code, 3, "{}{}", said.stdout, said.stderr);
    said.has(&["error: bad_shard (<folder>/s/cut.tar", "byte 1536", "faulty: ", "1 error and 0 warnings"]);
    let said = harness.run(&["verify", "s/cut.tar", "--json"]);
    assert_eq!((said.code, said.stderr.as_str()), (3, ""));
    let object = said.object();
    assert_eq!(object["sound"], false);
    assert_eq!(finding(&object, "bad_shard")["offset"], 1536);
    assert_eq!(finding(&object, "bad_shard")["severity"], "error");
}

#[test]
fn keys_used_twice_are_warnings_that_only_strict_fails() {
    let harness = Harness::new();
    harness.write("s/a.tar", tar_with(&[("k.txt", b"1"), ("l.txt", b"2")]));
    harness.write("s/b.tar", tar_with(&[("m.txt", b"3"), ("k.txt", b"4")]));
    let said = harness.ok(&["verify", "s"]);
    said.has(&[
        "warning: duplicate_key (<folder>/s/b.tar, member `k",
        "byte 1024",
        "s/a.tar",
        "sound: 4 samples",
    ]);
    assert_eq!(harness.run(&["verify", "s", "--strict"]).code, 3);
}

#[test]
fn undecodable_payloads_are_named_and_the_rest_is_still_tried() {
    let harness = Harness::new();
    let image = noise_jpeg(1, 32, 32);
    let cut = &image[..image.len() / 2];
    let shard = TarMaker::new()
        .file("a.jpg", &image)
        .file("b.jpg", b"this is no image")
        .file("c.jpg", cut)
        .file("d.cls", b"seven")
        .file("e.json", b"{]")
        .file("f.jpg", &image);
    harness.write("s/x.tar", shard.finish());
    let said = harness.run(&["verify", "s/x.tar", "--json"]);
    assert_eq!(said.code, 3);
    let object = said.object();
    let bad: Vec<&str> = object["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| {
            assert_eq!(finding["kind"], "bad_payload");
            finding["member"].as_str().unwrap()
        })
        .collect();
    assert_eq!(bad, ["b.jpg", "c.jpg", "d.cls", "e.json"]);
    assert_eq!(object["checked"], 6);
    let header = 512 + image.len().next_multiple_of(512);
    assert_eq!(object["findings"][0]["offset"], json!(header), "the offset of the member's header");
    harness.ok(&["verify", "s/x.tar", "--no-decode"]);
}

#[test]
fn findings_beyond_the_limit_are_counted() {
    let harness = Harness::new();
    for file in 0..5 {
        harness.write(&format!("d/c/{file}.jpg"), b"no image");
    }
    let said = harness.run(&["verify", "d", "--limit", "2"]);
    assert_eq!(said.code, 3);
    said.has(&["error: bad_payload", "error: bad_payload", "and 3 findings more", "5 errors and 0 warnings"]);
    assert_eq!(said.stdout.matches("bad_payload").count(), 2);
}
