//! Pulling from workers in memory that answer when the test lets them, by a clock that the test moves.

use super::directory::{Directory, Found, Report};
use super::link::{Dial, Dialled, Hear, Most, Say};
use super::pulling::{Makers, Pulling};
use super::{Clock, How, job};
use crate::server::lock;
use crate::service::message::{BatchHeader, Late, ToClient, ToWorker};
use forebay_core::cursor::Cursor;
use forebay_core::feed::{BatchName, Span};
use forebay_core::portion::{Consumer, LastBatch, Portion};
use forebay_core::pull::{Reach, WorkerKey};
use forebay_core::{Error, ErrorKind, Result, SampleId};
use forebay_engine::feed::FeedSpec;
use forebay_engine::{Asked, Batch, DeliveryOrder, Meter, Supply, Taken};
use forebay_ops::BufferPool;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

const SAMPLES: u64 = 160;
const BATCH: u64 = 4;
const LONG: Duration = Duration::from_secs(30);

/// The time, and how often somebody looked.
#[derive(Default)]
struct ManualClock(AtomicU64, AtomicU64);

impl Clock for ManualClock {
    fn now(&self) -> u64 {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.load(Ordering::SeqCst)
    }
}

/// What a worker in memory does.
#[derive(Default)]
struct FakeWorker {
    down: bool,
    /// Answers wait until they are let go.
    held: bool,
    knows_feed: bool,
    refuses: Option<Error>,
    faulty: Vec<u64>,
    skips: Vec<u64>,
    /// How often it says again what it said.
    repeats: u64,
    /// Senders of open connections, by number.
    open: BTreeMap<u64, Sender<ToClient>>,
    waiting: Vec<(u64, u64, BatchName)>,
    taken: Vec<BatchName>,
    planned: Vec<BatchName>,
    forgotten: Vec<u64>,
    passed: Vec<(u64, u64)>,
    jobs: Vec<(String, bool)>,
}

#[derive(Default)]
struct World {
    workers: BTreeMap<String, FakeWorker>,
    connections: u64,
    /// Whether the directory is away.
    away: bool,
    forgets_us: bool,
    attached: Vec<Reach>,
    reports: Vec<Report>,
    located: Vec<(Vec<Span>, Vec<WorkerKey>, Option<WorkerKey>)>,
    detached: u64,
}

#[derive(Clone, Default)]
struct Fakes(Arc<(Mutex<World>, Condvar)>);

impl Fakes {
    fn with(names: &[&str]) -> Self {
        let fakes = Self::default();
        fakes.change(|world| {
            for name in names {
                world.workers.insert((*name).to_owned(), FakeWorker::default());
            }
        });
        fakes
    }

    fn change<T>(&self, what: impl FnOnce(&mut World) -> T) -> T {
        let changed = what(&mut lock(&self.0.0));
        self.0.1.notify_all();
        changed
    }

    fn worker<T>(&self, name: &str, what: impl FnOnce(&mut FakeWorker) -> T) -> T {
        self.change(|world| what(world.workers.get_mut(name).unwrap()))
    }

    fn until(&self, what: &str, mut holds: impl FnMut(&World) -> bool) {
        let until = Instant::now() + LONG;
        let mut world = lock(&self.0.0);
        while !holds(&world) {
            assert!(Instant::now() < until, "never saw: {what}");
            world = self.0.1.wait_timeout(world, Duration::from_millis(20)).unwrap().0;
        }
    }

    fn release(&self, name: &str) {
        self.worker(name, |worker| {
            worker.held = false;
            for (connection, request, name) in std::mem::take(&mut worker.waiting) {
                worker.answer(connection, request, &name);
            }
        });
    }

    fn kill(&self, name: &str) {
        self.worker(name, |worker| {
            worker.down = true;
            worker.open.clear();
            worker.waiting.clear();
        });
    }
}

impl FakeWorker {
    fn hear(&mut self, connection: u64, message: &ToWorker) -> Result<()> {
        let Some(client) = self.open.get(&connection).cloned() else {
            return Err(Error::unavailable("the connection was lost"));
        };
        match message {
            ToWorker::Attach(attach) => {
                self.jobs.push((attach.job.clone(), !attach.spec.is_empty()));
                self.knows_feed |= !attach.spec.is_empty();
                let answer = match &self.refuses {
                    Some(error) => ToClient::Refused { fault: error.into() },
                    None if !self.knows_feed => ToClient::NeedSpec,
                    None => ToClient::Attached { epoch_samples: SAMPLES, batch_bytes: 1 },
                };
                let _ = client.send(answer);
            }
            ToWorker::Take { request, name } => {
                self.taken.push(name.clone());
                if self.held {
                    self.waiting.push((connection, *request, name.clone()));
                } else {
                    self.answer(connection, *request, name);
                }
            }
            ToWorker::Plan { names } => self.planned.extend(names.iter().cloned()),
            ToWorker::Forget { request } => self.forgotten.push(*request),
            ToWorker::Passed { epoch, position } => self.passed.push((*epoch, *position)),
            ToWorker::Release { .. } | ToWorker::Show => {}
        }
        Ok(())
    }

    fn answer(&self, connection: u64, request: u64, name: &BatchName) {
        let Some(client) = self.open.get(&connection) else { return };
        if self.faulty.contains(&name.first()) {
            let fault = (&Error::corrupt(format!("decode sample {}", name.first()))).into();
            let _ = client.send(ToClient::Fault { request, fault });
        } else if self.skips.contains(&name.first()) {
            let _ = client.send(ToClient::Skipped { request });
        } else {
            let (ids, padding) = name.positions().unzip();
            let header =
                BatchHeader { epoch: name.epoch, ids, padding, packed_bytes: 7, ..BatchHeader::default() };
            for _ in 0..=self.repeats {
                let _ = client.send(ToClient::Batch { request, header: Box::new(header.clone()) });
            }
        }
    }
}

struct FakeSay(Fakes, String, u64);

impl Say for FakeSay {
    fn say(&mut self, message: &ToWorker) -> Result<()> {
        self.0.worker(&self.1, |worker| worker.hear(self.2, message))
    }
}

struct FakeHear(Receiver<ToClient>);

impl Hear for FakeHear {
    fn hear(&mut self) -> Result<Option<ToClient>> {
        Ok(self.0.recv().ok())
    }

    fn batch(&mut self, header: &BatchHeader, _pool: &BufferPool, most: Most) -> Result<Batch> {
        assert!(header.ids.len() as u64 <= most.rows);
        Ok(Batch {
            epoch: header.epoch,
            step: 0,
            ids: header.ids.iter().copied().map(SampleId).collect(),
            padding: header.padding.clone(),
            columns: Vec::new(),
            faults: Vec::new(),
            object: None,
        })
    }
}

impl Dial for Fakes {
    fn dial(&self, address: &str, _wanted: &dyn Fn() -> bool) -> Result<Dialled> {
        let (sender, receiver) = channel();
        let number = self.change(|world| {
            world.connections += 1;
            let worker = world.workers.get_mut(address).unwrap();
            if worker.down {
                return Err(Error::unavailable("nobody listens"));
            }
            worker.open.insert(world.connections, sender);
            Ok(world.connections)
        })?;
        let (fakes, name) = (self.clone(), address.to_owned());
        let close = move || fakes.worker(&name, |worker| drop(worker.open.remove(&number)));
        Ok(Dialled {
            say: Box::new(FakeSay(self.clone(), address.to_owned(), number)),
            hear: Box::new(FakeHear(receiver)),
            close: Box::new(close),
        })
    }
}

/// Spans go to `a` and `b` in turn, as long as they are not avoided.
impl Directory for Fakes {
    fn attach(&self, from: Reach) -> Result<u64> {
        self.change(|world| {
            if world.away {
                return Err(Error::unavailable("the dispatcher is away"));
            }
            world.forgets_us = false;
            world.attached.push(from);
            Ok(2 * BATCH)
        })
    }

    fn locate(&self, spans: &[Span], avoid: &[WorkerKey], lost: Option<WorkerKey>) -> Result<Vec<Found>> {
        self.change(|world| {
            if world.away {
                return Err(Error::unavailable("the dispatcher is away"));
            }
            if world.forgets_us {
                return Err(Error::stale("the job is not known"));
            }
            world.located.push((spans.to_vec(), avoid.to_vec(), lost));
            let may: Vec<(u64, &String)> =
                (0..).zip(world.workers.keys()).filter(|(key, _)| !avoid.contains(key)).collect();
            let find = |span: &Span| {
                let (worker, address) = may[(span.number % may.len() as u64) as usize];
                Found { span: *span, worker, address: address.clone() }
            };
            Ok(if may.is_empty() { Vec::new() } else { spans.iter().map(find).collect() })
        })
    }

    fn report(&self, report: &Report) -> Result<()> {
        self.change(|world| world.reports.push(*report));
        Ok(())
    }

    fn detach(&self) {
        self.change(|world| world.detached += 1);
    }

    fn name(&self) -> String {
        "the dispatcher".into()
    }
}

fn feed() -> FeedSpec {
    FeedSpec::from_json(
        r#"{"format": 1, "data": {"spec": ["/data"], "extensions": []}, "dataset": "v1", "recipe": [],
            "order": {"seed": 1, "shuffle": "sequential"}, "on_error": "raise", "batch_size": 4,
            "fetch": {"inflight": null, "request_bytes": null, "tries": 1, "request_timeout": 1.0,
                      "request_deadline": 1.0, "hedge": false}}"#,
    )
    .unwrap()
}

struct Started {
    supply: Pulling,
    clock: Arc<ManualClock>,
    meter: Arc<Meter>,
}

fn start(fakes: &Fakes, service: bool, skip_lost: bool) -> Started {
    let (clock, meter) = (Arc::new(ManualClock::default()), Arc::new(Meter::default()));
    let how = How {
        job: job::Naming::new(Some("a job".into())).unwrap(),
        late: Late::Remake,
        packings: Vec::new(),
        skip_lost,
        late_ms: 1_000,
        clock: Arc::clone(&clock) as Arc<dyn Clock>,
    };
    let asked = Asked {
        feed: feed(),
        sampler: forebay_core::plan::Sampler::stored(SAMPLES),
        consumer: Consumer { rank: 0, world_size: 1, batch_size: BATCH, last_batch: LastBatch::Partial },
        order: DeliveryOrder::Plan,
        epochs: Some(2),
        ready_batches: 4,
        batch_bytes: 1 << 10,
        pool: BufferPool::new(0),
    };
    let makers = if service {
        Makers::Directory { directory: Box::new(fakes.clone()), home: false }
    } else {
        Makers::Home("a".to_owned())
    };
    let dial = Box::new(fakes.clone());
    let job = how.job.name(asked.feed.id(), 1);
    let supply = Pulling::start(asked, &Cursor::start_of(0), &meter, &how, job, dial, makers).unwrap();
    Started { supply, clock, meter }
}

impl Started {
    fn next(&self) -> Result<Taken> {
        let until = Instant::now() + LONG;
        loop {
            if let Some(taken) = self.supply.take(Duration::from_millis(20))? {
                return Ok(taken);
            }
            assert!(Instant::now() < until, "no batch came: {}", self.supply.describe_wait());
        }
    }

    /// First ids of the next `count` batches; those that were left out are not among them.
    fn firsts(&self, count: usize) -> Vec<(u64, u64, u64)> {
        let taken = (0..count).map(|_| self.next().unwrap());
        taken.filter_map(|taken| taken.batch).map(|batch| (batch.epoch, batch.step, batch.ids[0].0)).collect()
    }

    /// As [`Self::firsts`], with a clock that goes on: an answer of the directory may name who was killed meanwhile,
    /// and it is asked again after a pause.
    fn firsts_in_time(&self, count: usize) -> Vec<(u64, u64, u64)> {
        std::thread::scope(|scope| {
            let firsts = scope.spawn(|| self.firsts(count));
            while !firsts.is_finished() {
                self.advance(50);
                std::thread::sleep(Duration::from_millis(1));
            }
            firsts.join().unwrap()
        })
    }

    fn advance(&self, milliseconds: u64) {
        self.clock.0.fetch_add(milliseconds, Ordering::SeqCst);
    }
}

/// What two epochs give.
fn whole() -> Vec<(u64, u64, u64)> {
    let consumer = Consumer { rank: 0, world_size: 1, batch_size: BATCH, last_batch: LastBatch::Partial };
    let portion = Portion::new(SAMPLES, consumer, &Cursor::start_of(0)).unwrap();
    (0..2).flat_map(|epoch| (0..portion.steps()).map(move |step| (epoch, step, step * BATCH))).collect()
}

#[test]
fn p054_batches_of_two_workers_come_in_order_and_workers_learn_the_feed_once() {
    let fakes = Fakes::with(&["a", "b"]);
    fakes.worker("b", |worker| worker.repeats = 1);
    let started = start(&fakes, true, false);
    assert_eq!(started.firsts(whole().len()), whole());
    assert!(started.supply.take(Duration::ZERO).unwrap().is_none(), "nothing comes after the last epoch");
    assert_eq!(started.supply.view().workers, 2);
    assert_eq!((started.meter.asked_again.get(), started.meter.skipped_batches.get()), (0, 0));
    fakes.change(|world| {
        let total: usize = world.workers.values().map(|worker| worker.taken.len()).sum();
        assert_eq!(total, whole().len());
        for worker in world.workers.values() {
            // Named first, told what it is when the worker asked.
            assert_eq!(worker.jobs, [("a job".to_owned(), false), ("a job".to_owned(), true)]);
            assert!(worker.taken.len() == whole().len() / 2 && !worker.passed.is_empty());
        }
        assert_eq!(world.attached, [Reach::default()]);
    });
    drop(started);
    fakes.until("all is closed", |world| {
        world.detached == 1 && world.workers.values().all(|worker| worker.open.is_empty())
    });
}

#[test]
fn a_late_worker_is_passed_by_another_one_and_its_answer_is_dropped() {
    let fakes = Fakes::with(&["a", "b"]);
    fakes.worker("a", |worker| worker.held = true);
    let started = start(&fakes, true, false);
    fakes.until("two batches asked of a", |world| world.workers["a"].taken.len() == 2);
    fakes.until("b attached", |world| world.workers["b"].taken.len() == 2);
    started.advance(1_500);
    assert_eq!(started.firsts(1), whole()[..1]);
    fakes.until("the late one is told", |world| world.workers["a"].forgotten.len() == 1);
    fakes.release("a");
    assert_eq!(started.firsts(whole().len() - 1), whole()[1..]);
    assert!((1..=2).contains(&started.meter.asked_again.get()));
    fakes.change(|world| {
        assert_eq!(world.workers["b"].taken.iter().filter(|name| name.first() == 0).count(), 1);
    });
}

#[test]
fn p056_what_a_killed_worker_had_comes_from_the_other_one() {
    let fakes = Fakes::with(&["a", "b"]);
    let started = start(&fakes, true, false);
    assert_eq!(started.firsts(10), whole()[..10]);
    fakes.worker("a", |worker| worker.held = true);
    fakes.kill("a");
    assert_eq!(started.firsts_in_time(whole().len() - 10), whole()[10..]);
    fakes.change(|world| {
        assert!(world.located.iter().any(|(_, avoid, lost)| *lost == Some(0) && avoid.contains(&0)));
    });
    assert_eq!(started.meter.skipped_batches.get(), 0);
}

#[test]
fn p056_at_most_once_leaves_out_what_a_killed_worker_had() {
    let fakes = Fakes::with(&["a", "b"]);
    fakes.worker("a", |worker| worker.held = true);
    let started = start(&fakes, true, true);
    fakes.until("two batches asked of a", |world| world.workers["a"].taken.len() == 2);
    fakes.kill("a");
    let got = started.firsts(whole().len());
    assert_eq!(got, whole()[2..]);
    assert_eq!(started.meter.skipped_batches.get(), 2);
}

#[test]
fn p061_a_skipped_batch_uses_up_its_step_and_is_counted() {
    let fakes = Fakes::with(&["a"]);
    fakes.worker("a", |worker| worker.skips = vec![4, 156]);
    let started = start(&fakes, false, false);
    let steps = whole().len() / 2;
    let taken: Vec<Taken> = (0..steps).map(|_| started.next().unwrap()).collect();
    let left_out: Vec<u64> =
        taken.iter().filter(|taken| taken.batch.is_none()).map(|taken| taken.places[0].position).collect();
    assert_eq!(left_out, [4, 156]);
    assert_eq!(started.meter.skipped_batches.get(), 2);
    assert_eq!(started.firsts(1), whole()[steps..=steps]);
}

#[test]
fn a_batch_that_cannot_be_made_is_an_error_in_its_place() {
    let fakes = Fakes::with(&["a"]);
    fakes.worker("a", |worker| worker.faulty = vec![8]);
    let started = start(&fakes, false, false);
    assert_eq!(started.firsts(2), whole()[..2]);
    let error = started.next().unwrap_err();
    assert_eq!((error.kind(), error.message()), (ErrorKind::Corrupt, "decode sample 8"));
}

#[test]
fn a_host_process_that_is_not_there_is_an_error_and_one_that_comes_back_is_asked_again() {
    let fakes = Fakes::with(&["a"]);
    fakes.worker("a", |worker| worker.down = true);
    let error = start(&fakes, false, false).next().unwrap_err();
    assert_eq!(
        (error.kind(), error.message()),
        (ErrorKind::Unavailable, "read batches from `a`: nobody listens")
    );
    fakes.worker("a", |worker| worker.down = false);
    let started = start(&fakes, false, false);
    assert_eq!(started.firsts(10), whole()[..10]);
    fakes.until("the next four were answered", |world| world.workers["a"].taken.len() == 14);
    fakes.worker("a", |worker| worker.held = true);
    started.firsts(4);
    fakes.until("all are held", |world| world.workers["a"].waiting.len() == 4);
    fakes.kill("a");
    let before = fakes.change(|world| world.connections);
    fakes.worker("a", |worker| (worker.down, worker.held) = (false, false));
    let rest = std::thread::scope(|scope| {
        let rest = scope.spawn(|| started.firsts(whole().len() - 14));
        // The pause after the loss passes by this clock alone.
        fakes.until("a new connection", |world| {
            started.advance(10);
            world.connections > before
        });
        rest.join().unwrap()
    });
    assert_eq!(rest, whole()[14..]);
    assert_eq!(started.meter.asked_again.get(), 4);
}

#[test]
fn a_refusal_ends_the_supply_with_the_workers_words() {
    let fakes = Fakes::with(&["a"]);
    let why = "open the dataset: version v2 was found, v1 was asked for";
    fakes.worker("a", |worker| worker.refuses = Some(Error::stale(why)));
    let error = start(&fakes, true, false).next().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stale);
    assert_eq!(error.message(), format!("read batches from `a`: {why}"));
}

#[test]
fn p057_while_the_dispatcher_is_away_links_go_on_and_new_spans_wait() {
    let fakes = Fakes::with(&["a", "b"]);
    fakes.change(|world| world.away = true);
    let started = start(&fakes, true, false);
    assert!(started.supply.take(Duration::from_millis(30)).unwrap().is_none());
    fakes.change(|world| world.away = false);
    assert_eq!(started.firsts(2), whole()[..2]);
    // Twenty names ahead are known by now, and two more spans at the most.
    fakes.until("names were told", |world| {
        world.workers.values().map(|worker| worker.planned.len()).sum::<usize>() >= 16
    });
    fakes.change(|world| (world.away, world.forgets_us) = (true, true));
    assert_eq!(started.firsts(16), whole()[2..18]);
    fakes.change(|world| world.away = false);
    let rest = std::thread::scope(|scope| {
        let rest = scope.spawn(|| started.firsts(whole().len() - 18));
        fakes.until("attached again", |world| {
            started.advance(100);
            world.attached.len() >= 2
        });
        while !rest.is_finished() {
            started.advance(100);
            std::thread::sleep(Duration::from_millis(1));
        }
        rest.join().unwrap()
    });
    assert_eq!(rest, whole()[18..]);
    fakes.change(|world| assert!(world.reports.iter().any(|report| report.samples > 0)));
}

#[test]
fn closing_waits_for_nobody_who_holds_an_answer() {
    let fakes = Fakes::with(&["a", "b"]);
    for name in ["a", "b"] {
        fakes.worker(name, |worker| worker.held = true);
    }
    for cycle in 1..=200 {
        let started = start(&fakes, true, false);
        assert!(started.supply.take(Duration::ZERO).unwrap().is_none());
        drop(started);
        fakes.until("all is closed", |world| {
            world.detached == cycle && world.workers.values().all(|worker| worker.open.is_empty())
        });
    }
}

#[test]
fn who_waits_sleeps_and_wakes_nobody_else() {
    for service in [false, true] {
        let fakes = Fakes::with(&["a"]);
        fakes.worker("a", |worker| worker.held = true);
        let started = start(&fakes, service, false);
        fakes.until("all that may be asked is asked", |world| world.workers["a"].waiting.len() == 4);
        let looked = || started.clock.1.load(Ordering::SeqCst);
        let before = looked();
        assert!(started.supply.take(Duration::from_millis(300)).unwrap().is_none());
        // A few for each of the sleeps of 100 ms; threads that wake each other look many thousand times.
        assert!(looked() - before < 200, "{} looks at the clock", looked() - before);
    }
}
