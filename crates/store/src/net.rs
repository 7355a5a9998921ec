//! The threads that drive sockets: one small runtime shared by all remote stores of a process.
//!
//! It starts with the first remote store and ends with the last. A process that was forked gets one of its own,
//! because threads do not cross a fork. Stores keep a [`Net`] and run their requests through [`Net::run`]; who is
//! already on one of its threads pays nothing for that.

use crate::spare;
use forebay_core::{Error, Result};
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio::runtime::{Builder, Handle, Runtime};

/// Threads for sockets. One fills several Gb/s; the second keeps TLS and large answers from holding up small ones. Where
/// there are fewer processors than twice as many, handing tasks from one to the other costs more than it brings.
const THREADS: usize = 2;
/// Memory of payloads that nobody wanted for twice as long goes back to the system.
const SPARE_EVERY: Duration = Duration::from_secs(2);

/// Sets another number, 1 to 64; whatever else it says is passed over.
const THREADS_VARIABLE: &str = "FOREBAY_IO_THREADS";

/// A handle to the shared threads; they end when the last one is dropped.
#[derive(Clone, Debug)]
pub struct Net(Arc<Owned>);

#[derive(Debug)]
struct Owned {
    runtime: Option<Runtime>,
    process: u32,
}

static SHARED: Mutex<Weak<Owned>> = Mutex::new(Weak::new());

impl Net {
    /// The process's network threads, started if need be.
    pub fn shared() -> Result<Self> {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = shared.upgrade().filter(|running| running.process == std::process::id()) {
            return Ok(Self(running));
        }
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads())
            .thread_name("forebay-net")
            .enable_all()
            .build()
            .map_err(|error| Error::io("start the network threads", error))?;
        runtime.spawn(async {
            loop {
                tokio::time::sleep(SPARE_EVERY).await;
                spare::age();
            }
        });
        let owned = Arc::new(Owned { runtime: Some(runtime), process: std::process::id() });
        *shared = Arc::downgrade(&owned);
        Ok(Self(owned))
    }

    /// The runtime, for those who start tasks of their own on it.
    pub fn handle(&self) -> Option<Handle> {
        self.0.runtime.as_ref().map(|runtime| runtime.handle().clone())
    }

    /// Whether these threads live in this process, and not in the one it was forked from.
    pub fn is_alive(&self) -> bool {
        self.0.process == std::process::id()
    }

    /// Runs `work` on the network threads and waits for it from wherever the caller is. Dropping the returned future
    /// cancels the work.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let Some(handle) = self.handle() else {
            return Err(Error::internal("the network threads have ended"));
        };
        if Handle::try_current().is_ok_and(|current| current.id() == handle.id()) {
            return work.await;
        }
        let mut task = AbortOnDrop(handle.spawn(work));
        (&mut task.0).await.unwrap_or_else(|error| {
            Err(Error::cancelled("wait for a request: its thread has ended").with_source(error))
        })
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            if self.process == std::process::id() {
                // Never waits: the last handle may be dropped by one of these threads.
                runtime.shutdown_background();
                spare::clear();
            } else {
                // Threads of the parent process: there is nothing here to shut down.
                std::mem::forget(runtime);
            }
        }
    }
}

fn threads() -> usize {
    let set = std::env::var(THREADS_VARIABLE).ok().and_then(|text| text.trim().parse().ok());
    let processors = std::thread::available_parallelism().map_or(THREADS, usize::from);
    set.filter(|threads| (1..=64).contains(threads)).unwrap_or_else(|| (processors / 2).clamp(1, THREADS))
}

struct AbortOnDrop<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_runtime_serves_all_and_ends_with_the_last() {
        let first = Net::shared().unwrap();
        let second = Net::shared().unwrap();
        assert!(Arc::ptr_eq(&first.0, &second.0));
        let weak = Arc::downgrade(&first.0);
        let answer = futures::executor::block_on(first.run(async {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            Ok(std::thread::current().name().map(str::to_owned))
        }));
        assert_eq!(answer.unwrap().as_deref(), Some("forebay-net"));
        drop((first, second));
        // Other tests of this program may hold it at the same moment.
        assert!(weak.upgrade().is_none_or(|owned| Arc::strong_count(&owned) > 0));
    }
}
