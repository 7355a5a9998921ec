//! `forebay status`, `forebay top`, `forebay scale` and `forebay drain`: what a dispatcher or a host's process knows, and a word to it.
//!
//! `service` writes the view of a dispatcher for people, `host` that of the process which jobs of a host share.

mod host;
mod service;

use super::{Context, Done, count, counted, size};
use crate::args::{AskArgs, DrainArgs, TopArgs};
use forebay_core::dispatcher::{Command, Reply, View, WorkerId};
use forebay_core::scale::Wanted;
use forebay_core::{Error, Result};
use forebay_net::dispatcher::{Control, ControlOptions};
use forebay_net::launcher::dispatcher_address;
use forebay_net::service::Address;
use forebay_net::service::worker::{WorkerView, share_socket, show};
use forebay_net::{Credentials, Threads};
use serde::Serialize;
use serde_json::json;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How often `top` draws.
const REDRAW: Duration = Duration::from_secs(1);

/// Puts the cursor at the top and clears what is below.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

pub(super) fn status(args: &AskArgs, context: &Context) -> Result<Done> {
    let shown = Asked::new(args)?.look()?;
    for line in shown.lines(None) {
        context.report.line(line);
    }
    shown.object()
}

pub(super) fn top(args: &TopArgs, context: &Context) -> Result<Done> {
    let asked = Asked::new(&args.ask)?;
    let mut before = None;
    loop {
        let (shown, now) = (asked.look()?, Instant::now());
        let lines = shown.lines(before.as_ref().map(|(shown, at)| (shown, now - *at)));
        if args.once || !context.report.draws() {
            for line in lines {
                context.report.line(line);
            }
            return shown.object();
        }
        context.report.line(format_args!("{CLEAR}{}", lines.join("\n")));
        before = Some((shown, now));
        context.interrupt.sleep(REDRAW)?;
    }
}

pub(super) fn drain(args: &DrainArgs, context: &Context) -> Result<Done> {
    let worker: WorkerId = args.worker.parse()?;
    let Asked::Dispatcher { control, wait } = Asked::new(&args.ask)? else {
        return Err(Error::invalid_config(format!(
            "drain a worker of `{}`: it is no dispatcher",
            args.ask.url
        ))
        .with_hint("a host's process leaves by itself, or with SIGTERM"));
    };
    control.call(&Command::DrainWorker { worker }, wait)?;
    context
        .report
        .line(format_args!("worker {worker} gets no more spans; it may be stopped when it has none left"));
    Ok(Done::with(json!({ "worker": worker, "draining": true })))
}

pub(super) fn scale(args: &AskArgs, context: &Context) -> Result<Done> {
    let Shown::Service(view) = Asked::new(args)?.look()? else {
        return Err(Error::invalid_config(format!("scale `{}`: it is no dispatcher", args.url)));
    };
    let Wanted { workers, why, seen, .. } = view.scale;
    // Alone on the line, so that a script can take it as it is.
    context.report.line(workers);
    context.report.note(format_args!("{}: {}", counted(seen.workers, "worker"), service::reason(why)));
    Ok(Done::with(forebay_net::scale::object(&view.scale)))
}

/// Whom a command asks.
enum Asked {
    Dispatcher { control: Control, wait: Duration },
    Host(Address),
}

/// What it answered.
enum Shown {
    Service(View),
    Host(WorkerView),
}

impl Asked {
    fn new(args: &AskArgs) -> Result<Self> {
        if let Some(socket) = socket(&args.url)? {
            return Ok(Self::Host(Address::Unix(socket)));
        }
        let wait = Duration::try_from_secs_f64(args.wait)
            .map_err(|error| Error::invalid_config("read `--wait`: it is no time").with_source(error))?;
        let address = dispatcher_address(&args.url)?;
        let options = ControlOptions { address, credentials: args.credentials.resolve()? };
        Ok(Self::Dispatcher { control: Control::new(&options, Threads::shared()?)?, wait })
    }

    fn look(&self) -> Result<Shown> {
        match self {
            Self::Host(address) => show(address, &Credentials::default()).map(Shown::Host),
            Self::Dispatcher { control, wait } => match control.call(&Command::View, *wait)? {
                Reply::View(view) => Ok(Shown::Service(*view)),
                _ => Err(Error::internal("the dispatcher answered something else")),
            },
        }
    }
}

impl Shown {
    /// For people. What a host's process did since it was looked at last makes its rates.
    fn lines(&self, before: Option<(&Self, Duration)>) -> Vec<String> {
        match (self, before) {
            (Self::Service(view), _) => service::lines(view),
            (Self::Host(view), Some((Self::Host(before), passed))) => {
                host::lines(view, Some((before, passed)))
            }
            (Self::Host(view), _) => host::lines(view, None),
        }
    }

    fn object(&self) -> Result<Done> {
        fn written(view: &impl Serialize) -> Result<Done> {
            let object = serde_json::to_value(view);
            object
                .map(Done::with)
                .map_err(|error| Error::internal("write the view as JSON").with_source(error))
        }
        match self {
            Self::Service(view) => written(view),
            Self::Host(view) => written(view),
        }
    }
}

/// The socket of a host's process, when that is what is meant.
fn socket(url: &str) -> Result<Option<PathBuf>> {
    match url.strip_prefix("unix://") {
        Some(path) => Ok(Some(path.into())),
        None if url == "auto" => share_socket().map(Some),
        None => Ok(None),
    }
}

/// Rows in columns as wide as their widest cell.
fn table<const N: usize>(head: &[&str; N], rows: impl Iterator<Item = Vec<String>>) -> Vec<String> {
    let rows: Vec<Vec<String>> =
        std::iter::once(head.iter().map(ToString::to_string).collect()).chain(rows).collect();
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..N).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        format!("  {}", cells.collect::<Vec<_>>().join("  ")).trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}
