//! A session: the threads and the fetching task that run from one cursor on, over any number of epochs.
//!
//! Dropping it ends everything: the board is stopped, threads are waited for (not longer than two seconds, should an
//! op hang), requests in flight are abandoned.

use crate::board::{Board, Taken};
use crate::budget::Budget;
use crate::config::LoaderConfig;
use crate::fetch::Fetcher;
use crate::inputs::Inputs;
use crate::memory::MemoryPlan;
use crate::meter::Meter;
use crate::prepare::{Preparer, start_threads};
use forebay_core::cursor::Cursor;
use forebay_core::plan::Sampler;
use forebay_core::{Error, Result};
use forebay_ops::{BufferPool, Program};
use forebay_store::Store;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, mpsc};

/// How long closing waits for a thread that is inside an op.
const CLOSE_WAIT: Duration = Duration::from_millis(1500);

/// What does not change while a loader lives.
pub(crate) struct Definition {
    pub(crate) inputs: Inputs,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) program: Arc<Program>,
    pub(crate) sampler: Sampler,
    /// Samples of the dataset, however many positions an epoch has.
    pub(crate) samples: u64,
    pub(crate) config: LoaderConfig,
    pub(crate) memory: MemoryPlan,
    pub(crate) pool: BufferPool,
}

/// The running stages.
pub(crate) struct Session {
    board: Arc<Board>,
    budget: Budget,
    runtime: Option<Runtime>,
}

impl Session {
    /// Starts fetching and preparing at `cursor`.
    pub(crate) fn start(definition: &Definition, cursor: Cursor, meter: &Arc<Meter>) -> Result<Self> {
        let config = &definition.config;
        let outputs = definition.program.outputs().to_vec();
        let open_batches = definition.memory.open_batches;
        let board = Arc::new(Board::new(outputs, definition.pool.clone(), open_batches, Arc::clone(meter)));
        let budget = Budget::new(definition.memory.payload_bytes);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("forebay-fetch")
            .enable_all()
            .build()
            .map_err(|cause| Error::exhausted("start the fetching thread").with_source(cause))?;
        let session = Self { board: Arc::clone(&board), budget: budget.clone(), runtime: Some(runtime) };
        let (retries, mut retry_queue) = mpsc::unbounded_channel();
        let fetcher = Arc::new(Fetcher {
            inputs: definition.inputs.clone(),
            store: Arc::clone(&definition.store),
            sampler: definition.sampler.clone(),
            config: config.clone(),
            open_batches,
            budget,
            board: Arc::clone(&board),
            meter: Arc::clone(meter),
            in_flight: Arc::new(Semaphore::new(config.requests_in_flight)),
        });
        if let Some(runtime) = &session.runtime {
            runtime.spawn(Arc::clone(&fetcher).run(cursor));
            runtime.spawn(async move {
                while let Some((batch, row, job)) = retry_queue.recv().await {
                    let fetcher = Arc::clone(&fetcher);
                    tokio::spawn(async move { fetcher.fetch_substitute(batch, row, job).await });
                }
            });
        }
        let preparer = Arc::new(Preparer {
            program: Arc::clone(&definition.program),
            inputs: definition.inputs.clone(),
            config: config.clone(),
            samples: definition.samples,
            board,
            meter: Arc::clone(meter),
            retries,
        });
        start_threads(&preparer)?;
        Ok(session)
    }

    /// The next batch if it is ready within `wait`.
    pub(crate) fn take(&self, wait: Duration) -> Result<Option<Taken>> {
        self.board.take_batch(wait)
    }

    pub(crate) fn describe_wait(&self) -> String {
        self.board.describe_wait()
    }

    pub(crate) fn payload_peak(&self) -> u64 {
        self.budget.peak()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.board.stop(Error::cancelled("the loader was closed"));
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
        if !self.board.threads_gone(CLOSE_WAIT) {
            tracing::warn!("a preparing thread is still inside an op; it ends by itself");
        }
    }
}
