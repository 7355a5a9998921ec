//! The loader: a guarded engine loader whose waits let other Python threads run and see Ctrl-C. What it is asked to do
//! is in [`settings`](crate::settings).
//!
//! One lock guards the engine. `next` gives it up after every slice of waiting, and first to those who asked for it
//! meanwhile, so that `stats()` from another thread answers while a batch is awaited.

use crate::batch;
use crate::dataset::Dataset;
use crate::error::{exception, raise};
use crate::runtime::{Owned, wait};
use crate::settings::{Raised, Settings, mix_changes, read_json};
use forebay_core::cursor::Cursor;
use forebay_core::metrics::Exposition;
use forebay_core::portion::Portion;
use forebay_core::{Error, Result};
use forebay_engine::cache::CacheConfig;
use forebay_engine::{self as engine, DeliveryOrder, Next};
use forebay_net::{FigureOptions, ShownFigures};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
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

struct Guarded {
    /// `None` when it is dropped.
    engine: Arc<Mutex<Option<engine::Loader>>>,
    waiting: Arc<AtomicUsize>,
    metrics: Option<FigureOptions>,
    shown: Mutex<Option<ShownFigures>>,
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

/// The cursor, as JSON, at the beginning of an epoch.
#[pyfunction]
pub(crate) fn start_of(py: Python<'_>, epoch: u64) -> PyResult<String> {
    to_json(&Cursor::start_of(epoch)).map_err(|error| raise(py, &error))
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
    fn new(py: Python<'_>, dataset: &Dataset, recipe: &str, settings: Settings) -> PyResult<Self> {
        let dataset = dataset.get(py)?;
        let raised = Raised::default();
        let build = || {
            let metrics = settings.metrics()?;
            Ok((settings.build(dataset, recipe, &raised)?, metrics))
        };
        let (loader, metrics) = py.detach(build).map_err(|error: Error| raise(py, &error))?;
        let engine = Arc::new(Mutex::new(Some(loader)));
        let inner = Guarded { engine, waiting: Arc::default(), metrics, shown: Mutex::default() };
        Ok(Self { inner: Owned::new(inner), raised })
    }

    /// Begins the next iteration.
    fn begin(&self, py: Python<'_>) -> PyResult<()> {
        let inner = self.inner(py)?;
        py.detach(|| inner.show()).map_err(|error| raise(py, &error))?;
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

    /// Other weights for the parts of a mix, from a place on or from the next round of which nothing was received. Gives the place.
    #[pyo3(signature = (weights, place = None))]
    fn change_weights(
        &self,
        py: Python<'_>,
        weights: Vec<f64>,
        place: Option<(u64, u64)>,
    ) -> PyResult<(u64, u64)> {
        self.with(py, |loader| loader.change_weights(weights, place))
    }

    /// Whether a loop that received everything before `cursor` under the changes `before` may go on under `after`.
    fn check_mix_changes(&self, py: Python<'_>, before: &str, after: &str, cursor: &str) -> PyResult<()> {
        self.with(py, |loader| {
            let cursor = Cursor::from_json(cursor)?;
            loader.check_mix_changes(&mix_changes(before)?, &mix_changes(after)?, &cursor)
        })
    }

    /// Replaces all changes of the weights of a mix.
    fn replace_mix_changes(&self, py: Python<'_>, changes: &str) -> PyResult<()> {
        self.with(py, |loader| loader.replace_mix_changes(mix_changes(changes)?))
    }

    /// Goes to the beginning of an epoch at the next `begin`.
    fn seek_epoch(&self, py: Python<'_>, epoch: u64) -> PyResult<()> {
        self.with(py, |loader| loader.seek(Cursor::start_of(epoch)))
    }

    /// Goes to one batch of an epoch in plan order, counted from 0 on this rank.
    fn seek_batch(&self, py: Python<'_>, epoch: u64, batch: u64) -> PyResult<()> {
        self.with(py, |loader| {
            let portion = rank_portion(loader, &Cursor::start_of(epoch))?;
            if batch >= portion.steps() {
                let steps = portion.steps();
                return Err(Error::invalid_config(format!("show batch {batch}: an epoch has {steps}")));
            }
            loader.seek(portion.cursor_after(epoch, batch))
        })
    }

    /// Where a loop stands that received batch `batch` of `epoch` last, in plan order, as JSON. `begun` is the cursor
    /// that counting began at, if it lies in that epoch.
    fn cursor_after(&self, py: Python<'_>, epoch: u64, batch: u64, begun: Option<&str>) -> PyResult<String> {
        self.with(py, |loader| {
            let begun = begun.map(Cursor::from_json).transpose()?.filter(|begun| begun.epoch == epoch);
            let portion = rank_portion(loader, &begun.unwrap_or_else(|| Cursor::start_of(epoch)))?;
            let by_plan = loader.config().order == DeliveryOrder::Plan;
            if !by_plan || portion.local().count() != portion.local().len() {
                let why =
                    "find the place after a batch: samples came by arrival, so a step does not tell which";
                return Err(Error::unsupported(why).with_hint("make the loader with `in_order=True`"));
            }
            if batch >= portion.steps() {
                let steps = portion.steps();
                let why = format!("find the place after batch {batch} of epoch {epoch}: there are {steps}");
                return Err(Error::invalid_config(why));
            }
            to_json(&portion.cursor_after(epoch, batch + 1))
        })
    }

    /// Batches that the iteration in hand yields, or the next one would; or one that begins at `cursor`.
    #[pyo3(signature = (cursor = None))]
    fn steps(&self, py: Python<'_>, cursor: Option<&str>) -> PyResult<usize> {
        self.with(py, |loader| {
            let steps = match cursor {
                Some(cursor) => rank_portion(loader, &Cursor::from_json(cursor)?)?.steps(),
                None => loader.steps()?,
            };
            Ok(steps as usize)
        })
    }

    /// Batches of the whole epoch that the next batch belongs to, those before a resume included.
    fn epoch_steps(&self, py: Python<'_>) -> PyResult<usize> {
        self.with(py, |loader| Ok(rank_portion(loader, &Cursor::start_of(loader.epoch()))?.steps() as usize))
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

    /// The batch that was taken last is the framework's now.
    fn transferred(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |loader| {
            loader.transferred();
            Ok(())
        })
    }

    /// A phase of the user's own took so many nanoseconds.
    fn add_phase(&self, py: Python<'_>, name: &str, nanos: u64) -> PyResult<()> {
        self.with(py, |loader| loader.meter().add_phase(name, Duration::from_nanos(nanos)))
    }

    /// The last steps, or epochs, one by one, as JSON.
    fn timeline(&self, py: Python<'_>, epochs: bool) -> PyResult<String> {
        self.with(py, |loader| {
            let splits = if epochs { loader.meter().epochs() } else { loader.meter().steps() };
            serde_json::to_string(&splits).map_err(|e| Error::internal("write timeline").with_source(e))
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

    /// Batches that were left out so far: `(epoch, step, sample_ids)` each.
    fn skipped(&self, py: Python<'_>) -> PyResult<Vec<(u64, u64, Vec<u64>)>> {
        self.with(py, |loader| {
            let skipped = loader.skipped().iter();
            Ok(skipped.map(|one| (one.epoch, one.step, one.ids.iter().map(|id| id.0).collect())).collect())
        })
    }

    /// Changes how much the cache may hold: the setting as JSON, of which only sizes count.
    fn resize_cache(&self, py: Python<'_>, cache: &str) -> PyResult<()> {
        self.with(py, |loader| {
            loader.resize_cache(CacheConfig::from_json(&read_json("cache", cache)?)?.capacity())
        })
    }

    /// Where figures are shown, while they are.
    fn metrics_address(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let shown = self.inner(py)?.shown.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(shown.as_ref().and_then(ShownFigures::address).map(|address| address.to_string()))
    }

    /// Stops all threads and gives memory back. The cursor stays.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let inner = self.inner(py)?;
        py.detach(|| inner.hide());
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

    /// Begins to show figures, where that was asked for.
    fn show(&self) -> Result<()> {
        let Some(options) = &self.metrics else { return Ok(()) };
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if shown.is_some() {
            return Ok(());
        }
        let (engine, waiting) = (Arc::downgrade(&self.engine), Arc::clone(&self.waiting));
        let show = move || {
            let mut out = Exposition::default();
            if let Some(engine) = engine.upgrade() {
                waiting.fetch_add(1, Ordering::Relaxed);
                let guard = engine.lock().unwrap_or_else(PoisonError::into_inner);
                waiting.fetch_sub(1, Ordering::Relaxed);
                guard.iter().for_each(|loader| loader.expose(&mut out));
            }
            out.finish()
        };
        let show: forebay_net::Show = Arc::new(show);
        *shown = Some(ShownFigures::start(options, &show)?);
        Ok(())
    }

    /// Shows nothing any more.
    fn hide(&self) {
        drop(self.shown.lock().unwrap_or_else(PoisonError::into_inner).take());
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
        let mut shown = self.shown.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        // Figures first: those that are pushed are told once more, while there is somebody to ask.
        let mut end = || {
            drop(shown.take());
            let engine = self.lock().take();
            drop(engine);
        };
        // Closing waits for threads, and a thread may be waiting for the interpreter, which whoever drops us has.
        if Python::try_attach(|py| py.detach(&mut end)).is_none() {
            end();
        }
    }
}

/// All that the loader's rank reads of an epoch from `cursor` on.
fn rank_portion(loader: &engine::Loader, cursor: &Cursor) -> Result<Portion> {
    loader.rank_portion(cursor)
}

fn to_json(cursor: &Cursor) -> Result<String> {
    serde_json::to_string(cursor).map_err(|cause| Error::internal("write cursor").with_source(cause))
}
