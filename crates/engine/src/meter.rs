//! Counters on every hand-over, and what they add up to.
//!
//! Each wait is timed once, where it happens: the consumer at `take`, threads at the queue, requests at the store.
//! Stall is what the training loop saw; its fetch part ends when the batch's last payload arrived, the rest is prep.

use crate::cache::KeeperView;
use crate::supply::SupplyView;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Counters shared by all stages of a loader. They only grow.
#[derive(Debug, Default)]
pub struct Meter {
    pub(crate) batches: Sum,
    pub(crate) samples: Sum,
    pub(crate) padding: Sum,
    pub(crate) skipped: Sum,
    pub(crate) substituted: Sum,
    pub(crate) step_nanos: Sum,
    pub(crate) fetch_stall_nanos: Sum,
    pub(crate) prep_stall_nanos: Sum,
    pub(crate) first_batch_nanos: Sum,
    pub(crate) ready_at_take: Sum,
    pub(crate) requests: Sum,
    pub(crate) payloads: Sum,
    pub(crate) payload_bytes: Sum,
    pub(crate) request_nanos: Sum,
    pub(crate) retries: Sum,
    pub(crate) hedges: Sum,
    pub(crate) throttled: Sum,
    pub(crate) cache_memory_hits: Sum,
    pub(crate) cache_disk_hits: Sum,
    pub(crate) cache_peer_hits: Sum,
    pub(crate) cache_value_hits: Sum,
    pub(crate) cache_values_made: Sum,
    pub(crate) cache_misses: Sum,
    pub(crate) cache_hit_bytes: Sum,
    pub(crate) cache_miss_bytes: Sum,
    pub(crate) budget_wait_nanos: Sum,
    pub(crate) prep_nanos: Sum,
    pub(crate) prep_starved_nanos: Sum,
    pub(crate) prep_blocked_nanos: Sum,
    /// Bytes of batches that came from other processes, as they crossed.
    pub wire_bytes: Sum,
    /// Batches that were asked for a second time, because a worker was late or lost.
    pub asked_again: Sum,
    /// Batches that were left out because nobody kept them and making them again was not wanted.
    pub skipped_batches: Sum,
}

/// A counter.
#[derive(Debug, Default)]
pub struct Sum(AtomicU64);

impl Sum {
    /// Adds to it.
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Relaxed);
    }

    pub(crate) fn add_time(&self, time: Duration) {
        self.add(time.as_nanos() as u64);
    }

    /// The sum so far.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    fn seconds(&self) -> f64 {
        self.get() as f64 * 1e-9
    }
}

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
    /// Time the consumer spent between two batches.
    pub step_seconds: f64,
    /// Time the consumer waited for batches, the first one included.
    pub stall_seconds: f64,
    /// Part of the stall that would vanish if every payload were resident.
    pub fetch_stall_seconds: f64,
    /// Part of the stall that remains when every payload is resident.
    pub prep_stall_seconds: f64,
    /// Wait for the very first batch, included in the stall.
    pub first_batch_seconds: f64,
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
        Stats {
            batches: self.batches.get(),
            samples: self.samples.get(),
            padding: self.padding.get(),
            skipped: self.skipped.get(),
            substituted: self.substituted.get(),
            step_seconds: self.step_nanos.seconds(),
            stall_seconds: self.fetch_stall_nanos.seconds() + self.prep_stall_nanos.seconds(),
            fetch_stall_seconds: self.fetch_stall_nanos.seconds(),
            prep_stall_seconds: self.prep_stall_nanos.seconds(),
            first_batch_seconds: self.first_batch_nanos.seconds(),
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
            ..Stats::default()
        }
    }
}
