//! Several `forebay dispatcher` on a real etcd: whoever is killed or stopped, a job trains on and gets every sample once.
//!
//! `scripts/cluster/etcd-test.sh` starts etcd; without it these tests skip themselves.
#![allow(clippy::unwrap_used, reason = "a test whose surroundings are broken may panic")]

mod harness;

use forebay_core::ErrorKind;
use forebay_core::dispatcher::{Command as Ask, Reply, View, WorkerId};
use forebay_core::portion::Consumer;
use forebay_core::recipe::Recipe;
use forebay_engine::feed::FeedSpec;
use forebay_engine::source::{SyntheticPayload, SyntheticSpec, synthetic};
use forebay_engine::{Loader, LoaderConfig, Next};
use forebay_net::dispatcher::{Control, ControlOptions};
use forebay_net::service::{Own, ViaConfig, supplier};
use forebay_net::{Credentials, Threads};
use forebay_testkit::skip::skipped;
use forebay_testkit::wan::{Relay, WanOptions};
use harness::Harness;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

const SAMPLES: u64 = 600;
/// Until something that must happen counts as not happening.
const DEADLINE: Duration = Duration::from_secs(60);
/// In which another dispatcher answers.
const TAKE_OVER: Duration = Duration::from_secs(5);

/// What a script started; none, and a word about it, without.
fn variable(name: &str) -> Option<String> {
    let found = std::env::var(name).ok();
    if found.is_none() {
        skipped(&format!("`{name}` is not set; scripts/cluster/etcd-test.sh sets it"));
    }
    found
}

/// A `forebay` command that runs, and the first line it said.
struct Process {
    child: Child,
    line: String,
}

impl Process {
    fn start(harness: &Harness, args: &[&str]) -> Self {
        let mut child =
            harness.command(args).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "it ended at once: {args:?}");
        Self { child, line: line.trim().to_owned() }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn signal(&self, name: &str) {
        signal(name, self.child.id());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn signal(name: &str, pid: u32) {
    let sent = Command::new("kill").args([name, &pid.to_string()]).status().unwrap();
    assert!(sent.success(), "kill {name} {pid}");
}

fn control(address: &str) -> Control {
    let options = ControlOptions { address: address.to_owned(), credentials: Credentials::default() };
    Control::new(&options, Threads::shared().unwrap()).unwrap()
}

fn view(control: &Control) -> View {
    match control.call(&Ask::View, DEADLINE).unwrap() {
        Reply::View(view) => *view,
        other => panic!("{other:?}"),
    }
}

/// Three dispatchers that share an etcd.
struct Dispatchers {
    harness: Harness,
    /// Where each of them has its journal: the same one, but the ways there may differ.
    states: Vec<String>,
    addresses: Vec<String>,
    all: Vec<Process>,
    url: String,
    control: Control,
}

impl Dispatchers {
    fn start(etcds: &[String; 3], prefix: &str) -> Self {
        let harness = Harness::new();
        let held: Vec<TcpListener> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let addresses: Vec<String> = held.iter().map(|one| one.local_addr().unwrap().to_string()).collect();
        drop(held);
        let states = etcds.each_ref().map(|etcd| format!("{etcd}/{prefix}-{}", std::process::id())).to_vec();
        let both = addresses.iter().zip(&states);
        let all = both.map(|(address, state)| dispatcher(&harness, address, state)).collect();
        let url = format!("forebay://{}", addresses.join(","));
        let control = control(&url);
        view(&control);
        Self { harness, states, addresses, all, url, control }
    }

    /// Which of them answers; the others say that they stand by.
    fn leader(&self) -> usize {
        let leads = |number: &usize| {
            let answer = control(&self.addresses[*number]).call(&Ask::View, Duration::from_millis(300));
            let error = answer.as_ref().err().map(forebay_core::Error::message).unwrap_or_default();
            assert!(
                answer.is_ok() || error.contains("stands by") || error.contains("ask the dispatcher"),
                "{error}"
            );
            answer.is_ok()
        };
        let until = Instant::now() + DEADLINE;
        loop {
            if let Some(leader) = (0..3).find(leads) {
                return leader;
            }
            assert!(Instant::now() < until, "nobody leads");
        }
    }

    fn restart(&mut self, number: usize) {
        self.all[number] = dispatcher(&self.harness, &self.addresses[number], &self.states[number]);
    }

    /// How long it takes until another one answers after whoever leads was struck.
    fn taken_over(&mut self, strike: impl FnOnce(&mut Process)) -> Duration {
        let leader = self.leader();
        let began = Instant::now();
        strike(&mut self.all[leader]);
        view(&self.control);
        let passed = began.elapsed();
        assert_ne!(self.leader(), leader);
        passed
    }
}

fn dispatcher(harness: &Harness, address: &str, state: &str) -> Process {
    Process::start(harness, &["dispatcher", "--listen", address, "--state", state])
}

/// What a job that runs on a thread shows of itself.
#[derive(Default)]
struct Shown {
    batches: AtomicU64,
    step_ms: AtomicU64,
    last: AtomicBool,
    epochs: Mutex<Vec<Vec<u64>>>,
}

/// A loop that trains until it is told that its epoch is the last.
struct Job {
    shown: Arc<Shown>,
    thread: JoinHandle<()>,
}

impl Job {
    fn start(url: &str) -> Self {
        let shown = Arc::new(Shown { step_ms: AtomicU64::new(20), ..Shown::default() });
        let (told, url) = (shown.clone(), url.to_owned());
        let thread = std::thread::spawn(move || train(&url, &told));
        Self { shown, thread }
    }

    /// Waits until it has received more.
    fn goes_on(&self, batches: u64, when: &str) {
        let received = || self.shown.batches.load(Ordering::SeqCst);
        let (wanted, until) = (received() + batches, Instant::now() + DEADLINE);
        while received() < wanted {
            assert!(!self.thread.is_finished() && Instant::now() < until, "{} batches {when}", received());
            sleep(Duration::from_millis(5));
        }
    }

    /// Lets it end its epoch; every epoch had every sample once.
    fn finish(self) {
        self.shown.last.store(true, Ordering::SeqCst);
        self.thread.join().unwrap();
        let epochs = self.shown.epochs.lock().unwrap();
        for (number, ids) in epochs.iter().enumerate() {
            let mut ids = ids.clone();
            ids.sort_unstable();
            assert_eq!(ids, (0..SAMPLES).collect::<Vec<_>>(), "epoch {number} of {}", epochs.len());
        }
        assert!(!epochs.is_empty());
    }
}

fn train(url: &str, shown: &Shown) {
    let payload = SyntheticPayload::Noise { bytes: 64 };
    let data = synthetic(SyntheticSpec { samples: SAMPLES, payload, shards: 3, ..SyntheticSpec::default() })
        .unwrap();
    let recipe =
        r#"[{"field": "bin", "decode": {"kind": "bytes"}}, {"field": "cls", "decode": {"kind": "label"}}]"#;
    let recipe = Recipe::from_json(recipe).unwrap();
    let defaults = LoaderConfig::default();
    let consumer = Consumer { batch_size: 10, ..defaults.consumer };
    let config = LoaderConfig { consumer, timeout: Some(DEADLINE), ..defaults };
    let via = ViaConfig::from_json(&serde_json::json!({ "url": url, "job": "train" })).unwrap();
    let feed = FeedSpec::new(&data, &recipe, &config).unwrap();
    let elsewhere = supplier(&via, &Own::default()).unwrap().unwrap();
    let loader = Loader::new(data.manifest(), Arc::clone(data.store()), &recipe, config).unwrap();
    let mut loader = loader.with_supplier(elsewhere, feed);
    while !shown.last.load(Ordering::SeqCst) {
        let mut ids = Vec::new();
        loader.begin().unwrap();
        loop {
            match loader.next(Duration::from_millis(100)).unwrap() {
                Next::Batch(batch) => ids.extend(batch.ids.iter().map(|id| id.0)),
                Next::Waiting => continue,
                Next::End => break,
            }
            shown.batches.fetch_add(1, Ordering::SeqCst);
            sleep(Duration::from_millis(shown.step_ms.load(Ordering::SeqCst)));
        }
        shown.epochs.lock().unwrap().push(ids);
    }
}

/// Dispatchers, two workers and a job that has begun.
fn training(etcd: &str, prefix: &str) -> (Dispatchers, [Process; 2], Job) {
    training_by(&[etcd, etcd, etcd].map(str::to_owned), prefix)
}

/// The same, when each dispatcher has a way of its own to etcd.
fn training_by(etcds: &[String; 3], prefix: &str) -> (Dispatchers, [Process; 2], Job) {
    let dispatchers = Dispatchers::start(etcds, prefix);
    let worker = || {
        Process::start(&dispatchers.harness, &["worker", "--dispatcher", &dispatchers.url, "--threads", "1"])
    };
    let workers = [worker(), worker()];
    let job = Job::start(&dispatchers.url);
    job.goes_on(10, "at the beginning");
    (dispatchers, workers, job)
}

#[test]
fn another_dispatcher_answers_within_five_seconds_when_the_leader_is_killed() {
    let Some(etcd) = variable("FOREBAY_TEST_ETCD_THREE") else { return };
    let (mut dispatchers, _workers, job) = training(&etcd, "killed");
    for _ in 0..3 {
        let leader = dispatchers.leader();
        let passed = dispatchers.taken_over(Process::kill);
        println!("killed: another one answers after {:.2} s", passed.as_secs_f64());
        assert!(passed < TAKE_OVER, "{passed:?}");
        job.goes_on(70, "after a leader was killed");
        dispatchers.restart(leader);
    }
    let view = view(&dispatchers.control);
    assert_eq!((view.workers.len(), view.jobs.len()), (2, 1), "whoever leads knows all");
    job.finish();
}

#[test]
fn a_leader_that_is_stopped_and_goes_on_does_no_harm() {
    let Some(etcd) = variable("FOREBAY_TEST_ETCD_THREE") else { return };
    let (mut dispatchers, _workers, job) = training(&etcd, "stopped");
    let leader = dispatchers.leader();
    let passed = dispatchers.taken_over(|process| process.signal("-STOP"));
    println!("stopped: another one answers after {:.2} s", passed.as_secs_f64());
    assert!(passed < TAKE_OVER, "{passed:?}");
    job.goes_on(70, "while the old leader is stopped");
    // Asked while it was stopped, it answers when it goes on: that it does not lead.
    let asked = control(&dispatchers.addresses[leader]);
    let asking = std::thread::spawn(move || asked.call(&Ask::View, Duration::from_secs(2)));
    sleep(Duration::from_millis(200));
    dispatchers.all[leader].signal("-CONT");
    let error = asking.join().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", error.report());
    assert_ne!(dispatchers.leader(), leader);
    job.goes_on(70, "after the old leader went on");
    job.finish();
}

#[test]
fn a_leader_that_ends_hands_over_sooner_than_a_lease_lapses() {
    let Some(etcd) = variable("FOREBAY_TEST_ETCD_THREE") else { return };
    let mut dispatchers = Dispatchers::start(&[&etcd, &etcd, &etcd].map(String::clone), "leaves");
    // Until it has ended it may still answer.
    let passed = dispatchers.taken_over(|process| {
        process.signal("-TERM");
        process.child.wait().unwrap();
    });
    println!("left: another one answers after {:.2} s", passed.as_secs_f64());
    assert!(passed < Duration::from_secs(3), "{passed:?}");
}

/// One dispatcher's way to etcd: a line to each member.
struct Way {
    members: Vec<SocketAddr>,
    lines: Vec<Relay>,
}

impl Way {
    fn to(etcd: &str) -> Self {
        let members = etcd.strip_prefix("etcd://").unwrap().split(',');
        let members: Vec<SocketAddr> = members.map(|member| member.parse().unwrap()).collect();
        let line = |member: &SocketAddr| {
            Relay::start("127.0.0.1:0".parse().unwrap(), *member, WanOptions::default()).unwrap()
        };
        Self { lines: members.iter().map(line).collect(), members }
    }

    fn url(&self) -> String {
        let addresses: Vec<String> = self.lines.iter().map(|line| line.address().to_string()).collect();
        format!("etcd://{}", addresses.join(","))
    }

    /// Cuts it, in silence or so that connections are refused; does something meanwhile, and mends it.
    fn cut(&mut self, silently: bool, meanwhile: impl FnOnce()) {
        if silently {
            let frozen: Vec<_> = self.lines.iter().map(Relay::freeze).collect();
            meanwhile();
            return drop(frozen);
        }
        let addresses: Vec<SocketAddr> = self.lines.drain(..).map(|line| line.address()).collect();
        meanwhile();
        let again = addresses.iter().zip(&self.members);
        let line = |(address, member): (&SocketAddr, &SocketAddr)| {
            Relay::start(*address, *member, WanOptions::default()).unwrap()
        };
        self.lines = again.map(line).collect();
    }
}

#[test]
fn a_leader_that_is_cut_off_from_etcd_falls_silent_and_another_one_leads() {
    let Some(etcd) = variable("FOREBAY_TEST_ETCD_THREE") else { return };
    let mut ways = [Way::to(&etcd), Way::to(&etcd), Way::to(&etcd)];
    let (dispatchers, _workers, job) = training_by(&ways.each_ref().map(Way::url), "cut");
    for silently in [true, false] {
        let leader = dispatchers.leader();
        let old = control(&dispatchers.addresses[leader]);
        ways[leader].cut(silently, || {
            let cut = Instant::now();
            // Long enough that a busy machine is not taken for silence.
            while old.call(&Ask::View, Duration::from_secs(1)).is_ok() {
                assert!(
                    cut.elapsed() < Duration::from_secs(4),
                    "it answers and cannot know whether it leads"
                );
                sleep(Duration::from_millis(50));
            }
            println!("cut off: it is silent after {:.2} s", cut.elapsed().as_secs_f64());
            view(&dispatchers.control);
            let passed = cut.elapsed();
            println!("cut off: another one answers after {:.2} s", passed.as_secs_f64());
            assert!(passed < TAKE_OVER, "{passed:?}");
            // It decides nothing, whatever it is told.
            let (address, tags) = ("127.0.0.1:1".to_owned(), Vec::new());
            let register = Ask::RegisterWorker { worker: WorkerId(1), address, tags, slots: 1 };
            let error = old.call(&register, Duration::from_secs(2)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", error.report());
            job.goes_on(70, "while the old leader is cut off");
        });
        assert_ne!(dispatchers.leader(), leader);
        job.goes_on(70, "after the old leader reaches etcd again");
        let view = view(&dispatchers.control);
        assert_eq!(
            (view.workers.len(), view.jobs.len()),
            (2, 1),
            "what the old one was told came to nothing"
        );
    }
    job.finish();
}

/// The processes of etcd.
struct Members(PathBuf);

impl Members {
    fn pid(&self, number: usize) -> u32 {
        let pid = std::fs::read_to_string(self.0.join(format!("node{}/pid", number + 1))).unwrap();
        pid.trim().parse().unwrap()
    }

    fn leader(&self) -> usize {
        let said = Command::new(self.0.join("etcdctl")).args(["endpoint", "status", "-w", "json"]).output();
        let all: serde_json::Value = serde_json::from_slice(&said.unwrap().stdout).unwrap();
        let leads = |one: &serde_json::Value| one["Status"]["leader"] == one["Status"]["header"]["member_id"];
        all.as_array().unwrap().iter().position(leads).unwrap()
    }

    fn restart(&self) {
        let restarted = Command::new(self.0.join("restart")).stdout(Stdio::null()).status().unwrap();
        assert!(restarted.success());
    }
}

#[test]
fn a_job_trains_on_when_etcd_loses_its_leader_or_most_members() {
    let Some(etcd) = variable("FOREBAY_TEST_ETCD_THREE") else { return };
    let members = Members(variable("FOREBAY_TEST_ETCD_THREE_RUN").unwrap().into());
    let (dispatchers, _workers, job) = training(&etcd, "lost");
    signal("-KILL", members.pid(members.leader()));
    job.goes_on(70, "after etcd's leader was killed");
    view(&dispatchers.control);
    members.restart();
    job.goes_on(70, "after it came back");

    // Slow, so that what it knows lasts for longer than a leader may answer without etcd.
    job.shown.step_ms.store(1000, Ordering::SeqCst);
    job.goes_on(1, "slowly");
    for number in [1, 2] {
        signal("-STOP", members.pid(number));
    }
    let lost = Instant::now();
    while dispatchers.control.call(&Ask::View, Duration::from_millis(300)).is_ok() {
        assert!(lost.elapsed() < Duration::from_secs(4), "somebody answers who cannot know whether it leads");
        sleep(Duration::from_millis(50));
    }
    println!("without etcd: nobody answers after {:.2} s", lost.elapsed().as_secs_f64());
    job.goes_on(2, "while most of etcd is away: workers of these are known");
    job.shown.step_ms.store(20, Ordering::SeqCst);
    // Longer than a worker may be silent.
    while lost.elapsed() < Duration::from_secs(12) {
        let error = dispatchers.control.call(&Ask::View, Duration::from_millis(300)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", error.report());
    }
    for number in [1, 2] {
        signal("-CONT", members.pid(number));
    }
    let back = Instant::now();
    assert_eq!(
        view(&dispatchers.control).workers.len(),
        2,
        "nobody was given up for a silence that etcd caused"
    );
    println!("with etcd again: answered after {:.2} s", back.elapsed().as_secs_f64());
    job.goes_on(70, "after etcd came back");
    for number in [0, 1] {
        signal("-KILL", members.pid(number));
    }
    sleep(Duration::from_secs(1));
    members.restart();
    view(&dispatchers.control);
    job.goes_on(70, "after most of etcd was killed and came back");
    job.finish();
}

#[test]
fn users_of_etcd_are_asked_for_a_password_and_it_is_never_shown() {
    let Some(etcd) = variable("FOREBAY_TEST_ETCD_AUTH") else { return };
    let harness = Harness::new();
    harness.write("right", "forebay-test-secret\n");
    harness.write("wrong", "not-the-password");
    let state = format!("{etcd}/users");
    let flags = [
        "dispatcher",
        "--listen",
        "127.0.0.1:0",
        "--state",
        &state,
        "--etcd-user",
        "root",
        "--etcd-password-file",
    ];
    let process = Process::start(&harness, &[&flags[..], &["right"]].concat());
    view(&control(&process.line));
    let said = harness.run(&[&flags[..], &["wrong"]].concat());
    assert_eq!(said.code, 3, "{}", said.stderr);
    said.warns(&["ask etcd", "--etcd-user"]);
    assert!(!said.stderr.contains("not-the-password"));
    let said = harness.run(&flags[..5]);
    assert_eq!(said.code, 3, "{}", said.stderr);
    said.warns(&["--etcd-password-file"]);
}

#[test]
fn etcd_is_reached_with_certificates() {
    let Some(etcd) = variable("FOREBAY_TEST_ETCD_TLS") else { return };
    let ca = variable("FOREBAY_TEST_ETCD_CA").unwrap();
    let beside = |name: &str| Path::new(&ca).with_file_name(name).display().to_string();
    let (cert, key) = (beside("client.pem"), beside("client.key"));
    let harness = Harness::new();
    let state = format!("{etcd}/tls");
    let args = ["dispatcher", "--listen", "127.0.0.1:0", "--state", &state, "--etcd-ca", &ca];
    let own = ["--etcd-cert", &cert, "--etcd-key", &key];
    let process = Process::start(&harness, &[&args[..], &own].concat());
    view(&control(&process.line));
}
