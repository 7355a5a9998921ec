//! The arguments of `ledger`, as typed and as meant.

use super::Data;
use super::data::HowArgs;
use crate::pipeline::RawPipeline;
use clap::{Args, Subcommand};
use forebay_core::{Error, Result};
use std::path::PathBuf;

/// `forebay ledger`.
#[derive(Debug, Args)]
pub(crate) struct LedgerArgs {
    #[command(subcommand)]
    pub(crate) command: LedgerCommand,
}

/// What can be asked of a ledger.
#[derive(Debug, Subcommand)]
pub(crate) enum LedgerCommand {
    /// Prove that every sample was received exactly once, over all restarts and numbers of ranks.
    ///
    /// Every finished epoch must have every sample once; what an abandoned run received beyond the place where a later one
    /// began does not count. Gaps, doubles and batches with other rows than planned are named with rank and step. Exits
    /// with 3 when there are any. Without the dataset, orders that depend on it are checked by position alone.
    #[command(after_help = "Examples:
  forebay ledger check runs/ledger 'shards/train-{000000..000146}.tar'
  forebay ledger check --pipeline train.toml --json")]
    Check(LedgerCheckArgs),

    /// Show which step of which rank received a sample.
    #[command(after_help = "Examples:
  forebay ledger where 81234 runs/ledger 'shards/train-{000000..000146}.tar'
  forebay ledger where n01440764/10026 runs/ledger shards/ --json")]
    Where(LedgerWhereArgs),
}

/// `forebay ledger check`.
#[derive(Debug, Args)]
pub(crate) struct LedgerCheckArgs {
    /// The folder that loaders were given as `ledger`.
    #[arg(value_name = "DIR", required_unless_present = "pipeline")]
    pub(crate) folder: Option<PathBuf>,
    /// The dataset that was read: anything `info` understands.
    #[arg(value_name = "DATASET")]
    pub(crate) dataset: Vec<String>,
    /// A pipeline file that names the folder, as `ledger` under `[loader]`, and the dataset; both may be given instead.
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) pipeline: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) how: HowArgs,
    /// Let skipped, filtered and substituted samples fail it too.
    #[arg(long)]
    pub(crate) strict: bool,
    /// Name at most this many faults of an epoch; all are counted.
    #[arg(long, default_value_t = 10, value_name = "N")]
    pub(crate) limit: u32,
}

/// `forebay ledger where`.
#[derive(Debug, Args)]
pub(crate) struct LedgerWhereArgs {
    /// The sample: its id, or its key when the dataset is named too.
    #[arg(value_name = "ID")]
    pub(crate) sample: String,
    /// The folder that loaders were given as `ledger`.
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// The dataset that was read: anything `info` understands.
    #[arg(value_name = "DATASET")]
    pub(crate) dataset: Vec<String>,
    #[command(flatten)]
    pub(crate) how: HowArgs,
}

impl LedgerCheckArgs {
    /// The folder, and the dataset when it is known.
    pub(crate) fn resolve(&self) -> Result<(PathBuf, Option<Data>)> {
        let given = data(&self.dataset, &self.how)?;
        let Some(path) = &self.pipeline else {
            return Ok((self.folder.clone().unwrap_or_default(), given));
        };
        let pipeline = RawPipeline::read(path)?.resolve()?;
        let folder = self.folder.clone().or_else(|| pipeline.loader.ledger().map(PathBuf::from));
        let folder = folder.ok_or_else(|| {
            Error::invalid_config(format!("check ledger: `{}` names none", path.display()))
                .with_hint("add `ledger` under `[loader]`, or give DIR")
        })?;
        Ok((folder, given.or(pipeline.data)))
    }
}

impl LedgerWhereArgs {
    /// The dataset, when it is known.
    pub(crate) fn resolve(&self) -> Result<Option<Data>> {
        data(&self.dataset, &self.how)
    }
}

fn data(spec: &[String], how: &HowArgs) -> Result<Option<Data>> {
    if spec.is_empty() { Ok(None) } else { how.resolve(spec.to_vec()).map(Some) }
}
