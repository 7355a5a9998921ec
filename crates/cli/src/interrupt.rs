//! Ctrl-C: a flag that long loops look at, and an end with code 130 even when they do not.

use forebay_core::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

/// How long an interrupted command may tidy up, for example remove what it made for a moment.
const TIDY_UP: Duration = Duration::from_millis(500);

/// How long to wait before looking whether someone asked to stop.
pub(crate) const SLICE: Duration = Duration::from_millis(50);

/// Whether someone asked to stop. Clones share the answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// An error as soon as someone asked to stop.
    pub(crate) fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) { Err(Error::cancelled("interrupted")) } else { Ok(()) }
    }

    /// Sleeps for `time`, or until someone asks to stop.
    pub(crate) fn sleep(&self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        loop {
            self.check()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(SLICE));
        }
    }
}

/// SIGTERM, for commands that have something to finish before they end.
#[derive(Debug)]
pub(crate) struct Termination {
    runtime: tokio::runtime::Runtime,
    signal: tokio::signal::unix::Signal,
}

impl Termination {
    /// Listens from now on. A process that is the first of a container would otherwise not notice it at all.
    pub(crate) fn new() -> Result<Self> {
        let fail = |error| Error::io("listen for signals", error);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(fail)?;
        let signal = {
            let _on_runtime = runtime.enter();
            signal(SignalKind::terminate()).map_err(fail)?
        };
        Ok(Self { runtime, signal })
    }

    /// Waits for a [`SLICE`], or until it was asked for: true then, once for each signal.
    pub(crate) fn asked(&mut self) -> bool {
        let signal = &mut self.signal;
        self.runtime.block_on(async { tokio::time::timeout(SLICE, signal.recv()).await.is_ok() })
    }
}

/// Runs `work` on a thread and returns its exit code, or 130 soon after Ctrl-C.
///
/// The thread is left behind when it does not end in time; the caller is about to end the process.
pub(crate) fn guard(work: impl FnOnce(Interrupt) -> i32 + Send + 'static) -> i32 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else { return work(Interrupt::default()) };
    let code = runtime.block_on(async {
        // Without a handler the system's own applies, which ends the process too.
        let listening = signal(SignalKind::interrupt());
        let interrupt = Interrupt::default();
        let (done, mut finished) = oneshot::channel();
        let flag = interrupt.clone();
        let spawned = std::thread::Builder::new().name("forebay-command".into()).spawn(move || {
            // Nobody waits any more after an interrupt.
            let _ = done.send(work(flag));
        });
        if spawned.is_err() {
            return crate::INTERNAL;
        }
        let asked = async {
            match listening {
                Ok(mut signal) => drop(signal.recv().await),
                Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            // A thread that ended without an answer panicked and has said so.
            code = &mut finished => code.unwrap_or(crate::INTERNAL),
            () = asked => {
                interrupt.0.store(true, Ordering::Relaxed);
                let _ = tokio::time::timeout(TIDY_UP, finished).await;
                130
            }
        }
    });
    runtime.shutdown_background();
    code
}
