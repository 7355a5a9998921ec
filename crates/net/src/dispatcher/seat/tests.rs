//! Several dispatchers on one model of etcd, in virtual time: stopped, cut off, killed, without etcd. Consumers take spans
//! of one epoch from whoever answers. No span may come twice and none be missing, whoever led meanwhile.

use super::*;
use crate::dispatcher::etcd::memory::{Link, MemoryEtcd};
use crate::dispatcher::etcd::{Lease, Outcome, Pair};
use forebay_core::dispatcher::{
    Command, JobName, Load, Reached, Reply, Sharding, Terms, Visitation, Who, WorkerId,
};
use forebay_core::feed::{FeedId, Span};
use forebay_core::rng::Rng;
use std::pin::pin;
use tokio::time::{Instant, sleep, timeout};

/// A process that can be stopped: nothing of it goes on meanwhile but the clock.
#[derive(Clone)]
struct Stopping(Arc<watch::Sender<bool>>);

impl Stopping {
    fn new() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }

    async fn going(&self) {
        let _ = self.0.subscribe().wait_for(|stopped| !*stopped).await;
    }

    /// Work that stands still with the process.
    async fn run<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            self.going().await;
            let mut changes = self.0.subscribe();
            tokio::select! {
                biased;
                _ = changes.wait_for(|stopped| *stopped) => {}
                done = work.as_mut() => return done,
            }
        }
    }
}

/// A link that a stopped process can neither send nor hear over; what is under way arrives.
struct StoppingLink(Link, Stopping);

impl StoppingLink {
    async fn call<T>(&self, call: BoxFuture<'_, Result<T>>) -> Result<T> {
        self.1.going().await;
        let outcome = call.await;
        self.1.going().await;
        outcome
    }
}

impl Etcd for StoppingLink {
    fn range(&self, range: Range, limit: usize) -> BoxFuture<'_, Result<Vec<Pair>>> {
        self.call(self.0.range(range, limit)).boxed()
    }

    fn transact(&self, transaction: Transaction) -> BoxFuture<'_, Result<Outcome>> {
        self.call(self.0.transact(transaction)).boxed()
    }

    fn grant(&self, seconds: u64) -> BoxFuture<'_, Result<Lease>> {
        self.call(self.0.grant(seconds)).boxed()
    }

    fn renew(&self, lease: i64) -> BoxFuture<'_, Result<Option<u64>>> {
        self.call(self.0.renew(lease)).boxed()
    }

    fn revoke(&self, lease: i64) -> BoxFuture<'_, Result<()>> {
        self.call(self.0.revoke(lease)).boxed()
    }
}

/// One dispatcher's process.
struct Process {
    address: String,
    machine: Arc<Machine>,
    link: Link,
    stopping: Stopping,
    task: tokio::task::JoinHandle<Result<()>>,
    stop: watch::Sender<bool>,
}

impl Process {
    fn start(etcd: &MemoryEtcd, number: usize, seed: u64, lost_of: u64) -> Self {
        let began = Instant::now();
        let clock = Arc::new(move || began.elapsed().as_millis() as u64 + 1);
        let machine = Arc::new(Machine::new(clock));
        let link = etcd.link(seed + number as u64, 30, lost_of);
        let (stopping, address) = (Stopping::new(), format!("10.0.0.{number}:7077"));
        let settings = Settings { consumer_timeout_ms: 1_000_000_000, ..Settings::default() };
        let seat = Seat {
            etcd: Arc::new(StoppingLink(link.clone(), stopping.clone())),
            keys: Keys::new("p"),
            address: address.clone(),
            times: Times::default(),
            settings,
            scale: ScaleSettings::default(),
            machine: machine.clone(),
            handle: Handle::current(),
        };
        let (stop, stopped) = watch::channel(false);
        let held = stopping.clone();
        let task = tokio::spawn(async move { held.run(seat.run(stopped)).await });
        Self { address, machine, link, stopping, task, stop }
    }

    /// Gone at once, as with `kill -9`.
    fn kill(&self) {
        self.link.set_cut(true);
        self.task.abort();
        self.machine.close();
    }
}

type World = Arc<std::sync::Mutex<Vec<Arc<Process>>>>;

fn world(etcd: &MemoryEtcd, count: usize, seed: u64, lost_of: u64) -> World {
    let sweeping = etcd.clone();
    tokio::spawn(async move { sweeping.sweep().await });
    let processes = (0..count).map(|number| Arc::new(Process::start(etcd, number, seed, lost_of)));
    Arc::new(std::sync::Mutex::new(processes.collect()))
}

/// What a client does: asks one after the other until one answers.
struct Asking {
    etcd: MemoryEtcd,
    world: World,
    current: usize,
}

impl Asking {
    fn new(etcd: &MemoryEtcd, world: &World) -> Self {
        Self { etcd: etcd.clone(), world: world.clone(), current: 0 }
    }

    async fn once(&mut self, command: Command) -> Result<Reply> {
        let process = {
            let world = self.world.lock().unwrap();
            world[self.current % world.len()].clone()
        };
        let call = async {
            process.stopping.going().await;
            let outcome = process.machine.obey(command).await;
            if is_answer(&outcome) {
                // It may answer: so nobody else leads at this moment.
                let leader = self.etcd.pairs("p/leader");
                let text = String::from_utf8(leader.first().expect("who answers has a key").value.clone());
                assert!(text.unwrap().contains(&process.address), "{} answers", process.address);
            }
            process.stopping.going().await;
            outcome
        };
        let outcome = timeout(Duration::from_secs(1), call).await;
        let outcome = outcome.unwrap_or_else(|_| Err(Error::unavailable("no answer")));
        if outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::Unavailable) {
            self.current += 1;
        }
        outcome
    }

    async fn ask(&mut self, command: &Command) -> Reply {
        loop {
            match self.once(command.clone()).await {
                Ok(reply) => return reply,
                Err(error) if error.kind() == ErrorKind::Unavailable => {
                    sleep(Duration::from_millis(50)).await;
                }
                Err(error) => panic!("{}", error.report()),
            }
        }
    }
}

/// Whether the machine has said something about its state, a refusal included.
fn is_answer(outcome: &Result<Reply>) -> bool {
    outcome.as_ref().err().is_none_or(|error| error.kind() != ErrorKind::Unavailable)
}

fn who(rank: u64) -> Who {
    Who { job: JobName::new("a").unwrap(), rank, consumer: rank + 1 }
}

fn attach(rank: u64, spans: u64) -> Command {
    let terms = Terms {
        feed: FeedId(1),
        label: "d".into(),
        world_size: 2,
        span_positions: 1,
        epoch_positions: spans,
        sharding: Sharding::Dynamic,
        visitation: Visitation::ExactlyOnce,
    };
    Command::AttachJob { who: who(rank), terms, from: Reached::default(), step: 0 }
}

/// Takes spans until the epoch is over; those it was given.
async fn consume(mut asking: Asking, rank: u64, spans: u64, step: Duration) -> Vec<u64> {
    asking.ask(&attach(rank, spans)).await;
    let (mut taken, mut done) = (Vec::new(), Vec::new());
    let mut request = 1;
    loop {
        let take = Command::TakeSpan { who: who(rank), request, epoch: 0, done: done.clone() };
        match asking.ask(&take).await {
            Reply::Taken(span) => {
                taken.push(span.number);
                done = vec![span];
                request += 1;
                sleep(step).await;
            }
            Reply::Wait => {
                done.clear();
                request += 1;
                sleep(Duration::from_millis(100)).await;
            }
            Reply::EpochEnded { .. } => return taken,
            other => panic!("{other:?}"),
        }
    }
}

async fn disturb(etcd: MemoryEtcd, world: World, seed: u64) {
    let mut chance = Rng::keyed(seed, 3, 3);
    loop {
        sleep(Duration::from_millis(chance.below(4000))).await;
        let long = Duration::from_millis(chance.below(9000));
        let number = chance.below(world.lock().unwrap().len() as u64) as usize;
        let process = world.lock().unwrap()[number].clone();
        match chance.below(5) {
            0 => {
                process.kill();
                let again = Process::start(&etcd, number, seed, 10);
                world.lock().unwrap()[number] = Arc::new(again);
            }
            1 => {
                process.link.set_cut(true);
                tokio::spawn(async move {
                    sleep(long).await;
                    process.link.set_cut(false);
                });
            }
            2 => {
                etcd.set_away(true);
                sleep(long / 2).await;
                etcd.set_away(false);
            }
            3 => {
                process.stop.send_replace(true);
                sleep(Duration::from_secs(1)).await;
                let again = Process::start(&etcd, number, seed, 10);
                world.lock().unwrap()[number] = Arc::new(again);
            }
            _ => {
                process.stopping.0.send_replace(true);
                tokio::spawn(async move {
                    sleep(long).await;
                    process.stopping.0.send_replace(false);
                });
            }
        }
    }
}

fn seeds(few: u64) -> std::ops::Range<u64> {
    match std::env::var("FOREBAY_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None if std::env::var("FOREBAY_SLOW").is_ok() => 0..1000,
        None => 0..few,
    }
}

#[test]
fn p057_whoever_is_stopped_cut_off_or_killed_no_span_is_lost_or_given_twice() {
    const SPANS: u64 = 300;
    for seed in seeds(40) {
        println!("FOREBAY_SEED={seed}");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.unwrap().block_on(async {
            let etcd = MemoryEtcd::default();
            let world = world(&etcd, 3, seed, 10);
            let disturbing = tokio::spawn(disturb(etcd.clone(), world.clone(), seed));
            let consumers = (0..2).map(|rank| {
                let asking = Asking::new(&etcd, &world);
                tokio::spawn(consume(asking, rank, SPANS, Duration::from_millis(100)))
            });
            let consuming = futures::future::join_all(consumers);
            let all = timeout(Duration::from_secs(3600), consuming).await.expect("the epoch ends");
            let mut taken: Vec<u64> = all.into_iter().flat_map(std::result::Result::unwrap).collect();
            taken.sort_unstable();
            assert_eq!(taken, (0..SPANS).collect::<Vec<_>>(), "seed {seed}: every span once");
            disturbing.abort();
        });
    }
}

#[test]
fn another_one_answers_within_five_seconds_of_a_leaders_death_and_at_once_when_it_leaves() {
    let mut longest = Duration::ZERO;
    for seed in seeds(60) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        let passed = runtime.unwrap().block_on(async {
            let etcd = MemoryEtcd::default();
            let world = world(&etcd, 3, seed, 0);
            let mut asking = Asking::new(&etcd, &world);
            asking.ask(&attach(0, 10)).await;
            sleep(Duration::from_millis(Rng::keyed(seed, 0, 0).below(5000))).await;
            asking.ask(&attach(0, 10)).await;
            let leader = asking.current % 3;
            let process = world.lock().unwrap()[leader].clone();
            let gone = Instant::now();
            let leaves = seed % 4 == 0;
            if leaves {
                process.stop.send_replace(true);
            } else {
                process.kill();
            }
            let take = Command::TakeSpan { who: who(0), request: 1, epoch: 0, done: vec![] };
            assert_eq!(asking.ask(&take).await, Reply::Taken(Span { epoch: 0, number: 0 }));
            assert_ne!(asking.current % 3, leader);
            assert!(!leaves || gone.elapsed() < Duration::from_secs(1), "{:?}", gone.elapsed());
            gone.elapsed()
        });
        longest = longest.max(passed);
        assert!(passed < Duration::from_secs(5), "seed {seed}: {passed:?}");
    }
    println!("longest: {longest:?}");
}

#[tokio::test(start_paused = true)]
async fn without_etcd_nothing_is_decided_and_nobody_falls_silent_by_it() {
    let etcd = MemoryEtcd::default();
    let world = world(&etcd, 2, 1, 0);
    let mut asking = Asking::new(&etcd, &world);
    let worker = WorkerId(9);
    let register = Command::RegisterWorker { worker, address: "h:1".into(), tags: vec![], slots: 1 };
    let Reply::Registered { incarnation, .. } = asking.ask(&register).await else { panic!("registered") };
    asking.ask(&attach(0, 10)).await;
    etcd.set_away(true);
    let lost = Instant::now();
    // A command that decides nothing is answered from memory for as long as nobody else can lead, and no longer.
    let beat = Command::Heartbeat { worker, incarnation, load: Load::default() };
    while asking.once(beat.clone()).await.is_ok() {
        sleep(Duration::from_millis(10)).await;
    }
    assert!(lost.elapsed() < Duration::from_secs(3), "{:?}", lost.elapsed());
    for _ in 0..60 {
        let take = Command::TakeSpan { who: who(0), request: 1, epoch: 0, done: vec![] };
        for command in [beat.clone(), Command::View, take] {
            assert_eq!(asking.once(command).await.unwrap_err().kind(), ErrorKind::Unavailable);
        }
        let processes = world.lock().unwrap().clone();
        for process in processes {
            assert!(process.machine.obey(Command::Tick).await.is_err());
        }
        sleep(Duration::from_secs(1)).await;
    }
    etcd.set_away(false);
    let back = Instant::now();
    let Reply::Heartbeat(_) = asking.ask(&beat).await else { panic!("the worker is still known") };
    assert!(back.elapsed() < Duration::from_secs(5), "{:?}", back.elapsed());
    let process = world.lock().unwrap()[asking.current % 2].clone();
    process.machine.obey(Command::Tick).await.unwrap();
    let Reply::Heartbeat(_) = asking.ask(&beat).await else { panic!("and stays so") };
    let take = Command::TakeSpan { who: who(0), request: 1, epoch: 0, done: vec![] };
    assert_eq!(asking.ask(&take).await, Reply::Taken(Span { epoch: 0, number: 0 }));
}

#[tokio::test(start_paused = true)]
async fn one_that_stands_by_names_the_leader_and_believes_no_nonsense() {
    let etcd = MemoryEtcd::default();
    let world = world(&etcd, 2, 1, 0);
    sleep(Duration::from_secs(2)).await;
    let (leaders, others): (Vec<_>, Vec<_>) =
        world.lock().unwrap().clone().into_iter().partition(|process| process.machine.leads());
    assert_eq!((leaders.len(), others.len()), (1, 1));
    assert_eq!(others[0].machine.leader(), Some(leaders[0].address.clone()));
    let error = others[0].machine.obey(Command::View).await.unwrap_err();
    assert!(error.message().contains(&format!("`{}` leads", leaders[0].address)), "{}", error.report());
    // Somebody takes our key away by hand: the next write tells, and the rest is an ordinary election.
    for wrong in [&b"not json"[..], &[b'x'; 5000]] {
        let put = Do::Put { key: "p/leader".into(), value: wrong.into(), lease: 0 };
        let then = vec![Do::Delete(Range::one("p/leader")), put];
        etcd.link(9, 1, 0).transact(Transaction { then, ..Transaction::default() }).await.unwrap();
        let _ = leaders[0].machine.obey(attach(0, 10)).await;
        sleep(Duration::from_secs(2)).await;
        for process in world.lock().unwrap().iter() {
            assert!(!process.machine.leads() && process.machine.leader().is_none());
        }
    }
}
