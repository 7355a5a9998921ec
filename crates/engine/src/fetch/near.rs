//! What the cache has not here but near: on disk, with a peer, on its way to another process.
//!
//! Payloads that are best read together are. What turns out not to be there comes from the store after all; the
//! missing ones of a span are planned anew together, so that neighbours are still read by one request.

use super::Fetcher;
use super::carry::{Entry, Waiting};
use super::gate::Turn;
use super::pending::{Pending, Wanted};
use crate::budget::Hold;
use crate::cache::{Cache, Look, Payload, Read, Tier, ValueLook};
use crate::sync::Mutex;
use forebay_core::manifest::Location;
use forebay_core::request::{RequestLimits, Want, plan_requests};
use forebay_ops::Input;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

/// Most payloads asked for by one message.
const READ_TOGETHER: usize = 256;

/// Most bytes read from a disk together: enough that nobody is woken for each payload, and few enough that the first
/// ones do not wait long for the others.
const DISK_TOGETHER: u64 = 2 << 20;

/// A payload of a span: who waits for it, and what it is called.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub(super) pending: usize,
    pub(super) field: usize,
    pub(super) location: Location,
    pub(super) payload: Option<Payload>,
}

impl Part {
    pub(super) fn want(&self) -> Want {
        let Location { object, offset, length } = self.location;
        Want { order: self.pending as u64, object, offset, length }
    }
}

/// Parts of a span that have to be read, by where from.
#[derive(Default)]
pub(super) struct Found {
    /// From the store.
    pub(super) absent: Vec<Part>,
    /// From the cache, in groups.
    pub(super) near: Vec<Vec<Part>>,
    /// Being fetched by somebody else: they come without a reservation, since who fetches them made one.
    pub(super) coming: Vec<Part>,
}

/// What the groups of one span did not find; the last group to end has it fetched.
pub(super) struct Missed {
    parts: Mutex<(usize, Vec<(Part, Hold)>)>,
}

impl Missed {
    pub(super) fn new(groups: usize) -> Arc<Self> {
        Arc::new(Self { parts: Mutex::new((groups, Vec::new())) })
    }

    /// One group ended; all that is missing when it was the last.
    fn group_ended(&self, missing: Vec<(Part, Hold)>) -> Vec<(Part, Hold)> {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.0 = parts.0.saturating_sub(1);
        parts.1.extend(missing);
        if parts.0 == 0 { std::mem::take(&mut parts.1) } else { Vec::new() }
    }
}

impl Fetcher {
    /// Asks the cache for every part. What is here goes to its sample at once, without counting against the budget:
    /// these bytes are the cache's.
    pub(super) async fn look(&self, cache: &Cache, samples: &[Pending], parts: Vec<Part>) -> Found {
        let mut found = Found::default();
        let parts = self.look_for_values(cache, samples, parts, &mut found).await;
        let payloads: Vec<Payload> = parts.iter().filter_map(|part| part.payload).collect();
        let looks = cache.look(&payloads).await;
        let mut groups: HashMap<u32, (u64, Vec<Part>)> = HashMap::new();
        let most = self.request_bytes();
        let mut looks = looks.into_iter();
        for part in parts {
            match looks.next().unwrap_or(Look::Absent) {
                Look::Here(bytes) if bytes.len() as u64 == part.location.length => {
                    self.put(&samples[part.pending], part.field, Ok(bytes), part.location.offset, None);
                }
                Look::Here(_) | Look::Absent => found.absent.push(part),
                Look::Coming => found.coming.push(part),
                Look::Near { together: None, .. } => found.near.push(vec![part]),
                Look::Near { tier, together: Some(group) } => {
                    let most = if tier == Tier::Disk { most.min(DISK_TOGETHER) } else { most };
                    let (bytes, gathered) = groups.entry(group).or_default();
                    let more = *bytes + part.location.length;
                    if !gathered.is_empty() && (more > most || gathered.len() >= READ_TOGETHER) {
                        found.near.push(std::mem::take(gathered));
                        *bytes = 0;
                    }
                    *bytes += part.location.length;
                    gathered.push(part);
                }
            }
        }
        found.near.extend(groups.into_values().map(|(_, parts)| parts).filter(|parts| !parts.is_empty()));
        found
    }

    /// Takes what is kept ready-made; what is left has to be looked for as payloads.
    async fn look_for_values(
        &self,
        cache: &Cache,
        samples: &[Pending],
        parts: Vec<Part>,
        found: &mut Found,
    ) -> Vec<Part> {
        if !cache.may_keep_values() {
            return parts;
        }
        let mut left = Vec::with_capacity(parts.len());
        for part in parts {
            let Some(payload) = &part.payload else { continue };
            match cache.look_value(part.field, payload).await {
                ValueLook::Here(value) => {
                    self.put(&samples[part.pending], part.field, Ok(value), part.location.offset, None);
                }
                ValueLook::Coming => found.coming.push(part),
                ValueLook::Claimed(claim) => {
                    samples[part.pending].claim(claim);
                    left.push(part);
                }
                ValueLook::Payload => left.push(part),
            }
        }
        left
    }

    /// Reads one group. Ends with what the whole span did not find, when it is the last to end.
    pub(super) async fn fetch_near(
        self: Arc<Self>,
        samples: Arc<Vec<Pending>>,
        parts: Vec<Part>,
        mut hold: Hold,
        missed: Arc<Missed>,
    ) {
        let Some(cache) = self.cache.clone() else { return };
        let payloads: Vec<Payload> = parts.iter().filter_map(|part| part.payload).collect();
        let mut answers = cache.read_now(&payloads).await.into_iter();
        let mut missing = Vec::new();
        for part in parts {
            let hold = hold.split(part.location.length);
            match answers.next().unwrap_or(Read::Absent) {
                Read::Here(bytes, _) => {
                    self.put(
                        &samples[part.pending],
                        part.field,
                        Ok(bytes),
                        part.location.offset,
                        Some(Arc::new(hold)),
                    );
                }
                // Waited for without a reservation: whoever fetches it made one.
                Read::Coming => {
                    drop(hold);
                    self.tasks.spawn(Arc::clone(&self).fetch_coming(Arc::clone(&samples), part));
                }
                Read::Absent => missing.push((part, hold)),
            }
        }
        let missing = missed.group_ended(missing);
        if !missing.is_empty() {
            self.fetch_missing(&cache, samples, missing);
        }
    }

    /// Waits for a payload that another loader, or an earlier request of ours, is fetching.
    pub(super) async fn fetch_coming(self: Arc<Self>, samples: Arc<Vec<Pending>>, part: Part) {
        let (Some(cache), Some(payload)) = (&self.cache, part.payload) else { return };
        let pending = &samples[part.pending];
        pending.waited();
        // A value that this very sample is to make will not come from elsewhere.
        if !pending.has_claim(part.field)
            && let Some(value) = cache.read_value(part.field, &payload).await
        {
            return self.put(pending, part.field, Ok(value), part.location.offset, None);
        }
        let Some(bytes) = cache.read(&[payload]).await.pop().flatten() else {
            // Waiting for memory now could wait for ever: what is ahead of this sample may wait for it.
            let hold = self.budget.reserve_anyway(part.location.length);
            return self.fetch_missing(cache, Arc::clone(&samples), vec![(part, hold)]);
        };
        self.put(pending, part.field, Ok(bytes), part.location.offset, None);
    }

    /// Starts requests for parts whose bytes are reserved already.
    fn fetch_missing(
        self: &Arc<Self>,
        cache: &Cache,
        samples: Arc<Vec<Pending>>,
        missing: Vec<(Part, Hold)>,
    ) {
        let (parts, holds): (Vec<Part>, Vec<Hold>) = missing.into_iter().unzip();
        let wants: Vec<Want> = parts.iter().map(Part::want).collect();
        let wanted = parts.iter().map(|part| Wanted::new(part, Some(cache))).collect();
        let waiting = Arc::new(Waiting { samples, wanted });
        let mut holds: Vec<Option<Hold>> = holds.into_iter().map(Some).collect();
        let limits = RequestLimits { request_bytes: self.request_bytes(), ..self.config.request_limits };
        for request in plan_requests(&wants, limits) {
            let held = request.wants.iter().filter_map(|want| holds[*want].take()).reduce(Hold::join);
            let Some(hold) = held else { continue };
            let (fetcher, waiting) = (Arc::clone(self), Arc::clone(&waiting));
            self.tasks
                .spawn(async move { fetcher.fetch(&waiting, request, hold, Entry::At(Turn::First)).await });
        }
    }

    /// One payload, or its value, from wherever it is, the store last; for a sample that stands in for a bad one.
    pub(super) async fn bring(&self, part: Part) -> forebay_core::Result<Input> {
        let object = part.location.object;
        let range = part.location.offset..part.location.offset.saturating_add(part.location.length);
        let (Some(cache), Some(payload)) = (&self.cache, part.payload) else {
            return self
                .read_one(object, range, Turn::First)
                .await
                .and_then(|bytes| self.account(bytes, part.location.length))
                .map(Input::Payload);
        };
        if let Some(value) = cache.peek_value(part.field, &payload).await {
            return Ok(value);
        }
        let cached = match cache.look(&[payload]).await.pop() {
            Some(Look::Here(bytes)) => Some(bytes),
            Some(Look::Near { .. } | Look::Coming) => cache.read(&[payload]).await.pop().flatten(),
            Some(Look::Absent) | None => None,
        };
        if let Some(bytes) = cached {
            return Ok(Input::Payload(bytes));
        }
        let claim = cache.claim(payload);
        let bytes = self
            .read_one(object, range, Turn::First)
            .await
            .and_then(|bytes| self.account(bytes, part.location.length))?;
        cache.keep(claim, &bytes).await;
        Ok(Input::Payload(bytes))
    }
}
