//! A session: the threads and the fetching task that run from one cursor on, over any number of epochs, or make what
//! others name.
//!
//! Dropping it ends everything: the board is stopped, threads are waited for (not longer than two seconds, should an
//! op hang), requests in flight are abandoned.

use crate::assets::Assets;
use crate::board::Board;
use crate::budget::Budget;
use crate::cache::{Cache, CacheSettings, Preparing};
use crate::config::{LOCAL_REQUESTS, LoaderConfig, REMOTE_REQUESTS};
use crate::fetch::{Fetcher, Gate, Names, Tasks};
use crate::inputs::Inputs;
use crate::memory::{MemoryPlan, available_memory_bytes};
use crate::meter::Meter;
use crate::prepare::{Preparer, run_threads};
use crate::supply::{Supply, SupplyView, Taken};
use crate::sync::AtomicU64;
use forebay_core::cursor::Cursor;
use forebay_core::manifest::Manifest;
use forebay_core::plan::Sampler;
use forebay_core::recipe::Recipe;
use forebay_core::tune::Knobs;
use forebay_core::window::{WindowLimits, share};
use forebay_core::{Error, Result};
use forebay_ops::{BufferPool, Program};
use forebay_store::Store;
use forebay_store::retry::AwayNotice;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// How long closing waits for a thread that is inside an op.
const CLOSE_WAIT: Duration = Duration::from_secs(1);

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
        let config = config.packed(recipe, manifest)?;
        config.check()?;
        let program = Program::compile_with(recipe, &config.functions.of(recipe)?)?;
        let program = program.with_rows(config.packed_rows());
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
    preparer: Arc<Preparer>,
    memory: MemoryPlan,
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
        definition.program.equip(&Assets)?;
        let outputs = definition.program.outputs().to_vec();
        let open_batches = definition.memory.open_batches;
        let finishes = definition.program.has_batch_functions() || config.finish_batch.is_some();
        let board =
            Arc::new(Board::new(outputs, definition.pool.clone(), open_batches, finishes, Arc::clone(meter)));
        let budget = Budget::new(definition.memory.payload_bytes);
        let remote = definition.store.is_remote();
        let gate = Arc::new(Gate::new(definition.window_limits(), remote && config.hedge));
        let tasks = Arc::new(Tasks::new(definition.store.as_ref())?);
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
        let session = Self {
            board: Arc::clone(&board),
            budget: budget.clone(),
            gate: Arc::clone(&gate),
            tasks: Arc::clone(&tasks),
            preparer: Arc::clone(&preparer),
            memory: definition.memory,
            remote,
        };
        let fetcher = Arc::new(Fetcher {
            inputs: definition.inputs.clone(),
            store: Arc::clone(&definition.store),
            cache,
            sampler: definition.sampler.clone(),
            config: config.clone(),
            budget,
            board,
            meter: Arc::clone(meter),
            gate,
            notice: AwayNotice::default(),
            tasks: Arc::clone(&tasks),
            // What runs in every preparing thread before its first sample is meant to run before any.
            mover: (definition.program.only_hands_on()
                && !definition.inputs.has_records()
                && config.thread_init.is_none()
                && !finishes)
                .then(|| Arc::clone(&preparer)),
            remote,
            samples: definition.samples,
            sample_bytes: definition.sample_bytes,
            batch_rows: AtomicU64::new(config.consumer.batch_size),
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
        run_threads(&preparer, config.threads)?;
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

    fn tune(&self, wanted: Knobs) -> Knobs {
        if self.board.wanted_threads() != wanted.threads
            && let Err(error) = run_threads(&self.preparer, wanted.threads)
        {
            tracing::warn!(%error, "fewer threads prepare than were wanted");
        }
        if self.board.open_batches() < wanted.open_batches {
            let memory = self.memory.with_open_batches(wanted.open_batches);
            // First the payloads give up their part, then batches take it.
            if memory.payload_bytes != self.memory.payload_bytes {
                self.budget.set_limit(memory.payload_bytes);
            }
            if memory.leaves_room(self.budget.used()) {
                self.board.open_more(memory.open_batches);
            }
        }
        Knobs { threads: self.board.wanted_threads(), open_batches: self.board.open_batches() }
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
            store_away_seconds: gate.away_seconds,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{SyntheticPayload, SyntheticSpec, synthetic};
    use forebay_core::portion::{Consumer, LastBatch};
    use forebay_core::rng::Rng;

    const LIMIT: u64 = 200_000;

    #[test]
    fn p066_memory_stays_within_its_limit_and_no_batch_is_lost_while_knobs_are_turned() {
        let payload = SyntheticPayload::Noise { bytes: 1000 };
        let data = synthetic(SyntheticSpec { samples: 4000, payload, ..SyntheticSpec::default() }).unwrap();
        let recipe = Recipe::from_json(
            r#"[{"field": "bin", "decode": {"kind": "bytes"}, "ops": [{"op": "delay", "seconds": 1e-9}]}]"#,
        )
        .unwrap();
        for seed in 0..4 {
            let consumer = Consumer { rank: 0, world_size: 1, batch_size: 8, last_batch: LastBatch::Partial };
            let config = LoaderConfig {
                consumer,
                threads: 2,
                memory_bytes: Some(LIMIT),
                epochs: Some(1),
                ..LoaderConfig::default()
            };
            let definition =
                Definition::new(data.manifest(), Arc::clone(data.store()), &recipe, config).unwrap();
            let memory = definition.memory;
            assert!(memory.most_open_batches > memory.open_batches, "{memory:?}");
            let walk = Walk::From(Cursor::start_of(0));
            let session = Session::start(&definition, None, walk, &Arc::default()).unwrap();
            let (mut rng, mut held) = (Rng::keyed(seed, 0, 0), Knobs { threads: 2, open_batches: 0 });
            let mut samples = 0;
            for step in 0..500 {
                let taken = loop {
                    if let Some(taken) = session.take(Duration::from_secs(1)).unwrap() {
                        break taken;
                    }
                };
                samples += taken.batch.map_or(0, |batch| batch.len());
                let wanted = Knobs { threads: 1 + rng.below(8) as usize, open_batches: 1 + step / 10 };
                held = session.tune(wanted);
                assert_eq!(held.threads, wanted.threads);
                let bytes = held.open_batches as u64 * memory.batch_bytes + session.budget.used();
                assert!(bytes <= LIMIT, "{bytes} bytes with {held:?}");
            }
            assert_eq!((samples, held.open_batches), (4000, memory.most_open_batches));
        }
    }
}
