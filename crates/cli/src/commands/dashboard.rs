//! `forebay dashboard`: shows a page about others until someone asks it to stop.

use super::{Context, Done};
use crate::args::LookArgs;
use crate::dashboard::{attached, start};
use crate::interrupt::SLICE;
use forebay_core::Result;
use forebay_net::MetricsOptions;
use serde_json::json;

pub(super) fn run(args: &LookArgs, context: &Context) -> Result<Done> {
    let options = MetricsOptions::new(&args.listen, args.dashboard_token_file.as_deref())?;
    let sources = args.attach.iter();
    let sources = sources.map(|url| attached(url, &args.credentials, args.metrics_token_file.as_deref()));
    let server = start(&options, sources.collect::<Result<_>>()?)?;
    // Whoever started us reads where it is from the first line.
    let url = format!("http://{}/", server.address());
    context.report.line(&url);
    context.report.object(&json!({ "url": url, "attached": args.attach }));
    while context.interrupt.sleep(SLICE).is_ok() {}
    drop(server);
    // The object was printed when it began.
    Ok(Done { object: None, code: 130 })
}
