//! Getting room back: records that are still wanted move out of segments, which are cut from their end and go.
//!
//! A record is written and flushed at its new place, and named there by the index, before it is cut off at the old
//! one. Whoever is killed in between leaves both, and the later line of the index counts. Cutting from the end needs
//! room for a few records only, so that a full cache can be compacted without passing its limit.

use super::Shared;
use super::folder::{open_ours, segment_name};
use super::index::write_line;
use super::segment::{Entry, UNIT};
use super::state::{Segment, State};
use super::writer::{LINES_AT_ONCE, Writer};
use crate::cache::Payload;
use bytes::Bytes;
use forebay_core::cache::PayloadId;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes that move before they are flushed and the segment is cut.
const MOVED_AT_ONCE: u64 = 8 << 20;

type Records = Vec<(PayloadId, Entry)>;

impl Writer {
    /// Empties every segment of which more than half is dead.
    pub(super) fn tidy(&mut self, shared: &Shared) {
        let half_dead = |segment: &Segment| segment.dead() * 2 > segment.length.saturating_sub(UNIT);
        let found: Vec<u32> = {
            let state = shared.state();
            state
                .segments
                .iter()
                .filter(|(_, segment)| half_dead(segment))
                .map(|(number, _)| *number)
                .collect()
        };
        if let Err(error) = self.seal_any(&found) {
            return self.give_up(shared, &error);
        }
        let mut records = records(shared, &found);
        for number in found {
            let records = records.remove(&number).unwrap_or_default();
            let limit = shared.state().limit;
            if let Err(error) = self.empty(shared, number, records, limit, &|_| false) {
                return self.give_up(shared, &error);
            }
        }
    }

    /// Compacts until a payload of this length fits, if it can.
    pub(super) fn reclaim(&mut self, shared: &Shared, length: u64) {
        let limit = shared.state().limit;
        let enough = |state: &State| state.used() + State::cost(length) <= state.limit;
        if let Err(error) = self.compact(shared, limit, &enough) {
            self.give_up(shared, &error);
        }
    }

    /// Lets payloads of the highest ranks go until the rest fits into `limit`, and compacts until files do.
    pub(super) fn shrink(&mut self, shared: &Shared, limit: u64) -> io::Result<()> {
        let mut state = shared.state();
        let before = std::mem::replace(&mut state.limit, limit).max(limit);
        if state.used() <= limit {
            return Ok(());
        }
        let mut by_rank: Vec<(u64, PayloadId, u64)> =
            state.live.iter().map(|(id, entry)| (entry.rank.0, *id, u64::from(entry.length))).collect();
        by_rank.sort_unstable();
        let mut used = State::fixed();
        let mut gone = Vec::new();
        for (_, id, length) in by_rank {
            used = used.saturating_add(State::cost(length));
            if used > limit {
                state.remove(id);
                gone.push(id);
            }
        }
        let fits = state.used() <= limit;
        drop(state);
        if !gone.is_empty() {
            self.rewrite_index(shared)?;
        }
        if fits {
            return Ok(());
        }
        self.compact(shared, before, &|state: &State| state.used() <= limit)
    }

    /// Empties segments, those with the largest dead share first, until it is enough or nothing is dead.
    fn compact(&mut self, shared: &Shared, limit: u64, enough: &dyn Fn(&State) -> bool) -> io::Result<()> {
        let dirty: Vec<u32> = {
            let state = shared.state();
            state
                .segments
                .iter()
                .filter(|(_, segment)| segment.dead() > 0)
                .map(|(number, _)| *number)
                .collect()
        };
        self.seal_any(&dirty)?;
        let mut records = records(shared, &dirty);
        // Only segments whose records were listed, each once: others that became dirty meanwhile may be in use.
        while !records.is_empty() {
            let state = shared.state();
            let next = if enough(&state) { None } else { state.most_dead(records.keys().copied()) };
            drop(state);
            let Some((number, records)) = next.and_then(|number| records.remove_entry(&number)) else {
                break;
            };
            self.empty(shared, number, records, limit, enough)?;
        }
        Ok(())
    }

    /// Closes the active segment if it is one of these: what moves must not move into a segment that is emptied.
    fn seal_any(&mut self, segments: &[u32]) -> io::Result<()> {
        if segments.iter().any(|number| self.is_active(*number)) { self.seal() } else { Ok(()) }
    }

    /// Moves records out of a segment from its end on and removes it. Stops early when it is enough.
    fn empty(
        &mut self,
        shared: &Shared,
        number: u32,
        mut records: Records,
        limit: u64,
        enough: &dyn Fn(&State) -> bool,
    ) -> io::Result<()> {
        let file = match open_ours(&self.dir.join(segment_name(number)), true) {
            // Somebody removed it: its payloads are lost, and nothing is left to compact.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                for (id, entry) in records {
                    shared.condemn(id, &entry);
                }
                shared.state().segments.remove(&number);
                return Ok(());
            }
            opened => opened?,
        };
        records.sort_unstable_by_key(|(_, entry)| entry.at);
        // Forgotten or found damaged since the list was made.
        let still = |(id, entry): &(PayloadId, Entry)| shared.state().live.get(id) == Some(entry);
        while let Some((_, last)) = records.last().copied() {
            cut(shared, &file, number, last.end())?;
            if enough(&shared.state()) {
                return Ok(());
            }
            let room = limit.saturating_sub(shared.state().used());
            let mut moved = 0;
            let mut batch: Records = Vec::new();
            while let Some((_, entry)) = records.last()
                && batch.len() < LINES_AT_ONCE
                && (batch.is_empty() || moved + entry.size() <= room.min(MOVED_AT_ONCE))
            {
                moved += entry.size();
                batch.extend(records.pop());
            }
            let down_to = batch.last().map_or(UNIT, |(_, entry)| entry.start());
            let batch: Vec<_> = batch.into_iter().filter(still).collect();
            let batch = Self::read_batch(shared, &file, batch);
            if moved <= room {
                self.move_records(shared, &batch)?;
                cut(shared, &file, number, down_to)?;
            } else {
                self.move_through_memory(shared, batch, || cut(shared, &file, number, down_to))?;
            }
        }
        let mut state = shared.state();
        if state.segments.get(&number).is_some_and(|segment| segment.live > 0) {
            return Ok(());
        }
        state.segments.remove(&number);
        drop(state);
        std::fs::remove_file(self.dir.join(segment_name(number)))
    }

    /// Payloads of records that are sound; others are forgotten.
    fn read_batch(shared: &Shared, file: &File, batch: Records) -> Vec<(PayloadId, Entry, Bytes)> {
        let mut read = Vec::with_capacity(batch.len());
        for (id, entry) in batch {
            let mut bytes = vec![0; entry.length as usize];
            let sound =
                file.read_exact_at(&mut bytes, entry.payload().start).is_ok() && entry.matches(&bytes);
            if sound {
                read.push((id, entry, Bytes::from(bytes)));
            } else {
                shared.condemn(id, &entry);
            }
        }
        read
    }

    /// Writes records at a new place, flushes them and their lines in the index, and makes them found there.
    fn move_records(&mut self, shared: &Shared, batch: &[(PayloadId, Entry, Bytes)]) -> io::Result<()> {
        let (mut lines, mut moved) = (Vec::new(), Vec::new());
        for (id, entry, bytes) in batch {
            let to = self.append(shared, &payload(*id, entry), bytes, entry.seconds, None)?;
            lines.extend(write_line(*id, Some(&to)));
            moved.push((*id, *entry, to));
        }
        self.append_lines(shared, &lines)?;
        self.sync()?;
        let mut state = shared.state();
        for (id, from, to) in moved {
            // Forgotten meanwhile: the line that says so follows.
            if state.live.get(&id) == Some(&from) {
                state.publish(id, to);
            }
        }
        drop(state);
        self.trim_index(shared)
    }

    /// For a cache that is full to the last byte: the old place is cut before the new one is written. Whoever is
    /// killed in between loses this payload, which is then fetched again.
    fn move_through_memory(
        &mut self,
        shared: &Shared,
        batch: Vec<(PayloadId, Entry, Bytes)>,
        cut: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let mut turns = Vec::new();
        let mut state = shared.state();
        for (id, entry, bytes) in batch {
            if state.live.get(&id) == Some(&entry) {
                state.remove(id);
                turns.push((id, state.admit(payload(id, &entry), bytes, None)));
            }
        }
        drop(state);
        cut()?;
        self.write(shared, &turns);
        if shared.state().full { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

/// Cuts a segment behind `length`.
fn cut(shared: &Shared, file: &File, number: u32, length: u64) -> io::Result<()> {
    let mut state = shared.state();
    let Some(segment) = state.segments.get_mut(&number).filter(|segment| segment.length > length) else {
        return Ok(());
    };
    file.set_len(length)?;
    segment.length = length;
    Ok(())
}

/// What is held in each of these segments.
fn records(shared: &Shared, segments: &[u32]) -> BTreeMap<u32, Records> {
    let mut lists: BTreeMap<u32, Records> = segments.iter().map(|number| (*number, Vec::new())).collect();
    for (id, entry) in &shared.state().live {
        if let Some(list) = lists.get_mut(&entry.segment) {
            list.push((*id, *entry));
        }
    }
    lists
}

fn payload(id: PayloadId, entry: &Entry) -> Payload {
    Payload { id, rank: entry.rank, length: u64::from(entry.length), group: entry.group }
}
