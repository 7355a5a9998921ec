//! The arguments of each command, as typed. Defaults that depend on a pipeline file are told in the help, not set here.

use super::data::{DataArgs, HowArgs, option_pair};
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `forebay info`.
#[derive(Debug, Args)]
pub(crate) struct InfoArgs {
    /// A folder, shards (`train-{000..146}.tar`, `shards/*.tar`), a manifest `x.fbm`, any of them behind `s3://`,
    /// `https://` or `ais://`, a table `cassandra://host/keyspace/table`, or `synthetic://`.
    #[arg(value_name = "SPEC", required_unless_present = "pipeline")]
    pub(crate) spec: Vec<String>,
    /// A pipeline file whose `[data]` is meant, which may be a mix of several datasets.
    #[arg(long, value_name = "FILE.toml", conflicts_with = "spec")]
    pub(crate) pipeline: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) how: HowArgs,
    /// How many of the first keys to show.
    #[arg(long, default_value_t = 5, value_name = "N")]
    pub(crate) keys: u64,
}

/// `forebay verify`.
#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    pub(crate) data: DataArgs,
    /// Look at headers only; payloads are not read.
    #[arg(long)]
    pub(crate) no_decode: bool,
    /// Let warnings fail it too.
    #[arg(long)]
    pub(crate) strict: bool,
    /// Print at most this many findings; all are counted.
    #[arg(long, default_value_t = 1000, value_name = "N")]
    pub(crate) limit: u64,
    /// Add every sample with a bad payload to this file, which loaders take as `quarantine`.
    #[arg(long, value_name = "FILE")]
    pub(crate) quarantine: Option<PathBuf>,
}

/// `forebay index`.
#[derive(Debug, Args)]
pub(crate) struct IndexArgs {
    #[command(flatten)]
    pub(crate) data: DataArgs,
    /// Also write the manifest to this file, which can be opened like a dataset.
    #[arg(long, value_name = "FILE.fbm")]
    pub(crate) out: Option<PathBuf>,
    /// Build it even when the kept one is still true.
    #[arg(long)]
    pub(crate) rebuild: bool,
}

/// `forebay pack`.
#[derive(Debug, Args)]
pub(crate) struct PackArgs {
    /// The dataset: usually a folder of files; anything `info` understands.
    #[arg(value_name = "DIR")]
    pub(crate) from: String,
    /// The folder for the shards; it is made when it is missing.
    #[arg(value_name = "OUT", required_unless_present = "to")]
    pub(crate) out: Option<PathBuf>,
    /// A store for the shards instead of a folder, such as `s3://bucket/shards/`; a table, `cassandra://`, takes a row
    /// for each sample, as `ingest` writes them.
    #[arg(long, value_name = "URL", conflicts_with = "out")]
    pub(crate) to: Option<String>,
    /// What that store is told, such as `endpoint=http://127.0.0.1:9000`; may be given several times.
    #[arg(long, value_name = "NAME=VALUE", value_parser = option_pair, requires = "to")]
    pub(crate) to_option: Vec<(String, String)>,
    /// Shards are called PREFIX-000000.tar and so on.
    #[arg(long, default_value = "train", value_name = "PREFIX")]
    pub(crate) prefix: String,
    /// Most samples of one shard.
    #[arg(long, default_value_t = 100_000, value_name = "N")]
    pub(crate) max_count: u64,
    /// Most bytes of one shard, such as `500MB` or `1GiB`.
    #[arg(long, default_value = "1GiB", value_name = "SIZE")]
    pub(crate) max_bytes: String,
    /// Write samples in a random order that depends on the seed only.
    #[arg(long)]
    pub(crate) shuffle: bool,
    /// Seed of the order.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) seed: u64,
    /// Replace shards that exist already.
    #[arg(long)]
    pub(crate) overwrite: bool,
    #[command(flatten)]
    pub(crate) how: HowArgs,
}

/// `forebay show`.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The dataset; may be left out when the pipeline names it.
    #[arg(value_name = "SPEC", required_unless_present = "pipeline")]
    pub(crate) spec: Vec<String>,
    /// The recipe, as TOML (`[[recipe]]`) or JSON.
    #[arg(long, value_name = "FILE", required_unless_present = "pipeline")]
    pub(crate) recipe: Option<PathBuf>,
    /// A pipeline file with data, recipe and loader settings; flags win over it.
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) pipeline: Option<PathBuf>,
    /// The epoch, counted from 0.
    #[arg(long, default_value_t = 0, value_name = "E")]
    pub(crate) epoch: u64,
    /// The batch of this rank in that epoch, counted from 0.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) batch: u64,
    /// Samples of one batch and rank. [default: 1]
    #[arg(long, value_name = "B")]
    pub(crate) batch_size: Option<u64>,
    /// Seed of order and of random ops. [default: 0]
    #[arg(long, value_name = "S")]
    pub(crate) seed: Option<u64>,
    /// The order: `true` is `block` for shards and `full` for one file per sample. [default: false]
    #[arg(long, value_name = "true|false|full|block|resample", num_args = 0..=1, default_missing_value = "true")]
    pub(crate) shuffle: Option<String>,
    /// Samples of an epoch of a mix or of `--shuffle resample`. [default: all]
    #[arg(long, value_name = "N")]
    pub(crate) epoch_samples: Option<u64>,
    /// What happens to samples that do not fill a last batch. [default: partial]
    #[arg(long, value_name = "partial|drop|pad|wrap")]
    pub(crate) last_batch: Option<String>,
    /// The rank whose batch it is. [default: 0]
    #[arg(long, value_name = "R")]
    pub(crate) rank: Option<u64>,
    /// Number of ranks. [default: 1]
    #[arg(long, value_name = "W")]
    pub(crate) world_size: Option<u64>,
    /// Write tensors as `.npy`, and payloads and text as files, into this folder.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) how: HowArgs,
}

/// `forebay demo`.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Images in the dataset.
    #[arg(long, default_value_t = 1000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub(crate) samples: u64,
    /// Milliseconds of one step of the accelerator.
    #[arg(long, default_value_t = 20.0, value_name = "MS")]
    pub(crate) step_ms: f64,
    /// Passes over the dataset.
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) epochs: u64,
    /// Images of one batch.
    #[arg(long, default_value_t = 32, value_name = "B", value_parser = clap::value_parser!(u64).range(1..=65_536))]
    pub(crate) batch_size: u64,
    /// Where the dataset is made; a folder for temporary files when not given.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Leave the dataset there.
    #[arg(long)]
    pub(crate) keep: bool,
    /// Write down in this folder what was received, for `forebay ledger`.
    #[arg(long, value_name = "DIR")]
    pub(crate) ledger: Option<PathBuf>,
}

/// `forebay config`.
#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) command: ConfigCommand,
}

/// What can be done with configuration.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print a pipeline as it will run: units, defaults and all faults at once.
    #[command(after_help = "Example:
  forebay config show --pipeline pipeline.toml --json")]
    Show(ConfigShowArgs),
}

/// `forebay config show`.
#[derive(Debug, Args)]
pub(crate) struct ConfigShowArgs {
    /// The pipeline file.
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) pipeline: PathBuf,
}

/// `forebay bench`.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Passed on to `forebay.bench`.
    #[arg(value_name = "ARGS", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) passed: Vec<String>,
}

/// `forebay reference`.
#[derive(Debug, Args)]
pub(crate) struct ReferenceArgs {
    /// Compare with this file instead of printing.
    #[arg(long, value_name = "FILE")]
    pub(crate) check: Option<PathBuf>,
}

/// `forebay cache-host`.
#[derive(Debug, Args)]
pub(crate) struct CacheHostArgs {
    /// Where to listen; the default is a socket of this user.
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Memory for payloads, for example `64GiB`.
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: String,
    /// A directory for what memory does not hold, and its size: `DIR:SIZE`.
    #[arg(long, value_name = "DIR:SIZE")]
    pub(crate) disk: Option<String>,
    /// Seconds to stay when nobody is connected.
    #[arg(long, default_value_t = 5.0, value_name = "SECONDS")]
    pub(crate) grace: f64,
}
