//! `forebay reshard` and `forebay convert`: their flags, and what they ask for.

use super::Data;
use super::data::HowArgs;
use clap::{Args, ValueEnum};
use forebay_core::size::parse_bytes;
use forebay_core::{Error, Result};
use forebay_engine::reshard::{Order, ReshardOptions, Rest};
use forebay_engine::shard::ShardWriterOptions;
use std::path::{Path, PathBuf};

/// `forebay reshard`.
#[derive(Debug, Args)]
pub(crate) struct ReshardArgs {
    /// The shards, or any other dataset that `info` understands.
    #[arg(value_name = "SPEC")]
    pub(crate) from: String,
    /// The folder for the new shards; it is made when it is missing.
    #[arg(value_name = "OUT")]
    pub(crate) out: PathBuf,
    /// Shards are called PREFIX-000000.tar and so on.
    #[arg(long, default_value = "train", value_name = "PREFIX")]
    pub(crate) prefix: String,
    /// The format of the new shards.
    #[arg(long, value_enum, default_value_t = ShardFormat::Tar, value_name = "FORMAT")]
    pub(crate) format: ShardFormat,
    /// The order of the samples in the new shards.
    #[arg(long, value_enum, default_value_t = OrderBy::Stored, value_name = "ORDER")]
    pub(crate) order: OrderBy,
    /// Seed of the order `shuffled`.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) seed: u64,
    /// A file of keys, one a line, that says the order instead.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["order", "seed"])]
    pub(crate) map: Option<PathBuf>,
    /// Samples that the file of keys leaves out come last, instead of being an error.
    #[arg(long, requires = "map")]
    pub(crate) rest_last: bool,
    /// Most samples of one shard.
    #[arg(long, default_value_t = 100_000, value_name = "N")]
    pub(crate) max_count: u64,
    /// Most bytes of payloads in one shard, such as `500MB` or `1GiB`.
    #[arg(long, default_value = "1GiB", value_name = "SIZE")]
    pub(crate) max_bytes: String,
    /// Bytes of samples that are read ahead or wait for their shard; beyond it they go to a temporary file.
    #[arg(long, default_value = "1GiB", value_name = "SIZE")]
    pub(crate) memory: String,
    /// Where the temporary file lies. [default: OUT]
    #[arg(long, value_name = "DIR")]
    pub(crate) spill_dir: Option<PathBuf>,
    /// Replace shards that exist already.
    #[arg(long)]
    pub(crate) overwrite: bool,
    #[command(flatten)]
    pub(crate) how: HowArgs,
}

/// `forebay convert`.
#[derive(Debug, Args)]
pub(crate) struct ConvertArgs {
    /// What `info` understands: a folder, a table, shards or files of any format, also behind a URL.
    #[arg(value_name = "SOURCE")]
    pub(crate) from: String,
    /// The folder for the shards; it is made when it is missing.
    #[arg(value_name = "DEST")]
    pub(crate) out: PathBuf,
    /// The format of the shards.
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) to: ShardFormat,
    /// Shards are called PREFIX-000000.tar and so on.
    #[arg(long, default_value = "train", value_name = "PREFIX")]
    pub(crate) prefix: String,
    /// Most samples of one shard.
    #[arg(long, default_value_t = 100_000, value_name = "N")]
    pub(crate) max_count: u64,
    /// Most bytes of payloads in one shard, such as `500MB` or `1GiB`.
    #[arg(long, default_value = "1GiB", value_name = "SIZE")]
    pub(crate) max_bytes: String,
    /// Bytes of samples that are read ahead or wait for their shard; beyond it they go to a temporary file.
    #[arg(long, default_value = "1GiB", value_name = "SIZE")]
    pub(crate) memory: String,
    /// Replace shards that exist already.
    #[arg(long)]
    pub(crate) overwrite: bool,
    #[command(flatten)]
    pub(crate) how: HowArgs,
}

/// A format that is written.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ShardFormat {
    /// Tar, as WebDataset reads it.
    Tar,
    /// TFRecord of tf.Example.
    Tfrecord,
    /// The same, compressed.
    TfrecordGz,
}

/// An order of samples.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum OrderBy {
    /// As they lie.
    Stored,
    /// All over all.
    Shuffled,
    /// By their keys.
    Key,
}

/// What `reshard` does.
#[derive(Debug)]
pub(crate) struct ReshardJob {
    /// What the line of progress says.
    pub(crate) doing: &'static str,
    pub(crate) data: Data,
    /// Where shards go, and what their names begin with.
    pub(crate) out: PathBuf,
    pub(crate) prefix: String,
    pub(crate) options: ReshardOptions,
}

impl ReshardArgs {
    pub(crate) fn resolve(&self) -> Result<ReshardJob> {
        let bytes = |flag: &str, text: &str| {
            parse_bytes(text).map_err(|error| error.while_doing(format_args!("read --{flag}")))
        };
        if self.prefix.is_empty() || self.prefix.contains(['/', '%', '{']) {
            let message = format!("--prefix is `{}`: it names files", self.prefix);
            return Err(Error::invalid_config(message).with_hint("write a word such as `train`"));
        }
        let ending = match self.format {
            ShardFormat::Tar => "tar",
            ShardFormat::Tfrecord => "tfrecord",
            ShardFormat::TfrecordGz => "tfrecord.gz",
        };
        let out = self.out.to_str().filter(|out| !out.contains(['%', '{'])).ok_or_else(|| {
            Error::invalid_config(format!(
                "write shards into `{}`: `%`, `{{` and what is not UTF-8 cannot stand in the folder's name",
                self.out.display()
            ))
        })?;
        let pattern = Path::new(out).join(format!("{}-%06d.{ending}", self.prefix));
        let order = match (&self.map, self.order) {
            (Some(file), _) => {
                Order::Listed(keys(file)?, if self.rest_last { Rest::Last } else { Rest::Refuse })
            }
            (None, OrderBy::Stored) => Order::AsStored,
            (None, OrderBy::Shuffled) => Order::Shuffled(self.seed),
            (None, OrderBy::Key) => Order::ByKey,
        };
        let shards = ShardWriterOptions {
            max_samples: self.max_count,
            max_bytes: bytes("max-bytes", &self.max_bytes)?,
            overwrite: self.overwrite,
            ..ShardWriterOptions::new(pattern.to_string_lossy())
        };
        let memory_bytes = bytes("memory", &self.memory)?;
        let options = ReshardOptions { order, shards, memory_bytes, spill_dir: self.spill_dir.clone() };
        let data = self.how.resolve(vec![self.from.clone()])?;
        let (out, prefix) = (self.out.clone(), self.prefix.clone());
        Ok(ReshardJob { doing: "resharding", data, out, prefix, options })
    }
}

impl ConvertArgs {
    /// Samples keep their order; the rest is resharding.
    pub(crate) fn resolve(&self) -> Result<ReshardJob> {
        let reshard = ReshardArgs {
            from: self.from.clone(),
            out: self.out.clone(),
            prefix: self.prefix.clone(),
            format: self.to,
            order: OrderBy::Stored,
            seed: 0,
            map: None,
            rest_last: false,
            max_count: self.max_count,
            max_bytes: self.max_bytes.clone(),
            memory: self.memory.clone(),
            spill_dir: None,
            overwrite: self.overwrite,
            how: self.how.clone(),
        };
        Ok(ReshardJob { doing: "converting", ..reshard.resolve()? })
    }
}

/// Keys of a file, one a line; empty lines are none.
fn keys(file: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| Error::io(format!("read the keys in `{}`", file.display()), error))?;
    Ok(text.lines().map(str::trim_end).filter(|line| !line.is_empty()).map(str::to_owned).collect())
}
