//! `forebay status`, `forebay top` and `forebay drain`: what a dispatcher or a host's process knows, and a word to it.

use super::{Context, Done, count, counted, size};
use crate::args::{AskArgs, DrainArgs, TopArgs};
use forebay_core::dispatcher::{Command, JobView, Reply, View, WorkerId, WorkerView};
use forebay_core::{Error, Result};
use forebay_net::dispatcher::{Control, ControlOptions};
use forebay_net::service::Address;
use forebay_net::service::worker::{FeedView, share_socket, show};
use forebay_net::{Credentials, Threads};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often `top` draws.
const REDRAW: Duration = Duration::from_secs(1);

/// Consumers of one job that are listed; the rest is counted.
const CONSUMERS: usize = 16;

/// Puts the cursor at the top and clears what is below.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

pub(super) fn status(args: &AskArgs, context: &Context) -> Result<Done> {
    if let Some(socket) = socket(&args.url)? {
        return share(&socket, context);
    }
    let asked = Asked::new(args)?;
    let view = asked.view()?;
    for line in lines(&view) {
        context.report.line(line);
    }
    object(&view)
}

pub(super) fn top(args: &TopArgs, context: &Context) -> Result<Done> {
    let asked = Asked::new(&args.ask)?;
    loop {
        let view = asked.view()?;
        if args.once || !context.report.draws() {
            for line in lines(&view) {
                context.report.line(line);
            }
            return object(&view);
        }
        context.report.line(format_args!("{CLEAR}{}", lines(&view).join("\n")));
        context.interrupt.sleep(REDRAW)?;
    }
}

pub(super) fn drain(args: &DrainArgs, context: &Context) -> Result<Done> {
    let worker: WorkerId = args.worker.parse()?;
    Asked::new(&args.ask)?.call(&Command::DrainWorker { worker })?;
    context
        .report
        .line(format_args!("worker {worker} gets no more spans; it may be stopped when it has none left"));
    Ok(Done::with(json!({ "worker": worker, "draining": true })))
}

/// The socket of a host's process, when that is what is meant.
fn socket(url: &str) -> Result<Option<PathBuf>> {
    match url.strip_prefix("unix://") {
        Some(path) => Ok(Some(path.into())),
        None if url == "auto" => share_socket().map(Some),
        None => Ok(None),
    }
}

/// What the process of this host has.
fn share(socket: &Path, context: &Context) -> Result<Done> {
    let view = show(&Address::Unix(socket.to_owned()), &Credentials::default())?;
    let feeds = counted(view.feeds.len() as u64, "feed");
    context.report.line(format_args!(
        "{feeds}, {}, {} handed over",
        counted(view.connections.saturating_sub(1), "client"),
        size(view.bytes_sent)
    ));
    for feed in &view.feeds {
        let jobs = counted(feed.jobs.len() as u64, "job");
        let FeedView { staging, limit_bytes, .. } = feed;
        context.report.line(format_args!(
            "feed {}: {jobs}, {} made, {} given, {} skipped, {} of {} staged",
            feed.feed,
            count(staging.made),
            count(staging.given),
            count(staging.skipped),
            size(staging.held_bytes),
            size(*limit_bytes)
        ));
    }
    let object = serde_json::to_value(&view);
    object.map(Done::with).map_err(|error| Error::internal("write the view as JSON").with_source(error))
}

struct Asked {
    control: Control,
    wait: Duration,
}

impl Asked {
    fn new(args: &AskArgs) -> Result<Self> {
        let wait = Duration::try_from_secs_f64(args.wait)
            .map_err(|error| Error::invalid_config("read `--wait`: it is no time").with_source(error))?;
        let options = ControlOptions { address: args.url.clone(), credentials: args.credentials.resolve()? };
        Ok(Self { control: Control::new(&options, Threads::shared()?)?, wait })
    }

    fn call(&self, command: &Command) -> Result<Reply> {
        self.control.call(command, self.wait)
    }

    fn view(&self) -> Result<View> {
        match self.call(&Command::View)? {
            Reply::View(view) => Ok(*view),
            _ => Err(Error::internal("the dispatcher answered something else")),
        }
    }
}

fn object(view: &View) -> Result<Done> {
    let object = serde_json::to_value(view);
    object.map(Done::with).map_err(|error| Error::internal("write the view as JSON").with_source(error))
}

/// The view for people.
fn lines(view: &View) -> Vec<String> {
    let mut lines = vec![format!(
        "{}, {}, {}, {}",
        counted(view.workers.len() as u64, "worker"),
        counted(view.feeds.len() as u64, "feed"),
        counted(view.jobs.len() as u64, "job"),
        counted(view.leases, "lease"),
    )];
    if !view.workers.is_empty() {
        let head = ["WORKER", "ADDRESS", "LEASES", "QUEUED", "STAGED", "BATCHES/S", "BYTES/S", "HEARD", ""];
        lines.push(String::new());
        lines.extend(table(&head, view.workers.iter().map(worker_row)));
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
                super::seconds(progress.waits_ms as f64 / 1000.0),
                count(progress.skipped),
                count(progress.remade),
                ago(consumer.silent_ms),
            ]
        });
        lines.extend(table(&head, rows));
        if job.consumers.len() > CONSUMERS {
            lines.push(format!("  and {} more", count((job.consumers.len() - CONSUMERS) as u64)));
        }
    }
    lines
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

fn job_line(job: &JobView) -> String {
    let terms = &job.terms;
    let line = format!(
        "job {}: {} of {}, {:.1} samples/s, {}",
        job.job,
        count(job.consumers.len() as u64),
        counted(terms.world_size, "rank"),
        job.samples_per_second,
        terms.label
    );
    let Some(taking) = &job.taking else { return line };
    let (epoch, done, in_hand) = (taking.epoch, count(taking.done), count(taking.in_hand));
    let dropped =
        if taking.dropped > 0 { format!(", {} dropped", count(taking.dropped)) } else { String::new() };
    format!("{line}, epoch {epoch}: {done} spans done, {in_hand} in hand{dropped}")
}

fn ago(milliseconds: u64) -> String {
    format!("{} ago", super::seconds(milliseconds as f64 / 1000.0))
}

/// Rows in columns as wide as their widest cell.
fn table<const N: usize>(head: &[&str; N], rows: impl Iterator<Item = Vec<String>>) -> Vec<String> {
    let rows: Vec<Vec<String>> =
        std::iter::once(head.iter().map(ToString::to_string).collect()).chain(rows).collect();
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..N).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        format!("  {}", cells.collect::<Vec<_>>().join("  ")).trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::dispatcher::{
        Dispatcher, JobName, Load, Progress, Reached, Settings, Sharding, State, Terms, Visitation, Who,
    };
    use forebay_core::feed::{FeedId, Span};

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
    fn status_and_top_show_workers_jobs_and_rates() {
        let expected = [
            "2 workers, 1 feed, 1 job, 3 leases",
            "",
            "  WORKER            ADDRESS        LEASES  QUEUED  STAGED    BATCHES/S  BYTES/S   HEARD",
            "  0000000000000001  10.0.0.1:7078  3       3       100.7 MB  10.0       385.4 MB  2 s ago",
            "  0000000000000002  10.0.0.2:7078  0       0       0 B       0.0        0 B       5 s ago  draining",
            "",
            "job train-7@0000abcd/2: 2 of 2 ranks, 2560.0 samples/s, s3://bucket/train",
            "  RANK  EPOCH  POSITION  STEP  TAKEN  SAMPLES/S  WAITED  SKIPPED  REMADE  HEARD",
            "  0     1      5,120     20    5,120  2560.0     1.5 s   0        2       2 s ago",
            "  1     0      0         0     0      0.0        0 µs    0        0       5 s ago",
        ];
        assert_eq!(shown(), expected);
    }
}
