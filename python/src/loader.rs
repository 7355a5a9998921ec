//! The loader: a guarded engine loader whose waits let other Python threads run and see Ctrl-C.
//!
//! One lock guards the engine. `next` gives it up after every slice of waiting, and first to those who asked for it
//! meanwhile, so that `stats()` from another thread answers while a batch is awaited.

use crate::batch;
use crate::dataset::Dataset;
use crate::error::{exception, raise};
use crate::runtime::{Owned, wait};
use forebay_core::cursor::Cursor;
use forebay_core::plan::parts::Sharding;
use forebay_core::plan::rounds::{ClassBounds, SizeClasses};
use forebay_core::plan::{BlockShuffle, Shuffle};
use forebay_core::portion::{Consumer, LastBatch, Portion};
use forebay_core::recipe::Recipe;
use forebay_core::{Error, Result};
use forebay_engine::cache::{CacheAt, CacheConfig};
use forebay_engine::feed::FeedSpec;
use forebay_engine::{self as engine, DeliveryOrder, LoaderConfig, MaxErrors, Next, OnError, ThreadInit};
use forebay_net::service::{Own, ViaConfig, supplier};
use forebay_net::{Surroundings, cache_settings};
use forebay_store::RetryOptions;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use std::ffi::OsString;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Iterates over a dataset, batch by batch.
#[pyclass(frozen, module = "forebay._native")]
pub(crate) struct Loader {
    inner: Owned<Guarded>,
    /// What a `worker_init_fn` raised; the cause of the error that its thread ended with.
    raised: Raised,
}

type Raised = Arc<Mutex<Option<PyErr>>>;

struct Guarded {
    /// `None` for a moment while it is dropped.
    engine: Mutex<Option<engine::Loader>>,
    waiting: AtomicUsize,
}

/// Threads that this process may run at once.
#[pyfunction]
pub(crate) fn available_threads() -> usize {
    engine::available_threads()
}

/// Bytes of a size in words, such as `64GiB`.
#[pyfunction]
pub(crate) fn parse_bytes(py: Python<'_>, text: &str) -> PyResult<u64> {
    forebay_core::size::parse_bytes(text).map_err(|error| raise(py, &error))
}

/// One cursor, as JSON, from those of all ranks.
#[pyfunction]
pub(crate) fn merge_cursors(py: Python<'_>, cursors: Vec<String>, samples: u64) -> PyResult<String> {
    let merged = || {
        let cursors = cursors.iter().map(|text| Cursor::from_json(text)).collect::<Result<Vec<_>>>()?;
        to_json(&Cursor::merge(&cursors, samples)?)
    };
    merged().map_err(|error| raise(py, &error))
}

#[pymethods]
impl Loader {
    /// Checks everything that can be checked before the first sample. Starts nothing.
    #[new]
    #[pyo3(signature = (dataset, recipe, *, batch_size, rank, world_size, last_batch, shuffle, block_bytes,
        group_blocks, sharding, parts, size_classes, size_field, seed, threads, prefetch_batches, memory_bytes, cache, via, command, window, on_error, max_errors, timeout, inflight,
        request_bytes, slow_start, hedge, request_tries, request_timeout, request_deadline, local_ranks, epochs,
        thread_init))]
    #[expect(clippy::too_many_arguments, reason = "keywords of Python, every one of them given")]
    fn new(
        py: Python<'_>,
        dataset: &Dataset,
        recipe: &str,
        batch_size: u64,
        rank: u64,
        world_size: u64,
        last_batch: &str,
        shuffle: &str,
        block_bytes: Option<u64>,
        group_blocks: Option<u64>,
        sharding: Option<&str>,
        parts: Option<u32>,
        size_classes: Option<Bounds>,
        size_field: Option<String>,
        seed: u64,
        threads: Option<usize>,
        prefetch_batches: Option<usize>,
        memory_bytes: Option<u64>,
        cache: Option<&str>,
        via: Option<&str>,
        command: Vec<String>,
        window: Option<u64>,
        on_error: &str,
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
    ) -> PyResult<Self> {
        let dataset = dataset.get(py)?;
        let raised = Raised::default();
        let defaults = LoaderConfig::default();
        let built = || {
            let seconds = |name: &str, value: Option<f64>| {
                value
                    .map(Duration::try_from_secs_f64)
                    .transpose()
                    .map_err(|_| Error::invalid_config(format!("{name} must be a number of seconds")))
            };
            let retry = RetryOptions {
                tries: request_tries.unwrap_or(defaults.retry.tries),
                request_timeout: seconds("request_timeout", request_timeout)?
                    .unwrap_or(defaults.retry.request_timeout),
                deadline: seconds("request_deadline", request_deadline)?.unwrap_or(defaults.retry.deadline),
                seed,
                ..defaults.retry
            };
            let config = LoaderConfig {
                consumer: Consumer {
                    rank,
                    world_size,
                    batch_size,
                    last_batch: last_batch_named(last_batch)?,
                },
                shuffle: shuffle_named(shuffle, block_bytes, group_blocks)?,
                sharding: Sharding::from_settings(sharding.map(str::parse).transpose()?, parts)?,
                size_classes: SizeClasses::from_settings(size_classes.map(Bounds::into_core), size_field)?,
                seed,
                threads: threads.unwrap_or(defaults.threads),
                prefetch_batches,
                memory_bytes,
                order: window.map_or(DeliveryOrder::Plan, |window| DeliveryOrder::Arrival { window }),
                on_error: on_error_named(on_error)?,
                max_errors: max_errors.map_or(MaxErrors::Unlimited, Limit::into_engine),
                timeout: seconds("timeout", timeout)?,
                requests_in_flight: inflight,
                request_bytes,
                slow_start,
                hedge,
                retry,
                local_ranks,
                epochs,
                thread_init: thread_init.map(|function| thread_init_calling(function, &raised)),
                ..defaults
            };
            let recipe = Recipe::from_json(recipe)?;
            let cache = cache.map(|text| read_json("cache", text)).transpose()?;
            let settings = cache.as_ref().map(CacheConfig::from_json).transpose()?;
            // Said now rather than with the first batch.
            if let Some(CacheAt::Cut(name)) = settings.as_ref().map(|cache| &cache.at) {
                recipe.cut_at(name)?;
            }
            let command: Vec<OsString> = command.iter().map(Into::into).collect();
            let elsewhere = match via {
                Some(via) => {
                    let via = ViaConfig::from_json(&read_json("via", via)?)?;
                    let own = Own { command: command.clone(), threads, memory_bytes };
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
            let loader =
                engine::Loader::new(dataset.manifest(), Arc::clone(dataset.store()), &recipe, config)?;
            Ok(match (elsewhere, settings) {
                (Some((supplier, feed)), _) => loader.with_supplier(supplier, feed),
                (None, Some(cache)) => {
                    let command = [command, vec!["cache-host".into()]].concat();
                    let surroundings = Surroundings { local_ranks, command };
                    loader.with_cache(cache_settings(cache, surroundings)?)
                }
                (None, None) => loader,
            })
        };
        let loader = py.detach(built).map_err(|error| raise(py, &error))?;
        let inner = Guarded { engine: Mutex::new(Some(loader)), waiting: AtomicUsize::new(0) };
        Ok(Self { inner: Owned::new(inner), raised })
    }

    /// Begins the next iteration.
    fn begin(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, engine::Loader::begin)
    }

    /// The next batch, or `None` at the end of the epoch.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let inner = self.inner(py)?;
        let next = wait(py, |slice| {
            inner.let_others_in();
            let mut guard = inner.lock();
            match guard.as_mut()?.next(slice) {
                Ok(Next::Waiting) => None,
                other => Some(other),
            }
        })?;
        match next {
            Ok(Next::Batch(batch)) => batch::to_python(py, *batch).map(Some),
            Ok(_) => Ok(None),
            Err(error) => Err(self.raise(py, &error)),
        }
    }

    /// Where the loop stands, as JSON.
    fn cursor(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |loader| to_json(&loader.cursor()))
    }

    /// Goes on from `cursor` at the next `begin`.
    fn seek(&self, py: Python<'_>, cursor: &str) -> PyResult<()> {
        self.with(py, |loader| loader.seek(Cursor::from_json(cursor)?))
    }

    /// Goes to the beginning of an epoch at the next `begin`.
    fn seek_epoch(&self, py: Python<'_>, epoch: u64) -> PyResult<()> {
        self.with(py, |loader| loader.seek(Cursor::start_of(epoch)))
    }

    /// Goes to one batch of an epoch in plan order, counted from 0 on this rank.
    fn seek_batch(&self, py: Python<'_>, epoch: u64, batch: u64) -> PyResult<()> {
        self.with(py, |loader| {
            let samples = loader.epoch_samples();
            let portion = Portion::new(samples, loader.config().consumer, &Cursor::start_of(epoch))?;
            if batch >= portion.steps() {
                let steps = portion.steps();
                return Err(Error::invalid_config(format!("show batch {batch}: an epoch has {steps}")));
            }
            loader.seek(portion.cursor_after(epoch, batch))
        })
    }

    /// Batches that the iteration in hand yields, or the next one would.
    fn steps(&self, py: Python<'_>) -> PyResult<usize> {
        self.with(py, |loader| loader.steps().map(|steps| steps as usize))
    }

    /// Positions in every epoch over all ranks: the number of samples, unless the order repeats some.
    fn epoch_samples(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |loader| Ok(loader.epoch_samples()))
    }

    /// The epoch the cursor stands in.
    fn epoch(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |loader| Ok(loader.epoch()))
    }

    /// Everything measured so far, as JSON.
    fn stats(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |loader| {
            serde_json::to_string(&loader.stats()).map_err(|e| Error::internal("write stats").with_source(e))
        })
    }

    /// Bad samples so far: `(sample_id, key, epoch, exception, substitute)` each.
    fn faults<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let faults = self.with(py, |loader| {
            let faults = loader.faults().iter();
            Ok(faults
                .map(|f| (f.sample_id, f.key.clone(), f.epoch, f.error.duplicate(), f.substitute))
                .collect::<Vec<_>>())
        })?;
        let list = PyList::empty(py);
        for (sample_id, key, epoch, error, substitute) in faults {
            list.append((sample_id.0, key, epoch, exception(py, &error)?, substitute.map(|id| id.0)))?;
        }
        Ok(list)
    }

    /// Changes how much the cache may hold: the setting as JSON, of which only sizes count.
    fn resize_cache(&self, py: Python<'_>, cache: &str) -> PyResult<()> {
        self.with(py, |loader| {
            loader.resize_cache(CacheConfig::from_json(&read_json("cache", cache)?)?.capacity())
        })
    }

    /// Stops all threads and gives memory back. The cursor stays.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |loader| {
            loader.close();
            Ok(())
        })
    }
}

impl Loader {
    fn inner(&self, py: Python<'_>) -> PyResult<&Guarded> {
        self.inner.get().ok_or_else(|| {
            let error = Error::unsupported("use loader: this process was forked after the loader was used");
            raise(py, &error.with_hint("make the loader in the child, or start processes with `spawn`"))
        })
    }

    /// Calls the engine without the interpreter.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut engine::Loader) -> Result<T> + Send,
    ) -> PyResult<T> {
        let inner = self.inner(py)?;
        let answer = py.detach(|| {
            inner.waiting.fetch_add(1, Ordering::Relaxed);
            let mut guard = inner.lock();
            inner.waiting.fetch_sub(1, Ordering::Relaxed);
            match guard.as_mut() {
                Some(loader) => call(loader),
                None => Err(Error::internal("the loader is gone")),
            }
        });
        answer.map_err(|error| self.raise(py, &error))
    }

    /// The exception for an error, caused by what a `worker_init_fn` raised, when one did.
    fn raise(&self, py: Python<'_>, error: &Error) -> PyErr {
        let raised = raise(py, error);
        let cause = self.raised.lock().unwrap_or_else(PoisonError::into_inner).take();
        if cause.is_some() {
            raised.set_cause(py, cause);
        }
        raised
    }
}

impl Guarded {
    fn lock(&self) -> MutexGuard<'_, Option<engine::Loader>> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whoever waits for the lock gets it before this thread takes it again.
    fn let_others_in(&self) {
        let patience = Duration::from_millis(1);
        for _ in 0..20 {
            if self.waiting.load(Ordering::Relaxed) == 0 {
                return;
            }
            std::thread::sleep(patience);
        }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let engine = self.engine.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        // Closing waits for threads, and a thread may be waiting for the interpreter, which whoever drops us has.
        let mut engine = Some(engine);
        if Python::try_attach(|py| py.detach(|| drop(engine.take()))).is_none() {
            drop(engine);
        }
    }
}

/// A limit on bad samples, as Python gives it.
#[derive(FromPyObject)]
pub(crate) enum Limit {
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
pub(crate) enum Bounds {
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
fn read_json(name: &str, text: &str) -> Result<serde_json::Value> {
    serde_json::from_str(text)
        .map_err(|cause| Error::invalid_config(format!("read `{name}`: it is not JSON")).with_source(cause))
}

fn to_json(cursor: &Cursor) -> Result<String> {
    serde_json::to_string(cursor).map_err(|cause| Error::internal("write cursor").with_source(cause))
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
        _ => Err(unknown("shuffle", name, "`full` and `block`")),
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
