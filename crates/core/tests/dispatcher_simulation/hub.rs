//! The dispatcher of a simulated cluster, and what must be true of it after every command.

use forebay_core::dispatcher::{
    Command, Dispatcher, Event, JobName, LeaseId, Reply, Settings, State, WorkerId,
};
use forebay_core::feed::{FeedId, Span};
use forebay_core::{ErrorKind, Result};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) const SETTINGS: Settings = Settings {
    worker_timeout_ms: 1000,
    consumer_timeout_ms: 2000,
    job_timeout_ms: 600_000,
    max_workers: 64,
    max_jobs: 64,
    max_consumers: 64,
    max_in_hand: 8,
};

pub(crate) struct Hub {
    machine: Option<Dispatcher>,
    /// What is on disk.
    log: Vec<Event>,
    shadow: State,
    /// Every lease that was ever given.
    leases: BTreeMap<LeaseId, (FeedId, Span, WorkerId)>,
    /// Every span that was ever given or done: how often.
    pub(crate) given: BTreeMap<(JobName, u64, u64), u64>,
    pub(crate) done: BTreeMap<(JobName, u64, u64), u64>,
    epochs: BTreeMap<JobName, u64>,
    /// Consumers that were given up or replaced.
    pub(crate) lost: u64,
    attached: BTreeSet<(JobName, u64)>,
}

impl Hub {
    pub(crate) fn new() -> Self {
        Self {
            machine: Some(Dispatcher::new(State::default(), SETTINGS, 0)),
            log: Vec::new(),
            shadow: State::default(),
            leases: BTreeMap::new(),
            given: BTreeMap::new(),
            done: BTreeMap::new(),
            epochs: BTreeMap::new(),
            lost: 0,
            attached: BTreeSet::new(),
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.machine.is_some()
    }

    /// Ends it. What need not be on disk before an answer may be lost with it.
    pub(crate) fn kill(&mut self, forgets: usize) {
        self.machine = None;
        for _ in 0..forgets {
            if self.log.last().is_some_and(|event| !event.is_durable()) {
                self.log.pop();
            }
        }
    }

    pub(crate) fn start(&mut self, now: u64) {
        self.shadow = State::replay(&self.log);
        self.machine = Some(Dispatcher::new(self.shadow.clone(), SETTINGS, now));
    }

    /// Writes the journal anew.
    pub(crate) fn compact(&mut self) {
        if let Some(machine) = &self.machine {
            self.log = machine.state().events();
            assert_eq!(State::replay(&self.log), *machine.state(), "a shorter journal gives another state");
        }
    }

    pub(crate) fn obey(&mut self, now: u64, command: Command) -> Result<Reply, ErrorKind> {
        let Some(machine) = &mut self.machine else { return Err(ErrorKind::Unavailable) };
        let lapses = command == Command::Tick;
        let (reply, events) = match machine.apply(now, command) {
            Ok(done) => done,
            Err(error) => return Err(error.kind()),
        };
        for event in &events {
            self.shadow.apply(event);
        }
        assert_eq!(self.shadow, *machine.state(), "events {events:#?} do not give the state");
        for event in &events {
            self.note(event, lapses);
        }
        self.check();
        self.log.extend(events);
        Ok(reply)
    }

    fn note(&mut self, event: &Event, lapses: bool) {
        match event {
            Event::SpansLeased { feed, leases } => {
                for (epoch, number, worker, id) in leases {
                    let lease = (*feed, Span { epoch: *epoch, number: *number }, *worker);
                    let before = self.leases.insert(*id, lease);
                    assert_eq!(before, None, "lease {id:?} was given twice");
                }
            }
            Event::EpochStarted { job, epoch, .. } => {
                let before = self.epochs.insert(job.clone(), *epoch);
                assert!(before.is_none_or(|before| before < *epoch), "{job} began epoch {epoch} again");
            }
            Event::SpanTaken { job, done, given, .. } => {
                let epoch = self.epochs[job];
                for number in done {
                    let times = self.done.entry((job.clone(), epoch, *number)).or_default();
                    *times += 1;
                    assert_eq!(*times, 1, "span {number} of epoch {epoch} of {job} is done twice");
                }
                if let Some(number) = given {
                    *self.given.entry((job.clone(), epoch, *number)).or_default() += 1;
                }
            }
            Event::ConsumerAttached { who, .. } => {
                let is_new = self.attached.insert((who.job.clone(), who.rank));
                self.lost += u64::from(!is_new);
            }
            Event::ConsumerLost { job, rank } => {
                self.attached.remove(&(job.clone(), *rank));
                self.lost += u64::from(lapses);
            }
            Event::JobDetached { job } => self.attached.retain(|(name, _)| name != job),
            _ => {}
        }
    }

    fn check(&self) {
        let Some(machine) = &self.machine else { return };
        let state = machine.state();
        let [workers, jobs, consumers, leases] = state.sizes();
        assert!(workers <= 16 && jobs <= 2 && consumers <= 4, "{:?}", state.sizes());
        // Two epochs of two feeds at most: nobody is further apart.
        assert!(leases <= 2 * 2 * 30, "{leases} leases are remembered");
        let mut ids = BTreeSet::new();
        for (feed, span, worker, id) in state.all_leases() {
            assert!(ids.insert(id), "lease {id:?} is held twice");
            assert_eq!(self.leases.get(&id), Some(&(feed, span, worker)), "nobody gave lease {id:?}");
        }
    }
}
