//! Where fetching runs: on the store's own network threads when it has them, otherwise on one thread of its own.
//!
//! A request made on the thread that drives its socket saves waking another one. Every task ends with the session:
//! what is under way is abandoned, but what came already and is only being put away is let finish, for a while.

use forebay_core::{Error, Result};
use forebay_store::Store;
use std::future::Future;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinSet;

/// How long the end of a session waits for what is being put away.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// The tasks of one session.
pub(crate) struct Tasks {
    handle: Handle,
    running: Mutex<JoinSet<()>>,
    own: Mutex<Option<Runtime>>,
    last: Arc<LastOnes>,
}

/// How many tasks are to be let finish.
#[derive(Default)]
struct LastOnes {
    count: Mutex<usize>,
    fewer: Condvar,
}

/// The right to run a task that the end of the session does not abandon. To be had before anybody can know that there
/// is something to put away: the one who hears of it may end the session.
pub(crate) struct Last {
    handle: Handle,
    ones: Arc<LastOnes>,
}

impl Last {
    /// Runs `task` to its end.
    pub(crate) fn spawn(self, task: impl Future<Output = ()> + Send + 'static) {
        let handle = self.handle.clone();
        handle.spawn(async move {
            task.await;
            drop(self);
        });
    }
}

impl Drop for Last {
    fn drop(&mut self) {
        *self.ones.count.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.ones.fewer.notify_all();
    }
}

impl Tasks {
    /// Starts a thread unless the store brings its own.
    pub(crate) fn new(store: &dyn Store) -> Result<Self> {
        if let Some(handle) = store.runtime() {
            return Ok(Self {
                handle,
                running: Mutex::default(),
                own: Mutex::default(),
                last: Arc::default(),
            });
        }
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("forebay-fetch")
            .enable_all()
            .build()
            .map_err(|cause| Error::exhausted("start the fetching thread").with_source(cause))?;
        let handle = runtime.handle().clone();
        Ok(Self { handle, running: Mutex::default(), own: Mutex::new(Some(runtime)), last: Arc::default() })
    }

    /// Runs `task` until it ends or the session does.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        while running.try_join_next().is_some() {}
        running.spawn_on(task, &self.handle);
    }

    /// For what has come and is to be put away.
    pub(crate) fn last(&self) -> Last {
        *self.last.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        Last { handle: self.handle.clone(), ones: Arc::clone(&self.last) }
    }

    /// Abandons everything, but for what is being put away, if that takes no longer than a second.
    pub(crate) fn stop(&self) {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
        let count = self.last.count.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.last.fewer.wait_timeout_while(count, LAST_WAIT, |count| *count > 0));
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
