//! What a loader is asked to do, as Python says it: a dict with every setting, and how it becomes an engine loader.
//!
//! Words and numbers become the engine's types here; defaults that depend on nothing are the Python package's, and what
//! a value must be is the engine's to check.

use crate::batch;
use crate::function::{PythonFunction, raised as raised_error};
use crate::ranks::RanksStore;
use forebay_core::plan::batching::{Batching, Bucket, Oversize};
use forebay_core::plan::mix::schedule::MixChange;
use forebay_core::plan::mix::stop::Stop;
use forebay_core::plan::parts::Sharding;
use forebay_core::plan::rounds::{ClassBounds, SizeClasses};
use forebay_core::plan::{BlockShuffle, Shuffle};
use forebay_core::portion::{Consumer, LastBatch, Turn};
use forebay_core::quarantine::Quarantine;
use forebay_core::recipe::Recipe;
use forebay_core::{Error, Result};
use forebay_engine::cache::{CacheAt, CacheConfig};
use forebay_engine::feed::FeedSpec;
use forebay_engine::quarantine;
use forebay_engine::source::Dataset;
use forebay_engine::{
    Batch, DeliveryOrder, EpochSamples, FinishBatch, Loader, LoaderConfig, MaxErrors, OnError, RankChannel,
    RanksFolder, ThreadInit,
};
use forebay_net::service::{Own, ViaConfig, supplier};
use forebay_net::{FigureOptions, Surroundings, cache_settings};
use forebay_ops::Functions;
use forebay_store::RetryOptions;
use pyo3::prelude::*;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What a `worker_init_fn` raised.
pub(crate) type Raised = Arc<Mutex<Option<PyErr>>>;

/// Every setting, by the name it has in the dict.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Settings {
    batch_size: u64,
    rank: u64,
    world_size: u64,
    last_batch: String,
    /// First batch and number of processes that are asked in turn.
    turn: (u64, u64),
    shuffle: String,
    epoch_samples: Option<Length>,
    /// Changes of the weights of a mix, as JSON.
    mix_schedule: Option<String>,
    block_bytes: Option<u64>,
    group_blocks: Option<u64>,
    sharding: Option<String>,
    parts: Option<u32>,
    size_classes: Option<Bounds>,
    size_field: Option<String>,
    bucket: Option<Lengths>,
    batch_bytes: Option<u64>,
    oversize: Option<String>,
    length_field: Option<String>,
    seed: u64,
    threads: Option<usize>,
    prefetch_batches: Option<usize>,
    memory_bytes: Option<u64>,
    cache: Option<String>,
    via: Option<String>,
    metrics: Option<String>,
    ranks_folder: Option<PathBuf>,
    /// A store of torch, when ranks tell each other there how they go.
    ranks_store: Option<Py<PyAny>>,
    command: Vec<String>,
    window: Option<u64>,
    on_error: String,
    max_errors: Option<Limit>,
    quarantine: Option<PathBuf>,
    ledger: Option<PathBuf>,
    timeout: Option<f64>,
    inflight: Option<usize>,
    request_bytes: Option<u64>,
    slow_start: Option<u64>,
    hedge: bool,
    request_tries: Option<u32>,
    request_timeout: Option<f64>,
    request_deadline: Option<f64>,
    local_ranks: usize,
    /// Whether time is kept; false only to measure what that costs.
    metering: bool,
    epochs: Option<u64>,
    thread_init: Option<Py<PyAny>>,
    /// What calls the recipe's functions, in the order in which it names them.
    functions: Vec<Py<PyAny>>,
    /// Makes an object of every batch.
    collate: Option<Py<PyAny>>,
}

impl Settings {
    /// Where figures are to be shown.
    pub(crate) fn metrics(&self) -> Result<Option<FigureOptions>> {
        let Some(text) = &self.metrics else { return Ok(None) };
        let offset = self.rank % self.local_ranks.max(1) as u64;
        FigureOptions::from_json(&read_json("metrics", text)?, offset).map(Some)
    }

    /// Bytes that the cache may keep.
    pub(crate) fn cache_bytes(&self) -> Result<u64> {
        let Some(text) = &self.cache else { return Ok(0) };
        let capacity = CacheConfig::from_json(&read_json("cache", text)?)?.capacity();
        Ok(capacity.memory.saturating_add(capacity.disk))
    }

    /// The loader of a dataset, checked; nothing is started.
    pub(crate) fn build(self, dataset: &Dataset, recipe: &str, raised: &Raised) -> Result<Loader> {
        let recipe = Recipe::from_json(recipe)?;
        let cache = self.cache.as_deref().map(|text| read_json("cache", text)).transpose()?;
        let keeping = cache.as_ref().map(CacheConfig::from_json).transpose()?;
        // Said now rather than with the first batch.
        if let Some(CacheAt::Cut(name)) = keeping.as_ref().map(|cache| &cache.at) {
            recipe.cut_at(name)?;
        }
        let via = self.via.as_deref().map(|text| read_json("via", text)).transpose()?;
        let command: Vec<OsString> = self.command.iter().map(Into::into).collect();
        let (threads, memory_bytes) = (self.threads, self.memory_bytes);
        let config = self.config(dataset, raised)?;
        let own = Own {
            command: command.clone(),
            threads,
            memory_bytes,
            functions: config.functions.clone(),
            function_names: recipe.functions().map(|function| function.name.clone()).collect(),
        };
        let local_ranks = config.local_ranks;
        let elsewhere = match via {
            Some(via) => {
                let via = ViaConfig::from_json(&via)?;
                match supplier(&via, &own)? {
                    Some(supplier) => {
                        let mut feed = FeedSpec::new(dataset, &recipe, &config)?;
                        // Who makes the batches keeps the payloads.
                        feed.cache = cache;
                        Some((supplier, feed))
                    }
                    None => None,
                }
            }
            None => None,
        };
        let loader = Loader::new(dataset.manifest(), Arc::clone(dataset.store()), &recipe, config)?;
        Ok(match (elsewhere, keeping) {
            (Some((supplier, feed)), _) => loader.with_supplier(supplier, feed),
            (None, Some(cache)) => {
                let command = [command, vec!["cache-host".into()]].concat();
                let surroundings = Surroundings { local_ranks, command };
                loader.with_cache(cache_settings(cache, surroundings)?)
            }
            (None, None) => loader,
        })
    }

    fn config(self, dataset: &Dataset, raised: &Raised) -> Result<LoaderConfig> {
        let defaults = LoaderConfig::default();
        let retry = RetryOptions {
            tries: self.request_tries.unwrap_or(defaults.retry.tries),
            request_timeout: seconds("request_timeout", self.request_timeout)?
                .unwrap_or(defaults.retry.request_timeout),
            deadline: seconds("request_deadline", self.request_deadline)?.unwrap_or(defaults.retry.deadline),
            seed: self.seed,
            ..defaults.retry
        };
        let changes = self.mix_schedule.as_deref().map(mix_changes).transpose()?.unwrap_or_default();
        let epoch_samples = self.epoch_samples.map(Length::into_engine).transpose()?;
        let config = LoaderConfig {
            consumer: Consumer {
                rank: self.rank,
                world_size: self.world_size,
                batch_size: self.batch_size,
                last_batch: last_batch_named(&self.last_batch)?,
            },
            turn: Turn { first: self.turn.0, of: self.turn.1 },
            shuffle: shuffle_named(&self.shuffle, self.block_bytes, self.group_blocks)?,
            sharding: Sharding::from_settings(
                self.sharding.as_deref().map(str::parse).transpose()?,
                self.parts,
            )?,
            size_classes: SizeClasses::from_settings(
                self.size_classes.map(Bounds::into_core),
                self.size_field,
            )?,
            batching: Batching::from_settings(
                self.bucket.map(Lengths::into_core),
                self.batch_bytes,
                self.oversize.as_deref().map(oversize_named).transpose()?,
                self.length_field,
            )?,
            seed: self.seed,
            threads: self.threads.unwrap_or(defaults.threads),
            more_threads: self.threads.is_none(),
            prefetch_batches: self.prefetch_batches,
            memory_bytes: self.memory_bytes,
            order: self.window.map_or(DeliveryOrder::Plan, |window| DeliveryOrder::Arrival { window }),
            on_error: on_error_named(&self.on_error)?,
            max_errors: self.max_errors.map_or(MaxErrors::Unlimited, Limit::into_engine),
            quarantine: Arc::new(match &self.quarantine {
                Some(path) => quarantine::read(path, dataset.manifest().version(), dataset.manifest().len())?,
                None => Quarantine::default(),
            }),
            quarantine_file: self.quarantine,
            ledger: self.ledger,
            timeout: seconds("timeout", self.timeout)?,
            requests_in_flight: self.inflight,
            request_bytes: self.request_bytes,
            slow_start: self.slow_start,
            hedge: self.hedge,
            retry,
            local_ranks: self.local_ranks,
            metering: self.metering,
            epochs: self.epochs,
            functions: Functions::Given(self.functions.into_iter().map(PythonFunction::shared).collect()),
            finish_batch: self.collate.map(collate_calling),
            rank_channel: rank_channel(self.ranks_folder, self.ranks_store)?,
            thread_init: self.thread_init.map(|function| thread_init_calling(function, raised)),
            ..defaults
        };
        config.mixing(dataset, epoch_samples, &changes)
    }
}

/// Length of an epoch, as Python gives it.
#[derive(FromPyObject)]
enum Length {
    Count(u64),
    Word(String),
}

impl Length {
    fn into_engine(self) -> Result<EpochSamples> {
        match self {
            Self::Count(count) => Ok(EpochSamples::Count(count)),
            Self::Word(word) if word == "first" => Ok(EpochSamples::Stop(Stop::First)),
            Self::Word(word) if word == "all" => Ok(EpochSamples::Stop(Stop::All)),
            Self::Word(word) => Err(unknown("epoch_samples", &word, "a number, `first` and `all`")),
        }
    }
}

/// Changes of weights, as JSON.
pub(crate) fn mix_changes(text: &str) -> Result<Vec<MixChange>> {
    serde_json::from_str(text)
        .map_err(|cause| Error::invalid_config("read the changes of a mix").with_source(cause))
}

/// A limit on bad samples, as Python gives it.
#[derive(FromPyObject)]
enum Limit {
    Count(u64),
    Rate(f64),
}

impl Limit {
    fn into_engine(self) -> MaxErrors {
        match self {
            Self::Count(count) => MaxErrors::Count(count),
            Self::Rate(rate) => MaxErrors::Rate(rate),
        }
    }
}

/// Size classes, as Python gives them.
#[derive(FromPyObject)]
enum Bounds {
    Count(u32),
    Bytes(Vec<u64>),
}

impl Bounds {
    fn into_core(self) -> ClassBounds {
        match self {
            Self::Count(count) => ClassBounds::Count(count),
            Self::Bytes(bounds) => ClassBounds::Bytes(bounds),
        }
    }
}

/// Buckets, as Python gives them.
#[derive(FromPyObject)]
enum Lengths {
    Ratio(f64),
    Bounds(Vec<u64>),
}

impl Lengths {
    fn into_core(self) -> Bucket {
        match self {
            Self::Ratio(ratio) => Bucket::Ratio(ratio),
            Self::Bounds(bounds) => Bucket::Bounds(bounds),
        }
    }
}

/// Runs a Python function in a preparing thread; what it raises is kept for the caller of `next`.
fn thread_init_calling(function: Py<PyAny>, raised: &Raised) -> ThreadInit {
    let raised = Arc::clone(raised);
    Arc::new(move |thread| {
        // No answer means that the interpreter is ending, and the thread with it.
        let called = Python::try_attach(|py| function.call1(py, (thread,)).map(drop));
        let Some(Err(problem)) = called else { return Ok(()) };
        let text = problem.to_string();
        raised.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(problem);
        Err(Error::invalid_config(format!("run worker_init_fn in thread {thread}: {text}")))
    })
}

/// Where ranks tell each other how they go.
fn rank_channel(folder: Option<PathBuf>, store: Option<Py<PyAny>>) -> Result<Option<Arc<dyn RankChannel>>> {
    match (folder, store) {
        (Some(_), Some(_)) => {
            Err(Error::invalid_config("ranks_folder and ranks_store are set: give one of them"))
        }
        (Some(folder), None) => Ok(Some(Arc::new(RanksFolder::new(folder)))),
        (None, store) => Ok(store.map(|store| Arc::new(RanksStore(store)) as Arc<dyn RankChannel>)),
    }
}

/// Makes an object of a batch; its columns go into it.
fn collate_calling(function: Py<PyAny>) -> FinishBatch {
    Arc::new(move |mut batch: Batch| {
        let call = |py: Python<'_>| {
            let taken = Batch { columns: std::mem::take(&mut batch.columns), ..empty(&batch) };
            let made = batch::to_python(py, taken).and_then(|taken| function.call1(py, (taken,)));
            made.map_err(|problem| raised_error(py, problem).while_doing("call `collate`"))
        };
        let called = Python::try_attach(call);
        let made = called.unwrap_or_else(|| Err(Error::cancelled("call `collate`: Python is ending")))?;
        batch.object = Some(Box::new(made));
        Ok(batch)
    })
}

/// A batch of the same place and rows without anything in it.
fn empty(batch: &Batch) -> Batch {
    let Batch { epoch, step, ids, padding, .. } = batch;
    let (ids, padding) = (ids.clone(), padding.clone());
    Batch { epoch: *epoch, step: *step, ids, padding, columns: Vec::new(), faults: Vec::new(), object: None }
}

/// A setting that Python hands over as JSON.
pub(crate) fn read_json(name: &str, text: &str) -> Result<serde_json::Value> {
    serde_json::from_str(text)
        .map_err(|cause| Error::invalid_config(format!("read `{name}`: it is not JSON")).with_source(cause))
}

fn seconds(name: &str, value: Option<f64>) -> Result<Option<Duration>> {
    value
        .map(Duration::try_from_secs_f64)
        .transpose()
        .map_err(|_| Error::invalid_config(format!("{name} must be a number of seconds")))
}

fn shuffle_named(name: &str, block_bytes: Option<u64>, group_blocks: Option<u64>) -> Result<Shuffle> {
    let defaults = BlockShuffle::default();
    match name {
        "none" => Ok(Shuffle::Sequential),
        "full" => Ok(Shuffle::Full),
        "block" => Ok(Shuffle::Block(BlockShuffle {
            block_bytes: block_bytes.unwrap_or(defaults.block_bytes),
            group_blocks: group_blocks.unwrap_or(defaults.group_blocks),
        })),
        "resample" => Ok(Shuffle::Resample { epoch_samples: None }),
        _ => Err(unknown("shuffle", name, "`full`, `block` and `resample`")),
    }
}

fn last_batch_named(name: &str) -> Result<LastBatch> {
    match name {
        "drop" => Ok(LastBatch::Drop),
        "partial" => Ok(LastBatch::Partial),
        "pad" => Ok(LastBatch::Pad),
        "wrap" => Ok(LastBatch::Wrap),
        _ => Err(unknown("last_batch", name, "`drop`, `partial`, `pad` and `wrap`")),
    }
}

fn oversize_named(name: &str) -> Result<Oversize> {
    match name {
        "alone" => Ok(Oversize::Alone),
        "drop" => Ok(Oversize::Drop),
        _ => Err(unknown("oversize", name, "`alone` and `drop`")),
    }
}

fn on_error_named(name: &str) -> Result<OnError> {
    match name {
        "raise" => Ok(OnError::Raise),
        "skip" => Ok(OnError::Skip),
        "substitute" => Ok(OnError::Substitute),
        _ => Err(unknown("on_error", name, "`raise`, `skip` and `substitute`")),
    }
}

fn unknown(argument: &str, value: &str, known: &str) -> Error {
    Error::invalid_config(format!("{argument} is `{value}`")).with_hint(format!("known are {known}"))
}
