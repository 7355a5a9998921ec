//! `forebay stage`: what is typed, and what it means.

use super::data::option_pair;
use clap::Args;
use forebay_core::size::parse_bytes;
use forebay_core::{Error, Result};
use forebay_engine::stage::StageOptions;
use std::path::{Path, PathBuf};

/// Most bytes of a file of keys: room for ten million of a hundred bytes each.
const MOST_LIST_BYTES: u64 = 1 << 30;

/// `forebay stage`.
#[derive(Debug, Args)]
pub(crate) struct StageArgs {
    /// What to copy: a folder, objects or a pattern such as `s3://bucket/train-{000..146}.tar`, on any store.
    #[arg(value_name = "URL")]
    pub(crate) from: String,
    /// The folder for the copy; it is made when it is missing.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Copy only objects whose keys go on with this behind URL, which names a folder.
    #[arg(long, value_name = "P", conflicts_with_all = ["list", "template"])]
    pub(crate) prefix: Option<String>,
    /// Copy only the objects that this file names, a key below URL on each line.
    #[arg(long, value_name = "FILE", conflicts_with = "template")]
    pub(crate) list: Option<PathBuf>,
    /// Copy only what this names below URL, with braces and globs, such as `train-{000..146}.tar`.
    #[arg(long, value_name = "T")]
    pub(crate) template: Option<String>,
    /// Most bytes a second, such as `50MiB`. [default: as fast as it goes]
    #[arg(long, value_name = "SIZE")]
    pub(crate) limit_rate: Option<String>,
    /// Requests on their way at once.
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=4096))]
    pub(crate) in_flight: u64,
    /// Say what would be copied, and touch nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Read what is there, compare it with its checksums, and copy again what is wrong.
    #[arg(long)]
    pub(crate) verify: bool,
    /// What a remote store is told, such as `endpoint=http://127.0.0.1:9000`; may be given several times.
    #[arg(long = "storage-option", value_name = "NAME=VALUE", value_parser = option_pair)]
    pub(crate) storage_options: Vec<(String, String)>,
}

/// What `stage` does.
#[derive(Debug)]
pub(crate) struct StageJob {
    pub(crate) spec: Vec<String>,
    pub(crate) dir: PathBuf,
    pub(crate) options: StageOptions,
    pub(crate) dry_run: bool,
}

impl StageArgs {
    pub(crate) fn resolve(&self) -> Result<StageJob> {
        let rate = self.limit_rate.as_deref().map(parse_bytes).transpose();
        let rate =
            rate.map_err(|error| Error::invalid_config(format!("--limit-rate: {}", error.message())))?;
        if rate == Some(0) {
            return Err(Error::invalid_config("--limit-rate: it is 0 bytes a second"));
        }
        let options = StageOptions {
            prefix: self.prefix.clone(),
            keys: self.list.as_deref().map(|file| read_list(file, &self.from)).transpose()?,
            template: self.template.clone(),
            storage_options: self.storage_options.iter().cloned().collect(),
            rate_bytes_per_second: rate,
            in_flight: self.in_flight as usize,
            verify: self.verify,
            ..StageOptions::default()
        };
        let (spec, dir) = (vec![self.from.clone()], self.dir.clone());
        Ok(StageJob { spec, dir, options, dry_run: self.dry_run })
    }
}

/// The keys of a file, a line each; those that are written as whole URLs lose what `from` says already.
fn read_list(path: &Path, from: &str) -> Result<Vec<String>> {
    let doing = |error| Error::io(format!("read list `{}`", path.display()), error);
    let found = std::fs::metadata(path).map_err(doing)?.len();
    if found > MOST_LIST_BYTES {
        let message = format!(
            "read list `{}`: it has {found} bytes, at most {MOST_LIST_BYTES} are read",
            path.display()
        );
        return Err(Error::exhausted(message));
    }
    let text = std::fs::read_to_string(path).map_err(doing)?;
    let from = format!("{}/", from.trim_end_matches('/'));
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    Ok(lines.map(|line| line.strip_prefix(&from).unwrap_or(line).to_owned()).collect())
}
