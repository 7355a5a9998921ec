//! Made-up makers, and a client that says exactly what it is told to.

use forebay_core::SampleId;
use forebay_core::feed::{BatchName, Run};
use forebay_core::staging::Late;
use forebay_core::{Error, Result};
use forebay_engine::feed::FeedSpec;
use forebay_engine::{Batch, Made, Make, Stats};
use forebay_net::Credentials;
use forebay_net::service::message::{Attach, Packing, ToClient, ToWorker};
use forebay_net::service::worker::{Makers, Running, WorkerOptions, serve};
use forebay_net::service::{Address, Limits, Receiving, Sending, connect};
use forebay_ops::{BufferPool, Column};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

pub(crate) const ROWS: u64 = 4;
pub(crate) const SAMPLES: u64 = 1000;
/// Bytes of a payload: a batch has four of them, and 36 bytes of ids and padding.
pub(crate) const PAYLOAD: usize = 1 << 14;
pub(crate) const BATCH_BYTES: u64 = ROWS * (PAYLOAD as u64 + 9);

/// Batch number `number` of an epoch.
pub(crate) fn name(number: u64) -> BatchName {
    BatchName { epoch: 0, runs: vec![Run { first: number * ROWS, len: ROWS as u32, padding: false }] }
}

/// Makes batches of made-up payloads, as many as it may.
pub(crate) struct FakeMaker {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<BatchName>,
    makes: BTreeMap<BatchName, u64>,
    allowed: u64,
    broken: BTreeSet<BatchName>,
    over: bool,
}

impl FakeMaker {
    pub(crate) fn new() -> Arc<Self> {
        let state = State { allowed: u64::MAX, ..State::default() };
        Arc::new(Self { state: Mutex::new(state), changed: Condvar::new() })
    }

    /// Makes no more than this many from now on.
    pub(crate) fn allow(&self, batches: u64) {
        self.state.lock().unwrap().allowed = batches;
        self.changed.notify_all();
    }

    /// Cannot make this one.
    pub(crate) fn break_batch(&self, number: u64) {
        self.state.lock().unwrap().broken.insert(name(number));
    }

    /// Ends with an error.
    pub(crate) fn end(&self) {
        self.state.lock().unwrap().over = true;
        self.changed.notify_all();
    }

    /// How often each batch was made.
    pub(crate) fn makes(&self) -> BTreeMap<BatchName, u64> {
        self.state.lock().unwrap().makes.clone()
    }

    pub(crate) fn made(&self) -> u64 {
        self.makes().values().sum()
    }
}

impl Make for FakeMaker {
    fn prepare(&self, names: &[BatchName]) {
        self.state.lock().unwrap().queue.extend(names.iter().cloned());
        self.changed.notify_all();
    }

    fn take(&self, wait: Duration) -> Result<Option<Made>> {
        let idle = |state: &mut State| !state.over && (state.queue.is_empty() || state.allowed == 0);
        let state = self.state.lock().unwrap();
        let mut state = self.changed.wait_timeout_while(state, wait, idle).unwrap().0;
        if state.over {
            return Err(Error::unavailable("make batches: the store is gone"));
        }
        if idle(&mut state) {
            return Ok(None);
        }
        let name = state.queue.pop_front().unwrap();
        if state.allowed != u64::MAX {
            state.allowed -= 1;
        }
        *state.makes.entry(name.clone()).or_default() += 1;
        let broken = state.broken.contains(&name);
        let batch =
            if broken { Err(Error::corrupt("prepare sample 5: it is damaged")) } else { Ok(batch(&name)) };
        Ok(Some(Made { name, batch, fetch: Duration::from_millis(2), prep: Duration::from_millis(3) }))
    }

    fn epoch_samples(&self) -> u64 {
        SAMPLES
    }

    fn batch_bytes(&self) -> u64 {
        BATCH_BYTES
    }

    fn stats(&self) -> Stats {
        Stats::default()
    }
}

fn payload(position: u64) -> bytes::Bytes {
    (0..PAYLOAD).map(|at| (position as usize * 31 + at) as u8).collect::<Vec<u8>>().into()
}

fn batch(name: &BatchName) -> Batch {
    let positions: Vec<u64> = name.positions().map(|(position, _)| position).collect();
    let payloads = positions.iter().map(|position| payload(*position)).collect();
    Batch {
        epoch: name.epoch,
        step: 0,
        ids: positions.iter().copied().map(SampleId).collect(),
        padding: vec![false; positions.len()],
        columns: vec![("data".to_owned(), Column::Bytes(payloads))],
        faults: Vec::new(),
        object: None,
    }
}

/// A spec that nobody opens.
pub(crate) fn spec(seed: u64) -> FeedSpec {
    let text = serde_json::json!({
        "format": 1,
        "data": { "spec": ["/none"], "extensions": [] },
        "dataset": "v1",
        "recipe": [],
        "order": { "seed": seed, "shuffle": "full" },
        "on_error": "raise",
        "batch_size": ROWS,
        "fetch": {
            "inflight": null, "request_bytes": null, "tries": 1,
            "request_timeout": 1.0, "request_deadline": 1.0, "hedge": false
        }
    });
    FeedSpec::from_json(&text.to_string()).unwrap()
}

/// A worker on any free port, with room for so many batches.
pub(crate) fn worker(
    maker: &Arc<FakeMaker>,
    late: Late,
    batches: u64,
    change: impl FnOnce(&mut WorkerOptions),
) -> Running {
    let mut options = WorkerOptions::new(Address::Tcp("127.0.0.1:0".into()));
    options.staging_bytes = batches * BATCH_BYTES;
    options.late = Some(late);
    change(&mut options);
    serve(options, makers(maker)).unwrap()
}

pub(crate) fn makers(maker: &Arc<FakeMaker>) -> Arc<dyn Makers> {
    let maker = Arc::clone(maker);
    Arc::new(move |_: &FeedSpec| Ok(Arc::clone(&maker) as Arc<dyn Make>))
}

/// One rank of a job.
pub(crate) struct Client {
    pub(crate) sending: Sending,
    pub(crate) receiving: Receiving,
    pool: BufferPool,
}

/// What came back for a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Came {
    Batch(BatchName),
    Fault(String),
    Skipped,
}

impl Client {
    pub(crate) fn connect(address: &Address) -> Self {
        let (sending, receiving) = connect(address, &Credentials::default()).unwrap();
        Self { sending, receiving, pool: BufferPool::new(0) }
    }

    /// Connects and attaches a job of one rank.
    pub(crate) fn join(address: &Address, job: &str) -> Self {
        Self::join_as(address, job, 0, 1, 7)
    }

    pub(crate) fn join_as(address: &Address, job: &str, rank: u64, world_size: u64, seed: u64) -> Self {
        let mut client = Self::connect(address);
        client.attach(job, rank, world_size, seed, false);
        let mut answer = client.receive();
        if answer == ToClient::NeedSpec {
            client.attach(job, rank, world_size, seed, true);
            answer = client.receive();
        }
        assert_eq!(answer, ToClient::Attached { epoch_samples: SAMPLES, batch_bytes: BATCH_BYTES });
        client
    }

    pub(crate) fn attach(&mut self, job: &str, rank: u64, world_size: u64, seed: u64, with_spec: bool) {
        let feed = spec(seed);
        let attach = Attach {
            job: job.to_owned(),
            rank,
            world_size,
            feed: feed.id(),
            spec: if with_spec { feed.to_json().unwrap() } else { String::new() },
            packings: vec![Packing::None],
            late: Late::Remake,
        };
        self.say(&ToWorker::Attach(attach));
    }

    pub(crate) fn say(&mut self, message: &ToWorker) {
        self.sending.send(message).unwrap();
    }

    pub(crate) fn receive(&mut self) -> ToClient {
        self.receiving.receive::<ToClient>().unwrap().expect("an answer")
    }

    pub(crate) fn ask(&mut self, number: u64) {
        self.say(&ToWorker::Take { request: number, name: name(number) });
    }

    pub(crate) fn pass(&mut self, number: u64) {
        self.say(&ToWorker::Passed { epoch: 0, position: number * ROWS });
    }

    /// The next answer: the request, and what came. The bytes of a batch are looked at.
    pub(crate) fn answer(&mut self) -> (u64, Came) {
        match self.receive() {
            ToClient::Batch { request, header } => {
                let limits = Limits::expecting(BATCH_BYTES, ROWS * 4);
                let came = self.receiving.read_batch(&header, &self.pool, limits).unwrap();
                let places = came.ids.iter().map(|id| id.0);
                let Some(Column::Bytes(payloads)) = came.column("data") else { panic!("no payloads") };
                assert!(places.clone().zip(payloads).all(|(position, bytes)| payload(position) == bytes));
                let name = name(places.min().unwrap() / ROWS);
                assert_eq!(came.ids, batch(&name).ids);
                (request, Came::Batch(name))
            }
            ToClient::Fault { request, fault } => {
                (request, Came::Fault(Error::from(fault).message().to_owned()))
            }
            ToClient::Skipped { request } => (request, Came::Skipped),
            other => panic!("{other:?} is no answer"),
        }
    }

    /// Asks for a batch and waits for it.
    pub(crate) fn take(&mut self, number: u64) -> Came {
        self.ask(number);
        let (request, came) = self.answer();
        assert_eq!(request, number);
        came
    }

    /// Takes batches one after the other; returns those that were skipped.
    pub(crate) fn read(&mut self, numbers: std::ops::Range<u64>) -> Vec<u64> {
        let mut skipped = Vec::new();
        for number in numbers {
            let ahead = (number + 1..number + 4).filter(|ahead| ahead * ROWS < SAMPLES).map(name).collect();
            self.say(&ToWorker::Plan { names: ahead });
            match self.take(number) {
                Came::Batch(came) => assert_eq!(came, name(number)),
                Came::Skipped => skipped.push(number),
                Came::Fault(fault) => panic!("{fault}"),
            }
            self.pass(number + 1);
        }
        skipped
    }
}

/// Waits until something holds; there is no other way to look into threads of another part.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
