//! Fetch stall and prep stall of a running loop, by their definition: a second run is kept beside the real one, in which
//! every payload is resident, and what that run waits is prep stall.
//!
//! The resident run has the same loop (the same work between batches), the same preparing threads with the work that they
//! really did for each batch, and the same bound on batches that may be open. Only payloads cost nothing. It is replayed
//! one batch at a time, in constant time, from what was metered at the hand-over: threads are a server that works off
//! `work / servers` for each batch in order, and no batch is done before its longest row is.
//!
//! The real run waits for batch k, the resident run waits for batch k at an earlier moment; both waits belong to step k. A
//! batch that was ready early in the real run, thanks to a burst of payloads, may have been waited for in the resident
//! run: that wait is owed and is paid by later stalls, so that the sums are right and no part of a step is negative. The
//! real run is never ahead of the resident one, so never more is owed than fetching has cost.
//!
//! No clock here: durations come in, durations go out.

use std::collections::VecDeque;
use std::time::Duration;

/// What making one batch took, as far as it was metered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Making {
    /// Time of all threads inside ops.
    pub work: Duration,
    /// Time of the row that took longest.
    pub longest: Duration,
    /// Threads, or workers elsewhere, that share the work.
    pub servers: u32,
    /// Most that fetching can have delayed the batch: nothing when all its payloads were resident.
    pub fetch_limit: Duration,
}

impl Making {
    /// Time of making it when nothing else is made and every payload is resident.
    pub fn alone(&self) -> Duration {
        (self.work / self.servers.max(1)).max(self.longest)
    }
}

/// One stall in its two parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StallSplit {
    /// What would vanish if every payload were resident.
    pub fetch: Duration,
    /// What remains when every payload is resident.
    pub prep: Duration,
}

/// The run in which every payload is resident. Times are nanoseconds since the loop first asked.
#[derive(Debug)]
pub struct ResidentRun {
    /// Batches that may be prepared before they are taken.
    ahead: usize,
    /// When the last batch was handed over.
    handed: u64,
    /// When the threads are done with what they have.
    busy_until: u64,
    /// Hand-overs of the last `ahead` batches: each let another batch be begun.
    taken: VecDeque<u64>,
    /// Stall of the resident run that the real run has not had yet.
    owed: u64,
    /// All fetch stall so far.
    fetched: u64,
}

impl ResidentRun {
    /// Nothing was taken yet. Preparing begins `start` after the loop first asks: threads have to be made ready whatever
    /// is resident.
    pub fn new(ahead: usize, start: Duration) -> Self {
        let ahead = ahead.max(1);
        Self { ahead, handed: 0, busy_until: nanos(start), taken: VecDeque::new(), owed: 0, fetched: 0 }
    }

    /// From now on so many batches may be prepared before they are taken.
    pub fn set_ahead(&mut self, ahead: usize) {
        self.ahead = ahead.max(1);
        while self.taken.len() > self.ahead {
            self.taken.pop_front();
        }
    }

    /// Splits the stall of the next batch. `away` is what the loop did since the batch before it was handed over.
    pub fn split(&mut self, away: Duration, stall: Duration, making: &Making) -> StallSplit {
        let stall = nanos(stall);
        let asked = self.handed.saturating_add(nanos(away));
        let opened = if self.taken.len() == self.ahead { self.taken.pop_front().unwrap_or(0) } else { 0 };
        let began = self.busy_until.max(opened);
        self.busy_until = began.saturating_add(nanos(making.work) / u64::from(making.servers.max(1)));
        let ready = self.busy_until.max(began.saturating_add(nanos(making.longest)));
        let waited = ready.saturating_sub(asked);
        self.handed = asked.saturating_add(waited);
        self.owed = self.owed.saturating_add(waited);
        let mut prep = stall.min(self.owed);
        self.owed -= prep;
        let mut fetch = stall - prep;
        let more = fetch.saturating_sub(nanos(making.fetch_limit));
        if more > 0 {
            // Waited for, and not for payloads: the resident run has the same.
            fetch -= more;
            prep += more;
            self.handed = self.handed.saturating_add(more);
            self.busy_until = self.busy_until.saturating_add(more);
        }
        self.taken.push_back(self.handed);
        self.fetched = self.fetched.saturating_add(fetch);
        self.owed = self.owed.min(self.fetched);
        StallSplit { fetch: Duration::from_nanos(fetch), prep: Duration::from_nanos(prep) }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
