//! What a cache directory holds, in memory, and how its bytes are counted against the limit.
//!
//! The count is made of bounds that hang on nothing but what is held, so that admitting does not depend on how far
//! the writing thread has come: every payload is charged its record and a share of index and headers
//! ([`State::cost`]), and bytes of records that are dead until their segment is compacted stay charged.

use super::segment::{Entry, UNIT, record_size};
use crate::cache::{Ages, Payload, TierView};
use bytes::Bytes;
use forebay_core::cache::PayloadId;
use std::collections::{BTreeMap, HashMap};
use tokio::sync::OwnedSemaphorePermit;

/// Charged for the marker, headers and what is written before it takes their place.
const FIXED: u64 = 16 << 10;
/// Lines of the index that may be out of date however few payloads there are.
pub(super) const SPARE_LINES: u64 = 256;
/// Charged for each payload besides its record: its line in the index, the line that says that it was forgotten, its
/// line in an index that is written anew, and the header of its segment.
const PER_PAYLOAD: u64 = 4 * UNIT;

/// A payload that is to be written; until then it is served from here.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) payload: Payload,
    pub(super) bytes: Bytes,
    /// Tells it from an earlier one of the same name.
    pub(super) turn: u64,
    /// Its record is in a segment, and charged there.
    placed: bool,
    /// Its part of the queue.
    pub(super) _place: Option<OwnedSemaphorePermit>,
}

/// A segment as it stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) length: u64,
    /// Bytes of records that are not dead.
    pub(super) live: u64,
}

impl Segment {
    pub(super) fn dead(&self) -> u64 {
        self.length.saturating_sub(UNIT).saturating_sub(self.live)
    }
}

/// Whether a payload may come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// It is here already.
    Held,
    /// It may.
    Free,
    /// It may once dead records are compacted.
    AfterCompaction,
    /// It may not.
    None,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) live: HashMap<PayloadId, Entry>,
    pub(super) pending: HashMap<PayloadId, Pending>,
    pub(super) segments: BTreeMap<u32, Segment>,
    /// Lines of the index, also those that are out of date.
    pub(super) lines: u64,
    pub(super) limit: u64,
    /// Nothing more is taken: the disk is full or fails.
    pub(super) full: bool,
    pub(super) refused: u64,
    pub(super) damaged: u64,
    /// Bytes of payloads in `live` and `pending`.
    bytes: u64,
    /// Bytes of records of `pending`.
    reserved: u64,
    turns: u64,
    /// Of payloads in `live`.
    ages: Ages,
}

impl State {
    /// Bytes charged for a payload of this length.
    pub(super) fn cost(length: u64) -> u64 {
        record_size(length) + PER_PAYLOAD
    }

    /// Bytes charged for a cache that holds nothing.
    pub(super) fn fixed() -> u64 {
        FIXED + SPARE_LINES * UNIT
    }

    /// Bytes charged for all that is held: never less than the files have.
    pub(super) fn used(&self) -> u64 {
        let records: u64 = self.segments.values().map(|segment| segment.length.saturating_sub(UNIT)).sum();
        let payloads = (self.live.len() + self.pending.len()) as u64;
        Self::fixed() + records + self.reserved + payloads * PER_PAYLOAD + self.excess()
    }

    /// Bytes of lines that are out of date beyond what is charged anyway.
    fn excess(&self) -> u64 {
        let payloads = (self.live.len() + self.pending.len()) as u64;
        self.lines.saturating_sub(2 * payloads + SPARE_LINES / 2) * UNIT
    }

    /// Bytes of our files, but for the marker and the lock.
    pub(super) fn file_bytes(&self) -> u64 {
        self.segments.values().map(|segment| segment.length).sum::<u64>() + (self.lines + 1) * UNIT
    }

    pub(super) fn room(&self, id: PayloadId, length: u64) -> Room {
        if self.live.contains_key(&id) || self.pending.contains_key(&id) {
            return Room::Held;
        }
        let cost = Self::cost(length);
        let wanted = self.used().saturating_add(cost);
        if length > super::segment::MAX_LENGTH || self.full {
            Room::None
        } else if wanted <= self.limit {
            Room::Free
        } else if wanted.saturating_sub(self.dead() + self.excess()) <= self.limit {
            Room::AfterCompaction
        } else {
            Room::None
        }
    }

    fn dead(&self) -> u64 {
        self.segments.values().map(Segment::dead).sum()
    }

    /// Takes a payload in; it is to be written in its turn.
    pub(super) fn admit(
        &mut self,
        payload: Payload,
        bytes: Bytes,
        place: Option<OwnedSemaphorePermit>,
    ) -> u64 {
        self.turns += 1;
        self.bytes += bytes.len() as u64;
        self.reserved += record_size(bytes.len() as u64);
        let pending = Pending { payload, bytes, turn: self.turns, placed: false, _place: place };
        self.pending.insert(payload.id, pending);
        self.turns
    }

    /// Lets go of a payload that was to be written.
    pub(super) fn drop_pending(&mut self, id: PayloadId) -> Option<Pending> {
        let pending = self.pending.remove(&id)?;
        self.bytes -= pending.bytes.len() as u64;
        if !pending.placed {
            self.reserved -= record_size(pending.bytes.len() as u64);
        }
        Some(pending)
    }

    /// A record was appended to its segment, perhaps for a payload that was pending.
    pub(super) fn place(&mut self, entry: &Entry, pending: Option<(PayloadId, u64)>) {
        if let Some(segment) = self.segments.get_mut(&entry.segment) {
            segment.length = entry.end();
        }
        let Some((id, turn)) = pending else { return };
        if let Some(pending) = self.pending.get_mut(&id).filter(|pending| pending.turn == turn) {
            pending.placed = true;
            self.reserved -= entry.size();
        }
    }

    /// What was pending is in the index now; `false` when it was forgotten meanwhile.
    pub(super) fn settle(&mut self, id: PayloadId, turn: u64, entry: Entry) -> bool {
        if self.pending.get(&id).is_none_or(|pending| pending.turn != turn) {
            return false;
        }
        self.drop_pending(id);
        self.publish(id, entry);
        true
    }

    /// The payload lies in a segment now. Where it lay before is dead.
    pub(super) fn publish(&mut self, id: PayloadId, entry: Entry) {
        self.remove(id);
        self.bytes += u64::from(entry.length);
        self.segments.entry(entry.segment).or_default().live += entry.size();
        self.ages.add(entry.seconds);
        self.live.insert(id, entry);
    }

    /// Forgets where a payload lies.
    pub(super) fn remove(&mut self, id: PayloadId) -> Option<Entry> {
        let entry = self.live.remove(&id)?;
        self.bytes -= u64::from(entry.length);
        self.ages.remove(entry.seconds);
        if let Some(segment) = self.segments.get_mut(&entry.segment) {
            segment.live = segment.live.saturating_sub(entry.size());
        }
        Some(entry)
    }

    /// Whether a line of the index can be true of the segments that are there.
    pub(super) fn is_inside(&self, entry: &Entry) -> bool {
        self.segments.get(&entry.segment).is_some_and(|segment| entry.end() <= segment.length)
    }

    /// The one of these segments with the largest dead share.
    pub(super) fn most_dead(&self, among: impl Iterator<Item = u32>) -> Option<u32> {
        let segment = |number: &u32| self.segments.get(number).copied().unwrap_or_default();
        let share = |segment: Segment| segment.dead().saturating_mul(1 << 16) / segment.length.max(1);
        among.filter(|number| segment(number).dead() > 0).max_by_key(|number| share(segment(number)))
    }

    pub(super) fn view(&self) -> TierView {
        TierView {
            limit: self.limit,
            bytes: self.bytes,
            payloads: (self.live.len() + self.pending.len()) as u64,
            refused: self.refused,
            damaged: self.damaged,
            hits: 0,
            oldest: self.ages.oldest(),
            newest: self.ages.newest(),
        }
    }
}
