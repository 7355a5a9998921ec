//! `forebay dispatcher`, `status`, `top` and `drain`, as processes.
#![allow(clippy::unwrap_used, reason = "a test whose surroundings are broken may panic")]

mod harness;

use forebay_core::dispatcher::{Command, JobName, Reached, Sharding, Terms, Visitation, Who, WorkerId};
use forebay_core::feed::{FeedId, Span};
use forebay_net::dispatcher::{Control, ControlOptions};
use forebay_net::{Credentials, Threads};
use harness::Harness;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);

/// A dispatcher that is ended with the test.
struct Started {
    child: Child,
    url: String,
}

impl Started {
    fn new(harness: &Harness, args: &[&str]) -> Self {
        let words = [&["dispatcher", "--listen", "127.0.0.1:0"], args].concat();
        let mut command = harness.command(&words);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut url).unwrap();
        Self { child, url: url.trim().to_owned() }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn fill(url: &str) {
    let options = ControlOptions { address: url.to_owned(), credentials: Credentials::default() };
    let control = Control::new(&options, Threads::shared().unwrap()).unwrap();
    let who = Who { job: JobName::new("train-7").unwrap(), rank: 1, consumer: 5 };
    let terms = Terms {
        feed: FeedId(3),
        label: "s3://bucket/train".into(),
        world_size: 2,
        span_positions: 10,
        epoch_positions: 1000,
        sharding: Sharding::Portion,
        visitation: Visitation::ExactlyOnce,
    };
    let worker = WorkerId(0x00C0_FFEE);
    let spans = vec![Span { epoch: 0, number: 0 }, Span { epoch: 0, number: 1 }];
    for command in [
        Command::RegisterWorker { worker, address: "10.0.0.9:4444".into(), tags: vec![], slots: 4 },
        Command::AttachJob { who: who.clone(), terms, from: Reached::default(), step: 0 },
        Command::Locate { who, spans, avoid: vec![] },
    ] {
        control.call(&command, LONG).unwrap();
    }
}

#[test]
fn p057_status_shows_what_a_killed_dispatcher_had_decided_before() {
    let harness = Harness::new();
    let started = Started::new(&harness, &["--state", "state", "--worker-timeout", "3600"]);
    fill(&started.url);
    drop(started);
    let started = Started::new(&harness, &["--state", "state", "--worker-timeout", "3600"]);
    let said = harness.ok(&["status", &started.url]);
    said.has(&[
        "1 worker, 1 feed, 1 job, 2 leases",
        "0000000000c0ffee",
        "10.0.0.9:4444",
        "job train-7: 1 of 2 ranks",
    ]);
    assert_eq!(harness.ok(&["top", &started.url]).stdout.lines().next(), said.stdout.lines().next());
    harness.ok(&["drain", &started.url, "0000000000c0ffee"]).has(&["gets no more spans"]);
    let object = harness.json(&["status", &started.url]);
    assert_eq!(object["workers"][0]["draining"], true);
    assert_eq!(object["jobs"][0]["label"], "s3://bucket/train");
    let second = harness.run(&["dispatcher", "--listen", "127.0.0.1:0", "--state", "state"]);
    assert_eq!(second.code, 4, "{}", second.stderr);
}

#[test]
fn wrong_settings_and_addresses_are_told() {
    let harness = Harness::new();
    harness.write("token", "short");
    for (words, code) in [
        (&["dispatcher", "--listen", "0.0.0.0:0"][..], 2),
        (&["dispatcher", "--listen", "127.0.0.1:0", "--worker-timeout", "0"], 2),
        (&["dispatcher", "--listen", "127.0.0.1:0", "--token-file", "token"], 2),
        (&["dispatcher", "--listen", "127.0.0.1:0", "--token-file", "none"], 3),
        (&["dispatcher", "--listen", "127.0.0.1:0", "--tls-cert", "c.pem"], 2),
        (&["status", "nowhere"], 2),
        (&["status", "127.0.0.1:1", "--wait", "0"], 4),
        (&["drain", "127.0.0.1:1", "x"], 2),
    ] {
        let said = harness.run(words);
        assert_eq!(said.code, code, "{words:?}: {}{}", said.stdout, said.stderr);
    }
}

#[test]
fn an_interrupted_dispatcher_ends_with_130() {
    let harness = Harness::new();
    let mut started = Started::new(&harness, &["--json"]);
    assert_eq!(started.url, "{");
    let pid = started.child.id().to_string();
    let sent = std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap();
    assert!(sent.success());
    let status = started.child.wait().unwrap();
    let mut said = String::new();
    started.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(status.code(), Some(130), "{said}");
}
