//! `forebay cache-host`: started by whoever needs it, gone after the last of them.
#![allow(clippy::unwrap_used, reason = "a test whose surroundings are broken may panic")]

mod harness;

use forebay_core::cache::{PayloadId, Place, Rank};
use forebay_engine::cache::{Keeper, Look, Payload};
use forebay_net::Threads;
use forebay_net::host::HostClient;
use harness::Harness;
use std::ffi::OsString;
use std::time::{Duration, Instant};

#[test]
fn p045_the_process_of_a_host_starts_when_it_is_needed_and_leaves() {
    let harness = Harness::new();
    let socket = harness.path("cache.sock");
    let words = ["cache-host", "--memory", "1MiB", "--grace", "0.1", "--socket"].map(OsString::from);
    let command: Vec<OsString> = [env!("CARGO_BIN_EXE_forebay").into()]
        .into_iter()
        .chain(words)
        .chain([socket.clone().into()])
        .collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = HostClient::connect(&socket, Some(command), Threads::current()).await.unwrap();
        let payload = Payload { id: PayloadId(1), rank: Rank(1), length: 5, group: 1 };
        assert!(matches!(client.look(&[payload]).await[0], Look::Absent));
        client.keep(payload, Place { memory: true, disk: false }, &"bytes".into()).await;
        assert!(matches!(&client.look(&[payload]).await[0], Look::Here(bytes) if bytes == "bytes"));
        let second = harness.json(&["cache-host", "--memory", "1MiB", "--socket", socket.to_str().unwrap()]);
        assert_eq!(second["served"], false);
    });
    drop(runtime);
    let until = Instant::now() + Duration::from_secs(60);
    while socket.exists() {
        assert!(Instant::now() < until, "it stays although nobody needs it");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_wrong_size_or_time_is_told() {
    let harness = Harness::new();
    for words in [["--memory", "much", "--grace", "1"], ["--memory", "1MiB", "--grace", "-1"]] {
        let said = harness.run(&[&["cache-host"][..], &words[..]].concat());
        assert_eq!(said.code, 2, "{}", said.stderr);
    }
}
