//! A session: the threads and the fetching task that run from one cursor on, over any number of epochs, or make what
//! others name.
//!
//! Dropping it ends everything: the board is stopped, threads are waited for (not longer than two seconds, should an
//! op hang), requests in flight are abandoned.

use crate::board::Board;
use crate::budget::Budget;
use crate::cache::{Cache, CacheSettings, Preparing};
use crate::config::{LOCAL_REQUESTS, LoaderConfig, REMOTE_REQUESTS};
use crate::fetch::{Fetcher, Gate, Names, Tasks};
use crate::inputs::Inputs;
use crate::memory::{MemoryPlan, available_memory_bytes};
use crate::meter::Meter;
use crate::prepare::{Preparer, start_threads};
use crate::supply::{Supply, SupplyView, Taken};
use forebay_core::cursor::Cursor;
use forebay_core::manifest::Manifest;
use forebay_core::plan::Sampler;
use forebay_core::recipe::Recipe;
use forebay_core::window::{WindowLimits, share};
use forebay_core::{Error, Result};
use forebay_ops::{BufferPool, Program};
use forebay_store::Store;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// How long closing waits for a thread that is inside an op.
const CLOSE_WAIT: Duration = Duration::from_millis(1500);

/// Bytes in flight on machines that do not say how much memory they have.
const WINDOW_BYTES: u64 = 1 << 30;

/// What does not change while a loader lives.
pub(crate) struct Definition {
    pub(crate) inputs: Inputs,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) program: Arc<Program>,
    pub(crate) sampler: Sampler,
    /// Samples of the dataset, however many positions an epoch has.
    pub(crate) samples: u64,
    /// Mean payload bytes of one sample, at least one.
    pub(crate) sample_bytes: u64,
    pub(crate) config: LoaderConfig,
    pub(crate) memory: MemoryPlan,
    pub(crate) pool: BufferPool,
}

impl Definition {
    /// Checks everything that can be checked before the first sample.
    pub(crate) fn new(
        manifest: &Manifest,
        store: Arc<dyn Store>,
        recipe: &Recipe,
        config: LoaderConfig,
    ) -> Result<Self> {
        config.check()?;
        let program = Program::compile(recipe)?;
        let inputs = Inputs::new(manifest, recipe)?;
        let sampler = config.sampler(manifest)?;
        let memory = MemoryPlan::new(&config, manifest, sampler.samples(), program.outputs())?;
        // Buffers the user hands back are kept for as many batches as may be open, and one being looked at.
        let pool = BufferPool::new((memory.batch_bytes as usize).saturating_mul(memory.open_batches + 1));
        Ok(Self {
            inputs,
            store,
            program: Arc::new(program),
            sampler,
            samples: manifest.len(),
            sample_bytes: (manifest.total_bytes() / manifest.len().max(1)).max(1),
            config,
            memory,
            pool,
        })
    }

    /// Opens what is kept near.
    pub(crate) fn open_cache(
        &self,
        settings: &CacheSettings,
        manifest: &Manifest,
        recipe: &Recipe,
        meter: &Arc<Meter>,
    ) -> Result<Arc<Cache>> {
        let preparing = Preparing {
            program: Arc::clone(&self.program),
            recipe: recipe.clone(),
            threads: self.config.threads,
        };
        let (inputs, store) = (self.inputs.clone(), Arc::clone(&self.store));
        Cache::open(settings, inputs, manifest, store, Arc::clone(meter), Some(&preparing))
    }

    /// How much may be in flight: fixed for stores on this machine, found out for remote ones.
    fn window_limits(&self) -> WindowLimits {
        let config = &self.config;
        if !self.store.is_remote() {
            let requests = config.requests_in_flight.unwrap_or(LOCAL_REQUESTS);
            return WindowLimits {
                max_bytes: u64::MAX,
                max_requests: requests,
                fixed_requests: Some(requests),
            };
        }
        let max_bytes = match config.memory_bytes {
            Some(_) => self.memory.payload_bytes,
            None => available_memory_bytes().map_or(WINDOW_BYTES, |bytes| bytes / 4),
        };
        let fixed_requests = config.requests_in_flight;
        let max_requests = REMOTE_REQUESTS.min(most_connections());
        share(WindowLimits { max_bytes, max_requests, fixed_requests }, config.local_ranks)
    }
}

/// Connections that the process may open: half of the files it may have open, since it has others.
fn most_connections() -> usize {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    files.map_or(usize::MAX, |files| (files / 2).max(64) as usize)
}

/// Which batches a session makes.
pub(crate) enum Walk {
    /// The rank's own, from here on.
    From(Cursor),
    /// Those that are named.
    Named(Arc<Names>),
}

/// The running stages.
pub(crate) struct Session {
    board: Arc<Board>,
    budget: Budget,
    gate: Arc<Gate>,
    tasks: Arc<Tasks>,
    remote: bool,
}

impl Session {
    /// Starts fetching and preparing.
    pub(crate) fn start(
        definition: &Definition,
        cache: Option<Arc<Cache>>,
        walk: Walk,
        meter: &Arc<Meter>,
    ) -> Result<Self> {
        let config = &definition.config;
        let outputs = definition.program.outputs().to_vec();
        let open_batches = definition.memory.open_batches;
        let board = Arc::new(Board::new(
            outputs,
            definition.pool.clone(),
            open_batches,
            config.threads,
            Arc::clone(meter),
        ));
        let budget = Budget::new(definition.memory.payload_bytes);
        let remote = definition.store.is_remote();
        let gate = Arc::new(Gate::new(definition.window_limits(), remote && config.hedge));
        let tasks = Arc::new(Tasks::new(definition.store.as_ref())?);
        let session = Self {
            board: Arc::clone(&board),
            budget: budget.clone(),
            gate: Arc::clone(&gate),
            tasks: Arc::clone(&tasks),
            remote,
        };
        let (retries, mut retry_queue) = mpsc::unbounded_channel();
        let preparer = Arc::new(Preparer {
            program: Arc::clone(&definition.program),
            inputs: definition.inputs.clone(),
            config: config.clone(),
            samples: definition.samples,
            board: Arc::clone(&board),
            cache: cache.clone(),
            meter: Arc::clone(meter),
            retries,
        });
        let fetcher = Arc::new(Fetcher {
            inputs: definition.inputs.clone(),
            store: Arc::clone(&definition.store),
            cache,
            sampler: definition.sampler.clone(),
            config: config.clone(),
            open_batches,
            budget,
            board,
            meter: Arc::clone(meter),
            gate,
            tasks: Arc::clone(&tasks),
            // What runs in every preparing thread before its first sample is meant to run before any.
            mover: (definition.program.only_hands_on() && config.thread_init.is_none())
                .then(|| Arc::clone(&preparer)),
            remote,
            sample_bytes: definition.sample_bytes,
            base_bytes: (remote && config.memory_bytes.is_none()).then_some(definition.memory.payload_bytes),
        });
        match walk {
            Walk::From(cursor) => tasks.spawn(Arc::clone(&fetcher).run(cursor)),
            Walk::Named(names) => tasks.spawn(Arc::clone(&fetcher).run_named(names)),
        }
        let substitutes = Arc::clone(&fetcher);
        tasks.spawn(async move {
            while let Some((batch, row, job)) = retry_queue.recv().await {
                let fetcher = Arc::clone(&substitutes);
                substitutes.tasks.spawn(async move { fetcher.fetch_substitute(batch, row, job).await });
            }
        });
        start_threads(&preparer)?;
        Ok(session)
    }

    /// Whether nothing more comes, as opposed to one batch that failed.
    pub(crate) fn is_stopped(&self) -> bool {
        self.board.is_stopped()
    }
}

impl Supply for Session {
    fn take(&self, wait: Duration) -> Result<Option<Taken>> {
        self.board.take_batch(wait)
    }

    fn describe_wait(&self) -> String {
        self.board.describe_wait()
    }

    fn view(&self) -> SupplyView {
        let gate = self.gate.view();
        // What a disk of this machine gives says nothing about a link.
        let link = self.remote.then_some(gate.link);
        SupplyView {
            payload_peak_bytes: self.budget.peak(),
            window_bytes: gate.window_bytes,
            window_requests: gate.window_requests as u64,
            link_bytes_per_second: link.map_or(0.0, |link| link.bytes_per_second),
            link_delay_seconds: link.map_or(0.0, |link| link.delay.as_secs_f64()),
            workers: 0,
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.board.stop(Error::cancelled("the loader was closed"));
        self.tasks.stop();
        if !self.board.threads_gone(CLOSE_WAIT) {
            tracing::warn!("a preparing thread is still inside an op; it ends by itself");
        }
    }
}
