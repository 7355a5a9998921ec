//! Where fetching runs when interleavings are drawn: every task is one of the scheduler's. Takes the place of `tasks`.

use crate::sync::Mutex;
use forebay_core::Result;
use forebay_store::Store;
use shuttle::future::JoinHandle;
use std::future::Future;
use std::sync::{Arc, PoisonError};

/// The tasks of one session.
pub(crate) struct Tasks {
    running: Mutex<Vec<JoinHandle<()>>>,
    last: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

/// The right to run a task that the end of the session does not abandon.
pub(crate) struct Last(Arc<Mutex<Vec<JoinHandle<()>>>>);

impl Last {
    /// Runs `task` to its end.
    pub(crate) fn spawn(self, task: impl Future<Output = ()> + Send + 'static) {
        let started = shuttle::future::spawn(task);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(started);
    }
}

impl Tasks {
    #[expect(clippy::unnecessary_wraps, reason = "the real one starts a thread")]
    pub(crate) fn new(_store: &dyn Store) -> Result<Self> {
        Ok(Self { running: Mutex::new(Vec::new()), last: Arc::new(Mutex::new(Vec::new())) })
    }

    /// Runs `task` until it ends or the session does.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let started = shuttle::future::spawn(task);
        self.running.lock().unwrap_or_else(PoisonError::into_inner).push(started);
    }

    /// For what has come and is to be put away.
    pub(crate) fn last(&self) -> Last {
        Last(Arc::clone(&self.last))
    }

    /// Abandons everything, but for what is being put away: no task may outlive the run that is drawn.
    pub(crate) fn stop(&self) {
        let running = std::mem::take(&mut *self.running.lock().unwrap_or_else(PoisonError::into_inner));
        running.iter().for_each(JoinHandle::abort);
        let last = std::mem::take(&mut *self.last.lock().unwrap_or_else(PoisonError::into_inner));
        for task in last {
            // One that was abandoned has ended too.
            let _ = shuttle::future::block_on(task);
        }
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.stop();
    }
}
