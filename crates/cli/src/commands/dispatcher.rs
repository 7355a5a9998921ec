//! `forebay dispatcher`: runs the dispatcher of a data service until someone asks it to stop.

use super::{Context, Done};
use crate::args::DispatcherArgs;
use crate::interrupt::SLICE;
use forebay_core::{Error, Result};
use forebay_net::Threads;
use forebay_net::dispatcher::{DispatcherOptions, serve};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

pub(super) fn run(args: &DispatcherArgs, context: &Context) -> Result<Done> {
    let mut options = DispatcherOptions {
        listen: args.listen.clone(),
        credentials: args.credentials.resolve()?,
        settings: args.settings()?,
        scale: args.scale()?,
        ..DispatcherOptions::default()
    };
    args.state.apply(&mut options)?;
    let threads = Threads::shared()?;
    let mut running = threads.block_on(serve(options, threads.clone()))?;
    let metrics = args.metrics.start(running.metrics())?;
    let shown = metrics.as_ref().map(|(_, url)| url);
    // Whoever started us reads the address from the first line.
    let url = format!("forebay://{}", running.address());
    context.report.line(&url);
    context.report.object(&json!({ "url": url, "state": args.state.place, "metrics": shown }));
    if let Some((_, url)) = &metrics {
        context.report.note(format_args!("figures at {url}"));
    }
    if args.state.place.is_none() {
        context.report.note("without `--state` nothing that is decided here survives this process");
    }
    let fail = |error| Error::io("listen for signals", error);
    let mut terminate = threads.block_on(async { signal(SignalKind::terminate()) }).map_err(fail)?;
    let ended = loop {
        if context.interrupt.check().is_err() {
            break Ok(130);
        }
        let waiting = async {
            tokio::select! {
                error = running.failed() => Err(error),
                _ = terminate.recv() => Ok(0),
            }
        };
        if let Ok(ended) = threads.block_on(async { tokio::time::timeout(SLICE, waiting).await }) {
            break ended;
        }
    };
    drop(metrics);
    threads.block_on(running.stop());
    // The object was printed when it began.
    ended.map(|code| Done { object: None, code })
}
