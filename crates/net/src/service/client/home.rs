//! The worker in this process: a maker behind the same [`Dial`] as workers elsewhere, without a socket between.
//!
//! A request names a batch, the maker makes it, the answer carries it as it is. Nothing is staged: what was not asked
//! for is not made.

use super::link::{Dial, Dialled, Hear, Most, Say};
use crate::server::lock;
use crate::service::message::{BatchHeader, ToClient, ToWorker, WireError};
use crate::service::worker::Makers;
use forebay_core::feed::BatchName;
use forebay_core::{Error, Result};
use forebay_engine::feed::FeedSpec;
use forebay_engine::{Batch, Made, Make};
use forebay_ops::BufferPool;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What the worker in this process is called where others have an address.
pub(super) const HOME_ADDRESS: &str = "this process";

/// How long the listener waits for a batch at once, before it looks whether it is still wanted.
const WAIT: Duration = Duration::from_millis(20);

/// Opens the maker of this process, and links to workers elsewhere.
pub(super) struct HomeDial {
    pub(super) makers: Box<dyn Makers>,
    pub(super) spec: FeedSpec,
    pub(super) elsewhere: Box<dyn Dial>,
}

impl Dial for HomeDial {
    fn dial(&self, address: &str, wanted: &dyn Fn() -> bool) -> Result<Dialled> {
        if address != HOME_ADDRESS {
            return self.elsewhere.dial(address, wanted);
        }
        let room = Arc::new(Room {
            make: self.makers.open(&self.spec)?,
            asked: Mutex::default(),
            told: Mutex::default(),
            closed: AtomicBool::new(false),
        });
        let (say, close) = (Arc::clone(&room), Arc::clone(&room));
        Ok(Dialled {
            say: Box::new(HomeSay(say)),
            hear: Box::new(HomeHear { room, next: None, payload_bytes: 0 }),
            close: Box::new(move || close.closed.store(true, Ordering::Release)),
        })
    }
}

/// What both halves share.
struct Room {
    make: Arc<dyn Make>,
    asked: Mutex<HashMap<BatchName, u64>>,
    told: Mutex<VecDeque<ToClient>>,
    closed: AtomicBool,
}

struct HomeSay(Arc<Room>);

impl Say for HomeSay {
    fn say(&mut self, message: &ToWorker) -> Result<()> {
        let room = &self.0;
        match message {
            ToWorker::Attach(_) => {
                let (epoch_samples, batch_bytes) = (room.make.epoch_samples(), room.make.batch_bytes());
                lock(&room.told).push_back(ToClient::Attached { epoch_samples, batch_bytes });
            }
            ToWorker::Take { request, name } => {
                lock(&room.asked).insert(name.clone(), *request);
                room.make.prepare(std::slice::from_ref(name));
            }
            ToWorker::Forget { request } => lock(&room.asked).retain(|_, asked| asked != request),
            ToWorker::Plan { .. } | ToWorker::Passed { .. } | ToWorker::Release { .. } | ToWorker::Show => {}
        }
        Ok(())
    }
}

struct HomeHear {
    room: Arc<Room>,
    /// The batch that was announced.
    next: Option<Batch>,
    /// Bytes of payloads that were fetched until the last batch.
    payload_bytes: u64,
}

impl Hear for HomeHear {
    fn hear(&mut self) -> Result<Option<ToClient>> {
        while !self.room.closed.load(Ordering::Acquire) {
            if let Some(told) = lock(&self.room.told).pop_front() {
                return Ok(Some(told));
            }
            let Some(Made { name, batch, fetch, prep }) = self.room.make.take(WAIT)? else { continue };
            // One that was forgotten meanwhile is let go of.
            let Some(request) = lock(&self.room.asked).remove(&name) else { continue };
            let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            return Ok(Some(match batch {
                Ok(batch) => {
                    self.next = Some(batch);
                    let (fetch_nanos, prep_nanos) = (nanos(fetch), nanos(prep));
                    let header = BatchHeader { fetch_nanos, prep_nanos, ..BatchHeader::default() };
                    ToClient::Batch { request, header: Box::new(header) }
                }
                Err(error) => ToClient::Fault { request, fault: WireError::from(&error) },
            }));
        }
        Ok(None)
    }

    fn batch(&mut self, _header: &BatchHeader, _pool: &BufferPool, _most: Most) -> Result<Batch> {
        self.next.take().ok_or_else(|| Error::internal("take a batch of this process: none was announced"))
    }

    /// What was fetched since the batch before: a batch of this process costs its payloads, whichever it was for.
    fn link_bytes(&mut self, _header: &BatchHeader) -> u64 {
        let now = self.room.make.stats().payload_bytes;
        now.saturating_sub(std::mem::replace(&mut self.payload_bytes, now))
    }
}
