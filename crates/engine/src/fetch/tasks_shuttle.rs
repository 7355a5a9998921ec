//! Where fetching runs when interleavings are drawn: every task is one of the scheduler's. Takes the place of `tasks`.

use crate::sync::Mutex;
use forebay_core::Result;
use forebay_store::Store;
use shuttle::future::JoinHandle;
use std::future::Future;
use std::sync::PoisonError;

/// The tasks of one session.
pub(crate) struct Tasks {
    running: Mutex<Vec<JoinHandle<()>>>,
}

impl Tasks {
    #[expect(clippy::unnecessary_wraps, reason = "the real one starts a thread")]
    pub(crate) fn new(_store: &dyn Store) -> Result<Self> {
        Ok(Self { running: Mutex::new(Vec::new()) })
    }

    /// Runs `task` until it ends or the session does.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let started = shuttle::future::spawn(task);
        self.running.lock().unwrap_or_else(PoisonError::into_inner).push(started);
    }

    /// Abandons everything. Waits for nothing.
    pub(crate) fn stop(&self) {
        let running = std::mem::take(&mut *self.running.lock().unwrap_or_else(PoisonError::into_inner));
        running.iter().for_each(JoinHandle::abort);
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.stop();
    }
}
