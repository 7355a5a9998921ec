//! Which chunk a writer makes next when others write to the same place.
//!
//! Every writer publishes a [`Notice`] of its own under its own name: the chunk that it makes or wants, and a beat that
//! rises. There is no lock and no conditional write, so any store that shows a write to the reads after it will do:
//!
//! 1. look at the notices of the others, then at what is committed; [`Sharing::choose`] a chunk that nobody has,
//! 2. publish a notice with it,
//! 3. look again, in the same order: [`Sharing::confirm`] keeps the chunk unless somebody else has it in a notice too, or
//!    it is committed by now.
//!
//! Two writers cannot both keep a chunk: each published before it looked, so at least one of them saw the other, or that
//! the other was done with it. A notice is taken back only after the commit, so who looks at notices first cannot miss
//! both. When both saw each other both let go, and the one with the larger number leaves the chunk to the other for a while.
//! A writer whose beat stood still for the timeout, by the watch of whoever looks, has lapsed, and its chunk is free:
//! no two clocks are compared. Pure: notices and times come in, choices come out.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Most chunks that a notice may name; a writer of this release names one.
pub const MAX_CLAIMS: usize = 64;

/// What a writer says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// Drawn at random by the writer.
    pub writer: u64,
    /// Rises with every notice.
    pub beat: u64,
    /// Chunks that it makes or wants.
    pub claims: Vec<u64>,
    /// The machine it runs on, as that machine names its present run.
    #[serde(default)]
    pub host: String,
    /// The process there.
    #[serde(default)]
    pub process: String,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Publish a claim of this chunk, look at the notices, and ask [`Sharing::confirm`].
    Claim(u64),
    /// What is not committed is in the hands of others: look again later.
    Wait,
    /// Everything is committed.
    Done,
}

/// One writer's view of all of them.
#[derive(Clone, Debug)]
pub struct Sharing {
    me: u64,
    chunks: u64,
    timeout_ms: u64,
    committed: BTreeSet<u64>,
    others: BTreeMap<u64, Other>,
    claim: Option<u64>,
    /// The chunk that was made last: the one behind it costs no seek.
    last: Option<u64>,
    beat: u64,
    /// Chunks that are left to another writer until it says something else.
    left: BTreeMap<u64, (u64, u64)>,
}

#[derive(Clone, Debug)]
struct Other {
    beat: u64,
    claims: Vec<u64>,
    /// When this beat was first seen.
    since: u64,
    ended: bool,
}

impl Sharing {
    /// The writer `me` of a dataset of so many chunks. Others lapse when nothing was heard of them for `timeout_ms`.
    pub fn new(me: u64, chunks: u64, timeout_ms: u64) -> Self {
        Self {
            me,
            chunks,
            timeout_ms,
            committed: BTreeSet::new(),
            others: BTreeMap::new(),
            claim: None,
            last: None,
            beat: 0,
            left: BTreeMap::new(),
        }
    }

    /// These shards are there. One that was there and is not any more has to be made again.
    pub fn saw_committed(&mut self, committed: impl IntoIterator<Item = u64>) {
        self.committed = committed.into_iter().filter(|chunk| *chunk < self.chunks).collect();
    }

    /// These are all notices that are there; one's own is passed over, and who has none any more has ended.
    pub fn saw_notices(&mut self, now: u64, notices: &[Notice]) {
        let there: BTreeSet<u64> = notices.iter().map(|notice| notice.writer).collect();
        self.others.retain(|writer, _| there.contains(writer));
        for notice in notices.iter().filter(|notice| notice.writer != self.me) {
            let claims: Vec<u64> = notice.claims.iter().copied().take(MAX_CLAIMS).collect();
            let fresh = Other { beat: notice.beat, claims, since: now, ended: false };
            let known = self.others.entry(notice.writer).or_insert_with(|| fresh.clone());
            if known.beat != notice.beat {
                *known = fresh;
            }
        }
    }

    /// The process of this writer is known to have ended.
    pub fn saw_end(&mut self, writer: u64) {
        if let Some(other) = self.others.get_mut(&writer) {
            other.ended = true;
        }
    }

    /// What to do now.
    pub fn choose(&mut self, now: u64) -> Choice {
        let taken: BTreeSet<u64> =
            self.live(now).flat_map(|(_, other)| other.claims.iter().copied()).collect();
        let left_to = |chunk: &u64| {
            let (writer, beat) = self.left.get(chunk)?;
            self.others.get(writer).filter(|other| other.beat == *beat && self.is_live(other, now))
        };
        let free: Vec<u64> = (0..self.chunks)
            .filter(|chunk| {
                !self.committed.contains(chunk) && !taken.contains(chunk) && left_to(chunk).is_none()
            })
            .collect();
        let chosen = match self.last.map(|last| last + 1).filter(|next| free.binary_search(next).is_ok()) {
            Some(next) => Some(next),
            None => free.get(self.place_among(now, free.len())).copied(),
        };
        self.claim = chosen;
        match chosen {
            Some(chunk) => Choice::Claim(chunk),
            None if self.committed.len() as u64 >= self.chunks => Choice::Done,
            None => Choice::Wait,
        }
    }

    /// Whether the chunk that was chosen is this writer's, by what was seen after its own notice was published.
    pub fn confirm(&mut self, now: u64) -> bool {
        let Some(chunk) = self.claim else { return false };
        if self.committed.contains(&chunk) {
            self.claim = None;
            return false;
        }
        let rival = self.live(now).find(|(_, other)| other.claims.contains(&chunk));
        let rival = rival.map(|(writer, other)| (*writer, other.beat));
        let Some((writer, beat)) = rival else { return true };
        if writer < self.me {
            self.left.insert(chunk, (writer, beat));
        }
        self.claim = None;
        false
    }

    /// The chunk in hand is committed.
    pub fn commit(&mut self) {
        if let Some(chunk) = self.claim.take() {
            self.committed.insert(chunk);
            self.last = Some(chunk);
        }
    }

    /// The notice to publish now.
    pub fn notice(&mut self) -> Notice {
        self.beat += 1;
        let claims = self.claim.into_iter().collect();
        Notice { writer: self.me, beat: self.beat, claims, ..Notice::default() }
    }

    /// Chunks that are committed.
    pub fn committed(&self) -> u64 {
        self.committed.len() as u64
    }

    /// Other writers that were heard of lately.
    pub fn live_writers(&self, now: u64) -> usize {
        self.live(now).count()
    }

    /// Writers that ended or lapsed: what they left may be removed.
    pub fn lapsed(&self, now: u64) -> Vec<u64> {
        self.others.iter().filter(|(_, other)| !self.is_live(other, now)).map(|(writer, _)| *writer).collect()
    }

    fn live(&self, now: u64) -> impl Iterator<Item = (&u64, &Other)> {
        self.others.iter().filter(move |(_, other)| self.is_live(other, now))
    }

    fn is_live(&self, other: &Other, now: u64) -> bool {
        !other.ended && now.saturating_sub(other.since) < self.timeout_ms
    }

    /// Where among `free` chunks this writer begins: each of the writers has a stretch of its own.
    fn place_among(&self, now: u64, free: usize) -> usize {
        let before = self.live(now).filter(|(writer, _)| **writer < self.me).count();
        let writers = self.live(now).count() + 1;
        free * before / writers
    }
}

#[cfg(test)]
mod tests;
