//! Copying one object: its pieces side by side, checked, sealed, put in place.

use super::Tally;
use super::half::{Half, unnoted};
use super::journal::{Appender, Whole};
use super::pace::Pace;
use super::place::Place;
use forebay_core::{Error, ErrorKind, Facts, Result};
use forebay_store::{ObjectMeta, Store};
use futures::{StreamExt, TryStreamExt, stream};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{RwLock, Semaphore};
use tokio::time::{Instant, sleep};

/// How often an object may be replaced at the source while it is copied before that is an error.
const CHANGES: usize = 4;
/// How often pieces that read back wrong are fetched again.
const ROUNDS: usize = 3;

/// What all objects of a run share.
pub(super) struct Copier<'a> {
    pub(super) store: &'a dyn Store,
    pub(super) place: &'a Place,
    pub(super) journal: Arc<Appender>,
    pub(super) permits: Semaphore,
    pub(super) in_flight: usize,
    pub(super) piece_bytes: u64,
    pub(super) pace: Option<Mutex<Pace>>,
    pub(super) began: Instant,
    /// Read by work on the disk that is under way: it goes on when a run is given up, and has to be waited for.
    pub(super) busy: Arc<RwLock<()>>,
    pub(super) tally: &'a Tally<'a>,
}

impl Copier<'_> {
    /// Copies an object. `replaces` says that the journal has an older version of it.
    pub(super) async fn copy(&self, object: &ObjectMeta, replaces: bool) -> Result<()> {
        let mut object = object.clone();
        for _ in 0..CHANGES {
            let (place, meta, piece_bytes) = (self.place.clone(), object.clone(), self.piece_bytes);
            let journal = Arc::clone(&self.journal);
            let begun = self.disk(move || {
                if let Some(whole) = unnoted(&place, &meta)? {
                    return journal.whole(&meta.key, &whole).map(|()| None);
                }
                Half::open(&place, &meta, piece_bytes).map(Some)
            });
            let Some(half) = begun.await? else {
                return self.tally.finished(object.size, object.size);
            };
            let half = Arc::new(half);
            let before = half.bytes();
            self.tally.add(|staged| staged.resumed_bytes += before)?;
            let filled = self.fill(&half, &object).await;
            let Some(now) = self.look_again(&object, &filled).await? else {
                let (whole, journal) = (filled?, Arc::clone(&self.journal));
                self.disk(move || half.publish(&whole, &journal, replaces)).await?;
                return self.tally.finished(object.size, 0);
            };
            self.disk(move || half.discard()).await?;
            self.tally.add(|staged| {
                staged.resumed_bytes -= before;
                staged.bytes = staged.bytes - object.size + now.size;
            })?;
            object = now;
        }
        let url = self.store.url(&object.key);
        Err(Error::stale(format!("stage `{url}`: it was replaced {CHANGES} times meanwhile"))
            .with_hint("stage it when it is no longer written to")
            .with_facts(facts(url)))
    }

    async fn disk<T: Send + 'static>(&self, work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
        let busy = Arc::clone(&self.busy).read_owned().await;
        let work = move || {
            let done = work();
            drop(busy);
            done
        };
        blocking(work).await
    }

    /// The object as it is now, when that is another version than the one being copied.
    async fn look_again(&self, object: &ObjectMeta, filled: &Result<Whole>) -> Result<Option<ObjectMeta>> {
        let worth_it = match filled {
            // Without a stamp there is nothing to compare but the size, and the pieces had that.
            Ok(_) => object.stamp != 0,
            Err(error) => matches!(
                error.kind(),
                ErrorKind::InvalidConfig | ErrorKind::Stale | ErrorKind::Corrupt | ErrorKind::NotFound
            ),
        };
        if !worth_it {
            return Ok(None);
        }
        match self.store.head(&object.key).await {
            Ok(now) => Ok((now != *object).then_some(now)),
            // Why pieces could not be fetched says more.
            Err(_) if filled.is_err() => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn fill(&self, half: &Arc<Half>, object: &ObjectMeta) -> Result<Whole> {
        for _ in 0..ROUNDS {
            let pieces = stream::iter(half.missing()).map(|piece| self.piece(half, object, piece));
            pieces.buffer_unordered(self.in_flight).try_collect::<()>().await?;
            let sealing = Arc::clone(half);
            if let Some(whole) = self.disk(move || sealing.seal()).await? {
                return Ok(whole);
            }
        }
        let path = self.place.object(&object.key);
        Err(Error::corrupt(format!("stage `{}`: what was written reads back as other bytes", path.display()))
            .with_hint("the disk or the memory of this machine is at fault")
            .with_facts(facts(path.display().to_string())))
    }

    async fn piece(&self, half: &Arc<Half>, object: &ObjectMeta, piece: u64) -> Result<()> {
        let _permit =
            self.permits.acquire().await.map_err(|_| Error::internal("the limit of requests was closed"))?;
        let range = half.range(piece);
        let length = range.end - range.start;
        if let Some(pace) = &self.pace {
            let now = self.began.elapsed();
            let wait = pace.lock().unwrap_or_else(PoisonError::into_inner).take(now, length);
            sleep(wait).await;
        }
        let bytes = self.store.read(&object.key, range.clone().into()).await?;
        if bytes.len() as u64 != length {
            let url = self.store.url(&object.key);
            let why = format!("{length} bytes were asked for, {} came", bytes.len());
            return Err(Error::corrupt(format!("stage `{url}` at offset {}: {why}", range.start))
                .with_facts(facts(url)));
        }
        let writing = Arc::clone(half);
        self.disk(move || writing.put(piece, &bytes)).await?;
        self.tally.add(|staged| staged.read_bytes += length)
    }
}

fn facts(object: String) -> Facts {
    Facts { object: Some(object), ..Facts::default() }
}

/// Work of the disk, off the threads that drive sockets.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| Error::internal("work on the disk ended without an answer").with_source(error))?
}
