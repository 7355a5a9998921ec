//! Decisions about jobs and their consumers: who is attached, how far they are, who is gone.

use super::Dispatcher;
use super::command::{Event, Reply};
use super::pulse::Silent;
use super::words::{JobName, Progress, Reached, Terms, Who};
use crate::{Error, Result};

impl Dispatcher {
    pub(super) fn attach(
        &mut self,
        now: u64,
        who: Who,
        terms: Terms,
        from: Reached,
        step: u64,
        events: &mut Vec<Event>,
    ) -> Result<Reply> {
        let (job, rank) = (who.job.clone(), who.rank);
        let fault = |why: String| Error::invalid_config(format!("attach rank {rank} of job `{job}`: {why}"));
        terms.check()?;
        if rank >= terms.world_size {
            return Err(fault(format!("the job has {} ranks", terms.world_size)));
        }
        if let Some(feed) = self.state.feeds.get(&terms.feed)
            && feed.epoch_positions != terms.epoch_positions
        {
            let (theirs, ours) = (feed.epoch_positions, terms.epoch_positions);
            return Err(fault(format!(
                "other jobs of its feed have {theirs} positions in an epoch, this has {ours}"
            ))
            .with_hint("run the same release of forebay everywhere"));
        }
        let mut fresh = true;
        if let Some(known) = self.state.jobs.get(&job) {
            fresh = !known.terms.agrees_with(&terms);
            if fresh && known.consumers.keys().any(|other| *other != rank) {
                return Err(fault("others are attached to it with other settings".into()).with_hint(
                    "give all ranks the same dataset, recipe and settings, or the job another name",
                ));
            }
            if let Some(present) = known.consumers.get(&rank).filter(|_| !fresh) {
                if present.before == Some(who.consumer) {
                    return Err(Error::stale(format!(
                        "attach rank {rank} of job `{job}`: another process has taken its place"
                    )));
                }
                if present.process == who.consumer {
                    self.pulses.consumer(&job, rank, &self.settings, now);
                    return Ok(self.attached(&job, false));
                }
            }
        }
        let full = |what, most| {
            Error::exhausted(format!("attach rank {rank} of job `{job}`: there are {most} {what} already"))
        };
        if self.state.consumers >= self.settings.max_consumers {
            return Err(full("consumers", self.settings.max_consumers));
        }
        if fresh {
            if self.state.jobs.len() >= self.settings.max_jobs && !self.state.jobs.contains_key(&job) {
                return Err(full("jobs", self.settings.max_jobs));
            }
            if self.state.jobs.contains_key(&job) {
                self.pulses.forget(&Silent::Consumer(job.clone(), rank));
                self.change(Event::JobDetached { job: job.clone() }, events);
            }
            self.change(Event::JobAttached { job: job.clone(), terms }, events);
        }
        self.change(Event::ConsumerAttached { who, from, step }, events);
        self.pulses.forget(&Silent::Job(job.clone()));
        // Another process begins to count anew.
        self.pulses.forget(&Silent::Consumer(job.clone(), rank));
        self.pulses.consumer(&job, rank, &self.settings, now);
        Ok(self.attached(&job, fresh))
    }

    pub(super) fn progress(
        &mut self,
        now: u64,
        who: Who,
        progress: Progress,
        events: &mut Vec<Event>,
    ) -> Result<Reply> {
        self.known(&who)?;
        self.pulses.progress(&who.job, who.rank, progress, &self.settings, now);
        let consumer = self.state.jobs.get(&who.job).and_then(|job| job.consumers.get(&who.rank));
        let (reached, step) = (progress.reached, progress.step);
        if consumer.is_some_and(|consumer| (consumer.reached, consumer.step) != (reached, step)) {
            self.change(Event::ConsumerProgressed { job: who.job, rank: who.rank, reached, step }, events);
        }
        Ok(Reply::Done)
    }

    pub(super) fn detach(&mut self, who: &Who, events: &mut Vec<Event>) -> Reply {
        if self.known(who).is_ok() {
            self.pulses.forget(&Silent::Consumer(who.job.clone(), who.rank));
            self.change(Event::ConsumerLost { job: who.job.clone(), rank: who.rank }, events);
            if self.state.jobs.get(&who.job).is_some_and(|job| job.consumers.is_empty()) {
                self.change(Event::JobDetached { job: who.job.clone() }, events);
            }
        }
        Reply::Done
    }

    /// A consumer fell silent. What dynamic sharding knows of its job is kept a while, for all may come back.
    pub(super) fn lose_consumer(&mut self, now: u64, job: &JobName, rank: u64, events: &mut Vec<Event>) {
        self.change(Event::ConsumerLost { job: job.clone(), rank }, events);
        let Some(known) = self.state.jobs.get(job).filter(|known| known.consumers.is_empty()) else { return };
        if known.taking.is_some() {
            self.pulses.keep_job(job, &self.settings, now);
        } else {
            self.change(Event::JobDetached { job: job.clone() }, events);
        }
    }

    pub(super) fn current_round(&self, job: &JobName) -> Reply {
        let consumers = self.state.jobs.get(job).into_iter().flat_map(|job| job.consumers.values());
        let furthest = consumers.max_by_key(|consumer| (consumer.step, consumer.reached));
        let (step, reached) = furthest.map_or_else(Default::default, |one| (one.step, one.reached));
        Reply::Round { step, reached }
    }

    /// Checks that a consumer is attached and no other process took its place.
    pub(super) fn known(&self, who: &Who) -> Result<()> {
        let job = self.state.jobs.get(&who.job);
        let consumer = job.and_then(|job| job.consumers.get(&who.rank));
        if consumer.is_some_and(|consumer| consumer.process == who.consumer) {
            return Ok(());
        }
        let Who { job, rank, .. } = who;
        Err(Error::stale(format!("hear rank {rank} of job `{job}`: it is not attached any more")))
    }

    fn attached(&self, job: &JobName, fresh: bool) -> Reply {
        let span_positions = self.state.jobs.get(job).map_or(1, |job| job.terms.span_positions);
        Reply::Attached { span_positions, fresh, consumer_timeout_ms: self.settings.consumer_timeout_ms }
    }
}

impl Terms {
    /// Whether consumers with these terms can be of one job. What people call it and how long its spans should be
    /// is the feed's business.
    fn agrees_with(&self, other: &Self) -> bool {
        let Self { feed, world_size, epoch_positions, sharding, visitation, label: _, span_positions: _ } =
            self;
        *feed == other.feed
            && *world_size == other.world_size
            && *epoch_positions == other.epoch_positions
            && *sharding == other.sharding
            && *visitation == other.visitation
    }
}
