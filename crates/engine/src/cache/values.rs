//! Values kept ready-made: what the beginning of the recipe makes of a payload, instead of the payload.
//!
//! They live in memory of one loader, which has one recipe and one cut: so a value goes by its payload's name. Which
//! samples are resident is chosen as for payloads, by what their values take. Where a value's size is known only
//! from its image, the choice goes by an estimate and the tier refuses what does not fit. Payloads
//! of other columns of a resident sample are kept beside it, as they are.
//!
//! Preparing threads make values: the claim travels with the sample until one of them has taken it up. Whatever
//! becomes of it, nobody waits for ever, and a value that cannot be made costs its sample nothing.

use super::probe::{Estimate, Probe};
use super::resident::{Cache, Claim};
use super::{CacheAt, Keeper, KeeperView, LocalKeeper, Look, Payload, Tier};
use crate::inputs::Inputs;
use crate::sync::Mutex;
use bytes::Bytes;
use forebay_core::cache::{Capacity, Place};
use forebay_core::recipe::{Cut, Recipe};
use forebay_core::{Error, Result};
use forebay_ops::{Input, Program, Scratch};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock, PoisonError};

/// What a loader prepares: given when its cache is opened.
#[derive(Clone)]
pub(crate) struct Preparing {
    pub(crate) program: Arc<Program>,
    pub(crate) recipe: Recipe,
    pub(crate) threads: usize,
}

/// The values of one loader.
pub(super) struct Values {
    preparing: Preparing,
    at: CacheAt,
    inputs: Inputs,
    tier: Arc<LocalKeeper>,
    /// Bytes of values that are here or being made.
    admitted: Mutex<u64>,
    /// Set once, before what is resident is chosen for the first time.
    kept: OnceLock<KeptAt>,
}

/// What is kept, and why.
pub(super) struct KeptAt {
    /// `bytes`, or the name of the cut.
    pub(super) name: String,
    pub(super) why: String,
    /// The cut of every column that has one; empty when payloads are kept.
    pub(super) cuts: Vec<Option<(Cut, Estimate)>>,
}

impl KeptAt {
    fn bytes(why: String) -> Self {
        Self { name: "bytes".to_owned(), why, cuts: Vec::new() }
    }
}

/// A value to be made by whoever prepares the sample.
pub(crate) struct ValueClaim {
    field: usize,
    claim: Claim,
    /// The payload, when it came.
    bytes: Option<Bytes>,
}

impl ValueClaim {
    /// Its payload came.
    pub(crate) fn arrive(&mut self, field: usize, bytes: &Input) {
        if let (true, Input::Payload(bytes)) = (field == self.field, bytes) {
            self.bytes = Some(bytes.clone());
        }
    }

    pub(crate) fn is_of(&self, field: usize) -> bool {
        self.field == field
    }
}

/// What is known about a value.
pub(crate) enum ValueLook {
    /// Here it is.
    Here(Input),
    /// It is being made.
    Coming,
    /// We are to make it, if it is to be kept.
    Claimed(ValueClaim),
    /// It is none of ours: ask for the payload.
    Payload,
}

impl Values {
    /// `None` when payloads are kept, without anything to measure.
    pub(super) fn new(
        at: &CacheAt,
        preparing: Option<&Preparing>,
        inputs: &Inputs,
        memory: u64,
    ) -> Result<Option<Self>> {
        let preparing = match (at, preparing) {
            (CacheAt::Bytes, _) | (_, None) => return Ok(None),
            (CacheAt::Auto, Some(preparing)) if preparing.recipe.cut_names().is_empty() => return Ok(None),
            (CacheAt::Auto, Some(preparing)) => preparing,
            (CacheAt::Cut(name), Some(preparing)) => {
                preparing.recipe.cut_at(name)?;
                preparing
            }
        };
        if memory == 0 {
            return match at {
                CacheAt::Cut(name) => Err(Error::invalid_config(format!(
                    "cache the recipe at `{name}`: such values are kept in memory, and `memory` is 0"
                ))
                .with_hint("give `memory`; a disk keeps payloads")),
                _ => Ok(None),
            };
        }
        Ok(Some(Self {
            preparing: preparing.clone(),
            at: at.clone(),
            inputs: inputs.clone(),
            tier: Arc::new(LocalKeeper::new(memory, None)),
            admitted: Mutex::new(0),
            kept: OnceLock::new(),
        }))
    }

    /// Settles what is kept, if that is not settled yet. Reads and prepares a few samples where it must.
    pub(super) fn decide(&self, probe: &Probe, capacity: Capacity) {
        self.kept.get_or_init(|| {
            let decide = || match &self.at {
                CacheAt::Bytes => KeptAt::bytes(String::new()),
                CacheAt::Cut(name) => probe.kept_at(&self.preparing, name),
                CacheAt::Auto => probe.choose(&self.preparing, capacity),
            };
            let kept = catch_unwind(AssertUnwindSafe(decide))
                .unwrap_or_else(|_| KeptAt::bytes("an op panicked while it was measured".to_owned()));
            tracing::info!(at = kept.name, why = kept.why, "chose what the cache keeps of a sample");
            kept
        });
    }

    /// Whether values are kept; `None` while that is being found out.
    pub(super) fn is_on(&self) -> Option<bool> {
        self.kept.get().map(|kept| !kept.cuts.is_empty())
    }

    /// The column that a field feeds and its cut, when the value of the field is kept.
    fn cut(&self, field: usize) -> Option<(usize, Cut, Estimate)> {
        let column = self.inputs.only_column(field)?;
        let (cut, estimate) = self.kept.get()?.cuts.get(column).copied().flatten()?;
        Some((column, cut, estimate))
    }

    /// Bytes that a field takes in memory.
    pub(super) fn cost(&self, field: usize, length: u64) -> u64 {
        self.cut(field).map_or(length, |(_, _, estimate)| estimate.bytes(length))
    }

    /// Bytes that all samples take in memory, or more: so many samples with so many bytes of payloads.
    pub(super) fn most_bytes(&self, samples: u64, payload_bytes: u64) -> u64 {
        let cuts = self.kept.get().map(|kept| kept.cuts.iter().flatten()).into_iter().flatten();
        cuts.fold(payload_bytes, |sum, (_, estimate)| {
            sum.saturating_add(match estimate {
                Estimate::Fixed(bytes) => samples.saturating_mul(*bytes),
                Estimate::Ratio(_) => estimate.bytes(payload_bytes).saturating_add(samples),
            })
        })
    }

    fn input(&self, field: usize, bytes: Bytes) -> Input {
        if self.cut(field).is_some() { Input::Pixels(bytes) } else { Input::Payload(bytes) }
    }

    pub(super) fn view(&self) -> KeeperView {
        self.tier.view()
    }

    /// Changes the room. Values of the highest ranks go until the rest fits.
    pub(super) fn resize(&self, memory: u64) -> Result<()> {
        let mut admitted = self.admitted.lock().unwrap_or_else(PoisonError::into_inner);
        futures::executor::block_on(self.tier.resize(Capacity { memory, disk: 0 }))?;
        *admitted = self.tier.view().memory.bytes;
        Ok(())
    }

    /// Takes room for a value, if there is any. Taken before it is made, so that threads do not count on the same room.
    fn admit(&self, bytes: u64) -> Option<()> {
        let mut admitted = self.admitted.lock().unwrap_or_else(PoisonError::into_inner);
        let sum = admitted.checked_add(bytes).filter(|sum| *sum <= self.tier.view().memory.limit)?;
        *admitted = sum;
        Some(())
    }

    /// What is kept of a field: the value, or the payload where there is no cut. `None` when it cannot be made, or
    /// there is no room for it.
    fn make(
        &self,
        field: usize,
        payload: &Bytes,
        scratch: &mut Scratch,
    ) -> Option<(Option<(usize, Input)>, Bytes)> {
        let Some((column, cut, _)) = self.cut(field) else {
            self.admit(payload.len() as u64)?;
            return Some((None, payload.clone()));
        };
        let program = &self.preparing.program;
        // Asked before it is made: what does not fit would be made in vain, every epoch.
        let bytes = program.bytes_until(column, cut.ops, payload, scratch).ok()?;
        self.admit(bytes)?;
        let Ok(made) = program.prepare_until(column, cut.ops, payload, scratch) else {
            let mut admitted = self.admitted.lock().unwrap_or_else(PoisonError::into_inner);
            *admitted = admitted.saturating_sub(bytes);
            return None;
        };
        let made = Bytes::from(made);
        Some((Some((column, Input::Pixels(made.clone()))), made))
    }
}

impl Cache {
    /// What is kept of a sample, and why; the setting while that is being found out.
    pub(crate) fn kept_at(&self) -> (String, String) {
        match self.values.as_ref().map(|values| (values, values.kept.get())) {
            None => ("bytes".to_owned(), String::new()),
            Some((values, None)) => (values.at.to_string(), String::new()),
            Some((_, Some(kept))) => (kept.name.clone(), kept.why.clone()),
        }
    }

    /// Whether anything but payloads may be kept.
    pub(crate) fn may_keep_values(&self) -> bool {
        self.values.as_ref().is_some_and(|values| values.is_on() != Some(false))
    }

    /// What is known about the value of a field.
    pub(crate) async fn look_value(&self, field: usize, payload: &Payload) -> ValueLook {
        let Some(values) = self.values.as_ref().filter(|values| values.is_on() != Some(false)) else {
            return ValueLook::Payload;
        };
        match values.tier.look(std::slice::from_ref(payload)).await.pop() {
            Some(Look::Here(bytes)) => ValueLook::Here(self.value_hit(values, field, payload, bytes)),
            // What will not be kept is not waited for.
            Some(Look::Coming) if self.value_place(payload).await.memory => ValueLook::Coming,
            Some(Look::Absent) => {
                let keeper: Arc<dyn Keeper> = Arc::clone(&values.tier) as _;
                let claim = Claim::new(keeper, *payload);
                match self.place_now(payload.rank) {
                    Some(place) if values.is_on() == Some(false) || !place.memory => ValueLook::Payload,
                    _ => ValueLook::Claimed(ValueClaim { field, claim, bytes: None }),
                }
            }
            _ => ValueLook::Payload,
        }
    }

    /// The value of a field if it is here; nothing is claimed.
    pub(crate) async fn peek_value(&self, field: usize, payload: &Payload) -> Option<Input> {
        match self.look_value(field, payload).await {
            ValueLook::Here(input) => Some(input),
            _ => None,
        }
    }

    /// The value of a field that was coming; `None` when it did not come.
    pub(crate) async fn read_value(&self, field: usize, payload: &Payload) -> Option<Input> {
        let values = self.values.as_ref()?;
        let (bytes, _) = values.tier.read(std::slice::from_ref(payload)).await.pop().flatten()?;
        Some(self.value_hit(values, field, payload, bytes))
    }

    fn value_hit(&self, values: &Values, field: usize, payload: &Payload, bytes: Bytes) -> Input {
        self.count_hit(Tier::Memory, payload.length);
        let input = values.input(field, bytes);
        if matches!(input, Input::Pixels(_)) {
            self.meter.cache_value_hits.add(1);
        }
        input
    }

    async fn value_place(&self, payload: &Payload) -> Place {
        let place = self.place(payload.rank).await;
        let on = self.values.as_ref().and_then(Values::is_on) == Some(true);
        Place { memory: place.memory && on, ..place }
    }

    /// Makes the values that were claimed, keeps them and puts them in the place of their payloads. Called by preparing
    /// threads: it may wait until it is known what is kept.
    pub(crate) fn make_values(&self, claims: Vec<ValueClaim>, inputs: &mut [Input], scratch: &mut Scratch) {
        let Some(values) = &self.values else { return };
        for ValueClaim { field, claim, bytes } in claims {
            let Some(payload) = bytes else { continue };
            if !futures::executor::block_on(self.value_place(claim.payload())).memory {
                continue;
            }
            // A claim that is dropped is given up: the next who wants the value tries anew.
            let Some((made, bytes)) = values.make(field, &payload, scratch) else { continue };
            let place = Place { memory: true, disk: false };
            futures::executor::block_on(claim.keep(place, &bytes));
            if let Some((column, input)) = made {
                self.meter.cache_values_made.add(1);
                inputs[column] = input;
            }
        }
    }
}
