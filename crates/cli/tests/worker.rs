//! `forebay share` and `forebay worker`: where they listen, when they leave.
#![allow(clippy::unwrap_used, reason = "a test whose surroundings are broken may panic")]

mod harness;

use forebay_net::Credentials;
use forebay_net::service::{Address, connect};
use harness::Harness;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A command that runs, and the first line it said.
fn start(harness: &Harness, args: &[&str]) -> (Child, String) {
    let mut child = harness.command(args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (child, line.trim().to_owned())
}

fn wait(child: &mut Child) -> ExitStatus {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() > until {
            child.kill().unwrap();
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_shared_process_is_one_per_socket_and_leaves_after_the_last_job_when_it_was_started_by_one() {
    let harness = Harness::new();
    let socket = harness.path("share.sock");
    let path = socket.to_str().unwrap();
    let args = ["share", "--socket", path, "--on-demand", "--grace", "0.1", "--staging", "16MiB"];
    let (mut child, line) = start(&harness, &args);
    assert_eq!(line, format!("unix://{path}"));
    assert_eq!(harness.json(&["share", "--socket", path])["served"], false);
    drop(connect(&Address::Unix(socket.clone()), &Credentials::default()).unwrap());
    assert!(wait(&mut child).success());
    assert!(!socket.exists());
}

#[test]
fn a_worker_says_where_it_is_and_leaves_when_it_is_asked_to() {
    let harness = Harness::new();
    // Nobody is there: a worker goes on without its dispatcher.
    let (mut child, line) = start(&harness, &["worker", "--dispatcher", "forebay://127.0.0.1:1"]);
    let address = line.split(' ').next().unwrap();
    let connected = connect(&address.parse().unwrap(), &Credentials::default());
    assert!(connected.is_ok(), "{line}");
    let asked = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(asked.success());
    assert!(wait(&mut child).success(), "it drains and leaves");
}

#[test]
fn settings_that_make_no_sense_are_told() {
    let harness = Harness::new();
    for words in [
        &["share", "--staging", "much"][..],
        &["share", "--staging", "0"],
        &["share", "--late", "spill"],
        &["share", "--grace", "-1"],
        &["share", "--cache", "{"],
        &["worker", "--dispatcher", "nowhere"],
        &["worker", "--dispatcher", "forebay://127.0.0.1:1", "--listen", "0.0.0.0:0"],
    ] {
        let said = harness.run(words);
        assert_eq!(said.code, 2, "{words:?}: {}", said.stderr);
    }
}
