//! What the dev programs share: one JSON line when ready, one at the end, and an end that is easy to ask for.

use forebay_core::{Error, Result};
use serde_json::Value;
use std::io::{Read, Write};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// Prints one line of JSON; the reader may be gone, which is no reason to fail.
pub fn print(value: &Value) {
    let mut out = std::io::stdout().lock();
    drop(writeln!(out, "{value}").and_then(|()| out.flush()));
}

/// Waits until standard input closes, or for SIGTERM or SIGINT. Calls `tick` in between when `every` is not zero.
pub fn wait_for_end(every: Duration, mut tick: impl FnMut()) -> Result<()> {
    let fault = |source| Error::io("wait for the end of the program", source);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(fault)?;
    runtime.block_on(async {
        let (closed, mut input) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            let mut rest = std::io::stdin().lock();
            while rest.read(&mut [0; 64]).is_ok_and(|count| count > 0) {}
            closed.send(())
        });
        let mut terminated = signal(SignalKind::terminate()).map_err(fault)?;
        let mut interrupted = signal(SignalKind::interrupt()).map_err(fault)?;
        let mut ticks = tokio::time::interval(every.max(Duration::from_millis(1)));
        loop {
            tokio::select! {
                _ = &mut input => break,
                _ = terminated.recv() => break,
                _ = interrupted.recv() => break,
                _ = ticks.tick(), if !every.is_zero() => tick(),
            }
        }
        Ok(())
    })
}

/// Ends the program: 0, or the error on standard error and its kind's code.
pub fn finish(outcome: Result<()>) -> std::process::ExitCode {
    match outcome {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(fault) => {
            drop(writeln!(std::io::stderr(), "{}", fault.report()));
            std::process::ExitCode::from(fault.kind().exit_code())
        }
    }
}
