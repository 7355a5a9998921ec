//! What the counters of a loader add up to, as numbers with units in their names.

use crate::cache::KeeperView;
use crate::meter::Meter;
use crate::supply::SupplyView;
use forebay_core::stall::{Histogram, StepByLength, Straggler};
use forebay_core::tune::Choice;
use std::collections::BTreeMap;

/// What the counters say, with units in the names. The same words in Python, in JSON and in the docs.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Stats {
    /// Batches handed over.
    pub batches: u64,
    /// Samples handed over, padding not counted.
    pub samples: u64,
    /// Repeated samples that only filled a batch.
    pub padding: u64,
    /// Bad samples left out.
    pub skipped: u64,
    /// Bad samples replaced by another one.
    pub substituted: u64,
    /// Samples that filters left out.
    pub filtered: u64,
    /// From the first question of each iteration until it was last heard of: step, stall, queue and transfer together.
    pub wall_seconds: f64,
    /// Time the consumer spent between two batches.
    pub step_seconds: f64,
    /// Time the consumer waited for batches, the first one included.
    pub stall_seconds: f64,
    /// Part of the stall that would vanish if every payload were resident.
    pub fetch_stall_seconds: f64,
    /// Part of the stall that remains when every payload is resident.
    pub prep_stall_seconds: f64,
    /// Time from when a batch was done, or asked for if that was later, until the consumer had it.
    pub queue_seconds: f64,
    /// Time to make batches the framework's: conversion, pinning, copies to the device.
    pub transfer_seconds: f64,
    /// Part of the steps in which other ranks were waited for, as far as it was found out.
    pub others_seconds: f64,
    /// Wait for the very first batch, included in stall and queue.
    pub first_batch_seconds: f64,
    /// Batches that were ready when one was last taken, that one included.
    pub ready_batches: u64,
    /// Mean number of batches that were ready when one was taken.
    pub ready_batches_mean: f64,
    /// Requests to the store.
    pub requests: u64,
    /// Payloads fetched from the store.
    pub payloads: u64,
    /// Bytes of these payloads.
    pub payload_bytes: u64,
    /// Mean time of one request.
    pub request_seconds_mean: f64,
    /// Requests made again because an earlier one failed.
    pub retries: u64,
    /// Second requests sent because the first took suspiciously long.
    pub hedges: u64,
    /// Requests that the store refused because there were too many.
    pub throttled: u64,
    /// Bytes that may be in flight now.
    pub window_bytes: u64,
    /// Requests that may be in flight now.
    pub window_requests: u64,
    /// What the link to the store delivers, as far as it was seen; 0 while unknown and for stores on this machine.
    pub link_bytes_per_second: f64,
    /// Time of a request when nothing of ours queues on the link; 0 while unknown.
    pub link_delay_seconds: f64,
    /// Time in which the store was away: nobody answered, and requests waited for its return.
    pub store_away_seconds: f64,
    /// Payloads that the cache had in memory.
    pub cache_memory_hits: u64,
    /// Payloads that the cache had on local disk.
    pub cache_disk_hits: u64,
    /// Payloads that a peer had.
    pub cache_peer_hits: u64,
    /// Those hits in memory that were ready-made: decoded, and more where the recipe allows it.
    pub cache_value_hits: u64,
    /// Values that were made to be kept.
    pub cache_values_made: u64,
    /// Payloads that the cache had not: they came from the store.
    pub cache_misses: u64,
    /// Bytes of all hits.
    pub cache_hit_bytes: u64,
    /// Bytes of all misses.
    pub cache_miss_bytes: u64,
    /// Bytes of payloads resident in memory now.
    pub cache_memory_bytes: u64,
    /// Most bytes that may be resident in memory.
    pub cache_memory_limit_bytes: u64,
    /// Bytes of payloads resident on local disk now.
    pub cache_disk_bytes: u64,
    /// Most bytes that the cache may take on local disk.
    pub cache_disk_limit_bytes: u64,
    /// How long ago the payload was kept that is in memory longest; 0 while nothing is.
    pub cache_memory_age_seconds: f64,
    /// The same on local disk.
    pub cache_disk_age_seconds: f64,
    /// Payloads that the cache found damaged: they were fetched again.
    pub cache_damaged: u64,
    /// Nodes that keep payloads together; 0 without peers.
    pub cache_members: u64,
    /// Payloads that their owners had not.
    pub cache_peer_misses: u64,
    /// Payloads that a peer was asked for and did not answer in time: they came from the store.
    pub cache_peer_unanswered: u64,
    /// Payloads that were given to their owners.
    pub cache_peer_given: u64,
    /// Payloads that were not given to their owners: too many waited for that, or the owner was lost.
    pub cache_peer_dropped: u64,
    /// Bytes that wait to be given to their owners now.
    pub cache_peer_waiting_bytes: u64,
    /// Steps of an epoch when samples are classed by size, else 0.
    pub rounds: u64,
    /// Steps of an epoch that hold samples of more than one size class.
    pub mixed_rounds: u64,
    /// Samples of the epoch in hand that are in no batch, because each is larger than a batch may be.
    pub left_out: u64,
    /// Tokens of the epoch in hand that are in no batch, because `pack` goes on with a document in the next row, but not
    /// in the next batch.
    pub cut_off_tokens: u64,
    /// Share of bytes that padding every batch to its longest sample adds; 0 when samples are not classed by size.
    pub padding_waste: f64,
    /// The same share if samples were not classed by size.
    pub padding_waste_shuffled: f64,
    /// What memory keeps of a sample: `bytes`, or the step of the recipe after which it is kept; `auto` while that is
    /// being found out, nothing without a cache.
    pub cache_at: String,
    /// Why, when it was chosen by measurement.
    pub cache_at_why: String,
    /// Time fetching waited for memory: the plane is ahead of the consumer.
    pub budget_wait_seconds: f64,
    /// Processor time of all preparing threads, about: time inside ops.
    pub prep_seconds: f64,
    /// Time preparing threads waited for payloads.
    pub prep_starved_seconds: f64,
    /// Time preparing threads waited because enough batches were ready.
    pub prep_blocked_seconds: f64,
    /// Preparing threads.
    pub threads: u64,
    /// Batches that may be open at once.
    pub open_batches: u64,
    /// Bytes payloads and undelivered batches may take together.
    pub memory_limit_bytes: u64,
    /// Most bytes of payloads held at once.
    pub payload_peak_bytes: u64,
    /// Workers that batches come from; 0 when they are made in this process.
    pub workers: u64,
    /// Bytes of batches that came from other processes, as they crossed.
    pub wire_bytes: u64,
    /// Batches asked for a second time because a worker was late or lost.
    pub asked_again: u64,
    /// Batches left out because they were no longer kept and were not to be made again.
    pub skipped_batches: u64,
    /// Times of single steps and requests: `step_seconds_p50`, `_p95` and `_p99`, and so for every part.
    #[serde(flatten)]
    pub percentiles: BTreeMap<String, f64>,
    /// Phases that the user named.
    pub phases: Vec<PhaseStats>,
    /// How the time of a step follows from the length of its batch; nothing while batches are all of one length.
    pub step_by_length: Option<StepByLength>,
    /// Threads and open batches as the loader changed them by itself, with the reason; the newest last.
    pub tuned: Vec<Choice>,
    /// The rank that makes the others wait, when ranks tell each other how they go and one does.
    pub straggler: Option<Straggler>,
}

/// A phase that the user named.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct PhaseStats {
    /// Its name.
    pub name: String,
    /// How often it was.
    pub count: u64,
    /// All its time.
    pub seconds: f64,
    /// The time that half of them do not exceed.
    pub seconds_p50: f64,
    /// The time that 95 % do not exceed.
    pub seconds_p95: f64,
    /// The time that 99 % do not exceed.
    pub seconds_p99: f64,
}

impl Stats {
    /// Together with what a supply knows beside the meter.
    pub(crate) fn with(self, view: SupplyView) -> Self {
        Self {
            payload_peak_bytes: view.payload_peak_bytes,
            window_bytes: view.window_bytes,
            window_requests: view.window_requests,
            link_bytes_per_second: view.link_bytes_per_second,
            link_delay_seconds: view.link_delay_seconds,
            store_away_seconds: view.store_away_seconds,
            workers: view.workers,
            ..self
        }
    }

    /// Together with what the cache holds now.
    pub(crate) fn with_cache(self, cache: &KeeperView) -> Self {
        Self {
            cache_memory_bytes: cache.memory.bytes,
            cache_memory_limit_bytes: cache.memory.limit,
            cache_disk_bytes: cache.disk.bytes,
            cache_disk_limit_bytes: cache.disk.limit,
            cache_memory_age_seconds: cache.memory.age_seconds(),
            cache_disk_age_seconds: cache.disk.age_seconds(),
            cache_damaged: cache.disk.damaged + cache.memory.damaged,
            cache_members: cache.peers.members,
            cache_peer_misses: cache.peers.misses,
            cache_peer_unanswered: cache.peers.unanswered,
            cache_peer_given: cache.peers.given,
            cache_peer_dropped: cache.peers.dropped,
            cache_peer_waiting_bytes: cache.peers.waiting_bytes,
            ..self
        }
    }
}

impl Meter {
    /// The counters as numbers with units; what the meter cannot know is left at its default.
    pub fn stats(&self) -> Stats {
        let mean = |sum: f64, count: u64| if count == 0 { 0.0 } else { sum / count as f64 };
        let (ledger, first_batch, wall) = self.ledger();
        let (total, times) = (ledger.total(), ledger.times());
        let requests = self.request_nanos.histogram();
        let mut percentiles = BTreeMap::new();
        for (name, times) in [
            ("step", &times.step),
            ("stall", &times.stall),
            ("fetch_stall", &times.fetch_stall),
            ("prep_stall", &times.prep_stall),
            ("queue", &times.queue),
            ("transfer", &times.transfer),
            ("request", &requests),
        ] {
            let [p50, p95, p99] = quantiles(times);
            percentiles.insert(format!("{name}_seconds_p50"), p50);
            percentiles.insert(format!("{name}_seconds_p95"), p95);
            percentiles.insert(format!("{name}_seconds_p99"), p99);
        }
        let phases = ledger.phases().iter().map(|phase| {
            let [seconds_p50, seconds_p95, seconds_p99] = quantiles(&phase.times);
            let (name, count, seconds) = (phase.name.clone(), phase.times.count(), phase.times.sum_seconds());
            PhaseStats { name, count, seconds, seconds_p50, seconds_p95, seconds_p99 }
        });
        Stats {
            batches: self.batches.get(),
            samples: self.samples.get(),
            padding: self.padding.get(),
            skipped: self.skipped.get(),
            substituted: self.substituted.get(),
            filtered: self.filtered.get(),
            wall_seconds: wall.as_secs_f64(),
            step_seconds: total.step_seconds,
            stall_seconds: total.fetch_stall_seconds + total.prep_stall_seconds,
            fetch_stall_seconds: total.fetch_stall_seconds,
            prep_stall_seconds: total.prep_stall_seconds,
            queue_seconds: total.queue_seconds,
            transfer_seconds: total.transfer_seconds,
            others_seconds: total.others_seconds,
            first_batch_seconds: first_batch.as_secs_f64(),
            ready_batches: self.ready_last.get(),
            ready_batches_mean: mean(self.ready_at_take.get() as f64, self.batches.get()),
            requests: self.requests.get(),
            payloads: self.payloads.get(),
            payload_bytes: self.payload_bytes.get(),
            request_seconds_mean: mean(self.request_nanos.seconds(), self.requests.get()),
            retries: self.retries.get(),
            hedges: self.hedges.get(),
            throttled: self.throttled.get(),
            cache_memory_hits: self.cache_memory_hits.get(),
            cache_disk_hits: self.cache_disk_hits.get(),
            cache_peer_hits: self.cache_peer_hits.get(),
            cache_value_hits: self.cache_value_hits.get(),
            cache_values_made: self.cache_values_made.get(),
            cache_misses: self.cache_misses.get(),
            cache_hit_bytes: self.cache_hit_bytes.get(),
            cache_miss_bytes: self.cache_miss_bytes.get(),
            budget_wait_seconds: self.budget_wait_nanos.seconds(),
            prep_seconds: self.prep_nanos.seconds(),
            prep_starved_seconds: self.prep_starved_nanos.seconds(),
            prep_blocked_seconds: self.prep_blocked_nanos.seconds(),
            wire_bytes: self.wire_bytes.get(),
            asked_again: self.asked_again.get(),
            skipped_batches: self.skipped_batches.get(),
            percentiles,
            phases: phases.collect(),
            step_by_length: StepByLength::of(ledger.steps()),
            ..Stats::default()
        }
    }
}

fn quantiles(times: &Histogram) -> [f64; 3] {
    [0.5, 0.95, 0.99].map(|q| times.quantile_seconds(q))
}
