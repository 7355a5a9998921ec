//! `forebay cache-host`: started by whoever needs it, gone after the last of them.
#![allow(clippy::unwrap_used, reason = "a test whose surroundings are broken may panic")]

use crate::harness::Harness;
use forebay_core::cache::{PayloadId, Place, Rank};
use forebay_engine::cache::{Keeper, LocalKeeper, Look, Payload};
use forebay_net::host::HostClient;
use forebay_net::{Credentials, Server, ServerOptions, Threads, Token};
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
fn show_says_what_the_processes_of_a_host_hold() {
    let harness = Harness::new();
    let shown = |words: &[&str]| {
        let said = harness
            .command(&[&["cache", "show"][..], words].concat())
            .env("XDG_RUNTIME_DIR", harness.path(""))
            .output();
        let said = harness.said(&said.unwrap());
        assert_eq!(said.code, 0, "{}{}", said.stdout, said.stderr);
        said
    };
    shown(&[]).has(&["no process of this host"]);
    std::fs::create_dir(harness.path("forebay")).unwrap();
    // Nobody listens there any more.
    drop(std::os::unix::net::UnixListener::bind(harness.path("forebay/cache-0.sock")).unwrap());
    let socket = harness.path("forebay/cache.sock");
    let words = ["cache-host", "--memory", "1MiB", "--grace", "0.1", "--socket"].map(OsString::from);
    let command: Vec<OsString> = [env!("CARGO_BIN_EXE_forebay").into()]
        .into_iter()
        .chain(words)
        .chain([socket.clone().into()])
        .collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = HostClient::connect(&socket, Some(command), Threads::current()).await.unwrap();
        for n in 0..3 {
            let payload = Payload { id: PayloadId(n), rank: Rank(1), length: 5, group: 1 };
            client.look(&[payload]).await;
            client.keep(payload, Place { memory: true, disk: false }, &"bytes".into()).await;
            for _ in 0..2 {
                assert!(matches!(client.look(&[payload]).await[0], Look::Here(_)));
            }
        }
        shown(&[]).has(&["process", "cache.sock", "memory", "15 B of 1", "3 payloads, 6 hits, kept", "ago"]);
        let object = shown(&["--json"]).object();
        assert_eq!(object["processes"].as_array().unwrap().len(), 1);
        let memory = &object["processes"][0]["memory"];
        assert_eq!((&memory["limit"], &memory["bytes"]), (&(1 << 20).into(), &15.into()));
        assert_eq!((&memory["payloads"], &memory["hits"]), (&3.into(), &6.into()));
        assert!(memory["oldest_seconds"].as_u64().unwrap() >= memory["newest_seconds"].as_u64().unwrap());
        assert_eq!(object["processes"][0]["disk"]["limit"], 0);
    });
}

#[test]
fn show_says_what_a_node_holds_to_who_has_its_token() {
    let harness = Harness::new();
    let token = "a token of this test";
    harness.write("token", token);
    harness.write("wrong", "another token, not ours");
    let keeper = std::sync::Arc::new(LocalKeeper::new(1000, None));
    let payload = Payload { id: PayloadId(1), rank: Rank(1), length: 5, group: 1 };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        keeper.keep(payload, Place { memory: true, disk: false }, &"bytes".into()).await;
        keeper.read(&[payload]).await;
        let credentials = Credentials { token: Some(Token::new(token).unwrap()), tls: None };
        let options = ServerOptions { credentials, ..ServerOptions::default() };
        let server = Server::new(keeper.clone(), options, Threads::current());
        let address = server.listen_tcp("127.0.0.1:0").await.unwrap().to_string();
        let show = |file: &str| {
            let command =
                harness.command(&["cache", "show", &address, "--token-file", file, "--json"]).output();
            harness.said(&command.unwrap())
        };
        let said = show("token");
        assert_eq!(said.code, 0, "{}{}", said.stdout, said.stderr);
        let memory = &said.object()["memory"];
        assert_eq!(
            (&memory["bytes"], &memory["payloads"], &memory["hits"]),
            (&5.into(), &1.into(), &1.into())
        );
        assert_eq!(show("wrong").code, 3);
    });
}

#[test]
fn a_wrong_size_or_time_is_told() {
    let harness = Harness::new();
    for words in [["--memory", "much", "--grace", "1"], ["--memory", "1MiB", "--grace", "-1"]] {
        let said = harness.run(&[&["cache-host"][..], &words[..]].concat());
        assert_eq!(said.code, 2, "{}", said.stderr);
    }
}
