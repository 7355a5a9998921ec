//! `forebay dispatcher`: runs the dispatcher of a data service until someone asks it to stop.

use super::{Context, Done};
use crate::args::DispatcherArgs;
use crate::dashboard::Source;
use crate::interrupt::Termination;
use forebay_core::Result;
use forebay_net::dispatcher::{DispatcherOptions, serve};
use forebay_net::launcher::Launch;
use forebay_net::scale::{Cluster, Kubernetes, start};
use forebay_net::{Pages, Threads};
use futures::FutureExt;
use serde_json::json;
use std::sync::Arc;

pub(super) fn run(args: &DispatcherArgs, context: &Context) -> Result<Done> {
    let mut terminate = Termination::new()?;
    let scale = args.scale()?;
    let replicas = args.scale_url.as_deref().map(|url| {
        let cluster = Cluster::of_this_pod(|name| std::env::var(name).ok())?;
        Kubernetes::new(url, cluster).map(Arc::new)
    });
    let replicas = replicas.transpose()?;
    let listen = match args.listen.as_str() {
        "auto" => Launch::from_environment()?.listen_as_dispatcher()?,
        given => given.to_owned(),
    };
    let mut options = DispatcherOptions {
        listen,
        credentials: args.credentials.resolve()?,
        settings: args.settings()?,
        scale,
        ..DispatcherOptions::default()
    };
    args.state.apply(&mut options)?;
    let threads = Threads::shared()?;
    let mut running = threads.block_on(serve(options, threads.clone()))?;
    let acting = replicas.map(|replicas| start(replicas, running.wanted(), scale, &threads));
    let mut pages = running.pages();
    if let Some(acting) = &acting {
        let (ours, theirs) = (pages.metrics, acting.metrics());
        pages = Pages { metrics: Arc::new(move || ours() + &theirs()), ..pages };
    }
    let metrics = args.metrics.start(pages)?;
    let shown = metrics.as_ref().map(|(_, url)| url);
    let own = format!("forebay://{}", running.address());
    let dashboard = args.dashboard.start(|| vec![Source::dispatcher(&own, running.views())])?;
    let dashboard_url = dashboard.as_ref().map(|(_, url)| url);
    // Whoever started us reads the address from the first line.
    let url = format!("forebay://{}", running.address());
    context.report.line(&url);
    context.report.object(
        &json!({ "url": url, "state": args.state.place, "metrics": shown, "dashboard": dashboard_url }),
    );
    if let Some((_, url)) = &metrics {
        context.report.note(format_args!("figures at {url}"));
    }
    if let Some((_, url)) = &dashboard {
        context.report.note(format_args!("dashboard at {url}"));
    }
    if args.state.place.is_none() {
        context.report.note("without `--state` nothing that is decided here survives this process");
    }
    let ended = loop {
        if context.interrupt.check().is_err() {
            break Ok(130);
        }
        if terminate.asked() {
            break Ok(0);
        }
        if let Some(error) = running.failed().now_or_never() {
            break Err(error);
        }
    };
    drop(acting);
    drop((metrics, dashboard));
    threads.block_on(running.stop());
    // The object was printed when it began.
    ended.map(|code| Done { object: None, code })
}
