//! Everything for people: plain structs that `forebay status` prints.

use super::Dispatcher;
use super::words::{JobName, Load, Progress, Terms, WorkerId, feed_text};
use crate::feed::FeedId;
use crate::scale::Wanted;
use crate::stall::{Pace, Straggler, judge};
use serde::{Deserialize, Serialize};

/// The dispatcher at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct View {
    /// Registered workers.
    pub workers: Vec<WorkerView>,
    /// Feeds that jobs are attached to.
    pub feeds: Vec<FeedView>,
    /// Attached jobs.
    pub jobs: Vec<JobView>,
    /// Leases that are not passed yet.
    pub leases: u64,
    /// How many workers there should be.
    #[serde(default)]
    pub scale: Wanted,
}

/// One worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerView {
    /// Its number.
    pub worker: WorkerId,
    /// Where clients find it.
    pub address: String,
    /// Words for people and for placing.
    pub tags: Vec<String>,
    /// Threads that prepare.
    pub slots: u32,
    /// Whether it gets no more leases.
    pub draining: bool,
    /// Whether a client could not reach it since it was last heard of.
    pub suspected: bool,
    /// Milliseconds since it was heard of.
    pub silent_ms: u64,
    /// Spans leased to it that are not passed yet.
    pub leases: u64,
    /// What it says about itself.
    pub load: Load,
    /// Batches made in a second, lately.
    pub batches_per_second: f64,
    /// Bytes sent in a second, lately.
    pub bytes_per_second: f64,
}

/// One feed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FeedView {
    /// The feed.
    #[serde(with = "feed_text")]
    pub feed: FeedId,
    /// What people call its dataset.
    pub label: String,
    /// Positions in a span.
    pub span_positions: u64,
    /// Positions in an epoch.
    pub epoch_positions: u64,
    /// Jobs that read it.
    pub jobs: Vec<JobName>,
    /// Spans of it that are leased.
    pub leases: u64,
}

/// One job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobView {
    /// Its name.
    pub job: JobName,
    /// What its consumers agreed upon.
    #[serde(flatten)]
    pub terms: Terms,
    /// Its consumers.
    pub consumers: Vec<ConsumerView>,
    /// The epoch that is given out, with dynamic sharding.
    pub taking: Option<TakingView>,
    /// Samples received in a second by all consumers, lately.
    pub samples_per_second: f64,
    /// The rank that makes the others wait, if there is one.
    #[serde(default)]
    pub straggler: Option<Straggler>,
}

/// One consumer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConsumerView {
    /// The framework's number.
    pub rank: u64,
    /// How far it is and what it received.
    #[serde(flatten)]
    pub progress: Progress,
    /// Milliseconds since it was heard of.
    pub silent_ms: u64,
    /// Samples received in a second, lately.
    pub samples_per_second: f64,
    /// Share of its time that it waits for batches, lately.
    #[serde(default)]
    pub waiting_share: f64,
    /// What it waits for other ranks in a step, on average, in microseconds.
    #[serde(default)]
    pub others_us: u64,
}

/// An epoch that is given out span by span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakingView {
    /// The epoch.
    pub epoch: u64,
    /// Spans that consumers have in hand.
    pub in_hand: u64,
    /// Spans that are done.
    pub done: u64,
    /// Spans that were dropped with their consumers.
    pub dropped: u64,
}

impl Dispatcher {
    /// Everything for people.
    pub fn view(&self, now: u64) -> View {
        let (state, pulses) = (&self.state, &self.pulses);
        let workers = state.workers.iter().map(|(worker, known)| {
            let pulse = pulses.workers.get(worker).copied().unwrap_or_default();
            WorkerView {
                worker: *worker,
                address: known.address.clone(),
                tags: known.tags.clone(),
                slots: known.slots,
                draining: known.draining,
                suspected: pulse.suspected,
                silent_ms: now.saturating_sub(pulse.heard),
                leases: known.leased,
                load: pulse.load,
                batches_per_second: pulse.batches_per_second,
                bytes_per_second: pulse.bytes_per_second,
            }
        });
        let feeds = state.feeds.iter().map(|(feed, known)| FeedView {
            feed: *feed,
            label: known.label.clone(),
            span_positions: known.span_positions,
            epoch_positions: known.epoch_positions,
            jobs: known.jobs.iter().cloned().collect(),
            leases: known.leases.len() as u64,
        });
        let jobs = state.jobs.iter().map(|(name, job)| {
            let heard = pulses.consumers.get(name);
            let mut consumers: Vec<ConsumerView> = job
                .consumers
                .iter()
                .map(|(rank, consumer)| {
                    let pulse = heard.and_then(|all| all.get(rank)).copied().unwrap_or_default();
                    let progress =
                        Progress { reached: consumer.reached, step: consumer.step, ..pulse.progress };
                    let silent_ms = now.saturating_sub(pulse.heard);
                    let (samples_per_second, waiting_share) = (pulse.samples_per_second, pulse.waiting_share);
                    ConsumerView {
                        rank: *rank,
                        progress,
                        silent_ms,
                        samples_per_second,
                        waiting_share,
                        others_us: 0,
                    }
                })
                .collect();
            let straggler = judge_consumers(&mut consumers);
            JobView {
                job: name.clone(),
                terms: job.terms.clone(),
                samples_per_second: consumers.iter().map(|consumer| consumer.samples_per_second).sum(),
                straggler,
                consumers,
                taking: job.taking.as_ref().map(|taking| TakingView {
                    epoch: taking.epoch,
                    in_hand: taking.in_hand.len() as u64,
                    done: taking.done,
                    dropped: taking.dropped,
                }),
            }
        });
        View {
            workers: workers.collect(),
            feeds: feeds.collect(),
            jobs: jobs.collect(),
            leases: state.leases.len() as u64,
            scale: self.scaling.wanted(),
        }
    }
}

/// Paces that are older say nothing about now.
const FRESH_MS: u64 = 15_000;

/// Fills in what consumers wait for each other, and names the late one.
fn judge_consumers(consumers: &mut [ConsumerView]) -> Option<Straggler> {
    let told = |consumer: &ConsumerView| {
        let pace = consumer.progress.pace.filter(|_| consumer.silent_ms <= FRESH_MS)?;
        Some((consumer.rank, pace))
    };
    let paces: Vec<(u64, Pace)> = consumers.iter().filter_map(told).collect();
    let verdict = judge(&paces);
    let heard = consumers.iter_mut().filter(|consumer| told(consumer).is_some());
    for (consumer, others_us) in heard.zip(verdict.others_us) {
        consumer.others_us = others_us;
    }
    verdict.late
}
