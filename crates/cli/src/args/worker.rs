//! The arguments of `forebay share` and `forebay worker`, and what they mean.

use super::service::{CredentialArgs, DashboardArgs, MetricsArgs};
use clap::{Args, ValueEnum};
use forebay_core::size::parse_bytes;
use forebay_core::staging::Late;
use forebay_core::{Error, Result};
use forebay_engine::cache::CacheConfig;
use forebay_net::launcher::{Launch, dispatcher_address};
use forebay_net::service::Address;
use forebay_net::service::worker::{RealMakers, WorkerOptions};
use forebay_ops::{BufferPool, Functions};
use serde_json::Value;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// `forebay share`.
#[derive(Debug, Args)]
pub(crate) struct ShareArgs {
    /// Where to listen; the default is a socket of this user.
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) how: MakingArgs,
    #[command(flatten)]
    pub(crate) metrics: MetricsArgs,
    #[command(flatten)]
    pub(crate) dashboard: DashboardArgs,
    /// Leave some time after the last job; for loaders that start it when it is missing.
    #[arg(long, hide = true)]
    pub(crate) on_demand: bool,
}

/// `forebay worker`.
#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    /// The dispatcher: `forebay://host:port`; several that share an etcd as `forebay://host:port,host:port`. `auto` in a job
    /// of Slurm or torchrun: port 7077 of its first node.
    #[arg(long, value_name = "URL")]
    pub(crate) dispatcher: String,
    /// Where to listen for jobs; port 0 is any free one. `auto` is any port where the others of a Slurm or torchrun job
    /// reach it.
    #[arg(long, default_value = "127.0.0.1:0", value_name = "HOST:PORT")]
    pub(crate) listen: String,
    /// Where jobs find it, when that is not where it listens; port 0 is the one at which it listens.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) advertise: Option<String>,
    /// What jobs may choose it by, such as `site=eu`; may be given several times.
    #[arg(long = "tag", value_name = "TAG")]
    pub(crate) tags: Vec<String>,
    /// How jobs of this user on this machine get batches.
    #[arg(long, value_enum, default_value = "memory", value_name = "HOW")]
    pub(crate) same_host: SameHost,
    #[command(flatten)]
    pub(crate) how: MakingArgs,
    #[command(flatten)]
    pub(crate) metrics: MetricsArgs,
    #[command(flatten)]
    pub(crate) credentials: CredentialArgs,
}

/// How batches are made and held.
#[derive(Debug, Args)]
pub(crate) struct MakingArgs {
    /// Memory for prepared batches, over all feeds.
    #[arg(long, default_value = "2GiB", value_name = "SIZE")]
    pub(crate) staging: String,
    /// What happens to batches that a job is late to take. [default: what the first job of a feed says]
    #[arg(long, value_enum, value_name = "POLICY")]
    pub(crate) late: Option<LateWord>,
    /// A folder for late batches with `--late spill`.
    #[arg(long, value_name = "DIR")]
    pub(crate) spill: Option<PathBuf>,
    /// Disk space that these may take.
    #[arg(long, default_value = "64GiB", value_name = "SIZE")]
    pub(crate) spill_size: String,
    /// Preparing threads of each feed. [default: one per processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=4096))]
    pub(crate) threads: Option<u64>,
    /// What is kept of the payloads: a size such as `64GiB`, or a table as JSON as under `[loader]`.
    #[arg(long, value_name = "CACHE")]
    pub(crate) cache: Option<String>,
    /// Seconds that feeds stay open after their last job, and a shared process that was started by a loader.
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS")]
    pub(crate) grace: f64,
    /// Python functions that recipes of jobs may call here, as `module:name`; may be given several times. No other is
    /// imported. [default: none]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) functions: Vec<String>,
}

/// How jobs of the worker's own machine get batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SameHost {
    /// As shared memory, without a copy.
    Memory,
    /// Over TCP, as jobs elsewhere.
    Tcp,
}

/// What happens to late batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LateWord {
    /// Dropped, and made again when they are asked for.
    Remake,
    /// Kept: the fastest job waits.
    Wait,
    /// Written to disk.
    Spill,
    /// Dropped for good, and counted.
    Skip,
}

impl From<LateWord> for Late {
    fn from(word: LateWord) -> Self {
        match word {
            LateWord::Remake => Self::Remake,
            LateWord::Wait => Self::Wait,
            LateWord::Spill => Self::Spill,
            LateWord::Skip => Self::Skip,
        }
    }
}

/// What a worker is started with.
pub(crate) struct WorkerPlan {
    pub(crate) options: WorkerOptions,
    pub(crate) makers: RealMakers,
    pub(crate) grace: Duration,
}

impl MakingArgs {
    /// A worker that listens there. Where batches are handed over as shared memory they are made in such.
    pub(crate) fn resolve(&self, listen: Address, shared: bool) -> Result<WorkerPlan> {
        let bytes = |flag: &str, text: &str| {
            parse_bytes(text).map_err(|error| error.while_doing(format!("read `{flag}`")))
        };
        let staging_bytes = bytes("--staging", &self.staging)?;
        if staging_bytes == 0 {
            return Err(Error::invalid_config("read `--staging`: it is nothing"));
        }
        let grace = Duration::try_from_secs_f64(self.grace)
            .map_err(|error| Error::invalid_config("read `--grace`: it is no time").with_source(error))?;
        let late = self.late.map(Late::from);
        if late == Some(Late::Spill) && self.spill.is_none() {
            let why = "spill late batches: no folder was named";
            return Err(Error::invalid_config(why).with_hint("give `--spill DIR`"));
        }
        // Memory that is used again costs no page faults. What lies idle is a part of what `--staging` allows.
        let pool = BufferPool::within(usize::try_from(staging_bytes).unwrap_or(usize::MAX), shared);
        let unsound = |name: &&String| {
            name.split_once(':').is_none_or(|(module, name)| module.is_empty() || name.is_empty())
        };
        if let Some(name) = self.functions.iter().find(unsound) {
            return Err(Error::invalid_config(format!("read `--functions`: `{name}` is not `module:name`")));
        }
        let makers = RealMakers {
            threads: self.threads.map(|threads| threads as usize),
            memory_bytes: None,
            cache: self.cache.as_deref().map(cache).transpose()?,
            command: cache_host()?,
            pool: pool.clone(),
            functions: Functions::Allowed(self.functions.clone().into()),
        };
        let options = WorkerOptions {
            staging_bytes,
            late,
            spill: self.spill.clone(),
            spill_bytes: bytes("--spill-size", &self.spill_size)?,
            grace,
            pool,
            ..WorkerOptions::new(listen)
        };
        Ok(WorkerPlan { options, makers, grace })
    }
}

impl WorkerArgs {
    /// Where the dispatcher is, where to listen, and where jobs find it; `auto` is what the launcher of this job says.
    pub(crate) fn places(&self) -> Result<(String, String, Option<String>)> {
        let dispatcher = dispatcher_address(&self.dispatcher)?;
        if self.listen != "auto" {
            return Ok((dispatcher, self.listen.clone(), self.advertise.clone()));
        }
        let (listen, advertise) = Launch::from_environment()?.listen(0)?;
        Ok((dispatcher, listen, self.advertise.clone().or(advertise)))
    }
}

/// The command that holds a cache which all processes of a host share.
fn cache_host() -> Result<Vec<OsString>> {
    Ok([program()?, vec!["cache-host".into()]].concat())
}

/// Program and first arguments of `forebay` itself.
pub(crate) fn program() -> Result<Vec<OsString>> {
    let program = std::env::current_exe().map_err(|error| Error::io("find this program", error))?;
    // Inside the wheel this program is Python.
    let python = program.file_stem().is_some_and(|name| name.to_string_lossy().starts_with("python"));
    let module = ["-m", "forebay"].iter().filter(|_| python);
    Ok([program.into()].into_iter().chain(module.map(OsString::from)).collect())
}

/// A size, or a table as JSON.
fn cache(text: &str) -> Result<CacheConfig> {
    let value = if text.trim_start().starts_with('{') {
        serde_json::from_str(text)
            .map_err(|error| Error::invalid_config("read `--cache`: it is no JSON").with_source(error))?
    } else {
        Value::String(text.to_owned())
    };
    CacheConfig::from_json(&value).map_err(|error| error.while_doing("read `--cache`"))
}
