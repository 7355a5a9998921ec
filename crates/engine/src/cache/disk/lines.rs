//! The index as it is written: lines appended, and all of it anew when too much is out of date.

use super::Shared;
use super::folder::{self, INDEX};
use super::index::{index_head, write_line};
use super::segment::{Entry, UNIT};
use super::state::SPARE_LINES;
use super::writer::{LINES_AT_ONCE, Writer, take_room};
use forebay_core::cache::PayloadId;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

impl Writer {
    /// Says in the index that payloads are gone. They are gone from the state already.
    pub(super) fn write_forgotten(&mut self, shared: &Shared, ids: &[PayloadId]) {
        let written = if ids.len() > LINES_AT_ONCE {
            self.rewrite_index(shared)
        } else {
            let lines: Vec<u8> = ids.iter().flat_map(|id| write_line(*id, None)).collect();
            self.append_lines(shared, &lines).and_then(|()| self.trim_index(shared))
        };
        if let Err(error) = written {
            self.give_up(shared, &error);
        }
    }

    /// Appends lines to the index.
    pub(super) fn append_lines(&mut self, shared: &Shared, lines: &[u8]) -> io::Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        let end = (shared.state().lines + 1) * UNIT;
        take_room(&mut self.room, lines.len() as u64)?;
        self.index.write_all_at(lines, end).inspect_err(|_| drop(self.index.set_len(end)))?;
        shared.state().lines += lines.len() as u64 / UNIT;
        Ok(())
    }

    /// Writes the index anew when too much of it is out of date. Lines of what is not in the state yet would be lost.
    pub(super) fn trim_index(&mut self, shared: &Shared) -> io::Result<()> {
        let state = shared.state();
        let stale = state.lines > 2 * state.live.len() as u64 + SPARE_LINES / 2;
        drop(state);
        if stale { self.rewrite_index(shared) } else { Ok(()) }
    }

    /// Puts an index of nothing but what is held in the place of the one there is.
    pub(super) fn rewrite_index(&mut self, shared: &Shared) -> io::Result<()> {
        // A copy, so that nobody who reads waits for the disk.
        let held: Vec<_> = shared.state().live.iter().map(|(id, entry)| (*id, *entry)).collect();
        take_room(&mut self.room, (held.len() as u64 + 1) * UNIT)?;
        self.index = Self::write_index(&self.dir, self.next_segment, &held)?;
        shared.state().lines = held.len() as u64;
        Ok(())
    }

    pub(super) fn write_index(
        dir: &Path,
        next_segment: u32,
        held: &[(PayloadId, Entry)],
    ) -> io::Result<File> {
        folder::replace(dir, INDEX, |file| {
            let mut into = io::BufWriter::with_capacity(1 << 20, file);
            into.write_all(&index_head(next_segment))?;
            for (id, entry) in held {
                into.write_all(&write_line(*id, Some(entry)))?;
            }
            into.flush()
        })?;
        folder::open_ours(&dir.join(INDEX), true)
    }
}
