//! What says which run writes the shards of a folder, so that the same run can go on where it ended.

use super::ReshardOptions;
use crate::shard::{ShardInfo, ShardWriterOptions};
use crate::source::Dataset;
use forebay_core::{Error, Result};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_128;

/// The card of a run, in the folder of its shards.
pub(super) struct Card {
    path: PathBuf,
    shards: ShardWriterOptions,
    /// Whether this run began before.
    goes_on: bool,
}

impl Card {
    /// Finds the card of an earlier run, or puts one there.
    pub(super) fn open(dataset: &Dataset, options: &ReshardOptions) -> Result<Self> {
        let shards = options.shards.clone();
        let first = PathBuf::from(shards.path(0)?);
        let folder = first.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let doing = |e| Error::io(format!("begin to write shards in `{}`", folder.display()), e);
        fs::create_dir_all(folder).map_err(doing)?;
        let name = first.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let path = folder.join(format!(".reshard-{name}.json"));
        let run = serde_json::json!({
            "dataset": dataset.manifest().version(),
            "order": options.order.fingerprint(),
            "pattern": shards.pattern,
            "first": shards.first,
            "max_samples": shards.max_samples,
            "max_bytes": shards.max_bytes,
        });
        let text = run.to_string();
        let goes_on = match fs::read_to_string(&path) {
            Ok(found) if found == text => true,
            Ok(_) if !shards.overwrite => {
                let message = format!(
                    "write shards by `{}`: another run began there and has not ended",
                    shards.pattern
                );
                return Err(Error::invalid_config(message)
                    .with_hint("end that run, choose another place, or ask for shards to be replaced"));
            }
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(doing(error)),
            _ => false,
        };
        if !goes_on {
            if !shards.overwrite && first.exists() {
                let message = format!("write shard `{}`: it exists already", first.display());
                return Err(Error::invalid_config(message)
                    .with_hint("choose another name, or ask for existing shards to be replaced"));
            }
            // Shards of another run must not pass for finished ones of this run.
            let mut number = 0;
            while let Ok(()) = fs::remove_file(shards.path(number)?) {
                number += 1;
            }
            let temporary =
                folder.join(format!(".tmp-reshard-{:x}-{}", xxh3_128(text.as_bytes()), std::process::id()));
            fs::write(&temporary, &text).and_then(|()| fs::rename(&temporary, &path)).map_err(doing)?;
        }
        Ok(Self { path, shards, goes_on })
    }

    pub(super) fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("."))
    }

    /// Shards that are there: each came to its name when it was whole.
    pub(super) fn finished(&self, count: u64) -> Result<BTreeSet<u64>> {
        if !self.goes_on {
            return Ok(BTreeSet::new());
        }
        (0..count)
            .filter_map(|shard| {
                self.shards.path(shard).map(|path| Path::new(&path).exists().then_some(shard)).transpose()
            })
            .collect()
    }

    /// What is known about a shard that is there.
    pub(super) fn info(&self, shard: u64, samples: u64) -> Result<ShardInfo> {
        let path = PathBuf::from(self.shards.path(shard)?);
        let size =
            fs::metadata(&path).map_err(|e| Error::io(format!("look at shard `{}`", path.display()), e))?;
        Ok(ShardInfo { path, samples, bytes: size.len() })
    }

    /// All shards are there: nothing is to go on with.
    pub(super) fn finish(self) -> Result<()> {
        fs::remove_file(&self.path).map_err(|e| Error::io(format!("remove `{}`", self.path.display()), e))
    }
}
