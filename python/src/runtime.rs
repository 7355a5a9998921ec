//! Waiting, the right way for Python: the interpreter is let go, Ctrl-C is seen at once, a forked child is told.
//!
//! Nothing else in this crate blocks, and nothing else looks at the process id.

use crate::error::raise;
use forebay_core::{Error, Result};
use pyo3::prelude::*;
use std::mem::ManuallyDrop;
use std::pin::pin;
use std::time::Duration;

/// How long one wait may last before signals are looked at.
pub(crate) const SLICE: Duration = Duration::from_millis(50);

/// Asks `attempt` again and again, each time for at most a slice, until it answers or a signal handler raises.
pub(crate) fn wait<T: Send>(
    py: Python<'_>,
    mut attempt: impl FnMut(Duration) -> Option<T> + Send,
) -> PyResult<T> {
    loop {
        if let Some(answer) = py.detach(|| attempt(SLICE)) {
            return Ok(answer);
        }
        py.check_signals()?;
    }
}

/// Makes a future and runs it to its end on this thread. An exception raised by a signal handler drops it.
pub(crate) fn block_on<T: Send, F: Future<Output = Result<T>>>(
    py: Python<'_>,
    make: impl FnOnce() -> F + Send,
) -> PyResult<T> {
    // The future lives inside one detached call, so it need not be sent anywhere.
    py.detach(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|cause| Error::exhausted("start an executor").with_source(cause));
        let runtime = runtime.map_err(|error| Python::attach(|py| raise(py, &error)))?;
        let answer = {
            let mut future = pin!(make());
            loop {
                let slice = async { tokio::time::timeout(SLICE, future.as_mut()).await };
                match runtime.block_on(slice) {
                    Ok(answer) => break Ok(answer),
                    Err(_) => match check_signals() {
                        Ok(()) => {}
                        Err(signal) => break Err(signal),
                    },
                }
            }
        };
        // A blocking read that is still running must not hold up the exception.
        runtime.shutdown_background();
        answer?.map_err(|error| Python::attach(|py| raise(py, &error)))
    })
}

/// What a signal handler raised, from a thread that let the interpreter go.
#[expect(clippy::redundant_closure_for_method_calls, reason = "the method is not general over lifetimes")]
pub(crate) fn check_signals() -> PyResult<()> {
    Python::attach(|py| py.check_signals())
}

/// Something that belongs to the process that made it: it owns threads and locks, which a forked child does not have.
///
/// In a child it is neither used nor dropped; the copy of its memory is left alone.
pub(crate) struct Owned<T> {
    value: ManuallyDrop<T>,
    process: u32,
}

impl<T> Owned<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: ManuallyDrop::new(value), process: std::process::id() }
    }

    /// The value, in the process that made it.
    pub(crate) fn get(&self) -> Option<&T> {
        (self.process == std::process::id()).then_some(&*self.value)
    }

    /// The value in any process, of which a forked child may only read the memory: no lock, no thread.
    pub(crate) fn memory(&self) -> &T {
        &self.value
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            crate::buffer::drop_now(&mut self.value);
        }
    }
}
