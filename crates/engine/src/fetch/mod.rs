//! Fetch: walks the plan ahead of the consumer, reads neighbours together, and reports samples as they arrive.
//!
//! Places are taken in plan order, a *span* at a time: a run of places whose payloads fit in half of the payload
//! budget and that the plan mixes with each other. Inside a span payloads that lie near each other are read by one
//! request; requests go out in the order in which their first payload is needed. Bytes are reserved before a request
//! starts, spans one after the other, so a waiting reservation can always be satisfied by what is already on its way.
//!
//! Here is what is asked for and when; `near` asks the cache first, `gate` says how much may be under way, `carry`
//! does it, `pending` puts samples together, `tasks` is where it runs. `named` is the way of batches that others name.

mod carry;
mod gate;
mod named;
mod near;
mod pending;
#[cfg_attr(feature = "shuttle", path = "tasks_shuttle.rs")]
mod tasks;

pub(crate) use gate::Gate;
pub(crate) use named::Names;
pub(crate) use tasks::Tasks;

use crate::board::{Board, Job};
use crate::budget::{Budget, Hold};
use crate::cache::Cache;
use crate::config::{DeliveryOrder, LoaderConfig};
use crate::inputs::Inputs;
use crate::meter::Meter;
use crate::prepare::Preparer;
use crate::sync::{AtomicU64, thread};
use carry::{Entry, Waiting};
use forebay_core::cursor::Cursor;
use forebay_core::plan::{Plan, Sampler};
use forebay_core::request::{Request, RequestLimits, Want, plan_requests};
use forebay_core::window::SlowStart;
use forebay_core::{Result, SampleId};
use forebay_store::Store;
use forebay_store::retry::AwayNotice;
use gate::Turn;
use near::{Found, Missed, Part};
use pending::{Pending, Span, Target, Wanted};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Announced batches beyond those that may be open: bounds the accounts when samples are tiny.
const ANNOUNCED_AHEAD: usize = 16;

/// Requests smaller than this are gathered where the store carries several by one.
const GATHERED_BELOW: u64 = 256 << 10;

/// All that fetching needs; shared by its tasks.
pub(crate) struct Fetcher {
    pub(crate) inputs: Inputs,
    pub(crate) store: Arc<dyn Store>,
    /// Payloads kept near, when the loader has a cache.
    pub(crate) cache: Option<Arc<Cache>>,
    pub(crate) sampler: Sampler,
    pub(crate) config: LoaderConfig,
    pub(crate) budget: Budget,
    pub(crate) board: Arc<Board>,
    pub(crate) meter: Arc<Meter>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) notice: AwayNotice,
    pub(crate) tasks: Arc<Tasks>,
    /// Prepares where samples arrive, when the recipe only hands payloads on: no thread is woken for each.
    pub(crate) mover: Option<Arc<Preparer>>,
    /// Whether the store is: then requests are repeated and hedged.
    pub(crate) remote: bool,
    /// Samples of the dataset: any of them may stand in for one that is not read.
    pub(crate) samples: u64,
    /// Mean payload bytes of a sample, at least one.
    pub(crate) sample_bytes: u64,
    /// Samples of a batch: as many as were asked for, or about as many as those have that are cut by length.
    pub(crate) batch_rows: AtomicU64,
    /// What payloads may take beside the window, when memory follows the link; `None` when it was set by hand.
    pub(crate) base_bytes: Option<u64>,
}

impl Fetcher {
    /// Feeds the board from `cursor` on until everything was fetched or the board is stopped.
    pub(crate) async fn run(self: Arc<Self>, cursor: Cursor) {
        let mut cursor = cursor;
        let mut batch = 0;
        while self.config.epochs.is_none_or(|epochs| cursor.epoch < epochs) {
            match self.run_epoch(&cursor, &mut batch).await {
                Ok(true) => cursor = Cursor::start_of(cursor.epoch + 1),
                Ok(false) => return,
                Err(error) => return self.board.stop(error),
            }
        }
    }

    /// One epoch; false when there is nothing to deliver or the board was stopped.
    async fn run_epoch(self: &Arc<Self>, cursor: &Cursor, batch: &mut u64) -> Result<bool> {
        let plan = self.plan(cursor.epoch).await;
        let portion = self.config.portion(&self.sampler, cursor)?;
        if portion.steps() == 0 {
            return Ok(false);
        }
        if self.sampler.walks() {
            self.batch_rows.store(portion.local().len().div_ceil(portion.steps()), Ordering::Relaxed);
        }
        if let DeliveryOrder::Arrival { window } = self.config.order {
            self.board.order_by_arrival(cursor.epoch, *batch, window);
        }
        let mut span = Span::default();
        let mut number = 0;
        for step in 0..portion.steps() {
            if !self.room_for_batch(&mut span).await {
                return Ok(false);
            }
            self.board.announce(cursor.epoch, step, portion.batch_len(step) as usize);
            for (row, place) in portion.batch(step).enumerate() {
                let (sample, attempt) = self.read_for(cursor.epoch, plan.at(place.position));
                let bytes = self.inputs.payload_bytes(sample);
                if !span.takes(&place, bytes, self.span_bytes()) {
                    self.send(std::mem::take(&mut span)).await;
                }
                let target = Target { epoch: cursor.epoch, place, batch: *batch, row, attempt, number };
                span.push(&plan, target, sample, bytes);
                number += 1;
            }
            *batch += 1;
        }
        self.send(span).await;
        Ok(!self.board.is_stopped())
    }

    /// The order of an epoch. What walks all of it does so on a thread of its own, beside requests that are under way.
    async fn plan(&self, epoch: u64) -> Plan {
        let plan = self.sampler.plan(epoch);
        if !self.sampler.walks() {
            return plan;
        }
        let (walked, done) = tokio::sync::oneshot::channel();
        let walking = plan.clone();
        let walk = move || {
            walking.cuts();
            // Nobody waits for it when the session ended meanwhile.
            let _ = walked.send(());
        };
        // Without a thread it is walked where it is needed first.
        if thread::Builder::new().name("forebay-plan".to_owned()).spawn(walk).is_ok() {
            let _ = done.await;
        }
        plan
    }

    /// The sample that is read for a planned one, and how many were passed over.
    fn read_for(&self, epoch: u64, planned: SampleId) -> (SampleId, u32) {
        self.config.quarantine.stand_in(self.config.seed, epoch, planned, self.samples)
    }

    /// Waits until another batch may be announced; sends what was gathered so far before it waits.
    async fn room_for_batch(self: &Arc<Self>, span: &mut Span) -> bool {
        while self.board.announced() >= self.ahead() {
            if !span.targets.is_empty() {
                self.send(std::mem::take(span)).await;
            }
            let taken = self.board.taken.notified();
            if self.board.is_stopped() {
                return false;
            }
            if self.board.announced() >= self.ahead() {
                taken.await;
            }
        }
        !self.board.is_stopped()
    }

    /// Batches that may be announced and not taken: as set by hand, or enough for what the link can have in flight.
    fn ahead(&self) -> usize {
        let blocks = self.config.reads_blocks();
        let depth = match self.config.prefetch_batches {
            // Blocks are read as a whole, so that their samples wait for batches far ahead whatever the depth.
            Some(batches) if self.remote && !blocks => batches + 1,
            _ => {
                let in_flight = self.gate.view().window_bytes / self.sample_bytes;
                let batches = in_flight.min(1 << 32) / self.batch_rows.load(Ordering::Relaxed).max(1);
                self.board.open_batches() + ANNOUNCED_AHEAD + if self.remote { batches as usize } else { 0 }
            }
        };
        match self.config.slow_start {
            Some(every) => {
                let allowed = SlowStart { every }.batches(self.board.taken_batches(), depth as u64);
                depth.min(allowed as usize).max(1)
            }
            None => depth,
        }
    }

    /// Lets the budget for payloads follow the window, when it was not set by hand.
    fn follow_window(&self) {
        if let Some(base) = self.base_bytes {
            self.budget.set_limit(base.saturating_add(self.gate.view().window_bytes));
        }
    }

    /// How large a request should be: as set, or as the link wants it.
    fn request_bytes(&self) -> u64 {
        let wanted = match self.config.request_bytes {
            Some(bytes) => bytes,
            None if self.remote => self.gate.request_bytes(),
            None => self.config.request_limits.request_bytes,
        };
        wanted.min(self.budget.limit() / 4).max(1)
    }

    fn span_bytes(&self) -> u64 {
        (self.budget.limit() / 2).max(1)
    }

    /// Every sample of a span with what it waits for.
    fn take_apart(&self, span: Span) -> (Vec<Pending>, Vec<Part>) {
        let mut parts = Vec::with_capacity(span.targets.len());
        let mut samples = Vec::with_capacity(span.targets.len());
        for (order, (target, sample)) in span.targets.into_iter().enumerate() {
            let (inputs, fields) = self.inputs.of(sample);
            let cached = self.cache.as_ref().map(|cache| (cache, cache.rank(&fields)));
            for (field, location) in &fields {
                let payload = cached.map(|(cache, rank)| cache.payload(rank, *location));
                parts.push(Part { pending: order, field: *field, location: *location, payload });
            }
            samples.push(Pending::new(target, sample, inputs, fields.len()));
            if fields.is_empty() {
                self.arrived(&samples[order]);
            }
        }
        (samples, parts)
    }

    /// Starts everything a span needs, in the order of need, as memory and the limit of requests allow.
    async fn send(self: &Arc<Self>, span: Span) {
        let (samples, parts) = self.take_apart(span);
        let Found { absent, near, coming } = match &self.cache {
            Some(cache) => self.look(cache, &samples, parts).await,
            None => Found { absent: parts, ..Found::default() },
        };
        let samples = Arc::new(samples);
        for part in coming {
            self.tasks.spawn(Arc::clone(self).fetch_coming(Arc::clone(&samples), part));
        }
        let wants: Vec<Want> = absent.iter().map(Part::want).collect();
        let wanted = absent.iter().map(|part| Wanted::new(part, self.cache.as_deref())).collect();
        let waiting = Arc::new(Waiting { samples: Arc::clone(&samples), wanted });
        let limits = RequestLimits { request_bytes: self.request_bytes(), ..self.config.request_limits };
        let mut requests = plan_requests(&wants, limits).into_iter().peekable();
        let missed = Missed::new(near.len());
        let mut near = near.into_iter().peekable();
        let mut gathered = Gathered::default();
        loop {
            let order = near.peek().and_then(|parts| parts.first()).map(|part| part.pending as u64);
            match (requests.peek(), order) {
                (Some(request), order) if order.is_none_or(|order| request.order <= order) => {
                    if let Some(request) = requests.next() {
                        self.send_request(&waiting, request, limits, &mut gathered).await;
                    }
                }
                (_, Some(_)) => {
                    if let Some(parts) = near.next() {
                        let bytes = parts.iter().map(|part| part.location.length).sum();
                        let hold = self.reserve(&waiting, bytes, &mut gathered).await;
                        let (fetcher, samples, missed) =
                            (Arc::clone(self), Arc::clone(&samples), Arc::clone(&missed));
                        self.tasks.spawn(fetcher.fetch_near(samples, parts, hold, missed));
                    }
                }
                (_, None) => break,
            }
        }
        self.send_gathered(&waiting, gathered.take());
    }

    /// Memory for so many bytes, when it is free.
    async fn reserve(self: &Arc<Self>, waiting: &Arc<Waiting>, bytes: u64, gathered: &mut Gathered) -> Hold {
        if let Some(hold) = self.budget.try_reserve(bytes) {
            return hold;
        }
        let since = Instant::now();
        // What was gathered may hold the very bytes that this reservation waits for.
        self.send_gathered(waiting, gathered.take());
        let hold = self.budget.reserve(bytes).await;
        self.meter.budget_wait_nanos.add_time(since.elapsed());
        hold
    }

    /// Starts one request, or puts it to others that one message carries.
    async fn send_request(
        self: &Arc<Self>,
        waiting: &Arc<Waiting>,
        request: Request,
        limits: RequestLimits,
        gathered: &mut Gathered,
    ) {
        let hold = self.reserve(waiting, request.bytes(), gathered).await;
        let most = self.store.reads_per_request();
        if most > 1 && request.bytes() < GATHERED_BELOW {
            if gathered.requests.len() >= most || gathered.bytes + request.bytes() > limits.request_bytes {
                self.send_gathered(waiting, gathered.take());
            }
            gathered.bytes += request.bytes();
            gathered.requests.push((request, hold));
            return;
        }
        let entry = if self.is_cut(&request.parts) {
            Entry::At(Turn::First)
        } else {
            Entry::With(self.gate.enter(request.bytes(), Turn::First).await)
        };
        let (fetcher, waiting) = (Arc::clone(self), Arc::clone(waiting));
        self.tasks.spawn(async move { fetcher.fetch(&waiting, request, hold, entry).await });
    }

    /// Sends several small requests as one.
    fn send_gathered(self: &Arc<Self>, waiting: &Arc<Waiting>, gathered: Vec<(Request, Hold)>) {
        if !gathered.is_empty() {
            let (fetcher, waiting) = (Arc::clone(self), Arc::clone(waiting));
            self.tasks.spawn(async move { fetcher.fetch_many(&waiting, gathered).await });
        }
    }

    /// Fetches the sample that stands in for a bad one. Its batch is open and waits, so the budget is not asked.
    pub(crate) async fn fetch_substitute(&self, batch: u64, row: usize, mut job: Job) {
        let (mut inputs, fields) = self.inputs.of(job.sample);
        let cached = self.cache.as_ref().map(|cache| (cache, cache.rank(&fields)));
        let mut fault = None;
        for (field, location) in fields {
            job.holds.push(Arc::new(self.budget.reserve_anyway(location.length)));
            let payload = cached.map(|(cache, rank)| cache.payload(rank, location));
            match self.bring(Part { pending: 0, field, location, payload }).await {
                Ok(bytes) => self.inputs.fill(&mut inputs, job.sample, field, &bytes),
                Err(error) => fault = Some(error.with_facts(self.inputs.facts(job.sample, job.epoch))),
            }
        }
        job.inputs = fault.map_or(Ok(inputs), Err);
        self.board.arrive_again(batch, row, job);
    }
}

/// Small requests that one message will carry.
#[derive(Default)]
struct Gathered {
    requests: Vec<(Request, Hold)>,
    bytes: u64,
}

impl Gathered {
    fn take(&mut self) -> Vec<(Request, Hold)> {
        self.bytes = 0;
        std::mem::take(&mut self.requests)
    }
}
