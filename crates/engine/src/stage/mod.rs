//! A copy of a dataset's objects on a local disk: made once, gone on with after a cut, checked, and read from.
//!
//! [`plan_stage`] finds what is there and what is missing and touches nothing; [`run_stage`] copies the rest. An object
//! keeps its key below the folder. What is whole is noted in a journal, what is not lies apart until it is. A
//! [`LocalCopyStore`] then reads from the copy what is still the version that a manifest expects, and everything else
//! from where it came. Which objects a spec means is the source's matter, not this module's.

mod copy;
mod half;
mod journal;
mod local;
pub mod pace;
mod place;
mod plan;

pub use local::{Expected, LocalCopyStore};
pub use plan::{StagePlan, ToCopy, plan_stage, plan_stage_with_store};

use crate::source::ProgressFn;
use copy::{Copier, blocking};
use forebay_core::{Error, Result};
use forebay_store::StoreOptions;
use futures::{StreamExt, TryStreamExt, stream};
use pace::Pace;
use std::fs::{File, TryLockError};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// What is copied, and how.
#[derive(Clone)]
pub struct StageOptions {
    /// Only keys that go on with this behind the folder that the spec names.
    pub prefix: Option<String>,
    /// Only these keys of the folder that the spec names.
    pub keys: Option<Vec<String>>,
    /// Only what this names in the folder that the spec names, with braces and globs.
    pub template: Option<String>,
    /// What a remote store is told.
    pub storage_options: StoreOptions,
    /// Most bytes asked for in a second; as fast as it goes when not given.
    pub rate_bytes_per_second: Option<u64>,
    /// Requests on their way at once, for several objects or pieces of a large one.
    pub in_flight: usize,
    /// Larger objects are fetched in pieces of this size.
    pub piece_bytes: u64,
    /// Whether what is here is read and compared with the journal.
    pub verify: bool,
    /// Told how many objects were found while they are listed.
    pub listed: Option<ProgressFn>,
}

impl Default for StageOptions {
    fn default() -> Self {
        Self {
            prefix: None,
            keys: None,
            template: None,
            storage_options: StoreOptions::new(),
            rate_bytes_per_second: None,
            in_flight: 16,
            piece_bytes: 8 << 20,
            verify: false,
            listed: None,
        }
    }
}

impl std::fmt::Debug for StageOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StageOptions")
            .field("prefix", &self.prefix)
            .field("keys", &self.keys)
            .field("template", &self.template)
            .field("rate_bytes_per_second", &self.rate_bytes_per_second)
            .field("in_flight", &self.in_flight)
            .field("piece_bytes", &self.piece_bytes)
            .field("verify", &self.verify)
            .finish_non_exhaustive()
    }
}

/// What a run did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Staged {
    /// Objects that are asked for.
    pub objects: u64,
    /// Bytes of all of them.
    pub bytes: u64,
    /// Objects that were here.
    pub here: u64,
    /// Bytes of these.
    pub here_bytes: u64,
    /// Objects that were copied.
    pub copied: u64,
    /// Bytes of these.
    pub copied_bytes: u64,
    /// Bytes that came from the store; repeated tries are not counted.
    pub read_bytes: u64,
    /// Bytes that an earlier run had fetched of objects that it did not finish.
    pub resumed_bytes: u64,
}

impl Staged {
    /// Bytes that need not be fetched any more.
    pub fn done_bytes(&self) -> u64 {
        self.here_bytes + self.resumed_bytes + self.read_bytes
    }
}

/// Told what is done so far; an error ends the work.
pub type Watch<'a> = dyn Fn(&Staged) -> Result<()> + Sync + 'a;

/// Copies what `plan` found missing. Objects that were finished stay when it ends early, in whatever way, and so do the
/// finished pieces of others; the next run goes on from there.
pub async fn run_stage(plan: &StagePlan, options: &StageOptions, watch: &Watch<'_>) -> Result<Staged> {
    let staged = Staged {
        objects: plan.objects,
        bytes: plan.bytes,
        here: plan.here,
        here_bytes: plan.here_bytes,
        ..Staged::default()
    };
    let tally = Tally { staged: Mutex::new(staged), watch };
    let (place, origin) = (plan.place.clone(), plan.origin.clone());
    let (_lock, noted, journal) = blocking(move || {
        place.make()?;
        let lock = lock(&place)?;
        // Read again, because another run may have ended since the plan was made.
        let now = journal::Journal::read(&place)?;
        now.check_origin(&place, &origin)?;
        let journal = now.append(&place, &origin)?;
        Ok((lock, now.whole, journal))
    })
    .await?;
    let in_flight = options.in_flight.max(1);
    let rate = options.rate_bytes_per_second;
    // A piece is asked for at once, so with a limit it is no more than a quarter of a second's worth.
    let most = rate.map_or(u64::MAX, |rate| (rate / 4).max(64 << 10));
    let copier = Copier {
        store: plan.store.as_ref(),
        place: &plan.place,
        journal: Arc::new(journal),
        permits: Semaphore::new(in_flight.min(Semaphore::MAX_PERMITS)),
        in_flight,
        piece_bytes: options.piece_bytes.clamp(1, most),
        pace: rate.map(|rate| Mutex::new(Pace::new(rate))),
        began: Instant::now(),
        busy: Arc::default(),
        tally: &tally,
    };
    let copies = stream::iter(&plan.to_copy)
        .map(|copy| copier.copy(&copy.object, noted.contains_key(&copy.object.key)));
    let copied = copies.buffer_unordered(in_flight).try_collect::<()>().await;
    // What was given up may still be writing; the folder is let go of when nobody does.
    drop(copier.busy.write().await);
    let journal = Arc::clone(&copier.journal);
    let flushed = blocking(move || journal.flush()).await;
    copied.and(flushed)?;
    Ok(tally.now())
}

/// Held as long as a run writes; the system lets go of it when the process ends.
fn lock(place: &place::Place) -> Result<File> {
    let path = place.work().join("lock");
    let file = File::create(&path).map_err(|error| place::writing(&path, error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let message = format!("stage into `{}`: another process does so now", place.root.display());
            Err(Error::unavailable(message).with_hint("wait for it, or stage into another folder"))
        }
        Err(TryLockError::Error(error)) => Err(place::writing(&path, error)),
    }
}

/// Counts, and tells who watches.
struct Tally<'a> {
    staged: Mutex<Staged>,
    watch: &'a Watch<'a>,
}

impl Tally<'_> {
    fn add(&self, count: impl FnOnce(&mut Staged)) -> Result<()> {
        let now = {
            let mut staged = self.staged.lock().unwrap_or_else(PoisonError::into_inner);
            count(&mut staged);
            *staged
        };
        (self.watch)(&now)
    }

    fn finished(&self, bytes: u64, resumed: u64) -> Result<()> {
        self.add(|staged| {
            staged.copied += 1;
            staged.copied_bytes += bytes;
            staged.resumed_bytes += resumed;
        })
    }

    fn now(&self) -> Staged {
        *self.staged.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
