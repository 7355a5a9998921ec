//! Which rank makes the others wait, and in which stage: decided from the paces of all ranks of a job.
//!
//! Ranks that train together all take as long for a step as the slowest: what tells them apart is how much of it each
//! waits for the others. That part is inferred and left out ([`Verdict::others_us`]); what remains is the rank's own time.
//! A rank is late when its own time exceeds the median of the others by half, and the late stage is the part with the
//! largest excess. Ranks that do not wait for each other are compared the same way, with nothing to leave out.
//!
//! What cannot be seen: a slow *step* of ranks that wait for each other inside their steps. It looks the same on all.

use super::Pace;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A pace over fewer steps says nothing yet.
pub const LEAST_STEPS: u64 = 6;
/// A rank is late when its own time exceeds the median of the others by more than this share. Less is also seen of ranks
/// that are alike: where all of them hardly keep up, the one that is behind stays so.
const LATE_SHARE: f64 = 0.5;
/// And by more than this: shorter times are noise of the machine.
const LATE_US: u64 = 500;
/// What speaks for a cause: so many times the median of the others.
const SPEAKS: f64 = 1.5;
/// Steal in thousandths that speaks for a cause.
const STEAL_SPEAKS: u64 = 50;

/// A part of a rank's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Payloads come late.
    Fetch,
    /// Batches are prepared late.
    Prep,
    /// Batches that are done are handed over late.
    Queue,
    /// Making batches the framework's takes long.
    Transfer,
    /// The loop's own work takes long.
    Step,
}

impl Stage {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Fetch, Self::Prep, Self::Queue, Self::Transfer, Self::Step];

    /// Its name in figures and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fetch => "fetch",
            Self::Prep => "prep",
            Self::Queue => "queue",
            Self::Transfer => "transfer",
            Self::Step => "step",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The rank that makes the others wait.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Straggler {
    /// The rank.
    pub rank: u64,
    /// The part in which it is late.
    pub stage: Stage,
    /// Its own time for a step.
    pub own_us: u64,
    /// The median of the others.
    pub usual_us: u64,
    /// What of that is the stage's: its time beyond the median of the others.
    pub stage_excess_us: u64,
    /// What speaks for a cause, in words; may be empty.
    pub evidence: Vec<String>,
}

impl fmt::Display for Straggler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times = self.own_us as f64 / self.usual_us.max(1) as f64;
        write!(f, "rank {} is late: {times:.1} times the step of others, in {}", self.rank, self.stage)?;
        if !self.evidence.is_empty() {
            write!(f, " ({})", self.evidence.join(", "))?;
        }
        Ok(())
    }
}

/// What the paces of a job say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    /// The late rank, if there is one.
    pub late: Option<Straggler>,
    /// What each rank waits for others in a step, in microseconds, in the order in which paces were given.
    pub others_us: Vec<u64>,
}

/// Judges the ranks of one job, each with its latest pace.
pub fn judge(paces: &[(u64, Pace)]) -> Verdict {
    let latest = paces.iter().map(|(_, pace)| pace.data_us()).max().unwrap_or(0);
    let shortest = paces.iter().map(|(_, pace)| pace.step_us).min().unwrap_or(0);
    let others_us: Vec<u64> =
        paces.iter().map(|(_, pace)| (latest - pace.data_us()).min(pace.step_us - shortest)).collect();
    let known = paces.iter().all(|(_, pace)| pace.over_steps >= LEAST_STEPS);
    if paces.len() < 2 || !known {
        return Verdict { late: None, others_us };
    }
    let parts: Vec<[u64; 5]> =
        paces.iter().zip(&others_us).map(|((_, pace), waited)| parts(pace, *waited)).collect();
    let own: Vec<u64> =
        parts.iter().map(|parts| parts.iter().fold(0, |a: u64, b| a.saturating_add(*b))).collect();
    let Some(at) = (0..own.len()).max_by_key(|at| own[*at]) else { return Verdict { late: None, others_us } };
    let usual_us = median(own.iter().copied(), at);
    let excess = own[at] - usual_us.min(own[at]);
    if excess <= LATE_US || excess as f64 <= LATE_SHARE * usual_us as f64 {
        return Verdict { late: None, others_us };
    }
    let stages = Stage::ALL.into_iter().enumerate().map(|(part, stage)| {
        let usual = median(parts.iter().map(|parts| parts[part]), at);
        (parts[at][part].saturating_sub(usual), stage)
    });
    let (stage_excess_us, stage) = stages.max_by_key(|(excess, _)| *excess).unwrap_or((0, Stage::Step));
    let (rank, own_us) = (paces[at].0, own[at]);
    let evidence = evidence(paces, at);
    let late = Some(Straggler { rank, stage, own_us, usual_us, stage_excess_us, evidence });
    Verdict { late, others_us }
}

/// A rank's own time by stage.
fn parts(pace: &Pace, waited: u64) -> [u64; 5] {
    let own_step = pace.step_us.saturating_sub(waited);
    [pace.fetch_stall_us, pace.prep_stall_us, pace.queue_us, pace.transfer_us, own_step]
}

/// What of the late rank differs from the others.
fn evidence(paces: &[(u64, Pace)], at: usize) -> Vec<String> {
    let late = &paces[at].1;
    let usual = |of: fn(&Pace) -> u64| median(paces.iter().map(|(_, pace)| of(pace)), at);
    let mut words = Vec::new();
    let request = usual(|pace| pace.request_us);
    if request > 0 && late.request_us as f64 > SPEAKS * request as f64 {
        let ms = |us: u64| us as f64 / 1000.0;
        words.push(format!("requests take {:.1} ms, others' {:.1} ms", ms(late.request_us), ms(request)));
    }
    let hits = usual(|pace| pace.hits_permille.unwrap_or(0));
    let own_hits = late.hits_permille.unwrap_or(0);
    if hits >= 100 && (own_hits as f64) < hits as f64 / SPEAKS {
        words.push(format!("{} % of payloads in its cache, others' {} %", own_hits / 10, hits / 10));
    }
    let steal = usual(|pace| pace.steal_permille);
    if late.steal_permille >= STEAL_SPEAKS.max(steal.saturating_mul(2)) {
        words.push(format!("{} % of its processors' time goes to other machines", late.steal_permille / 10));
    }
    words
}

/// The median of all but one; 0 when there are no others.
fn median(values: impl Iterator<Item = u64>, but: usize) -> u64 {
    let others = values.enumerate().filter(|(at, _)| *at != but).map(|(_, value)| value);
    let mut others: Vec<u64> = others.collect();
    others.sort_unstable();
    // Of an even number the lower one: two ranks of four may be late together.
    others.get((others.len().max(1) - 1) / 2).copied().unwrap_or(0)
}
