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
use forebay_engine::Stats;
use forebay_engine::feed::FeedSpec;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A place for a feed.
#[derive(Default)]
struct Slot {
    /// Held while the feed is being opened, so that it is opened once.
    opening: Mutex<()>,
    feed: Mutex<Option<Arc<Feed>>>,
}

impl Slot {
    fn open_feed(&self) -> Option<Arc<Feed>> {
        lock(&self.feed).clone().filter(|feed| !feed.is_closed())
    }
}

/// The feeds of a worker.
pub(super) struct Feeds {
    makers: Arc<dyn Makers>,
    options: WorkerOptions,
    slots: Mutex<BTreeMap<FeedId, Arc<Slot>>>,
}

impl Feeds {
    pub(super) fn new(options: &WorkerOptions, makers: Arc<dyn Makers>) -> Self {
        Self { makers, options: options.clone(), slots: Mutex::default() }
    }

    /// The feed that somebody wants to read; `None` when it is not open and its spec was not sent.
    pub(super) fn find(&self, attach: &Attach) -> Result<Option<Arc<Feed>>> {
        loop {
            let Some(slot) = self.slot(attach)? else { return Ok(None) };
            let opening = lock(&slot.opening);
            if !self.has(attach.feed, &slot) {
                // It was closed and taken out meanwhile.
                continue;
            }
            if let Some(feed) = slot.open_feed() {
                return Ok(Some(feed));
            }
            if attach.spec.is_empty() {
                return Ok(None);
            }
            let opened = self.open(attach);
            *lock(&slot.feed) = opened.as_ref().ok().cloned();
            if opened.is_err() {
                lock(&self.slots).remove(&attach.feed);
            }
            drop(opening);
            self.share_room();
            return opened.map(Some);
        }
    }

    /// The place of a feed; `None` when there is none and no spec to open it with.
    fn slot(&self, attach: &Attach) -> Result<Option<Arc<Slot>>> {
        let mut slots = lock(&self.slots);
        if let Some(slot) = slots.get(&attach.feed) {
            return Ok(Some(Arc::clone(slot)));
        }
        if attach.spec.is_empty() {
            return Ok(None);
        }
        if slots.len() >= self.options.max_feeds {
            let why = format!("read feed {}: {} feeds are open, no more may be", attach.feed, slots.len());
            return Err(
                Error::exhausted(why).with_hint("wait until other jobs are done, or start more workers")
            );
        }
        Ok(Some(Arc::clone(slots.entry(attach.feed).or_default())))
    }

    fn has(&self, id: FeedId, slot: &Arc<Slot>) -> bool {
        lock(&self.slots).get(&id).is_some_and(|found| Arc::ptr_eq(found, slot))
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

    /// All feeds that are open now.
    pub(super) fn open_now(&self) -> Vec<Arc<Feed>> {
        let slots: Vec<Arc<Slot>> = lock(&self.slots).values().cloned().collect();
        slots.iter().filter_map(|slot| lock(&slot.feed).clone()).collect()
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
            // Whoever opens it anew needs its place, and puts another feed into it.
            if let Some(slot) = slot
                && let Ok(_nobody_opens) = slot.opening.try_lock()
                && lock(&slot.feed).as_ref().is_some_and(|found| Arc::ptr_eq(found, &feed))
                && self.has(feed.id, &slot)
            {
                lock(&self.slots).remove(&feed.id);
            }
            feed.close();
        }
        self.share_room();
    }

    pub(super) fn close_all(&self) {
        let slots = std::mem::take(&mut *lock(&self.slots));
        for feed in slots.values().filter_map(|slot| lock(&slot.feed).take()) {
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

    /// What making the batches of each feed took.
    pub(super) fn stats(&self) -> Vec<(String, Stats)> {
        self.open_now().iter().map(|feed| (feed.id.to_string(), feed.stats())).collect()
    }

    /// Which jobs read which feed, here or at other workers.
    pub(super) fn expect(&self, jobs: &HashMap<FeedId, Vec<String>>) {
        for feed in self.open_now() {
            let jobs = jobs.get(&feed.id).cloned().unwrap_or_default();
            feed.tell(Command::Expect { jobs });
        }
    }
}
