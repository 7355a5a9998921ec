//! The thread that keeps time for a supply, and asks the directory where spans are made.
//!
//! While the directory is away, links go on with what they have; new spans wait until it is back.

use super::directory::Directory;
use super::shared::{Errand, LONGEST_SLEEP, Shared, Standing};
use forebay_core::ErrorKind;
use forebay_core::feed::Span;
use forebay_core::pull::WorkerKey;
use forebay_engine::Pacer;
use std::sync::Arc;

/// How often a directory learns how far this rank is, in milliseconds.
const REPORT_MS: u64 = 1_000;

/// How long a directory may be away before a supply that never met it gives up, in milliseconds.
const MEET_MS: u64 = 15_000;

/// Keeps time, and runs errands to the directory.
pub(super) fn run(shared: &Arc<Shared>, directory: Option<&dyn Directory>) {
    let began = shared.clock.now();
    let mut next_report = began + REPORT_MS;
    let mut pacer = Pacer::new(&shared.meter);
    let mut state = shared.lock();
    while !state.stopped && state.failed.is_none() {
        let Some(directory) = directory else {
            shared.drive(&mut state);
            state = shared.sleep(state, LONGEST_SLEEP);
            continue;
        };
        if state.standing != Standing::Joined {
            let reach = state.pull.reach();
            drop(state);
            let met = directory.attach(reach);
            state = shared.lock();
            match met {
                Ok(positions) => {
                    state.standing = Standing::Joined;
                    state.errands.clear();
                    state.pull.set_span_positions(positions);
                }
                Err(error) => {
                    let given_up = !state.served && shared.clock.now() >= began + MEET_MS;
                    if !error.kind().is_transient() || given_up {
                        state.fail(error);
                    } else {
                        state.trouble = Some(error.chain());
                        state = shared.sleep(state, LONGEST_SLEEP);
                    }
                }
            }
            shared.drive(&mut state);
            continue;
        }
        let now = shared.clock.now();
        let outcome = if let Some(Errand { spans, avoid, lost }) = state.errands.pop_front() {
            drop(state);
            let found = directory.locate(&spans, &avoid, lost);
            state = shared.lock();
            let now = shared.clock.now();
            match found {
                Ok(found) if !found.is_empty() => {
                    let routes: Vec<(Span, WorkerKey)> =
                        found.iter().map(|one| (one.span, one.worker)).collect();
                    state.addresses.extend(found.into_iter().map(|one| (one.worker, one.address)));
                    let missing: Vec<Span> = spans
                        .into_iter()
                        .filter(|span| !routes.iter().any(|(found, _)| found == span))
                        .collect();
                    state.pull.located(now, &routes);
                    if !missing.is_empty() {
                        state.pull.not_located(now, &missing);
                    }
                    Ok(())
                }
                Ok(_) => {
                    state.trouble = Some(format!("{} knows no worker", directory.name()));
                    state.pull.not_located(now, &spans);
                    Ok(())
                }
                Err(error) => {
                    state.pull.not_located(now, &spans);
                    Err(error)
                }
            }
        } else if now >= next_report {
            next_report = now + REPORT_MS;
            let mut report = state.report;
            report.reach = state.pull.reach();
            report.asked_again = state.counted.asked_again;
            report.skipped = state.counted.skipped;
            drop(state);
            report.pace = pacer.pace();
            let told = directory.report(&report);
            state = shared.lock();
            told
        } else {
            state = shared.sleep(state, LONGEST_SLEEP);
            Ok(())
        };
        match outcome {
            Ok(()) => {}
            // It has forgotten us, or is another one: what is being made goes on meanwhile.
            Err(error) if matches!(error.kind(), ErrorKind::Stale | ErrorKind::NotFound) => {
                state.standing = Standing::Forgotten;
            }
            Err(error) if error.kind() == ErrorKind::Denied => state.fail(error),
            Err(error) => state.trouble = Some(error.chain()),
        }
        shared.drive(&mut state);
    }
    drop(state);
    if let Some(directory) = directory {
        directory.detach();
    }
}
