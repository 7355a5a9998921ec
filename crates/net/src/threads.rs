//! Where the work of connections runs: the process's network threads, or the runtime we are on already.

use forebay_core::{Error, Result};
use forebay_store::Net;
use std::future::Future;
use tokio::runtime::Handle;

/// A runtime for connections. Clones share it.
#[derive(Clone, Debug)]
pub struct Threads {
    handle: Handle,
    /// Keeps the shared threads running.
    net: Option<Net>,
}

impl Threads {
    /// The network threads that remote stores use too.
    pub fn shared() -> Result<Self> {
        let net = Net::shared()?;
        let handle = net.handle().ok_or_else(|| Error::internal("the network threads have ended"))?;
        Ok(Self { handle, net: Some(net) })
    }

    /// The runtime the caller is on. Panics outside of one.
    pub fn current() -> Self {
        Self { handle: Handle::current(), net: None }
    }

    /// Waits for work from a thread that is not one of them.
    pub fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.handle.block_on(work)
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Whether they live in this process, and not in the one it was forked from.
    pub(crate) fn are_alive(&self) -> bool {
        self.net.as_ref().is_none_or(Net::is_alive)
    }

    /// Runs work there, wherever the caller is; `None` when it cannot. Dropping the future cancels the work.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        if !self.are_alive() {
            return None;
        }
        if Handle::try_current().is_ok_and(|current| current.id() == self.handle.id()) {
            return Some(work.await);
        }
        let mut task = AbortOnDrop(self.handle.spawn(work));
        (&mut task.0).await.ok()
    }
}

struct AbortOnDrop<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
