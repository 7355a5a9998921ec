//! What a dispatcher knows, for people: workers, feeds, jobs, leases and rates.

use super::{count, counted, size, table};
use crate::commands::seconds;
use forebay_core::dispatcher::{FeedView, JobView, Sharding, Terms, View, Visitation, WorkerView};
use forebay_core::scale::Why;

/// Consumers of one job that are listed; the rest is counted.
const CONSUMERS: usize = 16;

/// The view for people.
pub(super) fn lines(view: &View) -> Vec<String> {
    let mut lines = vec![format!(
        "{}, {}, {}, {}",
        counted(view.workers.len() as u64, "worker"),
        counted(view.feeds.len() as u64, "feed"),
        counted(view.jobs.len() as u64, "job"),
        counted(view.leases, "lease"),
    )];
    let working = view.workers.iter().filter(|worker| !worker.draining).count() as u64;
    if view.scale.workers != working {
        let wanted = counted(view.scale.workers, "worker");
        lines.push(format!("{wanted} wanted: {}", reason(view.scale.why)));
    }
    if !view.workers.is_empty() {
        let head = ["WORKER", "ADDRESS", "LEASES", "QUEUED", "STAGED", "BATCHES/S", "BYTES/S", "HEARD", ""];
        lines.push(String::new());
        lines.extend(table(&head, view.workers.iter().map(worker_row)));
    }
    if !view.feeds.is_empty() {
        let head = ["FEED", "DATASET", "JOBS", "LEASES", "SPAN", "EPOCH", "SAMPLES/S"];
        lines.push(String::new());
        lines.extend(table(&head, view.feeds.iter().map(|feed| feed_row(feed, view))));
    }
    for job in &view.jobs {
        lines.push(String::new());
        lines.push(job_line(job));
        let head = [
            "RANK",
            "EPOCH",
            "POSITION",
            "STEP",
            "TAKEN",
            "SAMPLES/S",
            "WAITED",
            "SKIPPED",
            "REMADE",
            "HEARD",
        ];
        let rows = job.consumers.iter().take(CONSUMERS).map(|consumer| {
            let progress = &consumer.progress;
            vec![
                consumer.rank.to_string(),
                progress.reached.epoch.to_string(),
                count(progress.reached.position),
                count(progress.step),
                count(progress.taken),
                format!("{:.1}", consumer.samples_per_second),
                seconds(progress.waits_ms as f64 / 1000.0),
                count(progress.skipped),
                count(progress.remade),
                ago(consumer.silent_ms),
            ]
        });
        lines.extend(table(&head, rows));
        if job.consumers.len() > CONSUMERS {
            lines.push(format!("  and {} more", count((job.consumers.len() - CONSUMERS) as u64)));
        }
        if let Some(late) = &job.straggler {
            lines.push(format!("  {late}"));
        }
    }
    lines
}

/// Why a number of workers is wanted, in words.
pub(super) fn reason(why: Why) -> &'static str {
    match why {
        Why::Idle => "nobody reads, or nothing was measured yet",
        Why::Settling => "it is too early to tell: the number of workers or jobs changed a moment ago",
        Why::Enough => "jobs hardly wait, and fewer workers would not do",
        Why::Waiting => "jobs wait for batches",
        Why::Spare => "fewer workers have been enough for a while",
        Why::LinkBound => "jobs wait, but the store or a link gives no more: more workers would not help",
        Why::AtMost => "jobs wait, but no more workers are allowed (`--most-workers`)",
    }
}

fn worker_row(worker: &WorkerView) -> Vec<String> {
    let state = match (worker.draining, worker.suspected) {
        (true, _) => "draining",
        (false, true) => "not reached by a client",
        (false, false) => "",
    };
    vec![
        worker.worker.to_string(),
        worker.address.clone(),
        count(worker.leases),
        count(worker.load.queued_batches),
        size(worker.load.staged_bytes),
        format!("{:.1}", worker.batches_per_second),
        size(worker.bytes_per_second as u64),
        ago(worker.silent_ms),
        state.to_owned(),
    ]
}

fn feed_row(feed: &FeedView, view: &View) -> Vec<String> {
    let reading = view.jobs.iter().filter(|job| job.terms.feed == feed.feed);
    vec![
        feed.feed.to_string(),
        feed.label.clone(),
        count(feed.jobs.len() as u64),
        count(feed.leases),
        count(feed.span_positions),
        count(feed.epoch_positions),
        format!("{:.1}", reading.map(|job| job.samples_per_second).sum::<f64>()),
    ]
}

/// Words for what differs from the usual: every rank its own portion, every sample once.
fn terms_words(terms: &Terms) -> String {
    let word = |value: serde_json::Result<serde_json::Value>| {
        value.ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
    };
    let mut words = String::new();
    if terms.sharding != Sharding::default() {
        words = format!("{words}, sharding {}", word(serde_json::to_value(terms.sharding)));
    }
    if terms.visitation != Visitation::default() {
        words = format!("{words}, {}", word(serde_json::to_value(terms.visitation)));
    }
    words
}

fn job_line(job: &JobView) -> String {
    let terms = &job.terms;
    let line = format!(
        "job {}: {} of {}, {:.1} samples/s, {}{}",
        job.job,
        count(job.consumers.len() as u64),
        counted(terms.world_size, "rank"),
        job.samples_per_second,
        terms.label,
        terms_words(terms)
    );
    let Some(taking) = &job.taking else { return line };
    let (epoch, done, in_hand) = (taking.epoch, count(taking.done), count(taking.in_hand));
    let dropped =
        if taking.dropped > 0 { format!(", {} dropped", count(taking.dropped)) } else { String::new() };
    format!("{line}, epoch {epoch}: {done} spans done, {in_hand} in hand{dropped}")
}

fn ago(milliseconds: u64) -> String {
    format!("{} ago", seconds(milliseconds as f64 / 1000.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::dispatcher::{
        Command, Dispatcher, JobName, Load, Progress, Reached, Reply, Settings, State, Who, WorkerId,
    };
    use forebay_core::feed::{FeedId, Span};
    use forebay_core::stall::Pace;

    /// What `status` and `top` show of a small service, five seconds after it began.
    fn shown() -> Vec<String> {
        let mut machine = Dispatcher::new(State::default(), Settings::default(), 0);
        let who = |rank| Who { job: JobName::new("train-7@0000abcd/2").unwrap(), rank, consumer: rank + 1 };
        let terms = Terms {
            feed: FeedId(0xABCD),
            label: "s3://bucket/train".into(),
            world_size: 2,
            span_positions: 1024,
            epoch_positions: 1_281_167,
            sharding: Sharding::Portion,
            visitation: Visitation::ExactlyOnce,
        };
        let worker = |number: u64| Command::RegisterWorker {
            worker: WorkerId(number),
            address: format!("10.0.0.{number}:7078"),
            tags: vec![],
            slots: 8,
        };
        let attach = |rank| Command::AttachJob {
            who: who(rank),
            terms: terms.clone(),
            from: Reached::default(),
            step: 0,
        };
        let spans = (0..3).map(|number| Span { epoch: 0, number }).collect();
        let load = |made: u64| Load {
            queued_batches: 3,
            staged_bytes: 96 << 20,
            made_batches: made,
            sent_bytes: made * 38_535_168,
        };
        let beat =
            |incarnation, made| Command::Heartbeat { worker: WorkerId(1), incarnation, load: load(made) };
        let progress = |taken: u64| Progress {
            reached: Reached { epoch: 1, position: taken },
            step: taken / 256,
            taken,
            waits_ms: 1500,
            skipped: 0,
            remade: 2,
            pace: None,
        };
        let report = |taken| Command::ReportProgress { who: who(0), progress: progress(taken) };
        let mut obey = |now, command| machine.apply(now, command).unwrap().0;
        let Reply::Registered { incarnation, .. } = obey(0, worker(1)) else { panic!("not registered") };
        for (now, command) in [
            (0, worker(2)),
            (0, attach(0)),
            (0, attach(1)),
            (0, Command::DrainWorker { worker: WorkerId(2) }),
            (0, Command::Locate { who: who(0), spans, avoid: vec![] }),
            (1000, beat(incarnation, 0)),
            (1000, report(0)),
            (3000, beat(incarnation, 20)),
            (3000, report(5120)),
        ] {
            obey(now, command);
        }
        let Reply::View(view) = obey(5000, Command::View) else { panic!("no view") };
        lines(&view)
    }

    #[test]
    fn status_and_top_show_workers_feeds_jobs_leases_and_rates() {
        let expected = [
            "2 workers, 1 feed, 1 job, 3 leases",
            "",
            "  WORKER            ADDRESS        LEASES  QUEUED  STAGED    BATCHES/S  BYTES/S   HEARD",
            "  0000000000000001  10.0.0.1:7078  3       3       100.7 MB  10.0       385.4 MB  2 s ago",
            "  0000000000000002  10.0.0.2:7078  0       0       0 B       0.0        0 B       5 s ago  draining",
            "",
            "  FEED                              DATASET            JOBS  LEASES  SPAN   EPOCH      SAMPLES/S",
            "  0000000000000000000000000000abcd  s3://bucket/train  1     3       1,024  1,281,167  2560.0",
            "",
            "job train-7@0000abcd/2: 2 of 2 ranks, 2560.0 samples/s, s3://bucket/train",
            "  RANK  EPOCH  POSITION  STEP  TAKEN  SAMPLES/S  WAITED  SKIPPED  REMADE  HEARD",
            "  0     1      5,120     20    5,120  2560.0     1.5 s   0        2       2 s ago",
            "  1     0      0         0     0      0.0        0 µs    0        0       5 s ago",
        ];
        assert_eq!(shown(), expected);
    }

    #[test]
    fn p071_the_late_rank_of_a_job_is_named_from_what_ranks_report() {
        let mut machine = Dispatcher::new(State::default(), Settings::default(), 0);
        let who = |rank| Who { job: JobName::new("train").unwrap(), rank, consumer: rank + 1 };
        let terms = Terms {
            feed: FeedId(1),
            label: "data".into(),
            world_size: 4,
            span_positions: 64,
            epoch_positions: 640,
            sharding: Sharding::Portion,
            visitation: Visitation::ExactlyOnce,
        };
        for rank in 0..4 {
            // Steps end together; rank 2 has its batches late, so the others wait inside their steps.
            let fetch_stall_us = if rank == 2 { 58_000 } else { 10_000 };
            let pace =
                Pace { over_steps: 15, step_us: 90_000 - fetch_stall_us, fetch_stall_us, ..Pace::default() };
            let progress = Progress { pace: Some(pace), ..Progress::default() };
            let attach = Command::AttachJob {
                who: who(rank),
                terms: terms.clone(),
                from: Reached::default(),
                step: 0,
            };
            machine.apply(0, attach).unwrap();
            machine.apply(1000, Command::ReportProgress { who: who(rank), progress }).unwrap();
        }
        let line = "  rank 2 is late: 2.1 times the step of others, in fetch";
        assert!(lines(&machine.view(1000)).iter().any(|shown| shown == line), "{:?}", machine.view(1000));
        // What was reported long ago says nothing about now.
        assert!(!lines(&machine.view(20_000)).iter().any(|shown| shown.contains("late")));
        assert_eq!(machine.view(1000).jobs[0].consumers[0].others_us, 48_000);
    }

    #[test]
    fn what_is_unusual_about_a_job_is_said() {
        let terms = |sharding, visitation| Terms {
            feed: FeedId(1),
            label: "data".into(),
            world_size: 1,
            span_positions: 1,
            epoch_positions: 1,
            sharding,
            visitation,
        };
        let words = |sharding, visitation| terms_words(&terms(sharding, visitation));
        assert_eq!(words(Sharding::Portion, Visitation::ExactlyOnce), "");
        assert_eq!(words(Sharding::Dynamic, Visitation::AtMostOnce), ", sharding dynamic, at_most_once");
    }
}
