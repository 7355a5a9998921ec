//! What a dispatcher knows and the processes of hosts have, as the page lists it.

use super::{
    Bands, FeedLine, JobLine, LISTED, LISTED_JOBS, LISTED_RANKS, RankCell, StageLine, State, WorkerLine,
    cell, late,
};
use crate::commands::size;
use crate::dashboard::sources::Look;
use forebay_core::dispatcher::{ConsumerView, JobView, View};
use forebay_net::service::worker::WorkerView;

/// What a dispatcher knows.
pub(super) fn service(view: &View, state: &mut State, times: &mut [f64; 6]) {
    state.workers_in_all += view.workers.len();
    let room = LISTED.saturating_sub(state.workers.len());
    state.workers.extend(view.workers.iter().take(room).map(|worker| WorkerLine {
        name: worker.worker.to_string(),
        address: worker.address.clone(),
        state: match (worker.draining, worker.suspected) {
            (true, _) => "draining",
            (_, true) => "not reached",
            _ => "live",
        },
        queued_batches: worker.load.queued_batches,
        staged_bytes: worker.load.staged_bytes,
        batches_per_second: worker.batches_per_second,
        bytes_per_second: worker.bytes_per_second,
        silent_ms: worker.silent_ms,
    }));
    if !view.workers.is_empty() {
        let made: f64 = view.workers.iter().map(|worker| worker.batches_per_second).sum();
        let sent: f64 = view.workers.iter().map(|worker| worker.bytes_per_second).sum();
        let queued: u64 = view.workers.iter().map(|worker| worker.load.queued_batches).sum();
        let (slots, queued) =
            (view.workers.iter().map(|worker| u64::from(worker.slots)).sum::<u64>(), queued as f64);
        state.stages.push(StageLine {
            name: "workers",
            rate: format!("{made:.1} batches/s, {}/s", size(sent as u64)),
            fill: (slots > 0).then(|| (queued / slots as f64).clamp(0.0, 1.0)),
            fill_of: "of their threads have a batch to make",
        });
    }
    for feed in view.feeds.iter().take(LISTED.saturating_sub(state.feeds.len())) {
        let reading = view.jobs.iter().filter(|job| job.terms.feed == feed.feed);
        state.feeds.push(FeedLine {
            feed: feed.feed.to_string(),
            label: feed.label.clone(),
            jobs: feed.jobs.len(),
            samples_per_second: Some(reading.map(|job| job.samples_per_second).sum()),
            staged_bytes: None,
            limit_bytes: None,
        });
    }
    for job in &view.jobs {
        for consumer in &job.consumers {
            if let Some(pace) = &consumer.progress.pace {
                let of = Bands::of_pace(pace, consumer.others_us);
                times.iter_mut().zip(of).for_each(|(sum, time)| *sum += time / 1e6);
            }
        }
        state.samples_per_second += job.samples_per_second;
        if state.jobs.len() < LISTED_JOBS {
            state.jobs.push(job_line(job));
        }
    }
}

fn job_line(job: &JobView) -> JobLine {
    let rank = |consumer: &ConsumerView| {
        let pace = consumer.progress.pace.unwrap_or_default();
        let shown =
            cell(consumer.rank, &pace, consumer.others_us, consumer.progress.step, consumer.silent_ms);
        // A client without a pace still says how long it waits.
        if pace.over_steps > 0 { shown } else { RankCell { waits: consumer.waiting_share, ..shown } }
    };
    JobLine {
        name: job.job.to_string(),
        label: job.terms.label.clone(),
        world_size: job.terms.world_size,
        samples_per_second: job.samples_per_second,
        ranks_in_all: job.consumers.len(),
        ranks: job.consumers.iter().take(LISTED_RANKS).map(rank).collect(),
        straggler: job.straggler.as_ref().map(late),
    }
}

/// What the processes of hosts have.
pub(super) fn hosts(before: Option<(&Look, f64)>, look: &Look, state: &mut State) {
    for host in &look.hosts {
        let earlier = before.and_then(|(look, passed)| {
            let same = look.hosts.iter().find(|one| one.address == host.address)?;
            Some((same, passed)).filter(|(_, passed)| *passed > 0.0)
        });
        let rate = |now: u64, of: fn(&WorkerView) -> u64| {
            earlier.map_or(0.0, |(same, passed)| now.saturating_sub(of(same)) as f64 / passed)
        };
        let made = rate(host.sum(|feed| feed.made), |one| one.sum(|feed| feed.made));
        let sent = rate(host.bytes_sent, |one| one.bytes_sent);
        state.workers_in_all += 1;
        state.workers.push(WorkerLine {
            name: "host".to_owned(),
            address: host.address.clone(),
            state: if host.draining { "draining" } else { "live" },
            queued_batches: 0,
            staged_bytes: host.sum(|feed| feed.held_bytes),
            batches_per_second: made,
            bytes_per_second: sent,
            silent_ms: 0,
        });
        let limit: u64 = host.feeds.iter().map(|feed| feed.limit_bytes).max().unwrap_or(0);
        let held = host.sum(|feed| feed.held_bytes);
        state.stages.push(StageLine {
            name: "staging",
            rate: format!("{made:.1} batches/s made, {}/s given", size(sent as u64)),
            fill: (limit > 0).then(|| (held as f64 / limit as f64).clamp(0.0, 1.0)),
            fill_of: "of its memory holds batches",
        });
        for feed in host.feeds.iter().take(LISTED.saturating_sub(state.feeds.len())) {
            state.feeds.push(FeedLine {
                feed: feed.feed.clone(),
                label: feed.label.clone(),
                jobs: feed.jobs.len(),
                samples_per_second: None,
                staged_bytes: Some(feed.staging.held_bytes),
                limit_bytes: Some(feed.limit_bytes),
            });
            for job in feed.jobs.iter().take(LISTED_JOBS.saturating_sub(state.jobs.len())) {
                state.jobs.push(JobLine {
                    name: job.job.clone(),
                    label: feed.label.clone(),
                    world_size: job.consumers,
                    samples_per_second: 0.0,
                    ranks: Vec::new(),
                    ranks_in_all: job.consumers as usize,
                    straggler: None,
                });
            }
        }
    }
}
