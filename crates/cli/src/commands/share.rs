//! `forebay share`: the process that prepares batches once for all jobs of this host.
//!
//! Loaders with `via="auto"` start it when it is missing, and it leaves some seconds after the last of them.

use super::{Context, Done};
use crate::args::ShareArgs;
use crate::dashboard::Source;
use crate::interrupt::SLICE;
use forebay_core::Result;
use forebay_net::service::Address;
use forebay_net::service::worker::{serve_share, share_socket};
use serde_json::json;
use std::sync::Arc;

pub(super) fn run(args: &ShareArgs, context: &Context) -> Result<Done> {
    let socket = args.socket.clone().map_or_else(share_socket, Ok)?;
    let plan = args.how.resolve(Address::Unix(socket.clone()), true)?;
    let url = format!("unix://{}", socket.display());
    let Some(mut share) = serve_share(&socket, plan.options, Arc::new(plan.makers))? else {
        context.report.line(format_args!("another process serves `{}` already", socket.display()));
        return Ok(Done::with(json!({ "url": url, "served": false })));
    };
    // Whoever started us reads where it is from the first line.
    let metrics = args.metrics.start(share.running().metrics())?;
    let running = share.running();
    let dashboard = args.dashboard.start(|| {
        let figures = running.metrics();
        vec![Source::host(&url, running.views()), Source::figures("its figures", move || Ok(figures()))]
    })?;
    context.report.line(&url);
    let shown = metrics.as_ref().map(|(_, url)| url);
    let dashboard_url = dashboard.as_ref().map(|(_, url)| url);
    context
        .report
        .object(&json!({ "url": url, "served": true, "metrics": shown, "dashboard": dashboard_url }));
    if let Some((_, url)) = &metrics {
        context.report.note(format_args!("figures at {url}"));
    }
    if let Some((_, url)) = &dashboard {
        context.report.note(format_args!("dashboard at {url}"));
    }
    let interrupted = loop {
        if context.interrupt.sleep(SLICE).is_err() {
            break true;
        }
        if args.on_demand && share.is_unused(plan.grace) {
            break false;
        }
    };
    drop((metrics, dashboard));
    share.stop();
    // The object was printed when it began.
    Ok(Done { object: None, code: if interrupted { 130 } else { 0 } })
}
