//! Where fetching runs: on the store's own network threads when it has them, otherwise on one thread of its own.
//!
//! A request made on the thread that drives its socket saves waking another one. Every task ends with the session:
//! what is under way is abandoned.

use forebay_core::{Error, Result};
use forebay_store::Store;
use std::future::Future;
use std::sync::{Mutex, PoisonError};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinSet;

/// The tasks of one session.
pub(crate) struct Tasks {
    handle: Handle,
    running: Mutex<JoinSet<()>>,
    own: Mutex<Option<Runtime>>,
}

impl Tasks {
    /// Starts a thread unless the store brings its own.
    pub(crate) fn new(store: &dyn Store) -> Result<Self> {
        if let Some(handle) = store.runtime() {
            return Ok(Self { handle, running: Mutex::default(), own: Mutex::default() });
        }
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("forebay-fetch")
            .enable_all()
            .build()
            .map_err(|cause| Error::exhausted("start the fetching thread").with_source(cause))?;
        let handle = runtime.handle().clone();
        Ok(Self { handle, running: Mutex::default(), own: Mutex::new(Some(runtime)) })
    }

    /// Runs `task` until it ends or the session does.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        while running.try_join_next().is_some() {}
        running.spawn_on(task, &self.handle);
    }

    /// Abandons everything. Waits for nothing.
    pub(crate) fn stop(&self) {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
        if let Some(runtime) = self.own.lock().unwrap_or_else(PoisonError::into_inner).take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.stop();
    }
}
