//! `forebay dispatcher`: runs the dispatcher of a data service until someone asks it to stop.

use super::{Context, Done};
use crate::args::DispatcherArgs;
use crate::dashboard::Source;
use crate::interrupt::SLICE;
use forebay_core::Result;
use forebay_net::Threads;
use forebay_net::dispatcher::{DispatcherOptions, serve};
use serde_json::json;

pub(super) fn run(args: &DispatcherArgs, context: &Context) -> Result<Done> {
    let options = DispatcherOptions {
        listen: args.listen.clone(),
        state: args.state.clone(),
        credentials: args.credentials.resolve()?,
        settings: args.settings()?,
        scale: args.scale()?,
        ..DispatcherOptions::default()
    };
    let threads = Threads::shared()?;
    let mut running = threads.block_on(serve(options, threads.clone()))?;
    let metrics = args.metrics.start(running.metrics())?;
    let shown = metrics.as_ref().map(|(_, url)| url);
    let own = format!("forebay://{}", running.address());
    let dashboard = args.dashboard.start(|| vec![Source::dispatcher(&own, running.views())])?;
    let dashboard_url = dashboard.as_ref().map(|(_, url)| url);
    // Whoever started us reads the address from the first line.
    let url = format!("forebay://{}", running.address());
    context.report.line(&url);
    context
        .report
        .object(&json!({ "url": url, "state": args.state, "metrics": shown, "dashboard": dashboard_url }));
    if let Some((_, url)) = &metrics {
        context.report.note(format_args!("figures at {url}"));
    }
    if let Some((_, url)) = &dashboard {
        context.report.note(format_args!("dashboard at {url}"));
    }
    if args.state.is_none() {
        context.report.note("without `--state` nothing that is decided here survives this process");
    }
    let failed = loop {
        if context.interrupt.check().is_err() {
            break None;
        }
        let failing = async { tokio::time::timeout(SLICE, running.failed()).await };
        if let Ok(error) = threads.block_on(failing) {
            break Some(error);
        }
    };
    drop((metrics, dashboard));
    threads.block_on(running.stop());
    match failed {
        Some(error) => Err(error),
        // The object was printed when it began.
        None => Ok(Done { object: None, code: 130 }),
    }
}
