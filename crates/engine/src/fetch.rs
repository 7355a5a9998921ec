//! Fetch: walks the plan ahead of the consumer, reads neighbours together, and reports samples as they arrive.
//!
//! Places are taken in plan order, a *span* at a time: a run of places whose payloads fit in half of the payload
//! budget and that the plan mixes with each other. Inside a span payloads that lie near each other are read by one
//! request; requests go out in the order in which their first payload is needed. Bytes are reserved before a request
//! starts, spans one after the other, so a waiting reservation can always be satisfied by what is already on its way.

use crate::board::{Board, Job};
use crate::budget::{Budget, Hold};
use crate::config::{DeliveryOrder, LoaderConfig};
use crate::inputs::Inputs;
use crate::meter::Meter;
use bytes::Bytes;
use forebay_core::cursor::Cursor;
use forebay_core::plan::{Plan, Sampler};
use forebay_core::portion::{Place, Portion};
use forebay_core::request::{Request, RequestLimits, Want, plan_requests};
use forebay_core::{Error, Facts, Result, SampleId};
use forebay_ops::Input;
use forebay_store::{ByteRange, Store};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tokio::sync::Semaphore;

/// Announced batches beyond those that may be open: bounds the accounts when samples are tiny.
const ANNOUNCED_AHEAD: usize = 16;

/// Most samples of one span, whatever their size: bounds the accounts and the time before the first request.
const SPAN_SAMPLES: usize = 4096;

/// All that fetching needs; shared by its tasks.
pub(crate) struct Fetcher {
    pub(crate) inputs: Inputs,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) sampler: Sampler,
    pub(crate) config: LoaderConfig,
    pub(crate) open_batches: usize,
    pub(crate) budget: Budget,
    pub(crate) board: Arc<Board>,
    pub(crate) meter: Arc<Meter>,
    pub(crate) in_flight: Arc<Semaphore>,
}

/// Where a sample goes once its payloads are here.
#[derive(Clone, Copy)]
struct Target {
    epoch: u64,
    place: Place,
    batch: u64,
    row: usize,
    /// Number within what is left of the epoch, for arrival order.
    number: u64,
}

/// A sample some of whose payloads are still on their way.
struct Pending {
    target: Target,
    sample: SampleId,
    slots: Mutex<Slots>,
}

struct Slots {
    inputs: Vec<Input>,
    holds: Vec<Hold>,
    missing: usize,
    error: Option<Error>,
}

/// A payload that is wanted: which pending sample, which columns.
struct Wanted {
    pending: usize,
    field: usize,
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
        let plan = self.sampler.plan(cursor.epoch);
        let portion = Portion::new(plan.len(), self.config.consumer, cursor)?;
        if portion.steps() == 0 {
            return Ok(false);
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
                let sample = plan.at(place.position);
                let bytes = self.inputs.payload_bytes(sample);
                if !span.takes(&place, bytes, self.span_bytes()) {
                    self.send(std::mem::take(&mut span)).await;
                }
                let target = Target { epoch: cursor.epoch, place, batch: *batch, row, number };
                span.push(&plan, target, sample, bytes);
                number += 1;
            }
            *batch += 1;
        }
        self.send(span).await;
        Ok(!self.board.is_stopped())
    }

    /// Waits until another batch may be announced; sends what was gathered so far before it waits.
    async fn room_for_batch(self: &Arc<Self>, span: &mut Span) -> bool {
        let ahead = self.open_batches + ANNOUNCED_AHEAD;
        while self.board.announced() >= ahead {
            if !span.targets.is_empty() {
                self.send(std::mem::take(span)).await;
            }
            let taken = self.board.taken.notified();
            if self.board.is_stopped() {
                return false;
            }
            if self.board.announced() >= ahead {
                taken.await;
            }
        }
        !self.board.is_stopped()
    }

    fn span_bytes(&self) -> u64 {
        (self.budget.limit() / 2).max(1)
    }

    /// Starts every request of a span, in the order of need, as memory and the limit of requests allow.
    async fn send(self: &Arc<Self>, span: Span) {
        let mut wants = Vec::new();
        let mut wanted = Vec::new();
        let mut samples = Vec::with_capacity(span.targets.len());
        for (order, (target, sample)) in span.targets.into_iter().enumerate() {
            let (inputs, fields) = self.inputs.of(sample);
            for (field, location) in &fields {
                wants.push(Want {
                    order: order as u64,
                    object: location.object,
                    offset: location.offset,
                    length: location.length,
                });
                wanted.push(Wanted { pending: order, field: *field });
            }
            let missing = fields.len();
            let slots = Mutex::new(Slots { inputs, holds: Vec::new(), missing, error: None });
            samples.push(Pending { target, sample, slots });
            if missing == 0 {
                self.arrived(&samples[order]);
            }
        }
        let limits = RequestLimits {
            request_bytes: self.config.request_limits.request_bytes.min((self.budget.limit() / 4).max(1)),
            ..self.config.request_limits
        };
        let requests = plan_requests(&wants, limits);
        let span = Arc::new((samples, wanted));
        for request in requests {
            let since = Instant::now();
            let hold = self.budget.reserve(request.bytes()).await;
            let Ok(permit) = Arc::clone(&self.in_flight).acquire_owned().await else { return };
            self.meter.budget_wait_nanos.add_time(since.elapsed());
            let (fetcher, span) = (Arc::clone(self), Arc::clone(&span));
            tokio::spawn(async move {
                fetcher.fetch(&span.0, &span.1, request, hold).await;
                drop(permit);
            });
        }
    }

    /// Carries out one request. When it fails as a whole its payloads are tried one by one, so that one bad range
    /// costs one sample.
    async fn fetch(&self, samples: &[Pending], wanted: &[Wanted], request: Request, mut hold: Hold) {
        let key = self.inputs.object_key(request.object);
        let since = Instant::now();
        let whole = self.store.read_parts(&key, &request.parts).await;
        self.meter.requests.add(1);
        self.meter.request_nanos.add_time(since.elapsed());
        let parts: Vec<Result<Bytes>> = match whole {
            Ok(parts) => parts.into_iter().map(Ok).collect(),
            Err(error) if request.parts.len() == 1 => vec![Err(error)],
            Err(_) => {
                let mut parts = Vec::with_capacity(request.parts.len());
                for part in &request.parts {
                    self.meter.requests.add(1);
                    parts.push(self.store.read(&key, ByteRange::from(part.clone())).await);
                }
                parts
            }
        };
        for ((want, range), part) in request.wants.iter().zip(&request.parts).zip(parts) {
            let wanted = &wanted[*want];
            let length = range.end - range.start;
            let part = part.and_then(|bytes| self.account(bytes, length));
            self.put(&samples[wanted.pending], wanted.field, part, range.start, hold.split(length));
        }
    }

    /// Counts a payload; an answer of another length is refused whatever the store said.
    fn account(&self, bytes: Bytes, length: u64) -> Result<Bytes> {
        if bytes.len() as u64 != length {
            return Err(Error::corrupt(format!("the store gave {} of {length} bytes", bytes.len())));
        }
        self.meter.payloads.add(1);
        self.meter.payload_bytes.add(length);
        Ok(bytes)
    }

    /// One payload of a sample is here; the last one sends the sample on.
    fn put(&self, pending: &Pending, field: usize, part: Result<Bytes>, offset: u64, hold: Hold) {
        let mut slots = pending.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.holds.push(hold);
        match part {
            Ok(bytes) => self.inputs.fill(&mut slots.inputs, pending.sample, field, &bytes),
            Err(error) => {
                let facts =
                    Facts { offset: Some(offset), ..self.inputs.facts(pending.sample, pending.target.epoch) };
                let what = format!("fetch sample {} (`{}`)", pending.sample, self.inputs.key(pending.sample));
                slots.error.get_or_insert(error.with_facts(facts).while_doing(what));
            }
        }
        slots.missing -= 1;
        let complete = slots.missing == 0;
        drop(slots);
        if complete {
            self.arrived(pending);
        }
    }

    fn arrived(&self, pending: &Pending) {
        let mut slots = pending.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let inputs = match slots.error.take() {
            Some(error) => Err(error),
            None => Ok(std::mem::take(&mut slots.inputs)),
        };
        let holds = std::mem::take(&mut slots.holds);
        drop(slots);
        let Target { epoch, place, batch, row, number } = pending.target;
        let job = Job {
            epoch,
            place,
            sample: pending.sample,
            attempt: 0,
            inputs,
            holds,
            faults: Vec::new(),
            writer: None,
        };
        match self.config.order {
            DeliveryOrder::Plan => self.board.arrive(batch, row, job),
            DeliveryOrder::Arrival { .. } => self.board.arrive_unordered(number, job),
        }
    }

    /// Fetches the sample that stands in for a bad one. Its batch is open and waits, so the budget is not asked.
    pub(crate) async fn fetch_substitute(&self, batch: u64, row: usize, mut job: Job) {
        let (mut inputs, fields) = self.inputs.of(job.sample);
        let mut fault = None;
        for (field, location) in fields {
            let key = self.inputs.object_key(location.object);
            job.holds.push(self.budget.reserve_anyway(location.length));
            let range = ByteRange::from(location.offset..location.offset.saturating_add(location.length));
            self.meter.requests.add(1);
            match self.store.read(&key, range).await.and_then(|b| self.account(b, location.length)) {
                Ok(bytes) => self.inputs.fill(&mut inputs, job.sample, field, &bytes),
                Err(error) => fault = Some(error.with_facts(self.inputs.facts(job.sample, job.epoch))),
            }
        }
        job.inputs = fault.map_or(Ok(inputs), Err);
        self.board.arrive_again(batch, row, job);
    }
}

/// Places gathered for one round of requests.
#[derive(Default)]
struct Span {
    targets: Vec<(Target, SampleId)>,
    bytes: u64,
    /// Position at which the plan's group ends that the span began in.
    group_end: u64,
}

impl Span {
    /// Whether one more sample may be fetched together with these.
    fn takes(&self, place: &Place, bytes: u64, limit: u64) -> bool {
        self.targets.is_empty()
            || (self.bytes.saturating_add(bytes) <= limit
                && self.targets.len() < SPAN_SAMPLES
                && (place.padding || place.position < self.group_end))
    }

    fn push(&mut self, plan: &Plan, target: Target, sample: SampleId, bytes: u64) {
        if self.targets.is_empty() {
            self.group_end = plan.group_end(target.place.position);
        }
        self.bytes += bytes;
        self.targets.push((target, sample));
    }
}
