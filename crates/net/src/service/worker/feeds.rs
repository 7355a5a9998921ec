//! All feeds of a worker: opened by the first who reads one, closed some time after the last.

use super::WorkerOptions;
use super::connection::Answer;
use super::feed::{Feed, FeedParts};
use super::makers::Makers;
use super::spill::Disk;
use super::view::FeedView;
use crate::server::lock;
use crate::service::message::{Attach, Late};
use forebay_core::feed::FeedId;
use forebay_core::staging::Command;
use forebay_core::{Error, Result};
use forebay_engine::feed::FeedSpec;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A place for a feed: locked while it is being opened, so that it is opened once.
type Slot = Arc<Mutex<Option<Arc<Feed>>>>;

/// The feeds of a worker.
pub(super) struct Feeds {
    makers: Arc<dyn Makers>,
    options: WorkerOptions,
    slots: Mutex<BTreeMap<FeedId, Slot>>,
}

impl Feeds {
    pub(super) fn new(options: &WorkerOptions, makers: Arc<dyn Makers>) -> Self {
        Self { makers, options: options.clone(), slots: Mutex::default() }
    }

    /// The feed that somebody wants to read; `None` when it is not open and its spec was not sent.
    pub(super) fn find(&self, attach: &Attach) -> Result<Option<Arc<Feed>>> {
        let slot = {
            let mut slots = lock(&self.slots);
            if !slots.contains_key(&attach.feed) {
                if attach.spec.is_empty() {
                    return Ok(None);
                }
                if slots.len() >= self.options.max_feeds {
                    let why =
                        format!("read feed {}: {} feeds are open, no more may be", attach.feed, slots.len());
                    return Err(Error::exhausted(why)
                        .with_hint("wait until other jobs are done, or start more workers"));
                }
            }
            Arc::clone(slots.entry(attach.feed).or_default())
        };
        let mut place = lock(&slot);
        if let Some(feed) = place.as_ref().filter(|feed| !feed.is_closed()) {
            return Ok(Some(Arc::clone(feed)));
        }
        if attach.spec.is_empty() {
            return Ok(None);
        }
        let opened = self.open(attach);
        match &opened {
            Ok(feed) => *place = Some(Arc::clone(feed)),
            Err(_) => *place = None,
        }
        drop(place);
        if opened.is_err() {
            self.forget(attach.feed, &slot);
        }
        self.share_room();
        opened.map(Some)
    }

    fn open(&self, attach: &Attach) -> Result<Arc<Feed>> {
        let spec = FeedSpec::from_json(&attach.spec)?;
        if spec.id() != attach.feed {
            let why = format!("read feed {}: the spec that came is that of feed {}", attach.feed, spec.id());
            return Err(Error::invalid_config(why).with_hint("run the same release of forebay everywhere"));
        }
        let late = self.options.late.unwrap_or(attach.late);
        let disk = match (&self.options.spill, late) {
            (Some(folder), Late::Spill) => {
                let bytes = self.options.spill_bytes / self.options.max_feeds.max(1) as u64;
                Some(Disk::create(folder, bytes.max(self.options.spill_bytes / 4), &self.options.pool)?)
            }
            (None, Late::Spill) => {
                let why = format!(
                    "read feed {}: late batches are to be spilled, this worker has no folder for it",
                    attach.feed
                );
                return Err(Error::invalid_config(why).with_hint("start it with `--spill DIR`"));
            }
            _ => None,
        };
        let make = self.makers.open(&spec)?;
        Feed::start(FeedParts {
            id: attach.feed,
            label: spec.dataset.clone(),
            late,
            limit_bytes: self.options.staging_bytes,
            batch_size: spec.batch_size,
            making_batches: self.options.making_batches,
            make,
            disk,
        })
    }

    /// Takes out a slot in which nothing is, if it still is that one.
    fn forget(&self, id: FeedId, slot: &Slot) {
        let mut slots = lock(&self.slots);
        if slots.get(&id).is_some_and(|found| Arc::ptr_eq(found, slot)) {
            slots.remove(&id);
        }
    }

    /// All feeds that are open now.
    pub(super) fn open_now(&self) -> Vec<Arc<Feed>> {
        let slots: Vec<Slot> = lock(&self.slots).values().cloned().collect();
        // One that is being opened has nothing to show yet, and must not be waited for.
        slots.iter().filter_map(|slot| slot.try_lock().ok()?.clone()).collect()
    }

    /// All feeds have an equal part of the room.
    fn share_room(&self) {
        let feeds = self.open_now();
        let part = self.options.staging_bytes / feeds.len().max(1) as u64;
        for feed in feeds {
            feed.set_limit(part);
        }
    }

    pub(super) fn close_unread(&self, grace: Duration) {
        let unread: Vec<Arc<Feed>> = self
            .open_now()
            .into_iter()
            .filter(|feed| feed.close_if_unread(grace) || feed.is_closed())
            .collect();
        if unread.is_empty() {
            return;
        }
        for feed in unread {
            let slot = lock(&self.slots).get(&feed.id).cloned();
            if let Some(slot) = slot {
                let is_it = lock(&slot).as_ref().is_some_and(|found| Arc::ptr_eq(found, &feed));
                if is_it {
                    self.forget(feed.id, &slot);
                }
            }
            feed.close();
        }
        self.share_room();
    }

    pub(super) fn close_all(&self) {
        let slots = std::mem::take(&mut *lock(&self.slots));
        for feed in slots.values().filter_map(|slot| lock(slot).take()) {
            feed.close();
        }
    }

    pub(super) fn say_draining(&self) {
        self.open_now().iter().for_each(|feed| feed.say(&Answer::Draining));
    }

    pub(super) fn is_busy(&self) -> bool {
        self.open_now().iter().any(|feed| feed.is_busy())
    }

    pub(super) fn views(&self) -> Vec<FeedView> {
        self.open_now().iter().map(|feed| feed.view()).collect()
    }

    /// Which jobs read which feed, here or at other workers.
    pub(super) fn expect(&self, jobs: &HashMap<FeedId, Vec<String>>) {
        for feed in self.open_now() {
            let jobs = jobs.get(&feed.id).cloned().unwrap_or_default();
            feed.tell(Command::Expect { jobs });
        }
    }
}
