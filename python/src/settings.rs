//! What a loader is asked to do, as Python says it: a dict with every setting, and how it becomes an engine loader.
//!
//! Words and numbers become the engine's types here; defaults that depend on nothing are the Python package's, and what
//! a value must be is the engine's to check.

use forebay_core::plan::parts::Sharding;
use forebay_core::plan::rounds::{ClassBounds, SizeClasses};
use forebay_core::plan::{BlockShuffle, Shuffle};
use forebay_core::portion::{Consumer, LastBatch, Turn};
use forebay_core::recipe::Recipe;
use forebay_core::{Error, Result};
use forebay_engine::cache::{CacheAt, CacheConfig};
use forebay_engine::feed::FeedSpec;
use forebay_engine::source::Dataset;
use forebay_engine::{DeliveryOrder, Loader, LoaderConfig, MaxErrors, OnError, ThreadInit};
use forebay_net::service::{Own, ViaConfig, supplier};
use forebay_net::{MetricsOptions, Surroundings, cache_settings};
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
    epoch_samples: Option<u64>,
    block_bytes: Option<u64>,
    group_blocks: Option<u64>,
    sharding: Option<String>,
    parts: Option<u32>,
    size_classes: Option<Bounds>,
    size_field: Option<String>,
    seed: u64,
    threads: Option<usize>,
    prefetch_batches: Option<usize>,
    memory_bytes: Option<u64>,
    cache: Option<String>,
    via: Option<String>,
    metrics: Option<String>,
    ranks_folder: Option<PathBuf>,
    command: Vec<String>,
    window: Option<u64>,
    on_error: String,
    max_errors: Option<Limit>,
    timeout: Option<f64>,
    inflight: Option<usize>,
    request_bytes: Option<u64>,
    slow_start: Option<u64>,
    hedge: bool,
    request_tries: Option<u32>,
    request_timeout: Option<f64>,
    request_deadline: Option<f64>,
    local_ranks: usize,
    epochs: Option<u64>,
    thread_init: Option<Py<PyAny>>,
}

impl Settings {
    /// Where figures are to be shown.
    pub(crate) fn metrics(&self) -> Result<Option<MetricsOptions>> {
        let Some(text) = &self.metrics else { return Ok(None) };
        let offset = self.rank % self.local_ranks.max(1) as u64;
        MetricsOptions::from_json(&read_json("metrics", text)?, offset).map(Some)
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
        let own = Own { command: command.clone(), threads: self.threads, memory_bytes: self.memory_bytes };
        let config = self.config(dataset, raised)?;
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
        Ok(LoaderConfig {
            consumer: Consumer {
                rank: self.rank,
                world_size: self.world_size,
                batch_size: self.batch_size,
                last_batch: last_batch_named(&self.last_batch)?,
            },
            turn: Turn { first: self.turn.0, of: self.turn.1 },
            shuffle: shuffle_named(&self.shuffle, self.block_bytes, self.group_blocks)?,
            mix: dataset.mix().map(<[_]>::to_vec),
            epoch_samples: self.epoch_samples,
            sharding: Sharding::from_settings(
                self.sharding.as_deref().map(str::parse).transpose()?,
                self.parts,
            )?,
            size_classes: SizeClasses::from_settings(
                self.size_classes.map(Bounds::into_core),
                self.size_field,
            )?,
            seed: self.seed,
            threads: self.threads.unwrap_or(defaults.threads),
            prefetch_batches: self.prefetch_batches,
            memory_bytes: self.memory_bytes,
            order: self.window.map_or(DeliveryOrder::Plan, |window| DeliveryOrder::Arrival { window }),
            on_error: on_error_named(&self.on_error)?,
            max_errors: self.max_errors.map_or(MaxErrors::Unlimited, Limit::into_engine),
            timeout: seconds("timeout", self.timeout)?,
            requests_in_flight: self.inflight,
            request_bytes: self.request_bytes,
            slow_start: self.slow_start,
            hedge: self.hedge,
            retry,
            local_ranks: self.local_ranks,
            epochs: self.epochs,
            ranks_folder: self.ranks_folder,
            thread_init: self.thread_init.map(|function| thread_init_calling(function, raised)),
            ..defaults
        })
    }
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
