//! What is asked of the dispatcher, what it answers, and the events by which its state changes.
//!
//! Commands and replies cross the wire, events go to the journal; all are plain data.

use super::view::View;
use super::words::{
    JobName, LeaseId, Load, Progress, Reached, Sharding, Terms, Visitation, Who, WorkerId, feed_text,
};
use crate::feed::{FeedId, Span};
use serde::{Deserialize, Serialize};

/// A request. Commands of a worker or consumer that is not known any more are refused as `stale`: it registers or
/// attaches again and goes on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// A worker is there. An id that is known already gets a new incarnation and keeps its leases; another worker
    /// that had the same address is lost. Answered by `Registered`.
    RegisterWorker {
        /// Drawn at random by the worker.
        worker: WorkerId,
        /// Where clients find it.
        address: String,
        /// Words for people and for placing.
        tags: Vec<String>,
        /// Threads that prepare: how much it can do beside others.
        slots: u32,
    },
    /// A worker lives. Answered by `Heartbeat`.
    Heartbeat {
        /// The worker.
        worker: WorkerId,
        /// As it was registered.
        incarnation: u64,
        /// How much it has to do.
        load: Load,
    },
    /// A worker gets no more leases; the spans it has go elsewhere when somebody asks for them. Answered by `Done`.
    DrainWorker {
        /// The worker.
        worker: WorkerId,
    },
    /// A worker leaves: its leases are free at once. Answered by `Done`.
    RemoveWorker {
        /// The worker.
        worker: WorkerId,
        /// As it was registered.
        incarnation: u64,
    },
    /// A consumer joins its job, and the first one makes the job. Another process for the same rank takes its place.
    /// Answered by `Attached`.
    AttachJob {
        /// The consumer.
        who: Who,
        /// What all its consumers agree upon.
        terms: Terms,
        /// Where it begins.
        from: Reached,
        /// The global step at which it begins.
        step: u64,
    },
    /// A consumer lives. Answered by `Done`.
    ReportProgress {
        /// The consumer.
        who: Who,
        /// How far it is.
        progress: Progress,
    },
    /// A consumer leaves, and the last one ends the job. What it has in hand counts as lost. Answered by `Done`.
    DetachJob {
        /// The consumer.
        who: Who,
    },
    /// Which workers prepare these spans. Spans without a lease are leased now. For a lease of a worker to avoid,
    /// another worker is named and the lease stays: any worker can make any batch. Answered by `Located`, or by
    /// `NoWorkers` when there is none.
    Locate {
        /// The consumer that asks.
        who: Who,
        /// At most [`super::MAX_SPANS`].
        spans: Vec<Span>,
        /// Workers that the consumer does not want to be sent to.
        avoid: Vec<WorkerId>,
    },
    /// As `Locate`, and as `ReportLost` when one is named, among the workers with a tag alone. A span that is leased to
    /// another worker stays leased, and a worker with the tag is named beside it. Answered like `Locate`; by
    /// `NoWorkers` when no worker has the tag.
    LocateTagged {
        /// The consumer that asks.
        who: Who,
        /// At most [`super::MAX_SPANS`].
        spans: Vec<Span>,
        /// Workers that the consumer does not want to be sent to.
        avoid: Vec<WorkerId>,
        /// The worker that does not answer.
        lost: Option<WorkerId>,
        /// What all workers that are named have.
        tag: String,
    },
    /// A worker does not answer this consumer: these spans are leased anew, and it gets no others until its next
    /// heartbeat. Answered like `Locate`.
    ReportLost {
        /// The consumer that asks.
        who: Who,
        /// The worker that does not answer.
        worker: WorkerId,
        /// Spans that the consumer wants from elsewhere.
        spans: Vec<Span>,
    },
    /// The next span of dynamic sharding. Asking again with the same number gives the same span. Answered by `Taken`,
    /// `Wait` or `EpochEnded`.
    TakeSpan {
        /// The consumer that asks.
        who: Who,
        /// From 1, one more with every new request of this consumer.
        request: u64,
        /// The epoch it is in.
        epoch: u64,
        /// Spans whose last batch it has received.
        done: Vec<Span>,
    },
    /// Dynamic sharding goes on from a checkpoint: only these spans of the epoch are left. Whatever was in hand is
    /// forgotten. Several ranks may send the same; a start number is obeyed once. Answered by `Done`.
    StartFrom {
        /// The consumer.
        who: Who,
        /// Equal on all ranks that resume together, another at the next resume.
        start: u64,
        /// The epoch.
        epoch: u64,
        /// Numbers of spans as `[first, end)`, in order.
        remaining: Vec<(u64, u64)>,
    },
    /// What dynamic sharding has left, for a checkpoint: not given yet, or given and not done. Answered by
    /// `Remaining`.
    ListRemaining {
        /// The job.
        job: JobName,
    },
    /// The highest global step that a consumer of the job has reached. Answered by `Round`.
    CurrentRound {
        /// The job.
        job: JobName,
    },
    /// A node takes part in a cache that nodes keep together; said again, it still does. Answered by `CacheMembers`.
    JoinCache {
        /// The cache, by a name that people chose.
        cache: JobName,
        /// Where the node's peers find it.
        address: String,
        /// Drawn at random by the process: several of a host may speak for one node.
        process: u64,
    },
    /// A process does not take part any more. Answered by `Done`.
    LeaveCache {
        /// The cache.
        cache: JobName,
        /// As it joined.
        address: String,
        /// As it joined.
        process: u64,
    },
    /// Everything for people. Answered by `View`.
    View,
    /// Time has passed: who was silent for too long is gone. Answered by `Done`.
    Tick,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// It is so.
    Done,
    /// A worker is registered.
    Registered {
        /// To be given with every heartbeat.
        incarnation: u64,
        /// Silent for longer, it is lost.
        worker_timeout_ms: u64,
    },
    /// A heartbeat was heard.
    Heartbeat(HeartbeatReply),
    /// A consumer is attached.
    Attached {
        /// Positions in a span of the feed: those of its first job.
        span_positions: u64,
        /// Whether the job was made by this command. A consumer that was attached before and finds its job new has
        /// been away too long: what dynamic sharding knew is gone.
        fresh: bool,
        /// Silent for longer, it is gone.
        consumer_timeout_ms: u64,
    },
    /// Where spans are prepared, in the order they were asked for.
    Located(Vec<Located>),
    /// There is no worker; ask again.
    NoWorkers,
    /// A span for this consumer alone.
    Taken(Span),
    /// All spans are given and some are not done: they may come back. Ask again.
    Wait,
    /// Every span of the epoch is done.
    EpochEnded {
        /// Spans dropped in it, with `at_most_once`.
        dropped: u64,
    },
    /// What is left of an epoch.
    Remaining {
        /// The epoch.
        epoch: u64,
        /// Numbers of spans as `[first, end)`, in order.
        remaining: Vec<(u64, u64)>,
    },
    /// The round a job is in.
    Round {
        /// The highest step.
        step: u64,
        /// How far the consumer is that reached it.
        reached: Reached,
    },
    /// Who takes part in a cache.
    CacheMembers {
        /// Addresses, in order.
        addresses: Vec<String>,
        /// Whether these are all: right after its start the dispatcher has not heard of everybody.
        complete: bool,
        /// Silent for longer, a node has left.
        timeout_ms: u64,
    },
    /// Everything for people.
    View(Box<View>),
}

/// What a worker learns from its heartbeat.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeartbeatReply {
    /// Feeds of which it holds leases, with the jobs that must still take what it has staged.
    pub feeds: Vec<FeedJobs>,
    /// Whether it gets no more leases.
    pub drain: bool,
    /// Leases it holds. A draining worker without any may leave.
    pub leases: u64,
}

/// The jobs attached to a feed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeedJobs {
    /// The feed.
    #[serde(with = "feed_text")]
    pub feed: FeedId,
    /// Jobs with consumers, and how far each is: what lies before that, it will not ask for again.
    pub jobs: Vec<(JobName, Reached)>,
}

/// Where a span is prepared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Located {
    /// The span.
    pub span: Span,
    /// Its worker.
    pub worker: WorkerId,
    /// The worker's address.
    pub address: String,
    /// The lease; none when this worker is named in place of one that is avoided.
    pub lease: Option<LeaseId>,
}

/// A change of state. A list of them, applied in order, is the state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "fields are those of the commands with the same names")]
pub enum Event {
    /// Numbers that were used up by what is not listed any more.
    NumbersUsed { next_lease: u64, next_incarnation: u64 },
    /// A worker is there.
    WorkerRegistered { worker: WorkerId, address: String, tags: Vec<String>, slots: u32, incarnation: u64 },
    /// A worker gets no more leases.
    WorkerDraining { worker: WorkerId },
    /// A worker is gone, its leases are free.
    WorkerLost { worker: WorkerId },
    /// There is a new job.
    JobAttached { job: JobName, terms: Terms },
    /// A job ended.
    JobDetached { job: JobName },
    /// A consumer joined.
    ConsumerAttached { who: Who, from: Reached, step: u64 },
    /// A consumer went on. Need not be on disk before the answer: the next one says it again.
    ConsumerProgressed { job: JobName, rank: u64, reached: Reached, step: u64 },
    /// A consumer is gone; its spans come back or are dropped.
    ConsumerLost { job: JobName, rank: u64 },
    /// Workers have these spans: epoch, number, worker, lease.
    SpansLeased {
        #[serde(with = "feed_text")]
        feed: FeedId,
        leases: Vec<(u64, u64, WorkerId, LeaseId)>,
    },
    /// Dynamic sharding begins an epoch with what is left of it.
    EpochStarted { job: JobName, epoch: u64, start: u64, remaining: Vec<(u64, u64)>, done: u64, dropped: u64 },
    /// A consumer is done with spans, and has another one.
    SpanTaken { job: JobName, rank: u64, request: u64, done: Vec<u64>, given: Option<u64> },
}

impl Event {
    /// Whether it must be on disk before anybody is told.
    pub fn is_durable(&self) -> bool {
        !matches!(self, Self::ConsumerProgressed { .. })
    }
}

/// Settings of the machine. Times are in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// A worker that is silent for longer is lost.
    pub worker_timeout_ms: u64,
    /// A consumer that is silent for longer is gone.
    pub consumer_timeout_ms: u64,
    /// A job with dynamic sharding and without consumers is kept for this long, so that they may come back.
    pub job_timeout_ms: u64,
    /// Most workers.
    pub max_workers: usize,
    /// Most jobs.
    pub max_jobs: usize,
    /// Most consumers of all jobs.
    pub max_consumers: usize,
    /// Most spans that a consumer may have in hand.
    pub max_in_hand: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            worker_timeout_ms: 10_000,
            consumer_timeout_ms: 30_000,
            job_timeout_ms: 600_000,
            max_workers: 16_384,
            max_jobs: 16_384,
            max_consumers: 131_072,
            max_in_hand: 1024,
        }
    }
}

impl Terms {
    /// Whether spans are given out by the dispatcher.
    pub fn is_dynamic(&self) -> bool {
        self.sharding == Sharding::Dynamic
    }

    /// Whether spans of a lost consumer are given out again.
    pub fn gives_again(&self) -> bool {
        self.visitation != Visitation::AtMostOnce
    }
}
