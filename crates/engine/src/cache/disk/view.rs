//! Settings of a disk tier, and what it says about itself.

use super::follow::Follower;
use super::state::Segment;
use super::{DiskTier, TierView, hits};
use std::collections::HashSet;

/// Settings of a [`DiskTier`].
#[derive(Clone, Copy, Debug)]
pub struct DiskOptions {
    /// Most bytes of all files of the cache together.
    pub limit: u64,
    /// Bytes that may wait to be written. More lets a burst of fetches pass a slow disk.
    pub queue_bytes: u64,
    /// Size at which a segment is closed; `None` follows the limit.
    pub segment_bytes: Option<u64>,
    /// Bytes after which writes fail as they do on a full disk, to try out what happens then.
    pub full_after: Option<u64>,
}

impl DiskOptions {
    /// Defaults for a limit.
    pub fn new(limit: u64) -> Self {
        Self { limit, queue_bytes: 32 << 20, segment_bytes: None, full_after: None }
    }
}

/// What a disk tier holds, in more detail than [`TierView`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskView {
    /// As all tiers say it.
    pub tier: TierView,
    /// Bytes of segments and index.
    pub file_bytes: u64,
    /// Bytes of segments that hold nothing any more and come back by compaction.
    pub dead_bytes: u64,
    /// Segments.
    pub segments: u64,
    /// Datasets.
    pub groups: u64,
    /// Payloads served since the cache was made, by all processes that have closed it since.
    pub all_hits: u64,
    /// Another process writes, or nothing may be written here: this one only reads.
    pub read_only: bool,
    /// Writes failed: nothing more is kept in this run.
    pub full: bool,
    /// The index was read. Otherwise it is missing or damaged, and headers in the segments said what is there.
    pub sound_index: bool,
}

impl DiskTier {
    /// All that is known about it. Looks at every payload.
    pub fn detail(&self) -> DiskView {
        let tier = self.view();
        let state = self.shared.state();
        let groups: HashSet<u64> = state.live.values().map(|entry| entry.group).collect();
        DiskView {
            tier,
            file_bytes: state.file_bytes(),
            dead_bytes: state.segments.values().map(Segment::dead).sum(),
            segments: state.segments.len() as u64,
            groups: groups.len() as u64,
            all_hits: hits::read(&self.shared.dir),
            read_only: self.queue.is_none(),
            full: state.full,
            sound_index: self.follower.as_ref().is_none_or(Follower::has_index),
        }
    }
}
