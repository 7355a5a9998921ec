//! `forebay-objects`: an object server on loopback for benches: made-up objects, or the files of a folder.
//!
//! Prints `{"port": ...}` when it is ready and its counts when standard input closes or SIGTERM comes.

use clap::Parser;
use forebay_core::{Error, Result};
use forebay_testkit::program;
use forebay_testkit::server::{BUCKET, Objects, SlowServer};
use serde_json::json;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Serves objects over HTTP at `/KEY` and over S3 in path style at `/bucket/KEY`.
#[derive(Parser)]
#[command(name = "forebay-objects")]
struct Args {
    /// Number of objects; with `--dir`, the files are served again and again under so many keys.
    #[arg(long)]
    objects: Option<u64>,
    /// Bytes of each made-up object.
    #[arg(long, default_value_t = 115_000)]
    bytes: u64,
    /// Serve the files of this folder.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Where clients connect; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
}

fn run(args: &Args) -> Result<()> {
    let objects = match (&args.dir, args.objects) {
        (Some(folder), count) => Objects::new().folder(folder, count)?,
        (None, Some(count)) => Objects::new().many(count, args.bytes),
        (None, None) => {
            return Err(Error::invalid_config("serve objects: there are none")
                .with_hint("give --objects N and --bytes B, or --dir PATH"));
        }
    };
    let count = objects.len();
    let server = SlowServer::start_at(args.listen, objects)?;
    let (port, url) = (server.address().port(), server.url());
    program::print(&json!({ "port": port, "url": url, "bucket": BUCKET, "objects": count }));
    program::wait_for_end(Duration::ZERO, || {})?;
    let counts = server.counts();
    program::print(&json!({
        "requests": counts.requests,
        "bytes": counts.bytes,
        "connections": counts.connections,
        "most_open": counts.most_open,
    }));
    Ok(())
}

fn main() -> ExitCode {
    program::finish(run(&Args::parse()))
}
