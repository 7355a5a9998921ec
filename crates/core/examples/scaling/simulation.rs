//! A job that takes all it can get, and workers that make batches for it, in virtual time: the machines that decide are
//! the real ones, what a batch costs is given. Links between workers and job are one, the job's own.

use forebay_core::cursor::Cursor;
use forebay_core::dispatcher::{
    Command, Dispatcher, JobName, Reached, Reply, Settings, Sharding, State, Terms, Visitation, Who, WorkerId,
};
use forebay_core::feed::{BatchName, FeedId, Span};
use forebay_core::portion::{Consumer, LastBatch};
use forebay_core::pull::{Action, Arrival, Pull, PullSettings, Routing, WorkerKey};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// As the client of a service has it.
const SPAN_BATCHES: u64 = 4;
const READY_BATCHES: usize = 8;
const TOLD_AHEAD: usize = 16;

/// What things cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Costs {
    /// Microseconds in which one worker makes a batch.
    pub(crate) prep_us: u64,
    /// Bytes of a batch on the wire.
    pub(crate) batch_bytes: u64,
    /// What the job's link carries.
    pub(crate) link_bytes_per_second: u64,
    /// Ranks of the job.
    pub(crate) ranks: u64,
    /// Batches of the run, over all ranks.
    pub(crate) batches: u64,
}

/// What came out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    pub(crate) batches_per_second: f64,
    /// Share of the time in which the link carried something.
    pub(crate) link_share: f64,
    /// Mean share of the time in which a worker made something.
    pub(crate) worker_share: f64,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happens {
    Made(WorkerKey),
    Arrived { rank: usize, request: u64 },
}

#[derive(Default)]
struct Worker {
    wanted: BTreeSet<BatchName>,
    making: Option<BatchName>,
    staged: BTreeSet<BatchName>,
    asked: BTreeMap<BatchName, (usize, u64)>,
    busy_us: u64,
}

struct World {
    costs: Costs,
    now: u64,
    dispatcher: Dispatcher,
    workers: BTreeMap<WorkerKey, Worker>,
    ranks: Vec<Pull>,
    coming: BinaryHeap<Reverse<(u64, u64, Happens)>>,
    events: u64,
    link_free: u64,
    link_busy: u64,
    taken: u64,
}

fn who(rank: usize) -> Who {
    Who { job: JobName::new("job").unwrap(), rank: rank as u64, consumer: 1 }
}

/// Runs a job to its end.
pub(crate) fn run(workers: u64, costs: Costs) -> Outcome {
    let mut world = World::new(workers, costs);
    for rank in 0..world.ranks.len() {
        world.drive(rank);
    }
    while world.taken < costs.batches {
        let Reverse((at, _, happens)) = world.coming.pop().expect("somebody has something to do");
        world.now = at;
        match happens {
            Happens::Made(worker) => world.made(worker),
            Happens::Arrived { rank, request } => world.arrived(rank, request),
        }
    }
    let seconds = world.now as f64 / 1e6;
    let busy: u64 = world.workers.values().map(|worker| worker.busy_us).sum();
    Outcome {
        batches_per_second: costs.batches as f64 / seconds,
        link_share: world.link_busy as f64 / world.now as f64,
        worker_share: busy as f64 / world.now as f64 / workers as f64,
    }
}

impl World {
    fn new(workers: u64, costs: Costs) -> Self {
        let mut dispatcher = Dispatcher::new(State::default(), Settings::default(), 0);
        for worker in 1..=workers {
            let (worker, address) = (WorkerId(worker), format!("w:{worker}"));
            let command = Command::RegisterWorker { worker, address, tags: vec![], slots: 1 };
            dispatcher.apply(0, command).unwrap();
        }
        let rank = |rank: u64| {
            let terms = Terms {
                feed: FeedId(1),
                label: "data".into(),
                world_size: costs.ranks,
                span_positions: SPAN_BATCHES,
                epoch_positions: costs.batches,
                sharding: Sharding::Portion,
                visitation: Visitation::ExactlyOnce,
            };
            let (who, from) = (who(rank as usize), Reached::default());
            dispatcher.apply(0, Command::AttachJob { who, terms, from, step: 0 }).unwrap();
            let world_size = costs.ranks;
            let settings = PullSettings {
                consumer: Consumer { rank, world_size, batch_size: 1, last_batch: LastBatch::Partial },
                sampler: forebay_core::plan::Sampler::stored(costs.batches),
                epochs: Some(1),
                window_batches: 0,
                ready_batches: READY_BATCHES,
                plan_ahead: READY_BATCHES + TOLD_AHEAD,
                routing: Routing::Spans(SPAN_BATCHES),
                home: None,
                skip_lost: false,
                late_ms: 60_000,
            };
            Pull::new(settings, &Cursor::start_of(0)).unwrap()
        };
        let ranks = (0..costs.ranks).map(rank).collect();
        Self {
            costs,
            now: 0,
            dispatcher,
            workers: (1..=workers).map(|worker| (worker, Worker::default())).collect(),
            ranks,
            coming: BinaryHeap::new(),
            events: 0,
            link_free: 0,
            link_busy: 0,
            taken: 0,
        }
    }

    fn at(&mut self, time: u64, happens: Happens) {
        self.events += 1;
        self.coming.push(Reverse((time, self.events, happens)));
    }

    /// Does what a rank wants until it wants nothing more, and takes what is there.
    fn drive(&mut self, rank: usize) {
        loop {
            while self.ranks[rank].deliver().is_some() {
                self.taken += 1;
            }
            let now = self.now / 1000;
            let actions = self.ranks[rank].drive(now);
            if actions.is_empty() {
                return;
            }
            for action in actions {
                match action {
                    Action::Plan { worker, names } => self.want(worker, names),
                    Action::Take { worker, request, name } => {
                        self.ranks[rank].attached(now, worker);
                        self.take(worker, rank, request, name);
                    }
                    Action::Locate { spans, .. } => {
                        let command = Command::Locate { who: who(rank), spans, avoid: vec![] };
                        let (reply, _) = self.dispatcher.apply(now, command).unwrap();
                        let Reply::Located(found) = reply else { panic!("nobody is there") };
                        let found: Vec<(Span, WorkerKey)> =
                            found.iter().map(|one| (one.span, one.worker.0)).collect();
                        self.ranks[rank].located(now, &found);
                    }
                    Action::Forget { .. } | Action::Passed(_) | Action::Close { .. } => {}
                }
            }
        }
    }

    fn want(&mut self, worker: WorkerKey, names: Vec<BatchName>) {
        let known = self.workers.get_mut(&worker).expect("a known worker");
        for name in names {
            if known.making.as_ref() != Some(&name) && !known.staged.contains(&name) {
                known.wanted.insert(name);
            }
        }
        self.work(worker);
    }

    fn take(&mut self, worker: WorkerKey, rank: usize, request: u64, name: BatchName) {
        let known = self.workers.get_mut(&worker).expect("a known worker");
        if known.staged.remove(&name) {
            return self.send(rank, request);
        }
        known.asked.insert(name.clone(), (rank, request));
        self.want(worker, vec![name]);
    }

    /// Begins with what is needed first, unless something is in hand.
    fn work(&mut self, worker: WorkerKey) {
        let known = self.workers.get_mut(&worker).expect("a known worker");
        if known.making.is_some() {
            return;
        }
        known.making = known.wanted.pop_first();
        if known.making.is_some() {
            known.busy_us += self.costs.prep_us;
            self.at(self.now + self.costs.prep_us, Happens::Made(worker));
        }
    }

    fn made(&mut self, worker: WorkerKey) {
        let known = self.workers.get_mut(&worker).expect("a known worker");
        let name = known.making.take().expect("it made something");
        match known.asked.remove(&name) {
            Some((rank, request)) => self.send(rank, request),
            None => {
                known.staged.insert(name);
            }
        }
        self.work(worker);
    }

    fn send(&mut self, rank: usize, request: u64) {
        let takes = (self.costs.batch_bytes * 1_000_000).div_ceil(self.costs.link_bytes_per_second);
        self.link_free = self.link_free.max(self.now) + takes;
        self.link_busy += takes;
        self.at(self.link_free, Happens::Arrived { rank, request });
    }

    fn arrived(&mut self, rank: usize, request: u64) {
        if let Arrival::Keep(_) = self.ranks[rank].arrived(self.now / 1000, request) {
            self.drive(rank);
        }
    }
}
