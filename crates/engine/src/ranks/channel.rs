//! Where ranks tell each other how they go: a few kilobytes each, replaced as a whole.
//!
//! [`RanksFolder`] is a folder that all of them can write. Python hands over the store of a process group of torch.

use super::MAX_BYTES;
use forebay_core::{Error, Result};
use std::io::Read;
use std::path::PathBuf;

/// Ranks are read as often as they tell, when there are so few of them; more are read more seldom.
const READ_EACH_TIME: u64 = 8;

/// What ranks of one job share. Nobody waits for anybody in it.
pub trait RankChannel: Send + Sync {
    /// Replaces what `rank` tells.
    fn tell(&self, rank: u64, told: &[u8]) -> Result<()>;

    /// What `rank` tells, if it does.
    fn told(&self, rank: u64) -> Option<Vec<u8>>;

    /// `rank` tells nothing any more.
    fn leave(&self, rank: u64);

    /// Of how many beats one is told, and of how many one is listened at, so that all ranks together are no burden.
    fn beats(&self, world_size: u64) -> (u64, u64) {
        (1, world_size.div_ceil(READ_EACH_TIME))
    }
}

/// A small file for each rank in a folder that all of them see.
#[derive(Debug)]
pub struct RanksFolder(PathBuf);

impl RanksFolder {
    /// The folder is made when a rank first tells something.
    pub fn new(folder: PathBuf) -> Self {
        Self(folder)
    }

    fn file(&self, rank: u64) -> PathBuf {
        self.0.join(format!("rank-{rank}.json"))
    }
}

impl RankChannel for RanksFolder {
    fn tell(&self, rank: u64, told: &[u8]) -> Result<()> {
        // Replaced as a whole: nobody reads half of it.
        let draft = self.0.join(format!(".rank-{rank}.json"));
        std::fs::create_dir_all(&self.0)
            .and_then(|()| std::fs::write(&draft, told))
            .and_then(|()| std::fs::rename(draft, self.file(rank)))
            .map_err(|error| Error::io(format!("write in `{}`", self.0.display()), error))
    }

    fn told(&self, rank: u64) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        std::fs::File::open(self.file(rank)).ok()?.take(MAX_BYTES + 1).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    fn leave(&self, rank: u64) {
        let _ = std::fs::remove_file(self.file(rank));
    }
}
