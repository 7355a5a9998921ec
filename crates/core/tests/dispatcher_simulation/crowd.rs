//! A thousand workers and ten thousand consumers in virtual time, with kills, restarts, cuts, delays, doubles and
//! reordering. `FOREBAY_SLOW=1` runs all thousand schedules, `FOREBAY_SEED=n` replays one.

use forebay_core::dispatcher::{
    Command, Dispatcher, Event, JobName, Load, Progress, Reached, Reply, Settings, Sharding, State, Terms,
    Visitation, Who, WorkerId,
};
use forebay_core::feed::{FeedId, Span};
use forebay_core::rng::Rng;
use forebay_core::{ErrorKind, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

const WORKERS: u64 = 1000;
const CONSUMERS: u64 = 10_000;
const RANKS: u64 = 1000;
const STEPS: u64 = 4000;
/// Milliseconds between two steps: a schedule lasts for several time-outs.
const STEP: u64 = 20;

fn who(number: u64, process: u64) -> Who {
    let job = JobName::new(format!("job-{}", number / RANKS)).unwrap();
    Who { job, rank: number % RANKS, consumer: process }
}

fn attach(number: u64, process: u64) -> Command {
    // The first job takes spans as they come, the others read portions of three feeds.
    let is_dynamic = number < RANKS;
    let terms = Terms {
        feed: FeedId(u128::from(number / RANKS % 3) + u128::from(is_dynamic) * 10),
        label: "data".into(),
        world_size: RANKS,
        span_positions: 1000,
        epoch_positions: 100_000_000,
        sharding: if is_dynamic { Sharding::Dynamic } else { Sharding::Portion },
        visitation: Visitation::ExactlyOnce,
    };
    Command::AttachJob { who: who(number, process), terms, from: Reached::default(), step: 0 }
}

fn register(worker: u64) -> Command {
    Command::RegisterWorker {
        worker: WorkerId(worker),
        address: format!("w{worker}"),
        tags: vec![],
        slots: 4,
    }
}

/// Everybody is there: the state that all schedules begin with, and the workers' incarnations.
fn gathered() -> &'static (State, Vec<u64>) {
    static GATHERED: OnceLock<(State, Vec<u64>)> = OnceLock::new();
    GATHERED.get_or_init(|| {
        let mut machine = Dispatcher::new(State::default(), Settings::default(), 0);
        let mut incarnations = Vec::new();
        for worker in 1..=WORKERS {
            if let (Reply::Registered { incarnation, .. }, _) = machine.apply(0, register(worker)).unwrap() {
                incarnations.push(incarnation);
            }
        }
        for number in 0..CONSUMERS {
            machine.apply(0, attach(number, number + 1)).unwrap();
        }
        (machine.state().clone(), incarnations)
    })
}

/// What must be true after every event.
struct Invariants {
    shadow: State,
    workers: BTreeSet<WorkerId>,
    last_lease: Option<u64>,
    /// Spans of the dynamic job in somebody's hand, by span and by rank, and those that are done.
    hands: BTreeMap<u64, u64>,
    done: BTreeSet<u64>,
}

impl Invariants {
    fn note(&mut self, event: &Event) {
        match event {
            Event::WorkerRegistered { worker, .. } => drop(self.workers.insert(*worker)),
            Event::WorkerLost { worker } => drop(self.workers.remove(worker)),
            Event::SpansLeased { leases, .. } => {
                for (_, _, worker, lease) in leases {
                    assert!(self.last_lease.is_none_or(|last| last < lease.0), "{lease:?} was given before");
                    self.last_lease = Some(lease.0);
                    assert!(self.workers.contains(worker), "a lease for {worker:?}, who is gone");
                }
            }
            Event::SpanTaken { rank, done, given, .. } => {
                for span in done {
                    assert_eq!(self.hands.remove(span), Some(*rank), "span {span} is done by who had it not");
                    assert!(self.done.insert(*span), "span {span} is done twice");
                }
                if let Some(span) = given {
                    assert!(!self.done.contains(span), "span {span} is given after it was done");
                    assert_eq!(self.hands.insert(*span, *rank), None, "span {span} is in two hands");
                }
            }
            Event::ConsumerLost { job, rank }
            | Event::ConsumerAttached { who: Who { job, rank, .. }, .. }
                if job.to_string() == "job-0" =>
            {
                self.hands.retain(|_, holder| holder != rank);
            }
            _ => {}
        }
    }
}

struct Crowd {
    rng: Rng,
    now: u64,
    machine: Dispatcher,
    /// What is on disk since everybody gathered.
    log: Vec<Event>,
    holds: Invariants,
    incarnations: Vec<Option<u64>>,
    processes: Vec<u64>,
    /// The dynamic job's ranks: their last request, and the span that they have.
    requests: Vec<(u64, Option<Span>)>,
    /// Whoever is cut off, and until when.
    cut: BTreeMap<u64, u64>,
    /// Commands that are late, by when they arrive.
    late: Vec<(u64, Command)>,
    /// Decisions, and those of them that took a millisecond or more.
    decided: (u64, u64),
}

impl Crowd {
    fn new(seed: u64) -> Self {
        let (state, incarnations) = gathered();
        Self {
            rng: Rng::keyed(seed, 0xC20, 0),
            now: 0,
            machine: Dispatcher::new(state.clone(), Settings::default(), 0),
            log: Vec::new(),
            holds: Invariants {
                shadow: state.clone(),
                workers: (1..=WORKERS).map(WorkerId).collect(),
                last_lease: None,
                hands: BTreeMap::new(),
                done: BTreeSet::new(),
            },
            incarnations: incarnations.iter().copied().map(Some).collect(),
            processes: (1..=CONSUMERS).collect(),
            requests: vec![(0, None); RANKS as usize],
            cut: BTreeMap::new(),
            late: Vec::new(),
            decided: (0, 0),
        }
    }

    fn obey(&mut self, command: Command) -> Result<Reply> {
        #[expect(clippy::disallowed_methods, reason = "what a decision costs is measured")]
        let began = Instant::now();
        let outcome = self.machine.apply(self.now, command);
        self.decided.0 += 1;
        self.decided.1 += u64::from(began.elapsed() >= Duration::from_millis(1));
        let (reply, events) = outcome?;
        for event in &events {
            self.holds.shadow.apply(event);
            self.holds.note(event);
        }
        assert_eq!(self.holds.shadow.sizes(), self.machine.state().sizes(), "{events:?}");
        if let Reply::Located(found) = &reply {
            assert!(found.iter().all(|one| self.holds.workers.contains(&one.worker)), "{found:?}");
        }
        self.log.extend(events);
        Ok(reply)
    }

    /// The network: a command may be lost, doubled, or come after others that were sent later.
    fn send(&mut self, command: Command) -> Option<Result<Reply>> {
        match self.rng.below(40) {
            0 => None,
            1 => {
                let at = self.now + self.rng.below(3000);
                self.late.push((at, command));
                None
            }
            2 => {
                let _ = self.obey(command.clone());
                Some(self.obey(command))
            }
            _ => Some(self.obey(command)),
        }
    }

    fn step(&mut self, step: u64) {
        self.now += STEP;
        let now = self.now;
        self.cut.retain(|_, until| *until > now);
        let (due, late) = std::mem::take(&mut self.late).into_iter().partition(|(at, _)| *at <= now);
        self.late = late;
        for (_, command) in due {
            let _ = self.obey(command);
        }
        self.beats(step);
        for _ in 0..3 {
            let number = self.rng.below(CONSUMERS);
            if !self.cut.contains_key(&number) {
                self.consumer(number, step);
            }
        }
        self.obey(Command::Tick).unwrap();
        if self.rng.below(200) == 0 {
            self.fault();
        }
    }

    /// Workers that are up say so in turn, each about once in ten seconds of its time-out.
    fn beats(&mut self, step: u64) {
        for worker in (0..8).map(|next| (step * 8 + next) % WORKERS) {
            let Some(incarnation) = self.incarnations[worker as usize] else { continue };
            let (id, load) = (WorkerId(worker + 1), Load::default());
            let said = self.send(Command::Heartbeat { worker: id, incarnation, load });
            if said.is_some_and(|said| said.is_err_and(|error| error.kind() == ErrorKind::Stale)) {
                self.register(worker);
            }
        }
    }

    fn register(&mut self, worker: u64) {
        if let Some(Ok(Reply::Registered { incarnation, .. })) = self.send(register(worker + 1)) {
            self.incarnations[worker as usize] = Some(incarnation);
        }
    }

    fn consumer(&mut self, number: u64, step: u64) {
        let who = who(number, self.processes[number as usize]);
        let spans: Vec<Span> = (0..2).map(|next| Span { epoch: 0, number: step / 4 + next }).collect();
        let lost = WorkerId(1 + self.rng.below(WORKERS));
        let command = match self.rng.below(8) {
            0 => Command::ReportLost { who, worker: lost, spans },
            1 | 2 => {
                let reached = Reached { epoch: 0, position: step / 4 * 1000 };
                Command::ReportProgress { who, progress: Progress { reached, step, ..Progress::default() } }
            }
            3 | 4 if number < RANKS => return self.take(number, who),
            _ => Command::Locate { who, spans, avoid: vec![lost] },
        };
        if let Some(Err(error)) = self.send(command)
            && error.kind() == ErrorKind::Stale
        {
            self.attach(number);
        }
    }

    fn take(&mut self, number: u64, who: Who) {
        let (request, hand) = self.requests[number as usize];
        let command =
            Command::TakeSpan { who, request: request + 1, epoch: 0, done: hand.into_iter().collect() };
        match self.send(command) {
            Some(Ok(Reply::Taken(span))) => self.requests[number as usize] = (request + 1, Some(span)),
            Some(Err(error)) if error.kind() == ErrorKind::Stale => self.attach(number),
            _ => {}
        }
    }

    /// Another process takes the place of a consumer.
    fn attach(&mut self, number: u64) {
        let process = self.rng.next_u64();
        self.processes[number as usize] = process;
        if number < RANKS {
            self.requests[number as usize] = (0, None);
        }
        let _ = self.send(attach(number, process));
    }

    fn fault(&mut self) {
        match self.rng.below(6) {
            0 => {
                // The dispatcher dies, and forgets what need not be on disk.
                while self.rng.below(3) > 0 && self.log.last().is_some_and(|event| !event.is_durable()) {
                    self.log.pop();
                }
                let mut state = gathered().0.clone();
                self.log.iter().for_each(|event| state.apply(event));
                self.holds.shadow = state.clone();
                self.machine = Dispatcher::new(state, Settings::default(), self.now);
            }
            1 => {
                // A rack is gone.
                let first = self.rng.below(WORKERS);
                for worker in (first..first + 40).map(|worker| worker % WORKERS) {
                    self.incarnations[worker as usize] = None;
                }
            }
            2 => {
                let down: Vec<u64> =
                    (0..WORKERS).filter(|worker| self.incarnations[*worker as usize].is_none()).collect();
                for worker in down {
                    self.register(worker);
                }
            }
            3 => {
                let worker = WorkerId(1 + self.rng.below(WORKERS));
                let _ = self.obey(Command::DrainWorker { worker });
            }
            4 => {
                // A switch cuts two hundred consumers off, for longer than they are waited for or not.
                let (first, time) = (self.rng.below(CONSUMERS), self.rng.below(60_000));
                let until = self.now + time;
                self.cut.extend((first..first + 200).map(|number| (number % CONSUMERS, until)));
            }
            _ => {
                let number = self.rng.below(CONSUMERS);
                self.attach(number);
            }
        }
    }
}

fn schedule(seed: u64) -> (u64, u64) {
    let mut crowd = Crowd::new(seed);
    for step in 0..STEPS {
        crowd.step(step);
        if step % 1000 == 999 {
            assert_eq!(crowd.holds.shadow, *crowd.machine.state(), "events do not give the state");
        }
    }
    crowd.decided
}

#[test]
fn p056_p057_a_thousand_workers_and_ten_thousand_consumers_decide_in_time_whatever_goes_wrong() {
    let counts = crate::each_seed("crowd", 3, schedule);
    let (all, slow) = counts.iter().fold((0, 0), |(all, slow), count| (all + count.0, slow + count.1));
    // The machine that runs this does other things too, now and then in the middle of a decision.
    assert!(slow * 100 < all, "{slow} of {all} decisions took a millisecond or more");
}
