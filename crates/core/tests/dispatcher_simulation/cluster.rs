//! The network, the clock and the faults of a simulated cluster, and its workers.

use crate::consumer::{Consumer, content};
use crate::hub::Hub;
use forebay_core::dispatcher::{Command, Load, Reply, Sharding, Visitation, WorkerId};
use forebay_core::feed::FeedId;
use forebay_core::rng::Rng;
use forebay_core::{ErrorKind, Result};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// How often everybody looks around, in milliseconds.
const WAKE: u64 = 50;

/// Faults happen before this.
const TROUBLED: u64 = 5000;

/// Everybody must be done by then.
const END: u64 = 300_000;

/// What kind of cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) sharding: Sharding,
    pub(crate) visitation: Visitation,
    /// Whether consumers are killed and cut off for longer than the dispatcher waits.
    pub(crate) loses_consumers: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Node {
    Hub,
    Worker(usize),
    Consumer(usize),
}

#[derive(Clone, Debug)]
pub(crate) enum Message {
    Call(u64, Command),
    Answer(u64, Result<Reply, ErrorKind>),
    /// A consumer wants the batch at an epoch and position of a feed.
    Want(FeedId, u64, u64),
    Batch(u64, u64, u64),
    Wake,
    Restart,
    Fault,
}

#[derive(Debug)]
struct Worker {
    id: WorkerId,
    is_up: bool,
    incarnation: Option<u64>,
    beat: u64,
    registers: Option<u64>,
}

pub(crate) struct Cluster {
    pub(crate) now: u64,
    pub(crate) rng: Rng,
    pub(crate) shape: Shape,
    hub: Hub,
    workers: Vec<Worker>,
    pub(crate) consumers: Vec<Consumer>,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    letters: BTreeMap<u64, (Node, Node, Message)>,
    sent: u64,
    calls: u64,
    cuts: Vec<(Node, Node, u64)>,
    loses: f64,
    doubles: f64,
    dawdles: f64,
}

impl Cluster {
    pub(crate) fn new(seed: u64, shape: Shape) -> Self {
        let mut rng = Rng::keyed(seed, 0xD15, 0);
        let worker = |number| Worker {
            id: WorkerId(number),
            is_up: true,
            incarnation: None,
            beat: 0,
            registers: None,
        };
        let workers = (0..3).map(|_| worker(rng.next_u64())).collect();
        let shares = rng.chance(0.5);
        let consumers = (0..4).map(|number| Consumer::new(number, shape, shares, rng.next_u64())).collect();
        let (loses, doubles, dawdles) =
            (rng.uniform(0.0, 0.1), rng.uniform(0.0, 0.1), rng.uniform(0.0, 0.05));
        let mut cluster = Self {
            now: 0,
            rng,
            shape,
            hub: Hub::new(),
            workers,
            consumers,
            queue: BinaryHeap::new(),
            letters: BTreeMap::new(),
            sent: 0,
            calls: 0,
            cuts: Vec::new(),
            loses,
            doubles,
            dawdles,
        };
        let nodes = [Node::Hub].into_iter();
        let nodes = nodes.chain((0..3).map(Node::Worker)).chain((0..4).map(Node::Consumer));
        for node in nodes {
            let at = cluster.rng.below(WAKE);
            cluster.post(at, node, node, Message::Wake);
        }
        for _ in 0..2 + cluster.rng.below(8) {
            let at = cluster.rng.below(TROUBLED);
            cluster.post(at, Node::Hub, Node::Hub, Message::Fault);
        }
        cluster
    }

    pub(crate) fn run(mut self) -> bool {
        while self.consumers.iter().any(|consumer| !consumer.is_finished()) {
            let Some(Reverse((at, number))) = self.queue.pop() else { panic!("nothing happens any more") };
            assert!(at < END, "not done at {at}: {:#?}", self.consumers);
            self.now = at;
            let (from, to, message) = self.letters.remove(&number).unwrap();
            self.deliver(from, to, message);
        }
        crate::consumer::verdict(&self.consumers, self.shape, &self.hub)
    }

    /// Gives a command to the dispatcher; the answer comes with this number.
    pub(crate) fn call(&mut self, from: Node, command: Command) -> u64 {
        self.calls += 1;
        let id = self.calls;
        self.send(from, Node::Hub, Message::Call(id, command));
        id
    }

    /// Sends over the network, which does what it likes.
    #[expect(clippy::needless_pass_by_value, reason = "who sends a message has no further use for it")]
    pub(crate) fn send(&mut self, from: Node, to: Node, message: Message) {
        let troubled = self.now < TROUBLED;
        let cut = |a, b, until: u64| until > self.now && ((a, b) == (from, to) || (b, a) == (from, to));
        if self.cuts.iter().any(|(a, b, until)| cut(*a, *b, *until))
            || troubled && self.rng.chance(self.loses)
        {
            return;
        }
        let copies = if troubled && self.rng.chance(self.doubles) { 2 } else { 1 };
        for _ in 0..copies {
            let late = if troubled && self.rng.chance(self.dawdles) { self.rng.below(3000) } else { 0 };
            let delay = 1 + self.rng.below(20) + late;
            self.post(delay, from, to, message.clone());
        }
    }

    fn post(&mut self, delay: u64, from: Node, to: Node, message: Message) {
        self.sent += 1;
        self.queue.push(Reverse((self.now + delay, self.sent)));
        self.letters.insert(self.sent, (from, to, message));
    }

    fn deliver(&mut self, from: Node, to: Node, message: Message) {
        match (to, message) {
            (_, Message::Fault) => self.fault(),
            (Node::Hub, Message::Restart) => self.hub.start(self.now),
            (Node::Hub, Message::Wake) => {
                let _ = self.hub.obey(self.now, Command::Tick);
                if self.rng.chance(0.02) {
                    self.hub.compact();
                }
                self.post(WAKE, to, to, Message::Wake);
            }
            (Node::Hub, Message::Call(id, command)) => {
                if self.hub.is_up() {
                    let answer = self.hub.obey(self.now, command);
                    self.send(to, from, Message::Answer(id, answer));
                }
            }
            (Node::Worker(worker), message) => self.worker(worker, from, message),
            (Node::Consumer(number), Message::Restart) => {
                let process = self.rng.next_u64();
                self.consumers[number].restart(process);
            }
            (Node::Consumer(number), message) => {
                let is_wake = matches!(message, Message::Wake);
                // A consumer talks to the cluster while it is being changed.
                let mut consumer = std::mem::take(&mut self.consumers[number]);
                consumer.hear(self, message);
                self.consumers[number] = consumer;
                if is_wake {
                    self.post(WAKE, to, to, Message::Wake);
                }
            }
            (Node::Hub, _) => {}
        }
    }

    fn worker(&mut self, number: usize, from: Node, message: Message) {
        let me = Node::Worker(number);
        let (now, fresh) = (self.now, self.rng.next_u64());
        let worker = &mut self.workers[number];
        match message {
            Message::Wake => {
                self.post(WAKE, me, me, Message::Wake);
                let worker = &self.workers[number];
                if !worker.is_up || now < worker.beat {
                    return;
                }
                let id = worker.id;
                let command = if let Some(incarnation) = worker.incarnation {
                    Command::Heartbeat { worker: id, incarnation, load: Load::default() }
                } else {
                    let address = number.to_string();
                    Command::RegisterWorker { worker: id, address, tags: vec![], slots: 1 + number as u32 }
                };
                let registers = worker.incarnation.is_none();
                let call = self.call(me, command);
                let worker = &mut self.workers[number];
                worker.beat = now + 200;
                if registers {
                    worker.registers = Some(call);
                }
            }
            Message::Restart => {
                *worker =
                    Worker { id: WorkerId(fresh), is_up: true, incarnation: None, beat: 0, registers: None };
            }
            _ if !worker.is_up => {}
            Message::Answer(call, Ok(Reply::Registered { incarnation, .. }))
                if worker.registers == Some(call) =>
            {
                worker.incarnation = Some(incarnation);
            }
            Message::Answer(_, Err(ErrorKind::Stale)) => (worker.incarnation, worker.beat) = (None, 0),
            Message::Answer(_, Ok(Reply::Heartbeat(told))) if told.drain && told.leases == 0 => {
                // Drained: it leaves, and another one comes in its place.
                worker.is_up = false;
                self.post(500, me, me, Message::Restart);
            }
            Message::Want(feed, epoch, first) => {
                self.send(me, from, Message::Batch(epoch, first, content(feed, epoch, first)));
            }
            _ => {}
        }
    }

    fn fault(&mut self) {
        let (worker, other) = (self.rng.below(3) as usize, self.rng.below(4) as usize);
        let down = 50 + self.rng.below(2500);
        match self.rng.below(if self.shape.loses_consumers { 8 } else { 6 }) {
            0 | 1 if self.workers[worker].is_up => {
                self.workers[worker].is_up = false;
                self.post(down, Node::Hub, Node::Worker(worker), Message::Restart);
            }
            2 | 3 if self.hub.is_up() => {
                let forgets = self.rng.below(4) as usize;
                self.hub.kill(forgets);
                self.post(down, Node::Hub, Node::Hub, Message::Restart);
            }
            4 => {
                // Short enough that nobody is given up, unless that is wanted.
                let most = if self.shape.loses_consumers { 3500 } else { 1000 };
                let cut = match self.rng.below(3) {
                    0 => (Node::Hub, Node::Worker(worker)),
                    1 => (Node::Consumer(other), Node::Worker(worker)),
                    _ => (Node::Hub, Node::Consumer(other)),
                };
                let until = self.now + 50 + self.rng.below(most);
                self.cuts.push((cut.0, cut.1, until));
            }
            5 => {
                let worker = self.workers[worker].id;
                let _ = self.hub.obey(self.now, Command::DrainWorker { worker });
            }
            6 | 7 if self.consumers[other].is_up() => {
                self.consumers[other].kill();
                self.post(down, Node::Hub, Node::Consumer(other), Message::Restart);
            }
            _ => {}
        }
    }
}
