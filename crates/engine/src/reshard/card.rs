//! What says which run writes the shards of a folder, so that the same run can go on where it ended.

use super::ReshardOptions;
use super::layout::Layout;
use crate::shard::{ShardInfo, ShardWriterOptions};
use crate::source::Dataset;
use forebay_core::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_128;

/// The card of a run, in the folder of its shards.
pub(super) struct Card {
    path: PathBuf,
    shards: ShardWriterOptions,
    /// Shards of this run that are there: each came to its name when it was whole.
    there: BTreeSet<u64>,
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
        let mut found = shards.found()?;
        if let Some(number) = found.shards.first().filter(|_| !goes_on && !shards.overwrite) {
            let message = format!("write shard `{}`: it exists already", shards.path(*number)?);
            return Err(Error::invalid_config(message)
                .with_hint("choose another name, or ask for existing shards to be replaced"));
        }
        // A run that was killed left the shards that it was writing.
        found.parts.iter().try_for_each(fs::remove_file).map_err(doing)?;
        if !goes_on {
            // Shards of another run must not pass for finished ones of this run.
            for number in std::mem::take(&mut found.shards) {
                fs::remove_file(shards.path(number)?).map_err(doing)?;
            }
            let temporary =
                folder.join(format!(".tmp-reshard-{:x}-{}", xxh3_128(text.as_bytes()), std::process::id()));
            fs::write(&temporary, &text).and_then(|()| fs::rename(&temporary, &path)).map_err(doing)?;
        }
        Ok(Self { path, shards, there: found.shards })
    }

    pub(super) fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("."))
    }

    /// The shards that this run wrote before it was ended.
    pub(super) fn kept(&self, layout: &Layout) -> Result<BTreeMap<u64, ShardInfo>> {
        let known = |shard| {
            let path = PathBuf::from(self.shards.path(shard)?);
            let size = fs::metadata(&path)
                .map_err(|e| Error::io(format!("look at shard `{}`", path.display()), e))?;
            Ok((shard, ShardInfo { path, samples: layout.samples(shard), bytes: size.len() }))
        };
        self.there.range(..layout.shards()).copied().map(known).collect()
    }

    /// All shards are there: nothing is to go on with.
    pub(super) fn finish(self) -> Result<()> {
        fs::remove_file(&self.path).map_err(|e| Error::io(format!("remove `{}`", self.path.display()), e))
    }
}
