//! How a rank goes, in a few numbers that cross a wire: what its last steps took, part by part, and what may be the cause.
//!
//! A pace is made by the rank itself from its own [`Ledger`], so that no barrier and no clock of others is needed. The
//! longest of the steps is left out: one pause is no pace. Which rank is late is [`super::judge`]'s to say, and what a rank
//! waited for the others [`waited_for_others`] tells from the single steps of all.

use super::{Ledger, Split};
use serde::{Deserialize, Serialize};

/// Steps that a pace looks back on.
pub const PACE_STEPS: usize = 16;
/// Single steps that ranks tell each other.
pub const TOLD_STEPS: usize = 64;

/// How a rank goes lately. Times are microseconds of one step, on average.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pace {
    /// Steps since the loop began.
    pub steps: u64,
    /// Steps that the means are of.
    pub over_steps: u64,
    /// The loop's own work, waiting for other ranks included.
    pub step_us: u64,
    /// Waiting that would vanish if every payload were resident.
    pub fetch_stall_us: u64,
    /// Waiting that remains when every payload is resident.
    pub prep_stall_us: u64,
    /// Handing over batches that were done.
    pub queue_us: u64,
    /// Making batches the framework's.
    pub transfer_us: u64,
    /// Mean time of a request to the store; 0 when there was none.
    pub request_us: u64,
    /// Payloads of a thousand that the cache had; none without a cache.
    pub hits_permille: Option<u64>,
    /// Thousandths of its processors' time that the machine gave to others.
    pub steal_permille: u64,
}

/// What a pace is given beside the ledger; all but the last only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Requests to the store.
    pub requests: u64,
    /// Their time together.
    pub request_us: u64,
    /// Payloads that the cache had.
    pub hits: u64,
    /// Payloads that it had not.
    pub misses: u64,
    /// Time that the machine gave to others, in any unit.
    pub stolen: u64,
    /// All time of its processors, in the same unit.
    pub processors: u64,
}

impl Pace {
    /// The pace of a loop now. Evidence is what was counted since `before`.
    pub fn of(ledger: &Ledger, before: &Evidence, now: &Evidence) -> Self {
        let mut last: Vec<&Split> = finished(ledger).rev().take(PACE_STEPS).collect();
        if last.len() > 2 {
            let longest = (0..last.len()).max_by(|a, b| last[*a].seconds().total_cmp(&last[*b].seconds()));
            if let Some(longest) = longest {
                last.remove(longest);
            }
        }
        let count = last.len().max(1) as f64;
        let mean = |part: fn(&Split) -> f64| (last.iter().map(|s| part(s)).sum::<f64>() / count * 1e6) as u64;
        let since = |of: fn(&Evidence) -> u64| of(now).saturating_sub(of(before));
        let (hits, misses) = (since(|e| e.hits), since(|e| e.misses));
        Self {
            steps: ledger.total().batches,
            over_steps: last.len() as u64,
            step_us: mean(|split| split.step_seconds),
            fetch_stall_us: mean(|split| split.fetch_stall_seconds),
            prep_stall_us: mean(|split| split.prep_stall_seconds),
            queue_us: mean(|split| split.queue_seconds),
            transfer_us: mean(|split| split.transfer_seconds),
            request_us: since(|e| e.request_us).checked_div(since(|e| e.requests)).unwrap_or(0),
            hits_permille: hits
                .saturating_mul(1000)
                .checked_div(hits.saturating_add(misses))
                .filter(|_| now.hits > 0),
            steal_permille: since(|e| e.stolen)
                .saturating_mul(1000)
                .checked_div(since(|e| e.processors))
                .unwrap_or(0),
        }
    }

    /// What came before the step: how late the rank began it.
    pub fn data_us(&self) -> u64 {
        self.fetch_stall_us
            .saturating_add(self.prep_stall_us)
            .saturating_add(self.queue_us)
            .saturating_add(self.transfer_us)
    }
}

/// One step, as it is told to other ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToldStep {
    /// The epoch.
    pub epoch: u64,
    /// Its number there.
    pub step: u64,
    /// From the end of the step before until this one began: stalls, hand-over and transfer.
    pub data_us: u64,
    /// The step itself, waiting for other ranks included.
    pub step_us: u64,
}

/// The last single steps, oldest first.
pub fn told_steps(ledger: &Ledger) -> Vec<ToldStep> {
    let mut told: Vec<ToldStep> = finished(ledger)
        .rev()
        .take(TOLD_STEPS)
        .map(|split| ToldStep {
            epoch: split.epoch,
            step: split.step,
            data_us: ((split.seconds() - split.step_seconds) * 1e6) as u64,
            step_us: (split.step_seconds * 1e6) as u64,
        })
        .collect();
    told.reverse();
    told
}

/// What a rank waited for the others in one step, in microseconds, given that step of all the others.
///
/// Ranks that train together end a step together. So a rank that had its batch sooner waits inside its step for the one
/// that had it last, and its step is longer than the shortest by at least as much: the smaller of the two is what it
/// waited. Ranks that do not wait for each other have steps of one length, and nothing is found.
pub fn waited_for_others(own: &ToldStep, others: impl Iterator<Item = ToldStep>) -> u64 {
    let (mut latest, mut shortest) = (own.data_us, own.step_us);
    for other in others {
        latest = latest.max(other.data_us);
        shortest = shortest.min(other.step_us);
    }
    (latest - own.data_us).min(own.step_us - shortest)
}

/// Steps whose waits for others were found out, one after the other.
#[derive(Clone, Copy, Debug, Default)]
pub struct OthersWatch {
    passed: Option<(u64, u64)>,
}

impl OthersWatch {
    /// What was waited in steps that all ranks have told of since the last call: epoch, step and microseconds. Steps that a
    /// rank tells of no more are passed over; those that it has not reached are looked at next time.
    pub fn found(&mut self, own: &[ToldStep], others: &[Vec<ToldStep>]) -> Vec<(u64, u64, u64)> {
        let mut found = Vec::new();
        let begun = self.passed;
        for step in own.iter().filter(|step| begun.is_none_or(|begun| (step.epoch, step.step) > begun)) {
            let at = (step.epoch, step.step);
            let is_ahead = |told: &Vec<ToldStep>| told.last().is_none_or(|last| (last.epoch, last.step) < at);
            if others.is_empty() || others.iter().any(is_ahead) {
                break;
            }
            self.passed = Some(at);
            let same =
                |told: &Vec<ToldStep>| told.iter().rev().find(|one| (one.epoch, one.step) == at).copied();
            let same: Vec<ToldStep> = others.iter().filter_map(same).collect();
            if same.len() == others.len() {
                found.push((step.epoch, step.step, waited_for_others(step, same.into_iter())));
            }
        }
        found
    }
}

/// Steps that are over: the last one may still be worked on.
fn finished(ledger: &Ledger) -> impl DoubleEndedIterator<Item = &Split> {
    let in_hand = ledger.is_working();
    let steps = ledger.steps().len() - usize::from(in_hand);
    ledger.steps().take(steps)
}
