//! Decisions about workers: who is there, who drains, who is gone.

use super::Dispatcher;
use super::command::{Event, FeedJobs, HeartbeatReply, Reply};
use super::pulse::Silent;
use super::words::{Load, MAX_LIST, WorkerId, check_text};
use crate::{Error, Result};

/// Most threads a worker can claim to have.
const MAX_SLOTS: u32 = 1 << 16;

impl Dispatcher {
    pub(super) fn register(
        &mut self,
        now: u64,
        worker: WorkerId,
        address: String,
        tags: Vec<String>,
        slots: u32,
        events: &mut Vec<Event>,
    ) -> Result<Reply> {
        check_text("address of a worker", &address)?;
        if tags.len() > MAX_LIST {
            let why = format!(
                "register worker {worker}: it has {} tags, at most {MAX_LIST} are allowed",
                tags.len()
            );
            return Err(Error::invalid_config(why));
        }
        tags.iter().try_for_each(|tag| check_text("tag of a worker", tag))?;
        if !(1..=MAX_SLOTS).contains(&slots) {
            let why = format!("register worker {worker}: it has {slots} slots, 1 to {MAX_SLOTS} are allowed");
            return Err(Error::invalid_config(why));
        }
        let known = self.state.workers.get(&worker);
        let most = self.settings.max_workers;
        if known.is_none() && self.state.workers.len() >= most {
            return Err(Error::exhausted(format!("register worker {worker}: there are {most} already")));
        }
        let draining = known.is_some_and(|known| known.draining);
        // Two processes cannot listen at one address: the worker that was there has ended.
        if let Some(other) = self.state.addresses.get(&address).copied().filter(|other| *other != worker) {
            self.lose_worker(other, events);
        }
        let incarnation = self.state.next_incarnation;
        self.change(Event::WorkerRegistered { worker, address, tags, slots, incarnation }, events);
        if draining {
            self.change(Event::WorkerDraining { worker }, events);
        }
        self.pulses.worker(worker, &self.settings, now).heard = now;
        Ok(Reply::Registered { incarnation, worker_timeout_ms: self.settings.worker_timeout_ms })
    }

    pub(super) fn heartbeat(
        &mut self,
        now: u64,
        worker: WorkerId,
        incarnation: u64,
        load: Load,
    ) -> Result<Reply> {
        let known = self.state.workers.get(&worker).filter(|known| known.incarnation == incarnation);
        let Some(known) = known else {
            return Err(Error::stale(format!("hear worker {worker}: it is not registered any more"))
                .with_hint("it registers again by itself"));
        };
        let feeds = known.spans.keys().filter_map(|feed| {
            let jobs = self.state.feeds.get(feed)?.floors.iter();
            Some(FeedJobs { feed: *feed, jobs: jobs.map(|(floor, job)| (job.clone(), *floor)).collect() })
        });
        let (drain, leases) = (known.draining, known.leased);
        let reply = HeartbeatReply { feeds: feeds.collect(), drain, leases };
        self.pulses.load(worker, load, &self.settings, now);
        Ok(Reply::Heartbeat(reply))
    }

    pub(super) fn drain(&mut self, worker: WorkerId, events: &mut Vec<Event>) -> Result<Reply> {
        let Some(known) = self.state.workers.get(&worker) else {
            return Err(Error::not_found(format!("drain worker {worker}: it is not registered"))
                .with_hint("`forebay status` lists the workers"));
        };
        if !known.draining {
            self.change(Event::WorkerDraining { worker }, events);
        }
        Ok(Reply::Done)
    }

    pub(super) fn remove_worker(
        &mut self,
        worker: WorkerId,
        incarnation: u64,
        events: &mut Vec<Event>,
    ) -> Reply {
        if self.state.workers.get(&worker).is_some_and(|known| known.incarnation == incarnation) {
            self.lose_worker(worker, events);
        }
        Reply::Done
    }

    fn lose_worker(&mut self, worker: WorkerId, events: &mut Vec<Event>) {
        self.change(Event::WorkerLost { worker }, events);
        self.pulses.forget(&Silent::Worker(worker));
    }
}
