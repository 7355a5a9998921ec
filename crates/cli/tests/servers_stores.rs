//! Every command that takes a URL, on data behind real servers: shards are packed to a store, looked at, verified,
//! indexed and copied back, byte for byte; a table takes rows and gives them back.
//!
//! MinIO over HTTP and HTTPS, AIStore and Cassandra, where the variables of `scripts/servers/with` name them.
#![cfg(all(feature = "s3", feature = "cassandra"))]
#![expect(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

mod harness;

use forebay_testkit::made::Made;
use forebay_testkit::skip::server;
use harness::{Harness, files};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;

/// A name that no other run has.
fn unique(name: &str) -> String {
    format!("{name}-{}", std::time::UNIX_EPOCH.elapsed().unwrap().as_micros())
}

/// Packs a tree to `url` and brings it back by every command. `words` are the store's options.
fn pack_and_bring_back(url: &str, words: &[String]) {
    let options = |flag: &'static str| words.iter().flat_map(move |word| [flag, word]).collect::<Vec<_>>();
    let (to, from) = (options("--to-option"), options("--storage-option"));
    let harness = Harness::new();
    Made::default().tree(&harness.path("tree"));
    harness.ok(&["pack", "tree", "out", "--max-count", "10"]);
    let pack = |more: &[&str]| harness.run(&[&["pack", "tree", "--to", url], &to[..], more].concat());
    let said = pack(&["--max-count", "10"]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    said.has(&["train-000002.tar: 4 samples", "packed 24 samples into 3"]);
    let again = pack(&[]);
    assert_eq!(again.code, 2, "{}", again.stderr);
    again.warns(&["exist already", "hint: add `--overwrite`"]);

    let shards = format!("{url}/train-{{000000..000002}}.tar");
    let run = |args: &[&str]| harness.json(&[args, &from[..]].concat());
    let (here, there) = (harness.json(&["info", "out"]), run(&["info", &shards]));
    assert_eq!((&there["samples"], &there["bytes"]), (&json!(24), &here["bytes"]), "{there:#}");
    let verified = run(&["verify", &shards]);
    assert_eq!((&verified["samples"], &verified["errors"]), (&json!(24), &json!(0)), "{verified:#}");
    assert_eq!(run(&["index", &shards, "--out", "kept.fbm"])["samples"], json!(24));
    assert_eq!(run(&["info", "kept.fbm"])["samples"], json!(24), "a manifest file leads to the store");

    let staged = run(&["stage", url, "copy"]);
    assert_eq!((&staged["copied"], &staged["here"]), (&json!(4), &json!(0)), "{staged:#}");
    let key = url.split_once("://").unwrap().1.split_once('/').unwrap().1;
    assert!(files(&harness.path("copy").join(key)) == files(&harness.path("out")), "the same bytes");
    // A second run reads nothing; a spoiled byte is found when asked for, and mended from the store.
    assert_eq!(run(&["stage", url, "copy"])["read_bytes"], json!(0));
    let spoiled = harness.path("copy").join(key).join("train-000001.tar");
    let mut bytes = std::fs::read(&spoiled).unwrap();
    bytes[700] ^= 1;
    std::fs::write(&spoiled, bytes).unwrap();
    assert_eq!(run(&["stage", url, "copy", "--verify"])["copied"], json!(1));
    assert!(files(&harness.path("copy").join(key)) == files(&harness.path("out")));
}

#[test]
fn p049_shards_on_minio_are_packed_read_and_staged() {
    let Some(endpoint) = server("FOREBAY_TEST_S3") else { return };
    pack_and_bring_back(
        &format!("s3://forebay-test/{}", unique("cli")),
        &[format!("endpoint={endpoint}"), "allow_http=true".into()],
    );
}

#[test]
fn p049_shards_on_minio_over_https_are_packed_read_and_staged() {
    let (Some(endpoint), Some(ca)) = (server("FOREBAY_TEST_S3_TLS"), server("FOREBAY_TEST_S3_CA")) else {
        return;
    };
    let words = [format!("endpoint={endpoint}"), format!("tls_ca_file={ca}")];
    pack_and_bring_back(&format!("s3://forebay-test/{}", unique("cli-tls")), &words);
    // And without the authority nothing is sent.
    let harness = Harness::new();
    let stranger = format!("endpoint={endpoint}");
    let said = harness.run(&["info", "s3://forebay-test/x.tar", "--storage-option", &stranger]);
    assert_eq!(said.code, 3, "{}", said.stderr);
    said.warns(&["certificate"]);
}

#[test]
fn p049_shards_on_aistore_are_packed_read_and_staged() {
    let Some(endpoint) = server("FOREBAY_TEST_AIS") else { return };
    let bucket = unique("forebay-cli");
    let address = endpoint.trim_start_matches("http://").trim_end_matches('/');
    let body = r#"{"action":"create-bck"}"#;
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "POST /v1/buckets/{bucket} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    pack_and_bring_back(&format!("ais://{bucket}/shards"), &[format!("endpoint={endpoint}")]);
}

#[test]
fn p049_rows_of_a_table_are_packed_indexed_and_staged() {
    let Some(server) = server("FOREBAY_TEST_CASSANDRA") else { return };
    let table = unique("rows").replace('-', "_");
    let url = format!("cassandra://{server}/forebay_cli_test/{table}");
    let harness = Harness::new();
    Made::default().tree(&harness.path("tree"));
    // Only `ingest` makes tables, so one of one row is made, and the rest is packed to it.
    Made { samples: 1, ..Made::default() }.tree(&harness.path("one"));
    harness.ok(&["ingest", "one", &url, "--create"]);
    let packed = harness.json(&["pack", "tree", "--to", &url]);
    assert_eq!((&packed["written"], &packed["skipped"]), (&json!(23), &json!(1)), "{packed:#}");

    let info = harness.json(&["info", &url]);
    assert_eq!(info["samples"], json!(24), "{info:#}");
    assert_eq!(harness.json(&["verify", &url])["errors"], json!(0));
    assert_eq!(harness.json(&["index", &url, "--out", "rows.fbm"])["samples"], json!(24));
    assert_eq!(harness.json(&["info", "rows.fbm"])["samples"], json!(24));

    let staged = harness.json(&["stage", &url, "copy"]);
    assert_eq!((&staged["copied"], &staged["bytes"]), (&json!(24), &info["bytes"]), "{staged:#}");
    assert_eq!(harness.json(&["stage", &url, "copy"])["read_bytes"], json!(0));
    let payloads = |folder: &str| {
        let entries = std::fs::read_dir(harness.path(folder)).unwrap().map(|entry| entry.unwrap().path());
        let mut found: Vec<_> = entries.filter_map(|path| std::fs::read(path).ok()).collect();
        found.sort();
        found
    };
    let rows: Vec<_> =
        payloads("copy").into_iter().filter(|bytes| bytes.starts_with(&[0xff, 0xd8])).collect();
    let mut tree: Vec<_> = (0..3).flat_map(|class| payloads(&format!("tree/class_{class:02}"))).collect();
    tree.sort();
    assert!(rows == tree, "the same photographs");

    // A pipeline that names the copy reads all of it from there, and gives the same batch.
    let pipeline = |local: &str| {
        format!(
            "[data]\nurl = '{url}'\n{local}\n[[recipe]]\nfield = 'jpg'\ndecode = 'image'\nops = [{{op = 'resize', \
             size = [8, 8]}}]\n[loader]\nbatch_size = 5\nshuffle = true\nseed = 3"
        )
    };
    harness.write("local.toml", pipeline("local = 'copy'"));
    harness.write("plain.toml", pipeline(""));
    let show = |file: &str| harness.json(&["show", "--pipeline", file, "--epoch", "1", "--batch", "2"]);
    assert_eq!(show("local.toml"), show("plain.toml"));
    harness.ok(&["show", "--pipeline", "local.toml"]).warns(&["24 of 24 objects"]);
}
