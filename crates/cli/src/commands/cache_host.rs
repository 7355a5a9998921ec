//! `forebay cache-host`: the process that holds the cache's memory for all others of this host.
//!
//! Nobody needs to run it: loaders start it when it is missing, and it leaves some seconds after the last of them.

use super::{Context, Done};
use crate::args::CacheHostArgs;
use forebay_core::size::parse_bytes;
use forebay_core::{Error, Result};
use forebay_engine::cache::{CacheConfig, DiskKeeper, Keeper};
use forebay_net::Threads;
use forebay_net::host::{HostOptions, default_socket, serve_host};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

pub(super) fn run(args: &CacheHostArgs, context: &Context) -> Result<Done> {
    let memory = parse_bytes(&args.memory).map_err(|error| error.while_doing("read `--memory`"))?;
    let grace = Duration::try_from_secs_f64(args.grace)
        .map_err(|error| Error::invalid_config("read `--grace`: it is no time").with_source(error))?;
    let socket = args.socket.clone().map_or_else(default_socket, Ok)?;
    let threads = Threads::shared()?;
    let behind = match &args.disk {
        Some(disk) => {
            let config = CacheConfig::from_json(&json!({ "disk": disk }))?;
            config
                .disk
                .as_ref()
                .map(DiskKeeper::open)
                .transpose()?
                .map(|disk| Arc::new(disk) as Arc<dyn Keeper>)
        }
        None => None,
    };
    let options = HostOptions { socket: socket.clone(), memory, grace, behind };
    let served = threads.clone().block_on(serve_host(options, threads))?;
    if !served {
        context.report.line(format_args!("another process serves `{}` already", socket.display()));
    }
    Ok(Done::with(json!({ "socket": socket.display().to_string(), "served": served })))
}
