//! Decisions about spans: which worker prepares one, and with dynamic sharding who gets the next.

use super::Dispatcher;
use super::command::{Event, Located, Reply};
use super::known::Lease;
use super::words::{JobName, LeaseId, MAX_LIST, MAX_SPANS, Who, WorkerId};
use crate::feed::{FeedId, Span};
use crate::{Error, Result};

/// Most pieces of an epoch in a checkpoint of dynamic sharding.
const MAX_RANGES: usize = 1 << 16;

/// Which workers a consumer wants.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish<'a> {
    /// Not these, unless there are no others.
    pub(super) avoid: &'a [WorkerId],
    /// Not this one: it does not answer.
    pub(super) lost: Option<WorkerId>,
    /// Only such.
    pub(super) tag: Option<&'a str>,
}

impl Dispatcher {
    pub(super) fn locate(
        &mut self,
        now: u64,
        who: &Who,
        spans: &[Span],
        avoid: &[WorkerId],
        events: &mut Vec<Event>,
    ) -> Result<Reply> {
        self.find(now, who, spans, Wish { avoid, lost: None, tag: None }, events)
    }

    pub(super) fn report_lost(
        &mut self,
        now: u64,
        who: &Who,
        worker: WorkerId,
        spans: &[Span],
        events: &mut Vec<Event>,
    ) -> Result<Reply> {
        self.known(who)?;
        self.suspect(worker);
        self.find(now, who, spans, Wish { avoid: &[], lost: Some(worker), tag: None }, events)
    }

    /// A worker does not answer somebody.
    pub(super) fn suspect(&mut self, worker: WorkerId) {
        if let Some(pulse) = self.pulses.workers.get_mut(&worker) {
            pulse.suspected = true;
        }
    }

    pub(super) fn find(
        &mut self,
        now: u64,
        who: &Who,
        spans: &[Span],
        wish: Wish<'_>,
        events: &mut Vec<Event>,
    ) -> Result<Reply> {
        let Wish { avoid, .. } = wish;
        self.known(who)?;
        let feed = self.check_spans(who, spans)?;
        if avoid.len() > MAX_LIST {
            let why = format!("locate spans: {} workers are avoided, at most {MAX_LIST} can be", avoid.len());
            return Err(Error::invalid_config(why));
        }
        self.pulses.consumer(&who.job, who.rank, &self.settings, now);
        let (mut located, mut leases) = (Vec::with_capacity(spans.len()), Vec::new());
        for span in spans {
            let Some((worker, lease, is_new)) = self.place(feed, *span, wish) else { break };
            let Some(known) = self.state.workers.get(&worker) else { break };
            located.push(Located { span: *span, worker, address: known.address.clone(), lease });
            if let Some(id) = lease.filter(|_| is_new) {
                self.state.lease(feed, *span, Lease { worker, id });
                leases.push((span.epoch, span.number, worker, id));
            }
        }
        if !leases.is_empty() {
            // They were applied one by one, as each choice hangs on those before it.
            events.push(Event::SpansLeased { feed, leases });
        }
        Ok(if located.len() < spans.len() { Reply::NoWorkers } else { Reply::Located(located) })
    }

    /// The worker of a span, its lease, and whether that is a new one.
    fn place(&self, feed: FeedId, span: Span, wish: Wish<'_>) -> Option<(WorkerId, Option<LeaseId>, bool)> {
        let Wish { avoid, lost, tag } = wish;
        let choose = |refused: &[WorkerId]| {
            let suspected = |worker| self.pulses.workers.get(&worker).is_some_and(|pulse| pulse.suspected);
            let fits = |worker| self.has_tag(worker, tag) && !refused.contains(&worker);
            self.state.placing.choose(feed, span, fits, suspected)
        };
        let new = Some(LeaseId(self.state.next_lease));
        let Some(lease) = self.state.feeds.get(&feed)?.leases.get(&span) else {
            // A worker that is avoided is better than none.
            let refused: Vec<WorkerId> = avoid.iter().copied().chain(lost).collect();
            return choose(&refused).or_else(|| choose(&[])).map(|worker| (worker, new, true));
        };
        let holder = lease.worker;
        if !self.has_tag(holder, tag) {
            return choose(avoid).or_else(|| choose(&[])).map(|other| (other, None, false));
        }
        if avoid.contains(&holder) {
            // Somebody else's lease is no hindrance to ask elsewhere, and the others go on meeting where they met.
            return Some(choose(avoid).map_or((holder, Some(lease.id), false), |other| (other, None, false)));
        }
        let leaves = self.state.workers.get(&holder).is_none_or(|known| known.draining);
        if leaves || lost == Some(holder) {
            return Some(
                choose(&[holder]).map_or((holder, Some(lease.id), false), |other| (other, new, true)),
            );
        }
        Some((holder, Some(lease.id), false))
    }

    pub(super) fn take_span(
        &mut self,
        now: u64,
        who: &Who,
        request: u64,
        epoch: u64,
        done: &[Span],
        events: &mut Vec<Event>,
    ) -> Result<Reply> {
        self.known(who)?;
        let (name, rank) = (&who.job, who.rank);
        let fault =
            |why: String| Error::invalid_config(format!("take span for rank {rank} of job `{name}`: {why}"));
        self.check_spans(who, done)?;
        let Some(job) = self.state.jobs.get(name) else { return Err(Error::internal("the job was there")) };
        if !job.terms.is_dynamic() {
            return Err(fault("its sharding is not `dynamic`".into()));
        }
        let Some(consumer) = job.consumers.get(&rank) else {
            return Err(Error::internal("the consumer was there"));
        };
        if request < consumer.request.max(1) {
            let newest = consumer.request;
            let why =
                format!("take span for rank {rank} of job `{name}`: request {request} comes after {newest}");
            return Err(Error::stale(why));
        }
        let is_again = request == consumer.request;
        let before = consumer.given.filter(|_| is_again);
        self.pulses.consumer(name, rank, &self.settings, now);
        let all = vec![(0, self.spans_per_epoch(name))];
        let start_epoch = |start, remaining| Event::EpochStarted {
            job: name.clone(),
            epoch,
            start,
            remaining,
            done: 0,
            dropped: 0,
        };
        let Some(taking) = self.state.jobs.get(name).and_then(|job| job.taking.as_ref()) else {
            self.change(start_epoch(0, all), events);
            return self.give(who, request, &[], events);
        };
        if let Some(number) = before.filter(|number| taking.epoch == epoch && taking.has(rank, *number)) {
            return Ok(Reply::Taken(Span { epoch, number }));
        }
        if epoch > taking.epoch.saturating_add(1) {
            return Err(fault(format!("it asks for epoch {epoch} while the job is in {}", taking.epoch)));
        }
        let finished: Vec<u64> = done
            .iter()
            .filter(|span| span.epoch == taking.epoch && taking.has(rank, span.number))
            .map(|span| span.number)
            .collect();
        if epoch == taking.epoch {
            return self.give(who, request, &finished, events);
        }
        if epoch < taking.epoch {
            return Ok(Reply::EpochEnded { dropped: 0 });
        }
        let start = taking.start;
        if !finished.is_empty() {
            let event = Event::SpanTaken { job: name.clone(), rank, request, done: finished, given: None };
            self.change(event, events);
        }
        let taking = self.state.jobs.get(name).and_then(|job| job.taking.as_ref());
        if taking.is_some_and(|taking| !taking.is_over()) {
            return Ok(Reply::Wait);
        }
        self.change(start_epoch(start, all), events);
        self.give(who, request, &[], events)
    }

    /// Takes note of what is done in the current epoch and gives the next span of it.
    fn give(&mut self, who: &Who, request: u64, done: &[u64], events: &mut Vec<Event>) -> Result<Reply> {
        let (name, rank) = (&who.job, who.rank);
        let taking = self.state.jobs.get(name).and_then(|job| job.taking.as_ref());
        let Some(taking) = taking else { return Err(Error::internal("the epoch was begun")) };
        let most = self.settings.max_in_hand;
        let (epoch, given) = (taking.epoch, taking.left.first());
        if given.is_some() && taking.count(rank) >= most + done.len() {
            return Err(Error::exhausted(format!(
                "take span for rank {rank} of job `{name}`: it has {most} in hand that are not done"
            )));
        }
        if given.is_some() || !done.is_empty() {
            let done = done.to_vec();
            self.change(Event::SpanTaken { job: name.clone(), rank, request, done, given }, events);
        }
        let taking = self.state.jobs.get(name).and_then(|job| job.taking.as_ref());
        Ok(match (given, taking) {
            (Some(number), _) => Reply::Taken(Span { epoch, number }),
            (None, Some(taking)) if taking.is_over() => Reply::EpochEnded { dropped: taking.dropped },
            _ => Reply::Wait,
        })
    }

    pub(super) fn start_from(
        &mut self,
        now: u64,
        who: &Who,
        start: u64,
        epoch: u64,
        remaining: Vec<(u64, u64)>,
        events: &mut Vec<Event>,
    ) -> Result<Reply> {
        self.known(who)?;
        let (name, total) = (&who.job, self.spans_per_epoch(&who.job));
        let in_order = remaining.iter().all(|(first, end)| first < end && *end <= total)
            && remaining.windows(2).all(|pair| pair[0].1 <= pair[1].0);
        if !in_order || remaining.len() > MAX_RANGES {
            return Err(Error::invalid_config(format!(
                "start job `{name}` from epoch {epoch}: its spans are not in order, or beyond {total}"
            )));
        }
        let Some(job) = self.state.jobs.get(name).filter(|job| job.terms.is_dynamic()) else {
            let why = format!("start job `{name}` from epoch {epoch}: its sharding is not `dynamic`");
            return Err(Error::invalid_config(why));
        };
        self.pulses.consumer(name, who.rank, &self.settings, now);
        if job.taking.as_ref().is_some_and(|taking| taking.start == start) {
            return Ok(Reply::Done);
        }
        let left: u64 = remaining.iter().map(|(first, end)| end - first).sum();
        let (job, done) = (name.clone(), total - left);
        self.change(Event::EpochStarted { job, epoch, start, remaining, done, dropped: 0 }, events);
        Ok(Reply::Done)
    }

    pub(super) fn remaining(&self, job: &JobName) -> Result<Reply> {
        let taking = self.state.jobs.get(job).and_then(|job| job.taking.as_ref());
        let Some(taking) = taking else {
            return Err(Error::not_found(format!(
                "list what is left for job `{job}`: nothing was given out"
            )));
        };
        Ok(Reply::Remaining { epoch: taking.epoch, remaining: taking.not_done() })
    }

    fn spans_per_epoch(&self, job: &JobName) -> u64 {
        self.state
            .jobs
            .get(job)
            .map_or(0, |job| job.terms.epoch_positions.div_ceil(job.terms.span_positions.max(1)))
    }

    /// Checks spans that came from outside; says which feed they are of.
    fn check_spans(&self, who: &Who, spans: &[Span]) -> Result<FeedId> {
        let (job, total) = (&who.job, self.spans_per_epoch(&who.job));
        if spans.len() > MAX_SPANS {
            let why =
                format!("find spans of job `{job}`: {} were named, at most {MAX_SPANS} can be", spans.len());
            return Err(Error::invalid_config(why));
        }
        if let Some(span) = spans.iter().find(|span| span.number >= total) {
            let why =
                format!("find spans of job `{job}`: there is no span {}, an epoch has {total}", span.number);
            return Err(Error::invalid_config(why));
        }
        let job = self.state.jobs.get(job).ok_or_else(|| Error::internal("the job was there"))?;
        Ok(job.terms.feed)
    }
}
