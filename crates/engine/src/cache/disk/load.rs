//! Opening: the index says what is there; without a sound one, the headers in the segments do.

use super::folder::{self, INDEX, open_ours, segment_name, unit_at};
use super::index::{self, Line};
use super::segment::walk;
use super::state::{Segment, State};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What opening found besides the payloads.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    pub(super) state: State,
    /// The index as it was read; `None` when it has to be written anew.
    pub(super) index: Option<ReadIndex>,
    /// Numbers from here on were never used.
    pub(super) next_segment: u32,
    /// How far the index says that each segment reaches, dead records included.
    pub(super) ends: BTreeMap<u32, u64>,
}

/// How far the index was read.
#[derive(Debug)]
pub(super) struct ReadIndex {
    pub(super) file: File,
    pub(super) inode: u64,
    pub(super) end: u64,
}

/// Reads a cache's directory and writes nothing. `rebuild` says whether segments are scanned when the index is not sound; whoever only
/// reads waits for the writer to do so.
pub(super) fn load(dir: &Path, rebuild: bool) -> io::Result<Loaded> {
    let (segments, highest) = folder::segments(dir)?;
    let mut loaded = Loaded { next_segment: highest + 1, ..Loaded::default() };
    for (number, length) in &segments {
        loaded.state.segments.insert(*number, Segment { length: *length, live: 0 });
    }
    match open_ours(&dir.join(INDEX), false) {
        Ok(file) => read_index(&mut loaded, file, rebuild)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    if loaded.index.is_none() && rebuild && !segments.is_empty() {
        tracing::info!(dir = %dir.display(), "the cache's index is missing or damaged, segments are scanned");
        rebuild_index(dir, &mut loaded);
    }
    Ok(loaded)
}

/// Takes one line of the index.
pub(super) fn take_line(state: &mut State, ends: &mut BTreeMap<u32, u64>, (id, entry): Line) {
    match entry {
        None => {
            state.remove(id);
        }
        Some(entry) => {
            let end = ends.entry(entry.segment).or_default();
            *end = entry.end().max(*end);
            // A place that is not there any more says nothing: an earlier line may still be true.
            if state.is_inside(&entry) {
                state.publish(id, entry);
            }
        }
    }
}

fn read_index(loaded: &mut Loaded, file: File, strict: bool) -> io::Result<()> {
    let inode = file.metadata()?.ino();
    let (state, ends) = (&mut loaded.state, &mut loaded.ends);
    let extent = index::read_file(&file, 0, |line| take_line(state, ends, line))?;
    let Some(next) = extent.next_segment else { return Ok(()) };
    let last = ends.keys().next_back().map_or(0, |number| number.saturating_add(1));
    loaded.next_segment = loaded.next_segment.max(next).max(last);
    if strict && extent.holes > 0 {
        let payloads: Vec<_> = state.live.keys().copied().collect();
        for id in payloads {
            state.remove(id);
        }
        return Ok(());
    }
    state.lines = (extent.end / super::segment::UNIT).saturating_sub(1);
    loaded.index = Some(ReadIndex { file, inode, end: extent.end });
    Ok(())
}

/// Fills the state from the headers of records. What was forgotten is there again; its name still says what it is.
fn rebuild_index(dir: &Path, loaded: &mut Loaded) {
    let segments: Vec<(u32, u64)> =
        loaded.state.segments.iter().map(|(number, segment)| (*number, segment.length)).collect();
    for (number, length) in segments {
        let Ok(file) = open_ours(&dir.join(segment_name(number)), false) else { continue };
        let (state, ends) = (&mut loaded.state, &mut loaded.ends);
        walk(number, length, |at| unit_at(&file, at), |id, entry| take_line(state, ends, (id, Some(entry))));
    }
}
