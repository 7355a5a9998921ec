//! The commands, a file each, and what they share: opening a dataset with a progress bar.
//!
//! A command says things to people while it works and returns a [`Done`]: the object that `--json` prints and the
//! exit code. Errors are returned, never printed here.

mod analyze;
pub(crate) mod bench;
mod cache;
mod cache_host;
mod cache_show;
mod cache_warm;
mod capacity;
mod config;
mod credentials;
mod dashboard;
mod demo;
mod dispatcher;
mod index;
mod info;
#[cfg(feature = "cassandra")]
mod ingest;
mod kept;
mod ledger;
mod materialize;
mod order;
mod pack;
mod reference;
mod reshard;
mod share;
mod show;
mod split;
mod stage;
mod status;
mod tokenize;
mod verify;
mod worker;

use crate::args::{Command, ConfigCommand, Data, PackPlan};
use crate::interrupt::Interrupt;
use crate::progress::Progress;
use crate::report::Report;
use forebay_core::{Error, ErrorKind, Result};
use forebay_engine::source::{self, Dataset, OpenOptions, ProgressFn};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

/// How a command ended when it did not fail.
#[derive(Debug)]
pub(crate) struct Done {
    /// What `--json` prints.
    pub(crate) object: Option<Value>,
    pub(crate) code: i32,
}

impl Done {
    fn with(object: Value) -> Self {
        Self { object: Some(object), code: 0 }
    }
}

/// What every command has at hand.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) report: Report,
    pub(crate) interrupt: Interrupt,
}

/// Runs a command.
pub(crate) fn run(command: Command, context: &Context) -> Result<Done> {
    match command {
        Command::Info(args) => info::run(&args, context),
        Command::Verify(args) => verify::run(&args, context),
        Command::Index(args) => index::run(&args, context),
        Command::Pack(args) => pack(args.resolve()?, context),
        Command::Convert(args) => reshard::run(&args.resolve()?, context),
        Command::Reshard(args) => reshard::run(&args.resolve()?, context),
        Command::Tokenize(args) => tokenize::run(&args.resolve()?, context),
        Command::Stage(args) => stage::run(&args.resolve()?, context),
        Command::Materialize(args) => materialize::run(&args.resolve()?, context),
        #[cfg(feature = "cassandra")]
        Command::Ingest(args) => ingest::run(&args.resolve()?, context),
        #[cfg(not(feature = "cassandra"))]
        Command::Ingest(args) => Err(forebay_core::Error::unsupported(format!(
            "ingest into `{}`: this build leaves tables out",
            args.to
        ))
        .with_hint("build it with the feature `cassandra`")),
        Command::Split(args) => split::run(&args.resolve()?, context),
        Command::Show(args) => show::run(&args.resolve()?, context),
        Command::Order(args) => order::run(&args.resolve()?, context),
        Command::Ledger(args) => ledger::run(&args.command, context),
        Command::Demo(args) => demo::run(&args.resolve()?, context),
        Command::Analyze(args) => analyze::run(&args.resolve()?, context),
        Command::Plan(args) => capacity::run(&args.resolve()?, context),
        Command::Config(args) => match args.command {
            ConfigCommand::Show(args) => config::show(&args, context),
        },
        Command::Cache(args) => cache::run(&args.command, context),
        Command::Dispatcher(args) => dispatcher::run(&args, context),
        Command::Dashboard(args) => dashboard::run(&args, context),
        Command::Status(args) => status::status(&args, context),
        Command::Top(args) => status::top(&args, context),
        Command::Scale(args) => status::scale(&args, context),
        Command::Drain(args) => status::drain(&args, context),
        Command::Credentials(args) => credentials::run(&args, context),
        Command::Share(args) => share::run(&args, context),
        Command::Worker(args) => worker::run(&args, context),
        Command::Bench(args) => bench::run(&args.passed),
        Command::Version => Ok(version(context)),
        Command::CacheHost(args) => cache_host::run(&args, context),
        Command::Reference(args) => reference::run(&args, context),
    }
}

/// Shards into a folder or a store; a table takes rows instead.
fn pack(plan: PackPlan, context: &Context) -> Result<Done> {
    #[cfg(feature = "cassandra")]
    if plan.is_for_table() {
        return ingest::run(&plan.into_rows(), context);
    }
    pack::run(&plan, context)
}

fn version(context: &Context) -> Done {
    let version = env!("CARGO_PKG_VERSION");
    context.report.line(format_args!("forebay {version}"));
    Done::with(json!({ "version": version }))
}

impl Context {
    pub(crate) fn new(report: Report, interrupt: Interrupt) -> Self {
        Self { report, interrupt }
    }

    /// Opens a dataset, with a bar while it is indexed. What happened on the way is noted.
    fn open(&self, data: &Data) -> Result<Dataset> {
        if !data.parts.is_empty() {
            let parts = data.parts.iter().map(|(part, weight)| Ok((self.open(part)?, *weight)));
            let mixed = source::mix(&parts.collect::<Result<Vec<_>>>()?)?;
            mixed.notes().iter().for_each(|note| self.report.note(note));
            return Ok(mixed);
        }
        let bar = Arc::new(Progress::new(&self.report, "indexing", "objects", 0));
        let opened = self.wait(source::open(&data.spec, &watched(&data.options, &bar)))?;
        let dataset = opened.map_err(|error| with_nearby(error, &data.spec))?;
        drop(bar);
        for note in dataset.notes() {
            self.report.note(note);
        }
        Ok(dataset)
    }

    /// Waits for work of the engine on this thread.
    fn wait<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        self.interrupt.check()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Error::io("start the command's runtime", error))?;
        Ok(runtime.block_on(work))
    }
}

/// Options that draw a bar of objects.
fn watched(options: &OpenOptions, bar: &Arc<Progress>) -> OpenOptions {
    let bar = Arc::clone(bar);
    OpenOptions { progress: Some(drawn(bar)), ..options.clone() }
}

/// Draws what a source tells of its progress.
fn drawn(bar: Arc<Progress>) -> ProgressFn {
    Arc::new(move |now: source::Progress| {
        if now.is_listing {
            bar.found(now.objects_total);
        } else {
            bar.set(now.objects_done, now.objects_total);
        }
    })
}

/// Tells what is near a path that is not there, when nobody has told more yet.
fn with_nearby(error: Error, spec: &[String]) -> Error {
    if error.kind() != ErrorKind::NotFound || error.hint().is_some() {
        return error;
    }
    let mut paths = spec.iter().filter(|part| !part.contains("://")).map(Path::new);
    let missing = paths.find(|path| !path.exists());
    let Some(there) = missing.and_then(|path| path.ancestors().skip(1).find(|folder| is_folder(folder)))
    else {
        return error;
    };
    let there = if there.as_os_str().is_empty() { Path::new(".") } else { there };
    let entries = std::fs::read_dir(there).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| format!("`{}`", entry.file_name().to_string_lossy())).take(1000).collect();
    names.sort();
    names.truncate(5);
    let holds = if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
    error.with_hint(format!("check the path: `{}` is there and holds {holds}", there.display()))
}

/// The empty path, above a relative one, is the folder that the command runs in.
fn is_folder(path: &Path) -> bool {
    path.as_os_str().is_empty() || path.is_dir()
}

/// A size for people.
pub(crate) fn size(bytes: u64) -> String {
    forebay_core::size::format_bytes(bytes)
}

/// A time for people.
fn seconds(seconds: f64) -> String {
    forebay_core::size::format_seconds(seconds)
}

/// A number for people, in groups of three digits.
fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A number with its noun, in the plural unless it is one.
fn counted(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(number), if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    #[test]
    fn large_numbers_are_grouped() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_281_167, "1,281,167")] {
            assert_eq!(super::count(number), text);
        }
        assert_eq!(super::counted(1, "sample"), "1 sample");
        assert_eq!(super::counted(2, "sample"), "2 samples");
    }
}
