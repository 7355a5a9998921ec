//! What pulling is told, what it wants done, and what it hands over: plain data.

use crate::feed::{BatchName, Span};
use crate::plan::Sampler;
use crate::portion::{Consumer, Place};

/// A worker, as the shell numbers it.
pub type WorkerKey = u64;

/// What does not change while batches are pulled.
#[derive(Clone, Debug)]
pub struct PullSettings {
    /// Whose batches.
    pub consumer: Consumer,
    /// What makes the plans: says how many positions an epoch has, and which of them are a batch.
    pub sampler: Sampler,
    /// Epochs after which nothing more is wanted.
    pub epochs: Option<u64>,
    /// How many batches later than planned a batch may be handed over; 0 is plan order.
    pub window_batches: u64,
    /// Batches that are asked for or here, and not handed over.
    pub ready_batches: usize,
    /// Batches whose workers know that they will be wanted, the asked ones included.
    pub plan_ahead: usize,
    /// Who makes which batch.
    pub routing: Routing,
    /// A worker in this process, asked before those that routing names for as long as it keeps up.
    pub home: Option<WorkerKey>,
    /// Whether what a lost worker was asked for is left out, rather than asked for elsewhere.
    pub skip_lost: bool,
    /// An answer that takes three times as long as usual, and at least this, is late. Milliseconds.
    pub late_ms: u64,
}

/// Who makes which batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routing {
    /// One worker makes all.
    One(WorkerKey),
    /// Somebody says which worker makes a span of so many positions.
    Spans(u64),
}

/// What the shell is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Tell a worker which names will be wanted soon.
    Plan {
        /// The worker.
        worker: WorkerKey,
        /// In the order of need.
        names: Vec<BatchName>,
    },
    /// Ask a worker for a batch. Needs a link, which may have to be opened.
    Take {
        /// The worker.
        worker: WorkerKey,
        /// The answer carries it; never used twice.
        request: u64,
        /// The batch.
        name: BatchName,
    },
    /// Tell a worker that an answer is not wanted any more.
    Forget {
        /// The worker.
        worker: WorkerKey,
        /// The request.
        request: u64,
    },
    /// Tell all workers with an open link how far this rank is.
    Passed(Reach),
    /// Ask who makes these spans; to be answered by [`Pull::located`] or [`Pull::not_located`].
    Locate {
        /// The spans.
        spans: Vec<Span>,
        /// Workers that are not wanted now.
        avoid: Vec<WorkerKey>,
        /// The worker that had these spans and is lost.
        lost: Option<WorkerKey>,
    },
    /// Close the link to a worker, which counts as lost already.
    Close {
        /// The worker.
        worker: WorkerKey,
    },
}

/// Everything of this rank's own before this place was handed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reach {
    /// The epoch.
    pub epoch: u64,
    /// The position.
    pub position: u64,
}

/// What becomes of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It is kept under this number until it is delivered.
    Keep(u64),
    /// It came before from elsewhere, or was asked for again.
    Drop,
}

/// What is handed over next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The number it is kept under.
    pub number: u64,
    /// The epoch.
    pub epoch: u64,
    /// Batches of this epoch that were handed over before it.
    pub step: u64,
    /// Its name.
    pub name: BatchName,
    /// Places of the rank's sequence that it uses up.
    pub places: Vec<Place>,
    /// Whether there is a batch.
    pub outcome: Outcome,
    /// Batches that were here, this one included.
    pub ready: usize,
}

/// Whether there is a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// There is.
    Batch,
    /// It was left out.
    Skipped,
    /// There is an error in its place.
    Fault,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Batches asked for, each once.
    pub asked: u64,
    /// Requests beyond that, since a worker was late, lost or failed.
    pub asked_again: u64,
    /// Of these, requests sent while the first one was still open.
    pub hedged: u64,
    /// Answers that were not wanted any more.
    pub dropped: u64,
    /// Batches left out.
    pub skipped: u64,
}
