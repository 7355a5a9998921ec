//! Making batches by name, for whoever asks: what a shared process and the workers of a service run.
//!
//! [`Make`] is the trait; the real maker is in [`maker`](crate::Maker). Names may come from several jobs at once and in
//! any order; what the plan wants first is made first, so that neighbours are still read together.

use crate::batch::Batch;
use crate::stats::Stats;
use forebay_core::Result;
use forebay_core::feed::BatchName;
use std::time::Duration;

/// Makes batches of one feed.
pub trait Make: Send + Sync {
    /// Asks for batches. A name that is under way already is not made twice.
    fn prepare(&self, names: &[BatchName]);

    /// A batch that is done, if there is one within `wait`; in the order of need, as far as it could be kept. An error
    /// ends the maker; what is wrong with one batch is inside of [`Made`].
    fn take(&self, wait: Duration) -> Result<Option<Made>>;

    /// Positions of every epoch.
    fn epoch_samples(&self) -> u64;

    /// Most bytes of one batch.
    fn batch_bytes(&self) -> u64;

    /// Everything measured so far.
    fn stats(&self) -> Stats;
}

/// A batch that was made, or why it could not be.
#[derive(Debug)]
pub struct Made {
    /// Its name.
    pub name: BatchName,
    /// The batch; its step is 0, since that is the taker's to count.
    pub batch: Result<Batch>,
    /// Time from when its making began until it was done, beyond `prep`; nothing when every payload was resident.
    pub fetch: Duration,
    /// Time that all threads together need for it when every payload is resident.
    pub prep: Duration,
}
