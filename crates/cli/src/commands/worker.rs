//! `forebay worker`: makes batches for jobs anywhere, as a dispatcher says.

use super::{Context, Done};
use crate::args::{SameHost, WorkerArgs};
use crate::interrupt::Termination;
use forebay_core::Result;
use forebay_engine::available_threads;
use forebay_net::Threads;
use forebay_net::dispatcher::{Control, ControlOptions};
use forebay_net::service::Address;
use forebay_net::service::worker::{DispatcherReports, Running, serve};
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the dispatcher hears of it.
const BEAT: Duration = Duration::from_secs(1);
/// How long requests that crossed the news of draining may take to arrive.
const CROSSING: Duration = Duration::from_secs(1);

pub(super) fn run(args: &WorkerArgs, context: &Context) -> Result<Done> {
    let mut terminate = Termination::new()?;
    let credentials = args.credentials.resolve()?;
    let (dispatcher, listen, advertise) = args.places()?;
    let near = args.same_host == SameHost::Memory;
    let mut plan = args.how.resolve(Address::Tcp(listen), near)?;
    plan.options.near = near;
    let options = ControlOptions { address: dispatcher, credentials: credentials.clone() };
    let control = Control::new(&options, Threads::shared()?)?;
    let slots = plan.makers.threads.unwrap_or_else(available_threads);
    let reports = DispatcherReports::new(control, advertise, slots)?.with_tags(args.tags.clone());
    let id = reports.worker();
    plan.options.credentials = credentials;
    plan.options.reports = Some((Arc::new(reports), BEAT));
    let mut running = serve(plan.options, Arc::new(plan.makers))?;
    let address = running.address().to_string();
    let metrics = args.metrics.start(running.pages())?;
    let shown = metrics.as_ref().map(|(_, url)| url);
    // Whoever started us reads where it is from the first line.
    context.report.line(format_args!("{address} worker {id}"));
    context.report.object(&json!({ "address": address, "worker": id.to_string(), "metrics": shown }));
    if let Some((_, url)) = &metrics {
        context.report.note(format_args!("figures at {url}"));
    }
    let code = watch(&running, &mut terminate, context)?;
    drop(metrics);
    running.stop();
    Ok(Done { object: None, code })
}

/// Runs until it is interrupted, or has drained. A second SIGTERM does not wait for that.
fn watch(running: &Running, terminate: &mut Termination, context: &Context) -> Result<i32> {
    let mut draining_since: Option<Instant> = None;
    loop {
        if context.interrupt.check().is_err() {
            return Ok(130);
        }
        if terminate.asked() {
            if draining_since.is_some() {
                return Ok(143);
            }
            context.report.note("draining: what was asked for is answered; a second signal ends it now");
            running.start_draining();
        }
        if running.is_draining() {
            let since = *draining_since.get_or_insert_with(Instant::now);
            if since.elapsed() >= CROSSING && !running.is_busy() {
                return Ok(0);
            }
        }
    }
}
