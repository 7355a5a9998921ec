//! `forebay ingest` into a table of a real Cassandra server. `FOREBAY_TEST_CASSANDRA` (host:port) names it.
#![cfg(feature = "cassandra")]
#![expect(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

mod harness;

use forebay_testkit::made::Made;
use forebay_testkit::skip::server;
use harness::Harness;
use serde_json::json;

const KEYSPACE: &str = "forebay_cli_test";

/// A table that no other run has.
fn table(server: &str, name: &str) -> String {
    let time = std::time::UNIX_EPOCH.elapsed().unwrap().as_micros();
    format!("cassandra://{server}/{KEYSPACE}/{name}_{time}")
}

#[test]
fn p010_a_tree_is_ingested_once_and_read_back_by_the_command() {
    let Some(server) = server("FOREBAY_TEST_CASSANDRA") else { return };
    let (harness, url) = (Harness::new(), table(&server, "tree"));
    Made::default().tree(&harness.path("tree"));
    let first = harness.json(&["ingest", "tree", &url, "--create"]);
    assert_eq!(
        (&first["samples"], &first["written"], &first["skipped"]),
        (&json!(24), &json!(24), &json!(0)),
        "{first:#}"
    );
    assert_eq!(first["url"], json!(url));
    // What is there is not written again, unless asked for.
    harness.ok(&["ingest", "tree", &url]).has(&["wrote 0 rows", "24 rows there already"]);
    assert_eq!(harness.json(&["ingest", "tree", &url, "--overwrite"])["written"], json!(24));

    let (tree, rows) = (harness.json(&["info", "tree"]), harness.json(&["info", &url]));
    assert_eq!((&rows["samples"], &rows["bytes"]), (&tree["samples"], &tree["bytes"]), "{rows:#}");
    let verified = harness.json(&["verify", &url]);
    assert_eq!((&verified["samples"], &verified["errors"]), (&json!(24), &json!(0)), "{verified:#}");
}

#[test]
fn p010_a_table_that_is_missing_is_named_and_nothing_is_written() {
    let Some(server) = server("FOREBAY_TEST_CASSANDRA") else { return };
    let (harness, url) = (Harness::new(), table(&server, "missing"));
    Made::default().tree(&harness.path("tree"));
    let keyspace = format!("{KEYSPACE}_nowhere");
    let url = url.replace(KEYSPACE, &keyspace);
    let said = harness.run(&["ingest", "tree", &url]);
    assert_ne!(said.code, 0);
    said.warns(&[&keyspace]);
}
