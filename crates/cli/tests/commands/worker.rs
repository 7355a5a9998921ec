//! `forebay share` and `forebay worker`: where they listen, when they leave.
#![allow(clippy::unwrap_used, reason = "a test whose surroundings are broken may panic")]

use crate::harness::Harness;
use forebay_net::Credentials;
use forebay_net::service::{Address, connect};
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

/// A command in the surroundings that a launcher makes.
fn start_in(harness: &Harness, words: &[(&str, &str)], args: &[&str]) -> (Child, String) {
    let mut command = harness.command(args);
    command.envs(words.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (child, line.trim().to_owned())
}

#[test]
fn a_launched_job_needs_no_addresses() {
    let harness = Harness::new();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let named = format!("127.0.0.1:{}", free.port());
    let words =
        [("FOREBAY_DISPATCHER", named.as_str()), ("SLURM_JOB_NODELIST", "n[1-2]"), ("SLURM_NODEID", "1")];
    let (mut dispatcher, url) = start_in(&harness, &words, &["dispatcher", "--listen", "auto"]);
    assert_eq!(url, format!("forebay://{named}"));
    let (mut worker, line) =
        start_in(&harness, &words, &["worker", "--dispatcher", "auto", "--listen", "auto"]);
    assert!(line.starts_with("127.0.0.1:"), "{line}");
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let mut ask = harness.command(&["status", "forebay://auto", "--json"]);
        let said = ask.envs(words).output().unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        let status: serde_json::Value = serde_json::from_slice(&said.stdout).unwrap();
        if status["workers"].as_array().is_some_and(|workers| workers.len() == 1) {
            break;
        }
        assert!(Instant::now() < until, "the worker does not register: {status}");
    }
    for child in [&mut worker, &mut dispatcher] {
        child.kill().unwrap();
        wait(child);
    }
}

#[test]
fn a_slurm_job_without_a_number_or_a_list_is_told_what_is_missing() {
    let harness = Harness::new();
    for (words, why) in [
        (vec![], "no launcher says where it is"),
        (vec![("SLURM_JOB_NODELIST", "n[1-")], "brackets that do not match"),
        (vec![("SLURM_JOB_NODELIST", "n1"), ("SLURM_NODEID", "one")], "not a number"),
    ] {
        let mut command = harness.command(&["worker", "--dispatcher", "auto"]);
        let said = command.envs(words).output().unwrap();
        let text = String::from_utf8_lossy(&said.stderr);
        assert_eq!(said.status.code(), Some(2), "{text}");
        assert!(text.contains(why), "{text}");
    }
}

#[test]
fn credentials_that_were_made_open_every_door_and_others_none() {
    let harness = Harness::new();
    let (mine, other) = (harness.path("mine"), harness.path("other"));
    for folder in [&mine, &other] {
        let made = harness.json(&["credentials", folder.to_str().unwrap(), "node-1", "10.0.0.1"]);
        assert_eq!(made["files"].as_array().map(Vec::len), Some(4));
    }
    assert_eq!(harness.run(&["credentials", mine.to_str().unwrap()]).code, 2, "what is there is kept");
    let mine = mine.to_str().unwrap();
    let (mut dispatcher, url) =
        start(&harness, &["dispatcher", "--listen", "0.0.0.0:0", "--credentials", mine]);
    let url = url.replace("0.0.0.0", "127.0.0.1");
    let args = ["worker", "--dispatcher", &url, "--listen", "0.0.0.0:0", "--advertise", "127.0.0.1:0"];
    let (mut worker, line) = start(&harness, &[&args[..], &["--credentials", mine]].concat());
    let until = Instant::now() + Duration::from_secs(60);
    let address = loop {
        let status = harness.json(&["status", &url, "--credentials", mine]);
        if let Some(address) = status["workers"][0]["address"].as_str() {
            break address.to_owned();
        }
        assert!(Instant::now() < until, "the worker does not register: {status}");
    };
    let port = line.split(' ').next().unwrap().rsplit_once(':').unwrap().1;
    assert_eq!(address, format!("127.0.0.1:{port}"));
    for folder in [Some(other.to_str().unwrap()), None] {
        let extra = folder.map(|folder| vec!["--credentials", folder]).unwrap_or_default();
        let said = harness.run(&[&["status", &url, "--wait", "0.5"], &extra[..]].concat());
        assert!(said.code == 3 || said.code == 4, "{folder:?}: {}", said.stderr);
    }
    for child in [&mut worker, &mut dispatcher] {
        child.kill().unwrap();
        wait(child);
    }
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
