//! `forebay dispatcher`, `status`, `top`, `scale` and `drain`, as processes.
#![allow(clippy::unwrap_used, reason = "a test whose surroundings are broken may panic")]

use crate::harness::Harness;
use forebay_core::dispatcher::{
    Command, Dispatcher, Event, JobName, Reached, Settings, Sharding, State, Terms, Visitation, Who, WorkerId,
};
use forebay_core::feed::{FeedId, Span};
use forebay_net::dispatcher::{Control, ControlOptions};
use forebay_net::{Credentials, Threads};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use xxhash_rust::xxh3::xxh3_64_with_seed;

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
fn a_dispatcher_that_is_asked_to_end_ends_well_and_one_outside_a_pod_sets_no_scale() {
    let harness = Harness::new();
    let mut started = Started::new(&harness, &["--state", "state"]);
    let process = started.child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &process]).status().unwrap().success());
    assert_eq!(started.child.wait().unwrap().code(), Some(0));
    let mut command = harness.command(&["dispatcher", "--scale", "kubernetes://data/deployments/worker"]);
    let said = command.env_remove("KUBERNETES_SERVICE_HOST").output().unwrap();
    assert_eq!(said.status.code(), Some(2), "{said:?}");
    assert!(String::from_utf8_lossy(&said.stderr).contains("in a pod"), "{said:?}");
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
        "FEED",
        "00000000000000000000000000000003  s3://bucket/train  1     2       10    1,000",
        "job train-7: 1 of 2 ranks",
    ]);
    assert_eq!(harness.ok(&["top", &started.url]).stdout.lines().next(), said.stdout.lines().next());
    harness.ok(&["drain", &started.url, "0000000000c0ffee"]).has(&["gets no more spans"]);
    let object = harness.json(&["status", &started.url]);
    assert_eq!(object["workers"][0]["draining"], true);
    assert_eq!(object["jobs"][0]["label"], "s3://bucket/train");
    for part in ["workers", "feeds", "jobs", "leases", "scale"] {
        assert!(!object[part].is_null(), "{part}: {object}");
    }
    let second = harness.run(&["dispatcher", "--listen", "127.0.0.1:0", "--state", "state"]);
    assert_eq!(second.code, 4, "{}", second.stderr);
}

#[test]
fn scale_prints_a_number_alone_and_the_reason_as_json() {
    let harness = Harness::new();
    let started = Started::new(&harness, &["--worker-timeout", "3600", "--least-workers", "3"]);
    assert_eq!(harness.ok(&["scale", &started.url]).stdout, "3\n");
    fill(&started.url);
    let object = harness.json(&["scale", &started.url]);
    assert_eq!((&object["workers"], &object["why"]), (&3.into(), &"idle".into()));
    harness.ok(&["status", &started.url]).has(&["3 workers wanted: nobody reads"]);
}

#[test]
fn status_and_top_show_the_process_of_a_host_and_drain_refuses_it() {
    let harness = Harness::new();
    let socket = harness.path("share.sock");
    let path = socket.to_str().unwrap();
    let mut share = harness.command(&["share", "--socket", path]).stdout(Stdio::piped()).spawn().unwrap();
    let mut url = String::new();
    BufReader::new(share.stdout.as_mut().unwrap()).read_line(&mut url).unwrap();
    for command in ["status", "top"] {
        harness.ok(&[command, url.trim()]).has(&["0 feeds, 0 clients, 0 B handed over"]);
        assert!(harness.json(&[command, url.trim()])["feeds"].is_array());
    }
    let refused = harness.run(&["drain", url.trim(), "0000000000c0ffee"]);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    share.kill().unwrap();
    share.wait().unwrap();
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
        (&["dispatcher", "--listen", "127.0.0.1:0", "--most-workers", "0"], 2),
        (&["dispatcher", "--listen", "127.0.0.1:0", "--waiting-share", "2"], 2),
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

/// A journal as it is after so many spans of an epoch were given out and done, 5,000 of them since it was written anew.
fn journal(spans: u64) -> Vec<u8> {
    let mut machine = Dispatcher::new(State::default(), Settings::default(), 0);
    let who = Who { job: JobName::new("train-7").unwrap(), rank: 0, consumer: 5 };
    let terms = Terms {
        feed: FeedId(3),
        label: "s3://bucket/train".into(),
        world_size: 1,
        span_positions: 1,
        epoch_positions: spans,
        sharding: Sharding::Dynamic,
        visitation: Visitation::ExactlyOnce,
    };
    let register =
        Command::RegisterWorker { worker: WorkerId(1), address: "h:1".into(), tags: vec![], slots: 4 };
    let attach = Command::AttachJob { who: who.clone(), terms, from: Reached::default(), step: 0 };
    for command in [register, attach] {
        machine.apply(0, command).unwrap();
    }
    let mut bytes = b"FBYJ0001".to_vec();
    let mut record = |events: &[Event]| {
        let text = serde_json::to_vec(events).unwrap();
        let length = text.len() as u32;
        bytes.extend(length.to_le_bytes());
        bytes.extend(xxh3_64_with_seed(&text, length.into()).to_le_bytes());
        bytes.extend(text);
    };
    for number in 0..spans {
        let span = |number| Span { epoch: 0, number };
        let done = number.checked_sub(1).map(span).into_iter().collect();
        let take = Command::TakeSpan { who: who.clone(), request: number + 1, epoch: 0, done };
        let locate = Command::Locate { who: who.clone(), spans: vec![span(number)], avoid: vec![] };
        let mut events = machine.apply(0, take).unwrap().1;
        events.extend(machine.apply(0, locate).unwrap().1);
        if number + 5000 == spans {
            record(&machine.state().events());
        } else if number + 5000 > spans {
            record(&events);
        }
    }
    bytes
}

#[test]
fn p057_a_dispatcher_with_a_journal_of_100000_spans_is_back_within_a_second() {
    let harness = Harness::new();
    let bytes = journal(100_000);
    assert!(bytes.len() < 10 << 20, "{} bytes", bytes.len());
    let folder = harness.path("state");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("journal"), bytes).unwrap();
    // The best of a few: what else the machine does meanwhile is not the dispatcher's time.
    let back = (0..5).map(|_| {
        let began = Instant::now();
        let started = Started::new(&harness, &["--state", "state", "--worker-timeout", "3600"]);
        assert!(started.url.starts_with("forebay://"));
        let took = began.elapsed();
        harness.ok(&["status", &started.url]).has(&["1 worker", "1 job", "job train-7"]);
        took
    });
    let best = back.min().unwrap();
    assert!(best < Duration::from_secs(1), "back after {best:?}");
}

#[test]
fn p076_the_dispatcher_shows_what_it_knows_to_prometheus() {
    let harness = Harness::new();
    let mut started = Started::new(&harness, &["--metrics", "127.0.0.1:0"]);
    fill(&started.url);
    let mut note = String::new();
    BufReader::new(started.child.stderr.as_mut().unwrap()).lines().find_map(|line| {
        note = line.unwrap();
        note.contains("figures at").then_some(())
    });
    let address = note.split("http://").nth(1).unwrap().trim_end_matches("/metrics");
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    std::io::Write::write_all(&mut stream, b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    for line in [
        "forebay_net_dispatcher_workers{state=\"live\"} 1",
        "forebay_net_dispatcher_jobs 1",
        "forebay_net_dispatcher_feeds 1",
        "forebay_net_dispatcher_consumers 1",
    ] {
        assert!(text.lines().any(|found| found == line), "`{line}` is missing from:\n{text}");
    }
}
