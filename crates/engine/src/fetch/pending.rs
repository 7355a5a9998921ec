//! Samples whose payloads are on their way: what is here, what is missing, and where the sample goes when it is whole.

use super::Fetcher;
use super::near::Part;
use crate::board::Job;
use crate::budget::Hold;
use crate::cache::{Cache, Claim, ValueClaim};
use crate::config::DeliveryOrder;
use crate::sync::Mutex;
use forebay_core::plan::Plan;
use forebay_core::portion::Place;
use forebay_core::{Error, Facts, Result, SampleId};
use forebay_ops::Input;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// Most samples of one span, whatever their size: bounds the accounts and the time before the first request.
const SPAN_SAMPLES: usize = 4096;

/// Where a sample goes once its payloads are here.
#[derive(Clone, Copy)]
pub(super) struct Target {
    pub(super) epoch: u64,
    pub(super) place: Place,
    pub(super) batch: u64,
    pub(super) row: usize,
    /// Samples in quarantine that were passed over.
    pub(super) attempt: u32,
    /// Number within what is left of the epoch, for arrival order.
    pub(super) number: u64,
}

/// A sample some of whose payloads are still on their way.
pub(super) struct Pending {
    target: Target,
    sample: SampleId,
    slots: Mutex<Slots>,
}

struct Slots {
    inputs: Vec<Input>,
    /// What is to be kept of them, ready-made.
    claims: Vec<ValueClaim>,
    holds: Vec<Arc<Hold>>,
    missing: usize,
    error: Option<Error>,
    /// Whether something was waited for that was neither in memory nor asked for here.
    waited: bool,
}

/// What a sample is made of, once nothing is missing.
struct Whole {
    inputs: Result<Vec<Input>>,
    claims: Vec<ValueClaim>,
    holds: Vec<Arc<Hold>>,
    fetched: bool,
}

impl Slots {
    fn take(&mut self) -> Whole {
        let inputs = match self.error.take() {
            Some(error) => Err(error),
            None => Ok(std::mem::take(&mut self.inputs)),
        };
        let (claims, holds) = (std::mem::take(&mut self.claims), std::mem::take(&mut self.holds));
        // What memory had is the cache's, and no bytes are reserved for it.
        let fetched = self.waited || holds.iter().any(|hold| hold.bytes() > 0);
        Whole { inputs, claims, holds, fetched }
    }
}

/// A payload that the store is to give: which pending sample, which field, and the cache's interest in it.
pub(super) struct Wanted {
    pub(super) pending: usize,
    pub(super) field: usize,
    claim: Mutex<Option<Claim>>,
}

impl Wanted {
    pub(super) fn new(part: &Part, cache: Option<&Cache>) -> Self {
        let claim = cache.zip(part.payload).map(|(cache, payload)| cache.claim(payload));
        Self { pending: part.pending, field: part.field, claim: Mutex::new(claim) }
    }

    /// The claim; what came or did not come is told to the cache by whoever has it.
    pub(super) fn take_claim(&self) -> Option<Claim> {
        self.claim.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Pending {
    pub(super) fn new(target: Target, sample: SampleId, inputs: Vec<Input>, missing: usize) -> Self {
        let slots = Mutex::new(Slots {
            inputs,
            claims: Vec::new(),
            holds: Vec::new(),
            missing,
            error: None,
            waited: false,
        });
        Self { target, sample, slots }
    }

    /// Whoever prepares the sample is to make this value.
    pub(super) fn claim(&self, claim: ValueClaim) {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).claims.push(claim);
    }

    /// What somebody else fetches was waited for, though no memory was reserved for it here.
    pub(super) fn waited(&self) {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).waited = true;
    }

    /// Whether the value of a field is to be made with this sample.
    pub(super) fn has_claim(&self, field: usize) -> bool {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.claims.iter().any(|claim| claim.is_of(field))
    }
}

impl Fetcher {
    /// One payload of a sample is here; the last one sends the sample on. What the cache holds has no `hold`.
    pub(super) fn put(
        &self,
        pending: &Pending,
        field: usize,
        part: Result<impl Into<Input>>,
        offset: u64,
        hold: Option<Arc<Hold>>,
    ) {
        let mut slots = pending.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.holds.extend(hold);
        match part {
            Ok(came) => {
                let came = came.into();
                slots.claims.iter_mut().for_each(|claim| claim.arrive(field, &came));
                self.inputs.fill(&mut slots.inputs, pending.sample, field, &came);
            }
            Err(error) => {
                let facts =
                    Facts { offset: Some(offset), ..self.inputs.facts(pending.sample, pending.target.epoch) };
                let what = format!("fetch sample {} (`{}`)", pending.sample, self.inputs.key(pending.sample));
                slots.error.get_or_insert(error.with_facts(facts).while_doing(what));
            }
        }
        slots.missing -= 1;
        let whole = (slots.missing == 0).then(|| slots.take());
        drop(slots);
        if let Some(whole) = whole {
            self.send_on(pending, whole);
        }
    }

    /// Sends a sample on that waits for nothing.
    pub(super) fn arrived(&self, pending: &Pending) {
        let whole = pending.slots.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.send_on(pending, whole);
    }

    /// Sends a whole sample on to be prepared.
    fn send_on(&self, pending: &Pending, whole: Whole) {
        let Whole { inputs, claims, holds, fetched } = whole;
        let Target { epoch, place, batch, row, attempt, number } = pending.target;
        let job = Job {
            epoch,
            place,
            sample: pending.sample,
            attempt,
            inputs,
            claims,
            holds,
            fetched,
            prep: Duration::ZERO,
            faults: Vec::new(),
            writer: None,
        };
        let wake = self.mover.is_none();
        match self.config.order {
            DeliveryOrder::Plan => self.board.arrive(batch, row, job, wake),
            DeliveryOrder::Arrival { .. } => self.board.arrive_unordered(number, job, wake),
        }
        if let Some(mover) = &self.mover {
            mover.prepare_ready();
        }
    }
}

/// Places gathered for one round of requests.
#[derive(Default)]
pub(super) struct Span {
    pub(super) targets: Vec<(Target, SampleId)>,
    bytes: u64,
    /// Position at which the plan's group ends that the span began in.
    group_end: u64,
}

impl Span {
    /// Whether one more sample may be fetched together with these.
    pub(super) fn takes(&self, place: &Place, bytes: u64, limit: u64) -> bool {
        self.targets.is_empty()
            || (self.bytes.saturating_add(bytes) <= limit
                && self.targets.len() < SPAN_SAMPLES
                && (place.padding || place.position < self.group_end))
    }

    pub(super) fn push(&mut self, plan: &Plan, target: Target, sample: SampleId, bytes: u64) {
        if self.targets.is_empty() {
            self.group_end = plan.group_end(target.place.position);
        }
        self.bytes += bytes;
        self.targets.push((target, sample));
    }
}
