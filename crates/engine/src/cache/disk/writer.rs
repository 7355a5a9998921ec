//! The writing side: appends records and lines of the index. One of it lives, under the lock of the directory.
//!
//! A line of the index is written after its record. Whatever goes wrong ends admitting for this run: the cache stays
//! as large as it is and training goes on.

use super::Shared;
use super::folder::{self, INDEX, create, segment_name};
use super::index::write_line;
use super::load::Loaded;
use super::lock::Lock;
use super::segment::{Entry, MAX_SEGMENT, UNIT, record_head, record_size, segment_head};
use super::state::{SPARE_LINES, Segment};
use crate::cache::{Payload, seconds_now};
use forebay_core::cache::PayloadId;
use rustix::fs::Advice;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Records up to this size are put together in memory, so that one call writes them.
const TOGETHER: u64 = 64 << 10;
/// Lines written before the index is looked at again.
pub(super) const LINES_AT_ONCE: usize = SPARE_LINES as usize / 4;

#[derive(Debug)]
pub(super) struct Writer {
    pub(super) dir: PathBuf,
    pub(super) index: File,
    active: Option<Active>,
    pub(super) next_segment: u32,
    /// Segments are closed at this size.
    pub(super) segment_bytes: Option<u64>,
    /// Bytes after which writes fail as on a full disk, for tests.
    pub(super) room: Option<u64>,
    _lock: Lock,
}

/// The segment that is appended to.
#[derive(Debug)]
struct Active {
    number: u32,
    file: File,
    length: u64,
}

impl Writer {
    /// Goes on where the last writer ended. The index is written anew when it was not sound.
    pub(super) fn new(dir: PathBuf, lock: Lock, loaded: &mut Loaded) -> io::Result<Self> {
        let path = dir.join(INDEX);
        let index = if let Some(read) = loaded.index.take() {
            let file = folder::open_ours(&path, true)?;
            // What is behind the last sound line was torn.
            file.set_len(read.end)?;
            file
        } else {
            let held: Vec<_> = loaded.state.live.iter().map(|(id, entry)| (*id, *entry)).collect();
            loaded.state.lines = held.len() as u64;
            Self::write_index(&dir, loaded.next_segment, &held)?
        };
        // Begun and never written to: the disk was full or its writer was killed.
        loaded.state.segments.retain(|number, segment| {
            segment.length > UNIT || std::fs::remove_file(dir.join(segment_name(*number))).is_err()
        });
        let last = loaded.state.segments.last_key_value().map(|(number, segment)| (*number, segment.length));
        let active = match last {
            // With a torn end the segment is left as it is: its end stays dead.
            Some((number, length)) if loaded.ends.get(&number) == Some(&length) => {
                let file = folder::open_ours(&dir.join(segment_name(number)), true)?;
                Some(Active { number, file, length })
            }
            _ => None,
        };
        let (next_segment, segment_bytes, room) = (loaded.next_segment, None, None);
        Ok(Self { dir, index, active, next_segment, segment_bytes, room, _lock: lock })
    }

    /// Writes payloads that were admitted, each if it is still wanted.
    pub(super) fn write(&mut self, shared: &Shared, turns: &[(PayloadId, u64)]) {
        for turns in turns.chunks(LINES_AT_ONCE) {
            let (mut written, mut lines) = (Vec::new(), Vec::new());
            let mut fault = None;
            for (id, turn) in turns {
                let wanted = shared
                    .state()
                    .pending
                    .get(id)
                    .filter(|pending| pending.turn == *turn)
                    .map(|pending| (pending.payload, pending.bytes.clone()));
                let Some((payload, bytes)) = wanted else { continue };
                match self.append(shared, &payload, &bytes, seconds_now(), Some(*turn)) {
                    Ok(entry) => {
                        lines.extend(write_line(*id, Some(&entry)));
                        written.push((*id, *turn, entry));
                    }
                    Err(error) => {
                        fault = Some(error);
                        break;
                    }
                }
            }
            // A disk that is full may have no room for the lines: the last records make some.
            while let Err(error) = self.append_lines(shared, &lines) {
                fault = fault.or(Some(error));
                let Some((_, _, entry)) = written.pop() else { break };
                lines.truncate(lines.len() - UNIT as usize);
                self.take_back(shared, &entry);
            }
            let mut state = shared.state();
            for (id, turn, entry) in written {
                state.settle(id, turn, entry);
            }
            drop(state);
            fault = fault.or_else(|| self.trim_index(shared).err());
            if let Some(error) = fault {
                return self.give_up(shared, &error);
            }
        }
    }

    /// Appends a record to the active segment. `turn` is that of a payload that was admitted.
    pub(super) fn append(
        &mut self,
        shared: &Shared,
        payload: &Payload,
        bytes: &[u8],
        seconds: u32,
        turn: Option<u64>,
    ) -> io::Result<Entry> {
        let size = record_size(bytes.len() as u64);
        let target = self.segment_bytes.unwrap_or_else(|| segment_target(shared.state().limit));
        let full = |active: &Active| active.length > UNIT && active.length + size > target;
        if self.active.as_ref().is_some_and(full) {
            self.seal()?;
        }
        if self.active.is_none() {
            self.start_segment(shared)?;
        }
        let Some(active) = &mut self.active else { return Err(io::ErrorKind::Other.into()) };
        let entry = Entry::new(payload, bytes, active.number, active.length, seconds);
        let head = record_head(payload.id, &entry);
        take_room(&mut self.room, size)?;
        let written = write_record(&active.file, &head, bytes, &entry);
        if let Err(error) = written {
            // What was written of it goes; if even that fails, it stays as a dead end.
            let _ = active.file.set_len(active.length);
            return Err(error);
        }
        active.length = entry.end();
        shared.state().place(&entry, turn.map(|turn| (payload.id, turn)));
        Ok(entry)
    }

    /// Cuts off the record that was appended last.
    fn take_back(&mut self, shared: &Shared, entry: &Entry) {
        let last = |active: &&mut Active| active.number == entry.segment && active.length == entry.end();
        let Some(active) = self.active.as_mut().filter(last) else { return };
        if active.file.set_len(entry.start()).is_ok() {
            active.length = entry.start();
            self.room = self.room.map(|room| room + entry.size());
            if let Some(segment) = shared.state().segments.get_mut(&entry.segment) {
                segment.length = entry.start();
            }
        }
    }

    /// Closes the active segment: its bytes are on disk then, and not in memory twice.
    pub(super) fn seal(&mut self) -> io::Result<()> {
        if let Some(active) = self.active.take() {
            active.file.sync_data()?;
            let _ = rustix::fs::fadvise(&active.file, 0, None, Advice::DontNeed);
        }
        Ok(())
    }

    /// Brings everything to the disk.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        if let Some(active) = &self.active {
            active.file.sync_data()?;
        }
        self.index.sync_data()
    }

    /// Whether this is the segment that is appended to.
    pub(super) fn is_active(&self, number: u32) -> bool {
        self.active.as_ref().is_some_and(|active| active.number == number)
    }

    /// Nothing more is written in this run, but for what compaction tries.
    pub(super) fn give_up(&mut self, shared: &Shared, error: &io::Error) {
        let mut state = shared.state();
        if !state.full {
            tracing::warn!(
                dir = %self.dir.display(), %error,
                "the disk cache takes no more payloads in this run: it could not be written to"
            );
        }
        state.full = true;
        let waiting: Vec<_> = state.pending.keys().copied().collect();
        state.refused += waiting.len() as u64;
        for id in waiting {
            state.drop_pending(id);
        }
    }

    fn start_segment(&mut self, shared: &Shared) -> io::Result<()> {
        take_room(&mut self.room, UNIT)?;
        let (number, file) = loop {
            let number = self.next_segment;
            self.next_segment = number.checked_add(1).ok_or(io::ErrorKind::QuotaExceeded)?;
            match create(&self.dir.join(segment_name(number))) {
                Ok(file) => break (number, file),
                // A file of others has this name.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        };
        let begun = file.write_all_at(&segment_head(number), 0).and_then(|()| file.sync_all());
        if let Err(error) = begun.and_then(|()| folder::sync(&self.dir)) {
            let _ = std::fs::remove_file(self.dir.join(segment_name(number)));
            return Err(error);
        }
        shared.state().segments.insert(number, Segment { length: UNIT, live: 0 });
        self.active = Some(Active { number, file, length: UNIT });
        Ok(())
    }
}

/// How large segments become: a sixteenth of the limit or 256 MiB, but not more than some hundred of them.
fn segment_target(limit: u64) -> u64 {
    (limit / 16).clamp(UNIT, (256 << 20).max(limit / 256)).min(MAX_SEGMENT)
}

fn write_record(file: &File, head: &[u8], bytes: &[u8], entry: &Entry) -> io::Result<()> {
    let padding = vec![0; (entry.end() - entry.payload().end) as usize];
    if entry.size() <= TOGETHER {
        return file.write_all_at(&[head, bytes, &padding].concat(), entry.start());
    }
    file.write_all_at(head, entry.start())?;
    file.write_all_at(bytes, entry.payload().start)?;
    file.write_all_at(&padding, entry.payload().end)
}

pub(super) fn take_room(room: &mut Option<u64>, bytes: u64) -> io::Result<()> {
    if let Some(room) = room {
        *room = room.checked_sub(bytes).ok_or(io::ErrorKind::StorageFull)?;
    }
    Ok(())
}
