//! What loaders and workers show as figures: the time of all ranks by part, stages, and tiers of the cache.

use super::{JobLine, LISTED_RANKS, Late, StageLine, State, Tier, cell, late};
use crate::commands::size;
use crate::dashboard::figures::Figures;
use forebay_core::stall::{Pace, judge};

/// What loaders show: the time of all ranks by part, and the ranks as a job of their own.
pub(super) fn loops(figures: &Figures<'_>, state: &mut State) -> [f64; 6] {
    const PART: &str = "forebay_engine_part_seconds_sum";
    let ranks = figures.values(PART, "rank");
    let mut all = [0.0; 6];
    let mut cells = Vec::new();
    let mut paces = Vec::new();
    for name in ranks.iter().map(String::as_str) {
        let of = |part: &str| figures.grown(PART, &[("rank", name), ("part", part)]).max(0.0);
        let others = figures.grown("forebay_engine_others_seconds_total", &[("rank", name)]).max(0.0);
        let times = [of("step"), others, of("fetch_stall"), of("prep_stall"), of("queue"), of("transfer")];
        all.iter_mut().zip(times).for_each(|(sum, time)| *sum += time);
        let steps = figures.grown("forebay_engine_batches_total", &[("rank", name)]).max(0.0);
        let rank = name.parse().unwrap_or(u64::MAX);
        let us = |seconds: f64| if steps > 0.0 { (seconds / steps * 1e6) as u64 } else { 0 };
        let pace = Pace {
            over_steps: steps as u64,
            step_us: us(times[0]),
            fetch_stall_us: us(times[2]),
            prep_stall_us: us(times[3]),
            queue_us: us(times[4]),
            transfer_us: us(times[5]),
            ..Pace::default()
        };
        paces.push((rank, pace));
        let step = figures.sum("forebay_engine_batches_total", &[("rank", name)]) as u64;
        cells.push((rank, pace, step));
    }
    if ranks.is_empty() {
        return all;
    }
    let verdict = judge(&paces);
    if all[1] == 0.0 {
        // Ranks that do not tell each other how they go: what they wait is inferred from their means.
        let waits = paces.iter().zip(&verdict.others_us);
        all[1] = waits.map(|((_, pace), others)| *others as f64 / 1e6 * pace.over_steps as f64).sum();
    }
    let told = figures.first("forebay_engine_late_ranks").and_then(|figure| {
        let (rank, stage) = (figure.label("late_rank")?, figure.label("stage")?);
        let words = format!("rank {rank} is late, in {stage}");
        Some(Late { rank: rank.parse().ok()?, stage: stage.to_owned(), words })
    });
    let cells = cells.iter().zip(&verdict.others_us);
    state.jobs.push(JobLine {
        name: "loaders".to_owned(),
        label: "by their figures".to_owned(),
        world_size: ranks.len() as u64,
        samples_per_second: state.samples_per_second,
        ranks_in_all: ranks.len(),
        ranks: cells
            .take(LISTED_RANKS)
            .map(|((rank, pace, step), others)| cell(*rank, pace, *others, *step, 0))
            .collect(),
        straggler: verdict.late.as_ref().map(late).or(told),
    });
    all
}

/// What fetches, prepares and hands over, over everybody who shows figures.
pub(super) fn stages(figures: &Figures<'_>) -> Vec<StageLine> {
    let mut lines = Vec::new();
    let per_second = |bytes: f64| format!("{}/s", size(bytes as u64));
    let threads = figures.sum("forebay_engine_threads", &[]);
    if figures.first("forebay_engine_requests_total").is_some() {
        // Each of them may wait all the time.
        let loaders = figures.count("forebay_engine_requests_total") as f64;
        let waits = figures.grown("forebay_engine_budget_wait_seconds_total", &[]) / loaders;
        lines.push(StageLine {
            name: "fetch",
            rate: format!(
                "{}, {:.0} requests/s",
                per_second(figures.rate("forebay_engine_payload_bytes_total")),
                figures.rate("forebay_engine_requests_total")
            ),
            fill: figures.passed().map(|passed| (waits / passed).clamp(0.0, 1.0)),
            fill_of: "of its time memory is full",
        });
        let busy = figures.grown("forebay_engine_prep_seconds_total", &[]);
        let fill = figures.passed().filter(|_| threads > 0.0);
        lines.push(StageLine {
            name: "prep",
            rate: format!("{threads:.0} threads"),
            fill: fill.map(|passed| (busy / passed / threads).clamp(0.0, 1.0)),
            fill_of: "of its threads work",
        });
    }
    let open = figures.sum("forebay_engine_open_batches", &[]);
    if figures.first("forebay_engine_batches_total").is_some() {
        let ready = figures.sum("forebay_engine_ready_batches", &[]);
        lines.push(StageLine {
            name: "deliver",
            rate: format!("{:.1} batches/s", figures.rate("forebay_engine_batches_total")),
            fill: (open > 0.0).then(|| (ready / open).clamp(0.0, 1.0)),
            fill_of: "of its batches are ready",
        });
    }
    lines
}

pub(super) fn tiers(figures: &Figures<'_>) -> Vec<Tier> {
    const HITS: &str = "forebay_engine_cache_hits_total";
    let misses = figures.grown("forebay_engine_cache_misses_total", &[]);
    let all = figures.grown(HITS, &[]) + misses;
    let tiers = ["memory", "disk", "peer"].map(|tier| Tier {
        tier,
        bytes: figures.sum("forebay_engine_cache_bytes", &[("tier", tier)]),
        limit_bytes: figures.sum("forebay_engine_cache_limit_bytes", &[("tier", tier)]),
        hits: if all > 0.0 { figures.grown(HITS, &[("tier", tier)]) / all } else { 0.0 },
    });
    tiers.into_iter().filter(|tier| tier.limit_bytes > 0.0 || tier.hits > 0.0).collect()
}
