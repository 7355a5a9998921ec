//! The dispatcher: which worker prepares which span, and who gets what. A pure machine: commands in, replies and
//! events out, time as a number.
//!
//! [`State`] is what must not be forgotten and changes by [`Event`]s alone; `pulse` is what may be: who was heard of
//! when. `workers`, `jobs` and `spans` decide, `placing` chooses a worker, `tagged` one
//! of a kind, `scaling` says how many there should be;
//! `caches` knows the nodes that keep payloads for each other. It never sees a payload or where data lies,
//! and nothing it forgets or doubles can cost a sample, because any worker can make any batch again. The one exception
//! is dynamic sharding ([`taking`](Command::TakeSpan)), where the dispatcher alone knows what is left of an epoch: its
//! events must be on disk before the answer is given. Sockets and the journal are in `forebay-net`.

mod caches;
mod command;
mod jobs;
mod known;
mod leasing;
mod placing;
mod pulse;
mod scaling;
mod snapshot;
mod spans;
mod state;
mod tagged;
mod taking;
#[cfg(test)]
mod tests;
mod view;
mod words;
mod workers;

pub use command::{Command, Event, FeedJobs, HeartbeatReply, Located, Reply, Settings};
pub use leasing::MAX_LEASES;
pub use state::State;
pub use view::{ConsumerView, FeedView, JobView, TakingView, View, WorkerView};
pub use words::{
    JobName, LeaseId, Load, MAX_LIST, MAX_SPANS, MAX_TEXT, Progress, Reached, Sharding, Terms, Visitation,
    Who, WorkerId,
};

use crate::Result;
use crate::scale::{ScaleSettings, Wanted};
use caches::Caches;
use pulse::{Pulses, Silent};
use scaling::Scaling;

/// The machine: what is known, and who was heard of when.
#[derive(Clone, Debug)]
pub struct Dispatcher {
    state: State,
    pulses: Pulses,
    caches: Caches,
    scaling: Scaling,
    settings: Settings,
}

impl Dispatcher {
    /// A machine that goes on from a state. Everybody known counts as heard of now.
    pub fn new(state: State, settings: Settings, now: u64) -> Self {
        let pulses = Pulses::new(&state, &settings, now);
        let scaling = Scaling::new(ScaleSettings::default(), &state, now);
        Self { state, pulses, caches: Caches::new(now), scaling, settings }
    }

    /// The same, with other aims for the number of workers.
    #[must_use]
    pub fn with_scale(self, scale: ScaleSettings, now: u64) -> Self {
        Self { scaling: Scaling::new(scale, &self.state, now), ..self }
    }

    /// What is known.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// How many workers there should be, as of the last tick.
    pub fn wanted(&self) -> Wanted {
        self.scaling.wanted()
    }

    /// Obeys a command at `now`, milliseconds of a clock that never goes back. The events have been applied; the
    /// durable ones must be on disk before anybody is told the reply. A refusal changes nothing.
    pub fn apply(&mut self, now: u64, command: Command) -> Result<(Reply, Vec<Event>)> {
        let mut events = Vec::new();
        let reply = match command {
            Command::RegisterWorker { worker, address, tags, slots } => {
                self.register(now, worker, address, tags, slots, &mut events)
            }
            Command::Heartbeat { worker, incarnation, load } => {
                self.heartbeat(now, worker, incarnation, load)
            }
            Command::DrainWorker { worker } => self.drain(worker, &mut events),
            Command::RemoveWorker { worker, incarnation } => {
                Ok(self.remove_worker(worker, incarnation, &mut events))
            }
            Command::AttachJob { who, terms, from, step } => {
                self.attach(now, who, terms, from, step, &mut events)
            }
            Command::ReportProgress { who, progress } => self.progress(now, who, progress, &mut events),
            Command::DetachJob { who } => Ok(self.detach(&who, &mut events)),
            Command::Locate { who, spans, avoid } => self.locate(now, &who, &spans, &avoid, &mut events),
            Command::LocateTagged { who, spans, avoid, lost, tag } => {
                self.locate_tagged(now, &who, &spans, (&avoid, lost), &tag, &mut events)
            }
            Command::ReportLost { who, worker, spans } => {
                self.report_lost(now, &who, worker, &spans, &mut events)
            }
            Command::TakeSpan { who, request, epoch, done } => {
                self.take_span(now, &who, request, epoch, &done, &mut events)
            }
            Command::StartFrom { who, start, epoch, remaining } => {
                self.start_from(now, &who, start, epoch, remaining, &mut events)
            }
            Command::ListRemaining { job } => self.remaining(&job),
            Command::CurrentRound { job } => Ok(self.current_round(&job)),
            Command::JoinCache { cache, address, process } => self.join_cache(now, &cache, address, process),
            Command::LeaveCache { cache, address, process } => {
                Ok(self.leave_cache(&cache, &address, process))
            }
            Command::View => Ok(Reply::View(Box::new(self.view(now)))),
            Command::Tick => Ok(self.tick(now, &mut events)),
        };
        reply.map(|reply| (reply, events))
    }

    /// Changes the state by an event and notes it.
    fn change(&mut self, event: Event, events: &mut Vec<Event>) {
        self.state.apply(&event);
        events.push(event);
    }

    fn tick(&mut self, now: u64, events: &mut Vec<Event>) -> Reply {
        while let Some(silent) = self.pulses.lapsed(&self.settings, now) {
            self.pulses.forget(&silent);
            match silent {
                Silent::Worker(worker) => self.change(Event::WorkerLost { worker }, events),
                Silent::Consumer(job, rank) => self.lose_consumer(now, &job, rank, events),
                Silent::Job(job) => {
                    let abandoned = self.state.jobs.get(&job).is_some_and(|known| known.consumers.is_empty());
                    if abandoned {
                        self.change(Event::JobDetached { job }, events);
                    }
                }
            }
        }
        self.caches.lapse(&self.settings, now);
        self.scaling.look(&self.state, &self.pulses, now);
        Reply::Done
    }
}
