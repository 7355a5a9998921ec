//! What the page draws, from what everybody said: plain data, with rates where there was a moment before.
//!
//! Figures become shares and stages in `loops`, views become lists in `service`. Lists are bounded: a page is for people.
//! Texts come from outside and are shown as text, never as markup.

mod loops;
mod service;

use super::figures::Figures;
use super::sources::Look;
use forebay_core::stall::{Pace, Straggler};
use loops::{loops, stages, tiers};
use serde::Serialize;
use service::{hosts, service};

/// Most workers, feeds and jobs that are listed, and ranks of one job.
const LISTED: usize = 256;
const LISTED_JOBS: usize = 64;
const LISTED_RANKS: usize = 1024;

/// Everything at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct State {
    pub(super) at_ms: u64,
    pub(super) sources: Vec<String>,
    pub(super) faults: Vec<String>,
    /// Where the loops' time goes; none while nobody says.
    pub(super) bands: Option<Bands>,
    pub(super) samples_per_second: f64,
    pub(super) stages: Vec<StageLine>,
    pub(super) tiers: Vec<Tier>,
    pub(super) workers: Vec<WorkerLine>,
    pub(super) workers_in_all: usize,
    pub(super) feeds: Vec<FeedLine>,
    pub(super) jobs: Vec<JobLine>,
}

/// Shares of the loops' time; together 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Bands {
    step: f64,
    others: f64,
    fetch_stall: f64,
    prep_stall: f64,
    queue: f64,
    transfer: f64,
}

impl Bands {
    /// In the order of their fields.
    pub(super) fn shares(self) -> [f64; 6] {
        [self.step, self.others, self.fetch_stall, self.prep_stall, self.queue, self.transfer]
    }

    /// Of times in any unit; none of nothing.
    fn of([step, others, fetch_stall, prep_stall, queue, transfer]: [f64; 6]) -> Option<Self> {
        let step = (step - others).max(0.0);
        let all = step + others + fetch_stall + prep_stall + queue + transfer;
        (all > 0.0).then(|| Self {
            step: step / all,
            others: others / all,
            fetch_stall: fetch_stall / all,
            prep_stall: prep_stall / all,
            queue: queue / all,
            transfer: transfer / all,
        })
    }

    fn of_pace(pace: &Pace, others_us: u64) -> [f64; 6] {
        let times = [
            pace.step_us,
            others_us,
            pace.fetch_stall_us,
            pace.prep_stall_us,
            pace.queue_us,
            pace.transfer_us,
        ];
        times.map(|time| time as f64)
    }
}

/// One stage.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct StageLine {
    name: &'static str,
    /// How fast it goes, in words.
    rate: String,
    /// Share of its capacity that is in use, from 0 to 1.
    fill: Option<f64>,
    /// What the share is of.
    fill_of: &'static str,
}

/// One tier of the cache.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[expect(clippy::struct_field_names, reason = "the page reads these names")]
pub(super) struct Tier {
    tier: &'static str,
    bytes: f64,
    limit_bytes: f64,
    /// Share of all payloads that came from it, lately.
    hits: f64,
}

/// One worker.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct WorkerLine {
    name: String,
    address: String,
    state: &'static str,
    queued_batches: u64,
    staged_bytes: u64,
    batches_per_second: f64,
    bytes_per_second: f64,
    silent_ms: u64,
}

/// One feed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct FeedLine {
    feed: String,
    label: String,
    jobs: usize,
    samples_per_second: Option<f64>,
    staged_bytes: Option<u64>,
    limit_bytes: Option<u64>,
}

/// One job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct JobLine {
    name: String,
    label: String,
    world_size: u64,
    samples_per_second: f64,
    ranks: Vec<RankCell>,
    ranks_in_all: usize,
    straggler: Option<Late>,
}

/// One rank of a heat map.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct RankCell {
    rank: u64,
    /// Share of its time that it waits for data.
    waits: f64,
    /// Its own time for a step in seconds, without waiting for others; 0 while unknown.
    own_seconds: f64,
    step: u64,
    silent_ms: u64,
}

/// The late rank.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Late {
    rank: u64,
    stage: String,
    words: String,
}

/// What is shown of a look, with rates since one that many seconds before.
pub(super) fn state(at_ms: u64, before: Option<(&Look, f64)>, look: &Look) -> State {
    let earlier = before.map(|(look, passed)| (look.figures.as_slice(), passed));
    let figures = Figures::new(&look.figures, earlier);
    let mut state = State {
        at_ms,
        sources: look.names.clone(),
        faults: look.faults.clone(),
        samples_per_second: figures.rate("forebay_engine_samples_total"),
        tiers: tiers(&figures),
        stages: stages(&figures),
        ..State::default()
    };
    let mut times = loops(&figures, &mut state);
    for view in &look.services {
        service(view, &mut state, &mut times);
    }
    hosts(before, look, &mut state);
    state.bands = Bands::of(times);
    state
}

fn late(late: &Straggler) -> Late {
    Late { rank: late.rank, stage: late.stage.to_string(), words: late.to_string() }
}

fn cell(rank: u64, pace: &Pace, others_us: u64, step: u64, silent_ms: u64) -> RankCell {
    let all = pace.data_us().saturating_add(pace.step_us);
    let own = all.saturating_sub(others_us);
    RankCell {
        rank,
        waits: if all > 0 { pace.data_us() as f64 / all as f64 } else { 0.0 },
        own_seconds: own as f64 / 1e6,
        step,
        silent_ms,
    }
}

#[cfg(test)]
mod tests;
