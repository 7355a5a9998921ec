//! Where a loader's batches come from: threads of this process, or others elsewhere.
//!
//! The loader keeps the accounts (cursor, stalls, bad samples); a [`Supply`] only hands over the batches of one rank
//! from one cursor on. [`Session`](crate) is the one that runs here; `forebay-net` has those that ask a process of
//! this host or a service. The user's loop cannot tell them apart.

use crate::batch::Batch;
use crate::config::DeliveryOrder;
use crate::feed::FeedSpec;
use crate::meter::Meter;
use forebay_core::Result;
use forebay_core::cursor::Cursor;
use forebay_core::plan::Sampler;
use forebay_core::portion::{Consumer, Place};
use forebay_core::stall::Making;
use forebay_core::tune::Knobs;
use forebay_ops::BufferPool;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Batches of one rank, in the order of its portion, over any number of epochs. Dropping it ends everything.
pub trait Supply: Send {
    /// The next batch if it is here within `wait`. An error is that batch's, and the loader's last.
    fn take(&self, wait: Duration) -> Result<Option<Taken>>;

    /// Sets how many threads prepare and how many batches may be open, as far as that is possible now, and gives what holds.
    /// What makes batches elsewhere has its own number of both.
    fn tune(&self, wanted: Knobs) -> Knobs {
        wanted
    }

    /// What the next batch waits for, in words.
    fn describe_wait(&self) -> String;

    /// What is known beside the meter.
    fn view(&self) -> SupplyView;
}

/// Starts supplies. Making one costs nothing; [`Self::start`] may connect.
pub trait Supplier: Send + Sync {
    /// Batches from `cursor` on. What is counted goes to `meter`.
    fn start(&self, asked: Asked, cursor: Cursor, meter: &Arc<Meter>) -> Result<Box<dyn Supply>>;
}

/// What a supplier is asked for.
pub struct Asked {
    /// What makes batches out of positions.
    pub feed: FeedSpec,
    /// What makes the plans.
    pub sampler: Sampler,
    /// Whose batches.
    pub consumer: Consumer,
    /// In which order.
    pub order: DeliveryOrder,
    /// Epochs after which nothing more is wanted.
    pub epochs: Option<u64>,
    /// Batches to be here before they are taken.
    pub ready_batches: usize,
    /// Most bytes of one batch.
    pub batch_bytes: u64,
    /// Memory for batches.
    pub pool: BufferPool,
}

/// A batch that was taken, with what the loader needs to know.
#[derive(Debug)]
pub struct Taken {
    /// The batch; `None` when it was left out, which uses up its step and places all the same.
    pub batch: Option<Batch>,
    /// Places of this rank's sequence that the batch used up.
    pub places: Vec<Place>,
    /// What making it took: says which part of the wait for it was fetching's.
    pub making: Making,
    /// When it was done and here; what the loop waits after that is hand-over.
    pub done_at: Option<Instant>,
    /// When the first thread was ready to prepare, if it had something else to do before.
    pub prep_since: Option<Instant>,
    /// Batches that were ready, this one included.
    pub ready: usize,
}

impl Taken {
    /// A batch that was left out.
    pub fn left_out(places: Vec<Place>, ready: usize) -> Self {
        let (batch, making) = (None, Making::default());
        Self { batch, places, making, done_at: None, prep_since: None, ready }
    }
}

/// What a supply knows beside the meter.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SupplyView {
    /// Most bytes of payloads held at once.
    pub payload_peak_bytes: u64,
    /// Bytes that may be in flight now.
    pub window_bytes: u64,
    /// Requests that may be in flight now.
    pub window_requests: u64,
    /// What the link delivers, as far as it was seen; 0 while unknown.
    pub link_bytes_per_second: f64,
    /// Time of a request when nothing of ours queues on the link; 0 while unknown.
    pub link_delay_seconds: f64,
    /// Time in which the store was away.
    pub store_away_seconds: f64,
    /// Workers that batches come from; 0 when they are made here.
    pub workers: u64,
}
