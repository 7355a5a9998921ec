//! A client of the simulated cluster: it has a cursor, finds out who prepares what it wants, asks, and asks elsewhere
//! when nobody answers. What it received is judged at the end.

use crate::cluster::{Cluster, Message, Node, Shape};
use crate::hub::Hub;
use forebay_core::ErrorKind;
use forebay_core::dispatcher::{
    Command, JobName, Progress, Reached, Reply, Sharding, Terms, Visitation, Who, WorkerId,
};
use forebay_core::feed::{FeedId, Span};
use forebay_core::rng::fold;
use std::collections::{BTreeMap, BTreeSet};

const EPOCHS: u64 = 2;
const POSITIONS: u64 = 240;
const SPAN: u64 = 8;
const BATCH: u64 = 4;
const RANKS: u64 = 2;

/// Batches wanted at a time.
const AHEAD: usize = 3;

/// Milliseconds without an answer after which it asks again.
const PATIENCE: u64 = 150;

/// The bytes of a batch, so to say.
pub(crate) fn content(feed: FeedId, epoch: u64, first: u64) -> u64 {
    fold(&[feed.0 as u64, epoch, first])
}

type Batch = (u64, u64);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Life {
    #[default]
    Up,
    Down,
    Finished,
}

#[derive(Debug, Default)]
pub(crate) struct Consumer {
    number: usize,
    who: Option<(Who, Terms)>,
    life: Life,
    is_attached: bool,
    /// The call that waits for an answer: its numbers (it was sent more than once) and when it was sent last.
    waits: Option<(BTreeSet<u64>, u64, Command)>,
    /// When to tell how far it is, and to look for a span again.
    tells: u64,
    /// Where spans are prepared.
    places: BTreeMap<Span, (WorkerId, usize)>,
    lost: Vec<(WorkerId, Span)>,
    asked: BTreeMap<Batch, u64>,
    arrived: BTreeSet<Batch>,
    /// Static sharding: the next step, what was received, and both as last saved.
    step: u64,
    received: Vec<Batch>,
    saved: (u64, usize),
    /// Dynamic sharding.
    epoch: u64,
    request: u64,
    hand: Option<Span>,
    done: Vec<Span>,
    /// Spans received by all processes of this rank, for good.
    pub(crate) spans: Vec<Span>,
}

impl Consumer {
    pub(crate) fn new(number: u64, shape: Shape, shares: bool, process: u64) -> Self {
        // Two jobs of two ranks, of one feed or of two.
        let job = number / RANKS;
        let feed = FeedId(if shares { 1 } else { 1 + u128::from(job) });
        let terms = Terms {
            feed,
            label: "data".into(),
            world_size: RANKS,
            span_positions: SPAN,
            epoch_positions: POSITIONS,
            sharding: shape.sharding,
            visitation: shape.visitation,
        };
        let name = JobName::new(format!("job-{job}")).unwrap();
        let who = Who { job: name, rank: number % RANKS, consumer: process };
        Self { number: number as usize, who: Some((who, terms)), ..Self::default() }
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.life == Life::Finished
    }

    pub(crate) fn is_up(&self) -> bool {
        self.life == Life::Up
    }

    pub(crate) fn kill(&mut self) {
        self.life = Life::Down;
    }

    /// Another process for this rank: it knows what the user saved, and nothing else.
    pub(crate) fn restart(&mut self, process: u64) {
        let (mut who, terms) = self.who.take().unwrap();
        who.consumer = process;
        let (step, length) = self.saved;
        let mut received = std::mem::take(&mut self.received);
        received.truncate(length);
        *self = Self {
            number: self.number,
            who: Some((who, terms)),
            saved: self.saved,
            step,
            received,
            epoch: self.epoch,
            spans: std::mem::take(&mut self.spans),
            ..Self::default()
        };
    }

    fn who(&self) -> &Who {
        &self.who.as_ref().unwrap().0
    }

    fn terms(&self) -> &Terms {
        &self.who.as_ref().unwrap().1
    }

    fn is_dynamic(&self) -> bool {
        self.terms().is_dynamic()
    }

    pub(crate) fn hear(&mut self, cluster: &mut Cluster, message: Message) {
        if self.life != Life::Up {
            return;
        }
        match message {
            Message::Batch(epoch, first, bytes) => {
                assert_eq!(bytes, content(self.terms().feed, epoch, first), "another batch came");
                if self.wanted().contains(&(epoch, first)) {
                    self.asked.remove(&(epoch, first));
                    self.arrived.insert((epoch, first));
                }
            }
            Message::Answer(id, outcome)
                if self.waits.as_ref().is_some_and(|(ids, _, _)| ids.contains(&id)) =>
            {
                let (_, _, command) = self.waits.take().unwrap();
                let peer_finished = cluster.consumers[self.number ^ 1].is_finished();
                self.answered(peer_finished, &command, outcome);
                self.ask(cluster);
            }
            Message::Wake => {
                self.take();
                self.ask(cluster);
            }
            _ => {}
        }
    }

    /// The batches it wants now, in order.
    fn wanted(&self) -> Vec<Batch> {
        if self.is_dynamic() {
            let Some(span) = self.hand else { return vec![] };
            let first = span.number * SPAN;
            return (first..(first + SPAN).min(POSITIONS))
                .step_by(BATCH as usize)
                .map(|first| (span.epoch, first))
                .collect();
        }
        (self.step..(self.step + AHEAD as u64).min(EPOCHS * steps())).map(|step| self.batch(step)).collect()
    }

    /// Global step `s` gives rank `r` batch `s * ranks + r` of its epoch.
    fn batch(&self, step: u64) -> Batch {
        (step / steps(), (step % steps() * RANKS + self.who().rank) * BATCH)
    }

    /// The training loop takes one batch.
    fn take(&mut self) {
        let wanted = self.wanted();
        if self.is_dynamic() {
            if self.hand.is_some() && wanted.iter().all(|batch| self.arrived.contains(batch)) {
                let span = self.hand.take().unwrap();
                self.spans.push(span);
                self.done.push(span);
                self.arrived.clear();
            }
        } else if let Some(next) = wanted.first().filter(|next| self.arrived.remove(*next)) {
            self.received.push(*next);
            self.step += 1;
            if self.step.is_multiple_of(7) {
                self.saved = (self.step, self.received.len());
            }
        }
    }

    fn reached(&self) -> Reached {
        if self.is_dynamic() {
            return Reached { epoch: self.epoch, position: 0 };
        }
        let (epoch, position) = self.batch(self.step);
        Reached { epoch, position }
    }

    /// Asks whom there is something to ask.
    fn ask(&mut self, cluster: &mut Cluster) {
        let me = Node::Consumer(self.number);
        if !self.is_dynamic() && self.step == EPOCHS * steps() {
            self.life = Life::Finished;
        }
        if self.is_finished() {
            cluster.call(me, Command::DetachJob { who: self.who().clone() });
            return;
        }
        match &mut self.waits {
            Some((ids, at, command)) if *at + PATIENCE <= cluster.now => {
                ids.insert(cluster.call(me, command.clone()));
                *at = cluster.now;
            }
            Some(_) => {}
            None => {
                if let Some(command) = self.next_command(cluster.now) {
                    let id = cluster.call(me, command.clone());
                    self.waits = Some((BTreeSet::from([id]), cluster.now, command));
                }
            }
        }
        for batch in self.wanted() {
            let span = Span { epoch: batch.0, number: batch.1 / SPAN };
            let Some((worker, address)) = self.places.get(&span).copied() else { continue };
            match self.asked.get(&batch) {
                _ if self.arrived.contains(&batch) => {}
                Some(at) if *at + PATIENCE <= cluster.now => {
                    // Nobody answered: the dispatcher is told, and says where to go.
                    self.places.remove(&span);
                    self.asked.remove(&batch);
                    self.lost.push((worker, span));
                }
                Some(_) => {}
                None => {
                    self.asked.insert(batch, cluster.now);
                    let want = Message::Want(self.terms().feed, batch.0, batch.1);
                    cluster.send(me, Node::Worker(address), want);
                }
            }
        }
    }

    fn next_command(&mut self, now: u64) -> Option<Command> {
        let who = self.who().clone();
        if !self.is_attached {
            let (terms, from) = (self.terms().clone(), self.reached());
            return Some(Command::AttachJob { who, terms, from, step: self.step });
        }
        if now >= self.tells {
            self.tells = now + 200;
            let progress = Progress { reached: self.reached(), step: self.step, ..Progress::default() };
            return Some(Command::ReportProgress { who, progress });
        }
        if let Some((worker, span)) = self.lost.pop() {
            return Some(Command::ReportLost { who, worker, spans: vec![span] });
        }
        let mut spans: Vec<Span> =
            self.wanted().iter().map(|batch| Span { epoch: batch.0, number: batch.1 / SPAN }).collect();
        spans.dedup();
        spans.retain(|span| !self.places.contains_key(span));
        if !spans.is_empty() {
            return Some(Command::Locate { who, spans, avoid: vec![] });
        }
        if self.is_dynamic() && self.hand.is_none() {
            self.request += 1;
            return Some(Command::TakeSpan {
                who,
                request: self.request,
                epoch: self.epoch,
                done: self.done.clone(),
            });
        }
        None
    }

    fn answered(&mut self, peer_finished: bool, command: &Command, outcome: Result<Reply, ErrorKind>) {
        match outcome {
            Ok(Reply::Attached { fresh, .. }) => {
                if fresh && self.is_dynamic() && peer_finished {
                    // Its job ended while it was away: the other one has done what was left.
                    self.life = Life::Finished;
                }
                self.is_attached = true;
            }
            Ok(Reply::Located(located)) => {
                if self.places.len() > 16 {
                    self.places.clear();
                }
                for place in located {
                    self.places.insert(place.span, (place.worker, place.address.parse().unwrap()));
                }
            }
            Ok(Reply::Taken(span)) => {
                self.done.clear();
                self.hand = Some(span);
            }
            Ok(Reply::Wait) => self.done.clear(),
            Ok(Reply::EpochEnded { .. }) => {
                self.done.clear();
                self.epoch += 1;
                if self.epoch == EPOCHS {
                    self.life = Life::Finished;
                }
            }
            Ok(_) => {}
            Err(ErrorKind::Stale) => {
                // Given up: what it has in hand belongs to somebody else now.
                if !matches!(command, Command::AttachJob { .. }) || !self.is_dynamic() {
                    self.is_attached = false;
                    self.hand = None;
                    self.done.clear();
                    self.request = 0;
                    self.arrived.clear();
                    self.asked.clear();
                }
            }
            Err(kind) => panic!("{command:?} is refused as {kind:?}"),
        }
    }
}

fn steps() -> u64 {
    POSITIONS / BATCH / RANKS
}

/// Checks that everybody has what is theirs; says whether nobody was given up on the way.
pub(crate) fn verdict(consumers: &[Consumer], shape: Shape, hub: &Hub) -> bool {
    if shape.sharding != Sharding::Dynamic {
        for consumer in consumers {
            let expected: Vec<Batch> = (0..EPOCHS * steps()).map(|step| consumer.batch(step)).collect();
            assert_eq!(consumer.received, expected, "rank {:?}", consumer.who());
        }
        return hub.lost == 0;
    }
    for job in ["job-0", "job-1"] {
        let name = JobName::new(job).unwrap();
        let mut seen: BTreeMap<Span, u64> = BTreeMap::new();
        for consumer in consumers.iter().filter(|consumer| consumer.who().job == name) {
            for span in &consumer.spans {
                *seen.entry(*span).or_default() += 1;
            }
        }
        for epoch in 0..EPOCHS {
            for number in 0..POSITIONS / SPAN {
                let times = seen.get(&Span { epoch, number }).copied().unwrap_or_default();
                let given = hub.given.get(&(name.clone(), epoch, number)).copied().unwrap_or_default();
                let done = hub.done.get(&(name.clone(), epoch, number)).copied().unwrap_or_default();
                let what = format!(
                    "span {number} of epoch {epoch} of {job}: seen {times}, given {given}, done {done}"
                );
                assert!(times <= given, "{what}");
                match shape.visitation {
                    Visitation::AtMostOnce => assert!(given <= 1 && done <= 1, "{what}"),
                    _ => assert!(times >= 1 && done == 1, "{what}"),
                }
                if hub.lost == 0 {
                    assert_eq!((times, given, done), (1, 1, 1), "{what}");
                }
            }
        }
    }
    hub.lost == 0
}
