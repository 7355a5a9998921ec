//! The arguments of `forebay cache`.

use super::service::CredentialArgs;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `forebay cache`.
#[derive(Debug, Args)]
pub(crate) struct CacheArgs {
    #[command(subcommand)]
    pub(crate) command: CacheCommand,
}

/// What can be done with a cache.
#[derive(Debug, Subcommand)]
pub(crate) enum CacheCommand {
    /// Show what a cache holds, tier by tier: limit, bytes, payloads, hits and ages.
    ///
    /// Of a directory, of the processes that hold memory for all loaders of this host, or of a node that shares with
    /// its peers. A node's token may also be in `FOREBAY_PEER_TOKEN`.
    #[command(after_help = "Examples:
  forebay cache show                        the processes of this host
  forebay cache show /nvme/forebay --json
  forebay cache show node2:7846 --token-file token")]
    Show(CacheShowArgs),

    /// Read every payload of a cache on disk and name each that is damaged with its file and offset.
    ///
    /// Exits with 3 when damage was found. Damaged payloads are never served: a loader fetches them again. `--repair`
    /// takes them out of the cache now.
    #[command(after_help = "Examples:
  forebay cache verify /nvme/forebay
  forebay cache verify /nvme/forebay --repair")]
    Verify(CacheVerifyArgs),

    /// Fill the cache on disk of a pipeline: what a loader would keep and is not there yet is read once.
    ///
    /// The pipeline says which dataset, which fields (by its recipe) and which cache. May be stopped and started again.
    #[command(after_help = "Example:
  forebay cache warm train.toml")]
    Warm(CacheWarmArgs),

    /// Remove a cache from disk: its own files and no others.
    ///
    /// Refuses while a process writes to the cache. The directory itself stays.
    #[command(after_help = "Example:
  forebay cache clear /nvme/forebay --yes")]
    Clear(CacheClearArgs),
}

/// `forebay cache show`.
#[derive(Debug, Args)]
pub(crate) struct CacheShowArgs {
    /// The cache's directory, or a node as `host:port`. Without, the processes of this host.
    #[arg(value_name = "PLACE")]
    pub(crate) place: Option<String>,
    #[command(flatten)]
    pub(crate) credentials: CredentialArgs,
}

/// `forebay cache verify`.
#[derive(Debug, Args)]
pub(crate) struct CacheVerifyArgs {
    /// The cache's directory.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Take damaged payloads out of the cache; refused while a process writes to it.
    #[arg(long)]
    pub(crate) repair: bool,
    /// Print at most this many findings; all are counted.
    #[arg(long, default_value_t = 1000, value_name = "N")]
    pub(crate) limit: u64,
}

/// `forebay cache clear`.
#[derive(Debug, Args)]
pub(crate) struct CacheClearArgs {
    /// The cache's directory.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Do it. Without this, the command says what would go and ends.
    #[arg(long)]
    pub(crate) yes: bool,
}

/// `forebay cache warm`.
#[derive(Debug, Args)]
pub(crate) struct CacheWarmArgs {
    /// The pipeline: `[data]`, `[[recipe]]` and `cache` under `[loader]`.
    #[arg(value_name = "PIPELINE")]
    pub(crate) pipeline: PathBuf,
}
