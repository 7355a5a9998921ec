//! Reading beside a writer: the index is read on as it grows, and anew when another took its place.

use super::folder::{self, INDEX};
use super::load::{self, ReadIndex};
use super::segment::UNIT;
use super::state::{Segment, State};
use super::{Shared, index};
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// How far the index was read.
#[derive(Debug)]
pub(super) struct Follower {
    read: Mutex<Option<ReadIndex>>,
    /// Whether segments are scanned when the index is not sound.
    rebuild: bool,
}

impl Follower {
    /// Reads what is there now.
    pub(super) fn new(dir: &Path, rebuild: bool) -> io::Result<(Self, State)> {
        let loaded = load::load(dir, rebuild)?;
        Ok((Self { read: Mutex::new(loaded.index), rebuild }, loaded.state))
    }

    /// Whether what is held was read from a sound index.
    pub(super) fn has_index(&self) -> bool {
        self.read.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Takes what the writer wrote since the last time; `false` when there is nothing new.
    pub(super) fn catch_up(&self, shared: &Shared) -> bool {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(meta) = std::fs::symlink_metadata(shared.dir.join(INDEX)) else { return false };
        let known = read.as_ref().map_or((0, 0), |read| (read.inode, read.end));
        // Half a line, or lines that are torn, are looked at again.
        if known.0 == meta.ino() && meta.len() / UNIT * UNIT <= known.1 {
            return false;
        }
        match &mut *read {
            Some(read) if read.inode == meta.ino() => read_on(shared, read).unwrap_or(false),
            _ => {
                let Ok(loaded) = load::load(&shared.dir, self.rebuild) else { return false };
                *read = loaded.index;
                let mut state = shared.state();
                let old = std::mem::replace(&mut *state, loaded.state);
                (state.limit, state.damaged) = (old.limit, old.damaged);
                read.is_some()
            }
        }
    }
}

fn read_on(shared: &Shared, read: &mut ReadIndex) -> io::Result<bool> {
    let mut lines = Vec::new();
    let extent = index::read_file(&read.file, read.end, |line| lines.push(line))?;
    let new = extent.end > read.end;
    read.end = extent.end;
    if !new {
        return Ok(false);
    }
    let mut state = shared.state();
    // Segments grew, came and went since the last look.
    let (segments, _) = folder::segments(&shared.dir)?;
    let live = |number: &u32| state.segments.get(number).map_or(0, |segment| segment.live);
    let segments: BTreeMap<u32, Segment> = segments
        .into_iter()
        .map(|(number, length)| (number, Segment { length, live: live(&number) }))
        .collect();
    state.segments = segments;
    state.lines = (extent.end / UNIT).saturating_sub(1);
    for line in lines {
        load::take_line(&mut state, &mut BTreeMap::new(), line);
    }
    drop(state);
    Ok(true)
}
