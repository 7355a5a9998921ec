//! A few threads that block so that no executor thread does.
//!
//! The pool belongs to one store and works under any executor: a job's answer comes back through a channel. Threads
//! start when jobs wait and end when the pool is dropped. What a job does is none of this file's business.

use forebay_core::{Error, Result};
use futures::channel::oneshot;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

type Job = Box<dyn FnOnce() + Send>;

/// Runs jobs on at most `limit` threads, in the order in which they came.
#[derive(Debug)]
pub(crate) struct Pool {
    shared: Arc<Shared>,
    name: &'static str,
    limit: usize,
}

struct Shared {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl Pool {
    /// A pool without threads yet. `name` is what debuggers and `top` show.
    pub(crate) fn new(name: &'static str, limit: usize) -> Self {
        let shared = Arc::new(Shared { state: Mutex::default(), wake: Condvar::new() });
        Self { shared, name, limit: limit.max(1) }
    }

    /// Runs `work` on a thread of the pool. When the returned future is dropped before the job's turn, the job is
    /// skipped; once begun it runs to its end.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (sender, answer) = oneshot::channel();
        self.push(Box::new(move || {
            if !sender.is_canceled() {
                // The receiver may go away at any moment; then nobody wants the answer.
                let _ = sender.send(work());
            }
        }));
        answer.await.unwrap_or_else(|_| Err(Error::internal("run a job on the pool: the job panicked")))
    }

    fn push(&self, job: Job) {
        let mut state = self.shared.lock();
        state.jobs.push_back(job);
        if state.idle >= state.jobs.len() || state.threads >= self.limit {
            drop(state);
            self.shared.wake.notify_one();
            return;
        }
        state.threads += 1;
        drop(state);
        let shared = Arc::clone(&self.shared);
        let started = std::thread::Builder::new().name(self.name.into()).spawn(move || shared.work());
        if started.is_err() {
            // The system refuses more threads. Others will come to the job; without others it is done here.
            let mut state = self.shared.lock();
            state.threads -= 1;
            let job = if state.threads == 0 { state.jobs.pop_front() } else { None };
            drop(state);
            if let Some(job) = job {
                job();
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // Not joined: the last handle may be dropped by a job, on a thread of this very pool.
        self.shared.lock().closed = true;
        self.shared.wake.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Jobs run outside the lock, so a poisoned state is still a consistent one.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                // A panic drops the job's sender, which the waiting side reports; the thread lives on.
                let _ = catch_unwind(AssertUnwindSafe(job));
                state = self.lock();
            } else if state.closed {
                state.threads -= 1;
                return;
            } else {
                state.idle += 1;
                state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
        }
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.lock();
        f.debug_struct("Pool").field("threads", &state.threads).field("jobs", &state.jobs.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::executor::block_on;
    use futures::future::join_all;
    use std::sync::Barrier;

    #[test]
    fn jobs_run_side_by_side_up_to_the_limit_under_any_executor() {
        let pool = Pool::new("test-pool", 3);
        let barrier = Arc::new(Barrier::new(3));
        let jobs = (0..9).map(|number| {
            let barrier = Arc::clone(&barrier);
            pool.run(move || {
                barrier.wait();
                Ok(number)
            })
        });
        let answers: Vec<i32> = block_on(join_all(jobs)).into_iter().map(Result::unwrap).collect();
        assert_eq!(answers, (0..9).collect::<Vec<_>>());
        assert_eq!(pool.shared.lock().threads, 3);
    }

    #[test]
    fn a_panicking_job_is_an_error_and_the_pool_lives_on() {
        let pool = Pool::new("test-pool", 1);
        let error = block_on(pool.run::<()>(|| panic!("as the test asks"))).unwrap_err();
        assert_eq!(error.kind(), forebay_core::ErrorKind::Internal);
        assert_eq!(block_on(pool.run(|| Ok(7))).unwrap(), 7);
    }

    #[test]
    fn threads_end_after_the_pool_is_dropped() {
        let pool = Pool::new("test-pool", 2);
        block_on(pool.run(|| Ok(()))).unwrap();
        let shared = Arc::downgrade(&pool.shared);
        drop(pool);
        while shared.upgrade().is_some() {
            std::thread::yield_now();
        }
    }
}
