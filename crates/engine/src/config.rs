//! What a loader is asked to do: every setting with its unit, its default and its check.
//!
//! The definition is plain data; nothing starts here. Words that users type (strings, sizes with units, environment)
//! are turned into this by the front ends. Orders by parts and by size are in `order`.

mod mixture;
mod order;
mod pack;

pub use mixture::EpochSamples;

use crate::batch::FinishBatch;
use crate::ranks::RankChannel;
use forebay_core::manifest::Manifest;
use forebay_core::plan::batching::Batching;
use forebay_core::plan::mix::MixPart;
use forebay_core::plan::mix::schedule::{MixChange, check_changes};
use forebay_core::plan::parts::Sharding;
use forebay_core::plan::rounds::SizeClasses;
use forebay_core::plan::{BlockShuffle, Sampler, Shuffle};
use forebay_core::portion::{Consumer, LastBatch, Turn};
use forebay_core::quarantine::Quarantine;
use forebay_core::request::RequestLimits;
use forebay_core::{Error, Result};
use forebay_ops::Functions;
use forebay_store::RetryOptions;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Runs once in every preparing thread before its first sample; the argument is the thread's number.
pub type ThreadInit = Arc<dyn Fn(usize) -> Result<()> + Send + Sync>;

/// Requests in flight to a store on this machine.
pub(crate) const LOCAL_REQUESTS: usize = 64;

/// Most requests in flight to a remote store that nobody limits: as many connections where each carries one. Enough for
/// samples of 115 KB on 25 Gb/s at 100 ms; links are filled by what they need, which is seldom so much.
pub(crate) const REMOTE_REQUESTS: usize = 4096;

/// Threads to which a loader may go by itself where they help, on machines with few processors: ops that wait need more.
pub(crate) const MOST_THREADS: usize = 16;

/// Settings of a loader.
#[derive(Clone)]
pub struct LoaderConfig {
    /// Rank, number of ranks, batch size per rank and what happens at the end of an epoch.
    pub consumer: Consumer,
    /// Which of the rank's batches are made here, when several processes are asked in turn; all of them otherwise.
    pub turn: Turn,
    /// Order of each epoch.
    pub shuffle: Shuffle,
    /// Runs of samples to be mixed by weight; `None` orders all samples by `shuffle`. A mix permutes the samples of
    /// each run as a whole, whether `shuffle` says full or block.
    pub mix: Option<Vec<MixPart>>,
    /// Other weights of the mix from a place on, through all epochs after it.
    pub mix_changes: Vec<MixChange>,
    /// Positions of an epoch of a mix or of resampling; `None` is the number of samples. Other orders have every
    /// sample once and take no other number.
    pub epoch_samples: Option<u64>,
    /// Deals the dataset to parts that are read in turn, a batch each; `None` has no parts. Samples of a part are
    /// ordered by `shuffle`. The batch size is part of the order.
    pub sharding: Option<Sharding>,
    /// Gives all ranks samples of about one size at every step; `None` does not look at sizes. Samples of a class are
    /// permuted as a whole, whether `shuffle` says full or block. World size and batch size are part of the order.
    pub size_classes: Option<SizeClasses>,
    /// Cuts batches by length or by bytes, from whatever order the other settings give; `None` has `batch_size` samples
    /// in each. Then `batch_size` is the most that a batch has.
    pub batching: Option<Batching>,
    /// Seed of order and of all random ops.
    pub seed: u64,
    /// Preparing threads.
    pub threads: usize,
    /// Whether more threads are tried when the loop waits for them; not when the user said how many.
    pub more_threads: bool,
    /// Batches kept ready beside the one being made; `None` chooses by their size.
    pub prefetch_batches: Option<usize>,
    /// Bytes that payloads and undelivered batches may take together; `None` chooses.
    pub memory_bytes: Option<u64>,
    /// Whether rows follow the plan or the arrival of payloads.
    pub order: DeliveryOrder,
    /// What a bad sample does.
    pub on_error: OnError,
    /// How many bad samples an epoch may have before the loader gives up.
    pub max_errors: MaxErrors,
    /// Samples that are not read: others stand in for them.
    pub quarantine: Arc<Quarantine>,
    /// Where samples that turn out to be bad are written down.
    pub quarantine_file: Option<PathBuf>,
    /// The folder in which what the loop received is written down.
    pub ledger: Option<PathBuf>,
    /// Longest wait for one batch.
    pub timeout: Option<Duration>,
    /// Requests in flight, fixed; `None` lets remote stores find out and takes 64 for others.
    pub requests_in_flight: Option<usize>,
    /// How neighbours are read together.
    pub request_limits: RequestLimits,
    /// Bytes of one range request; `None` follows the link, or `request_limits` for stores on this machine.
    pub request_bytes: Option<u64>,
    /// One more batch ahead for every so many steps, until the depth is reached; `None` begins with all of it.
    pub slow_start: Option<u64>,
    /// How requests to remote stores are made again.
    pub retry: RetryOptions,
    /// Whether a second request is sent when the first one to a remote store takes suspiciously long.
    pub hedge: bool,
    /// Ranks on this host, which share its link.
    pub local_ranks: usize,
    /// Epochs after which nothing more is prefetched; `None` goes on for ever.
    pub epochs: Option<u64>,
    /// Runs in every preparing thread before its first sample.
    pub thread_init: Option<ThreadInit>,
    /// What the recipe may call.
    pub functions: Functions,
    /// Does something to every batch before it is handed over.
    pub finish_batch: Option<FinishBatch>,
    /// What all ranks of the job share: they tell each other how they go there, and the late one is named.
    pub rank_channel: Option<Arc<dyn RankChannel>>,
    /// Whether time is kept: without it stalls and percentiles are missing from the figures. For measuring what metering
    /// costs.
    pub metering: bool,
}

/// Order of delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryOrder {
    /// As planned.
    Plan,
    /// As soon as ready, but no sample more than this many places late.
    Arrival {
        /// Places in the rank's own sequence.
        window: u64,
    },
}

/// What a bad sample does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    /// Its batch raises the error.
    #[default]
    Raise,
    /// Its row is left out, and reported.
    Skip,
    /// Another sample, chosen by seed, takes its row, and both are reported.
    Substitute,
}

/// How many bad samples one epoch of one rank may have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MaxErrors {
    /// Any number.
    Unlimited,
    /// This many.
    Count(u64),
    /// This share of the rank's samples.
    Rate(f64),
}

impl MaxErrors {
    /// The number allowed among `samples`.
    pub fn allowed(self, samples: u64) -> u64 {
        match self {
            Self::Unlimited => u64::MAX,
            Self::Count(count) => count,
            Self::Rate(rate) => (rate * samples as f64) as u64,
        }
    }
}

impl Default for LoaderConfig {
    fn default() -> Self {
        Self {
            consumer: Consumer { rank: 0, world_size: 1, batch_size: 1, last_batch: LastBatch::default() },
            turn: Turn::default(),
            shuffle: Shuffle::Sequential,
            mix: None,
            mix_changes: Vec::new(),
            epoch_samples: None,
            sharding: None,
            size_classes: None,
            batching: None,
            seed: 0,
            threads: available_threads(),
            more_threads: false,
            prefetch_batches: None,
            memory_bytes: None,
            order: DeliveryOrder::Plan,
            on_error: OnError::Raise,
            max_errors: MaxErrors::Unlimited,
            quarantine: Arc::default(),
            quarantine_file: None,
            ledger: None,
            timeout: Some(Duration::from_secs(600)),
            requests_in_flight: None,
            // Samples of a block stand next to each other but for tar headers; a hole of one sample is cheaper to
            // read than to skip on local disks.
            request_limits: RequestLimits {
                gap_bytes: 128 << 10,
                request_bytes: BlockShuffle::default().block_bytes.max(1 << 20) * 2,
            },
            request_bytes: None,
            slow_start: None,
            retry: RetryOptions::default(),
            hedge: true,
            local_ranks: 1,
            epochs: None,
            thread_init: None,
            functions: Functions::None,
            finish_batch: None,
            rank_channel: None,
            metering: true,
        }
    }
}

impl LoaderConfig {
    /// Checks all settings and reports every fault at once.
    pub fn check(&self) -> Result<()> {
        let mut faults = Vec::new();
        if let Err(error) = self.consumer.check() {
            faults.push(error.message().to_owned());
        }
        if let Err(error) = self.turn.check() {
            faults.push(error.message().to_owned());
        }
        if !(1..=1024).contains(&self.threads) {
            faults.push(format!("num_workers is {}: give 1 to 1024 threads", self.threads));
        }
        if self.prefetch_batches.is_some_and(|batches| batches == 0 || batches > 4096) {
            faults.push("prefetch_batches must be 1 to 4096".to_owned());
        }
        if let Some(requests) = self.requests_in_flight.filter(|requests| !(1..=65_536).contains(requests)) {
            faults.push(format!("inflight is {requests}: give 1 to 65536 requests"));
        }
        if let Some(bytes) = self.request_bytes.filter(|bytes| !(4096..=1 << 30).contains(bytes)) {
            faults.push(format!("request_bytes is {bytes}: give 4 KiB to 1 GiB"));
        }
        if self.slow_start.is_some_and(|every| every == 0 || every > 1 << 20) {
            faults.push("slow_start must be 1 to 1048576 steps".to_owned());
        }
        if let MaxErrors::Rate(rate) = self.max_errors
            && !(0.0..=1.0).contains(&rate)
        {
            faults.push(format!(
                "max_errors is {rate}: a rate lies between 0 and 1, a count is a whole number"
            ));
        }
        if let DeliveryOrder::Arrival { window } = self.order
            && window > MAX_ARRIVAL_WINDOW
        {
            faults.push(format!(
                "window is {window}: at most {MAX_ARRIVAL_WINDOW} samples, so that checkpoints stay small"
            ));
        }
        faults.extend(self.order_faults());
        if faults.is_empty() { Ok(()) } else { Err(Error::invalid_config(faults.join("\n"))) }
    }
}

impl LoaderConfig {
    /// The rule that orders the epochs of a dataset under these settings.
    pub fn sampler(&self, manifest: &Manifest) -> Result<Sampler> {
        let sampler = self.sampler_beneath(manifest)?;
        match &self.batching {
            Some(batching) => sampler.batched(manifest, batching, self.consumer.batch_size),
            None => Ok(sampler),
        }
    }

    /// The order that batches are cut from.
    fn sampler_beneath(&self, manifest: &Manifest) -> Result<Sampler> {
        if let Some(sampler) = self.special_sampler(manifest) {
            return sampler;
        }
        let Some(parts) = &self.mix else {
            let shuffle = match self.shuffle {
                Shuffle::Resample { epoch_samples } => {
                    Shuffle::Resample { epoch_samples: epoch_samples.or(self.epoch_samples) }
                }
                other => other,
            };
            return Sampler::new(manifest, shuffle, self.seed);
        };
        if let Some(part) = parts.iter().find(|part| part.samples.end > manifest.len()) {
            return Err(Error::invalid_config(format!(
                "mix datasets: samples {} to {} are asked for, there are {}",
                part.samples.start,
                part.samples.end,
                manifest.len()
            )));
        }
        let all = parts
            .iter()
            .fold(0u64, |sum, part| sum.saturating_add(part.samples.end.saturating_sub(part.samples.start)));
        Sampler::mixed_by(parts, &self.mix_changes, self.epoch_samples.unwrap_or(all), self.seed)
    }

    /// What is wrong with the order, as a whole: settings that fit only together with others.
    fn order_faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let resampled = match self.shuffle {
            Shuffle::Resample { epoch_samples } => Some(epoch_samples),
            _ => None,
        };
        if self.mix.is_some() && self.shuffle == Shuffle::Sequential {
            faults.push("shuffle is off: a mix has no stored order; set shuffle to `full`".to_owned());
        }
        match &self.mix {
            None if !self.mix_changes.is_empty() => {
                faults.push("mix_schedule is set, but this is one dataset: it has no weights".to_owned());
            }
            Some(parts) => {
                let checked = check_changes(&self.mix_changes, parts.len());
                faults.extend(checked.err().map(|error| error.message().to_owned()));
            }
            None => {}
        }
        if self.mix.is_some() && resampled.is_some() {
            faults.push(
                "shuffle is `resample`: a mix draws without replacement; set shuffle to `full`".to_owned(),
            );
        }
        if let (Some(Some(of_shuffle)), Some(of_loader)) = (resampled, self.epoch_samples)
            && of_shuffle != of_loader
        {
            faults.push(format!("epoch_samples is {of_loader} and {of_shuffle}: give it once"));
        }
        if self.epoch_samples.is_some() && self.mix.is_none() && resampled.is_none() {
            faults.push(
                "epoch_samples is set, but every sample comes once: use a mix, or shuffle `resample`"
                    .to_owned(),
            );
        }
        faults.extend(self.special_faults());
        faults
    }
}

/// Largest displacement in arrival order; its bitmap in a checkpoint is a quarter of it in characters.
pub const MAX_ARRIVAL_WINDOW: u64 = 8192;

/// Processors this process may use: affinity and container quota respected.
pub fn available_threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
