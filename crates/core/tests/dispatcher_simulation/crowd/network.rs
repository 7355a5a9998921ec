//! A crowd at work: the clock, the network between everybody and the dispatcher, and the journal it comes back from.

use super::Outcome;
use super::cast::{Cast, SPAN, attach, is_dynamic, register, who};
use super::faults::{Broken, Fault};
use super::rules::Rules;
use forebay_core::dispatcher::{
    Command, Dispatcher, Event, Load, Progress, Reached, Reply, Settings, State, Who, WorkerId,
};
use forebay_core::feed::Span;
use forebay_core::rng::{Rng, fold};
use forebay_core::{Error, ErrorKind, Result};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Milliseconds between two steps: a schedule lasts for several time-outs.
const STEP: u64 = 20;

/// One who can be cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Node {
    Worker(u64),
    Consumer(u64),
}

/// A command on its way for longer than usual.
struct Late {
    at: u64,
    sent: u64,
    command: Command,
}

pub(super) struct Crowd {
    pub(super) cast: &'static Cast,
    pub(super) rng: Rng,
    pub(super) now: u64,
    /// None while it is down, with the time at which it is back.
    machine: Result<Dispatcher, u64>,
    /// What is on disk: a state, and what happened since.
    base: State,
    log: Vec<Event>,
    rules: Rules,
    pub(super) incarnations: Vec<Option<u64>>,
    processes: Vec<u64>,
    /// The dynamic job's ranks: their last request, and the span that they have.
    requests: Vec<(u64, Option<Span>)>,
    /// Who is cut off, and until when.
    pub(super) cut: BTreeMap<Node, u64>,
    late: Vec<Late>,
    /// Commands sent, and the last one of them that arrived.
    sent: u64,
    arrived: u64,
    is_peace: bool,
    pub(super) broken: Broken,
    outcome: Outcome,
}

impl Crowd {
    pub(super) fn new(cast: &'static Cast, seed: u64) -> Self {
        Self {
            cast,
            rng: Rng::keyed(seed, 0xC20, 0),
            now: 0,
            machine: Ok(Dispatcher::new(cast.state.clone(), Settings::default(), 0)),
            base: cast.state.clone(),
            log: Vec::new(),
            rules: Rules::new(&cast.state, cast.size.workers),
            incarnations: cast.incarnations.iter().copied().map(Some).collect(),
            processes: (1..=cast.size.consumers()).collect(),
            requests: vec![(0, None); cast.size.ranks as usize],
            cut: BTreeMap::new(),
            late: Vec::new(),
            sent: 0,
            arrived: 0,
            is_peace: false,
            broken: Broken::default(),
            outcome: Outcome::default(),
        }
    }

    pub(super) fn outcome(self) -> Outcome {
        Outcome { broken: self.broken, ..self.outcome }
    }

    /// Gives a command to the dispatcher and checks all that must be true.
    pub(super) fn obey(&mut self, command: Command) -> Result<Reply> {
        let Ok(machine) = &mut self.machine else { return Err(Error::unavailable("it is down")) };
        #[expect(clippy::disallowed_methods, reason = "what a decision costs is measured")]
        let began = Instant::now();
        let outcome = machine.apply(self.now, command);
        self.outcome.decided += 1;
        self.outcome.slow += u64::from(began.elapsed() >= Duration::from_millis(1));
        let (reply, events) = outcome?;
        for event in &events {
            self.rules.note(event);
        }
        self.rules.check(machine.state(), &reply);
        if self.cast.size.compares == 0 && !events.is_empty() {
            self.rules.compare(machine.state());
            self.outcome.events = events.iter().fold(self.outcome.events, |all, event| {
                format!("{event:?}").bytes().fold(all, |all, byte| fold(&[all, byte.into()]))
            });
        }
        self.log.extend(events);
        Ok(reply)
    }

    /// The network: a command may be lost, doubled, or come after others that were sent later; an answer may be lost.
    fn send(&mut self, from: Node, command: Command) -> Option<Result<Reply>> {
        if self.cut.contains_key(&from) {
            return None;
        }
        self.sent += 1;
        match self.rng.below(40) {
            _ if self.is_peace => Some(self.obey(command)),
            0 => None,
            1 => {
                self.broken.count(Fault::Delay);
                let at = self.now + self.rng.below(3000);
                self.late.push(Late { at, sent: self.sent, command });
                None
            }
            2 => {
                self.broken.count(Fault::Duplicate);
                let _ = self.obey(command.clone());
                self.arrived = self.sent;
                Some(self.obey(command))
            }
            3 => {
                let _ = self.obey(command);
                None
            }
            _ => {
                self.arrived = self.sent;
                Some(self.obey(command))
            }
        }
    }

    pub(super) fn step(&mut self, step: u64) {
        self.pass();
        self.beats(step);
        for _ in 0..3 {
            let number = self.rng.below(self.cast.size.consumers());
            self.consumer(number, step);
        }
        if self.rng.below(100) == 0 {
            self.break_something();
        }
        let compares = self.cast.size.compares;
        if compares > 0 && step % compares == compares - 1 {
            self.compare();
        }
    }

    /// Time passes: what is late arrives, who was cut off or down is back.
    fn pass(&mut self) {
        self.now += STEP;
        let now = self.now;
        self.cut.retain(|_, until| *until > now);
        if self.machine.as_ref().is_err_and(|until| *until <= now) {
            self.start_dispatcher();
        }
        let (due, late) = std::mem::take(&mut self.late).into_iter().partition(|late| late.at <= now);
        self.late = late;
        for late in due {
            if late.sent < self.arrived {
                self.broken.count(Fault::Reorder);
            }
            let _ = self.obey(late.command);
        }
        let _ = self.obey(Command::Tick);
    }

    /// Workers that are up say so in turn, each well within its time-out.
    fn beats(&mut self, step: u64) {
        let workers = self.cast.size.workers;
        for worker in (0..8).map(|next| (step * 8 + next) % workers) {
            let Some(incarnation) = self.incarnations[worker as usize] else { continue };
            let beat =
                Command::Heartbeat { worker: WorkerId(worker + 1), incarnation, load: Load::default() };
            let said = self.send(Node::Worker(worker), beat);
            if said.is_some_and(|said| said.is_err_and(|error| error.kind() == ErrorKind::Stale)) {
                self.register(worker);
            }
        }
    }

    pub(super) fn register(&mut self, worker: u64) {
        if let Some(Ok(Reply::Registered { incarnation, .. })) =
            self.send(Node::Worker(worker), register(worker))
        {
            self.incarnations[worker as usize] = Some(incarnation);
        }
    }

    fn who(&self, number: u64) -> Who {
        who(&self.cast.size, number, self.processes[number as usize])
    }

    fn consumer(&mut self, number: u64, step: u64) {
        let who = self.who(number);
        let first = step / 4 % (self.cast.size.spans - 1);
        let spans: Vec<Span> = (first..first + 2).map(|number| Span { epoch: 0, number }).collect();
        let lost = WorkerId(1 + self.rng.below(self.cast.size.workers));
        let command = match self.rng.below(8) {
            0 => Command::ReportLost { who, worker: lost, spans },
            1 | 2 => {
                let reached = Reached { epoch: 0, position: first * SPAN };
                Command::ReportProgress { who, progress: Progress { reached, step, ..Progress::default() } }
            }
            3..6 if is_dynamic(&self.cast.size, number) => return drop(self.take(number)),
            _ => Command::Locate { who, spans, avoid: vec![lost] },
        };
        if let Some(Err(error)) = self.send(Node::Consumer(number), command)
            && error.kind() == ErrorKind::Stale
        {
            self.attach(number);
        }
    }

    /// A rank of the dynamic job says that it is done with what it has, and asks for more.
    fn take(&mut self, number: u64) -> Option<Reply> {
        let (request, hand) = self.requests[number as usize];
        let (who, done) = (self.who(number), hand.into_iter().collect());
        let command = Command::TakeSpan { who, request: request + 1, epoch: 0, done };
        match self.send(Node::Consumer(number), command)? {
            Ok(reply) => {
                let hand = if let Reply::Taken(span) = reply { Some(span) } else { None };
                self.requests[number as usize] = (request + 1, hand);
                Some(reply)
            }
            Err(error) => {
                if error.kind() == ErrorKind::Stale {
                    self.attach(number);
                }
                None
            }
        }
    }

    /// Another process takes the place of a consumer.
    pub(super) fn attach(&mut self, number: u64) {
        let process = self.rng.next_u64();
        self.processes[number as usize] = process;
        if is_dynamic(&self.cast.size, number) {
            self.requests[number as usize] = (0, None);
        }
        let _ = self.send(Node::Consumer(number), attach(&self.cast.size, number, process));
    }

    pub(super) fn kill_dispatcher(&mut self, time: u64) {
        let Ok(machine) = &self.machine else { return };
        if self.rng.chance(0.3) {
            // Its journal was written anew before.
            self.base = State::replay(&machine.state().events());
            assert_eq!(self.base, *machine.state(), "a shorter journal gives another state");
            self.log.clear();
        }
        while self.rng.below(3) > 0 && self.log.last().is_some_and(|event| !event.is_durable()) {
            self.log.pop();
        }
        self.machine = Err(self.now + time);
    }

    fn start_dispatcher(&mut self) {
        self.broken.count(Fault::Restart);
        let mut state = self.base.clone();
        self.log.iter().for_each(|event| state.apply(event));
        self.rules.shadow = state.clone();
        self.machine = Ok(Dispatcher::new(state, Settings::default(), self.now));
    }

    fn compare(&self) {
        if let Ok(machine) = &self.machine {
            self.rules.compare(machine.state());
        }
    }

    /// Nothing more goes wrong: whoever is there does what is left, and every span is done once.
    pub(super) fn make_peace(&mut self) {
        let size = self.cast.size;
        self.cut.clear();
        if self.machine.is_err() {
            self.start_dispatcher();
        }
        while !self.late.is_empty() {
            self.pass();
        }
        self.is_peace = true;
        let mut rounds = 0..100;
        while !(0..size.ranks).any(|number| matches!(self.take(number), Some(Reply::EpochEnded { .. }))) {
            assert!(rounds.next().is_some(), "{} of {} spans are done", self.rules.done(), size.spans);
            self.pass();
        }
        assert_eq!(self.rules.done() as u64, size.spans, "an epoch has ended before all was done");
        self.compare();
    }
}
