//! Reading: a payload is found, read past the page cache and compared with its checksum.

use super::DiskTier;
use super::folder::segment_name;
use super::queue::Queue;
use super::state::State;
use bytes::Bytes;
use forebay_core::Error;
use forebay_core::cache::PayloadId;
use forebay_store::{ObjectRead, Store};
use futures::FutureExt;
use futures::future::BoxFuture;
use std::sync::atomic::Ordering::Relaxed;

/// How often a payload that moves while it is read is looked for again.
const LOOKS: usize = 4;

/// What became of a read.
enum Found {
    Sound(Bytes),
    Damaged,
    Absent,
}

impl DiskTier {
    /// The length of a payload that is held.
    pub fn has(&self, id: PayloadId) -> Option<u64> {
        let held = |state: &State| match state.pending.get(&id) {
            Some(pending) => Some(pending.bytes.len() as u64),
            None => state.live.get(&id).map(|entry| u64::from(entry.length)),
        };
        let found = held(&self.shared.state());
        match &self.follower {
            Some(follower) if found.is_none() && follower.catch_up(&self.shared) => {
                held(&self.shared.state())
            }
            _ => found,
        }
    }

    /// Reads a payload and checks it. One whose bytes are wrong or cannot be read is forgotten, counted as damaged and
    /// answered by `None`.
    pub fn read(&self, id: PayloadId) -> BoxFuture<'_, Option<Bytes>> {
        async move {
            match self.find(id).await {
                Found::Sound(bytes) => {
                    self.shared.count_hits(1);
                    Some(bytes)
                }
                Found::Damaged | Found::Absent => None,
            }
        }
        .boxed()
    }

    /// Reads payloads as [`DiskTier::read`] does, all of them at once, one answer each, in order.
    pub fn read_many<'a>(&'a self, ids: &'a [PayloadId]) -> BoxFuture<'a, Vec<Option<Bytes>>> {
        async move {
            let mut answers: Vec<Option<Bytes>> = vec![None; ids.len()];
            let mut places = Vec::with_capacity(ids.len());
            let mut reads = Vec::with_capacity(ids.len());
            {
                let state = self.shared.state();
                for (place, id) in ids.iter().enumerate() {
                    if let Some(pending) = state.pending.get(id) {
                        answers[place] = Some(pending.bytes.clone());
                    } else if let Some(entry) = state.live.get(id).filter(|entry| entry.length > 0) {
                        let key = segment_name(entry.segment);
                        places.push((place, *entry));
                        reads.push(ObjectRead { key, range: entry.payload() });
                    }
                }
            }
            let read = self.shared.store.read_many(&reads).await;
            for ((place, entry), bytes) in places.into_iter().zip(read) {
                answers[place] = bytes.ok().filter(|bytes| entry.matches(bytes));
            }
            self.shared.count_hits(answers.iter().flatten().count() as u64);
            // What has moved, is damaged or is not here yet takes the way on which that is told apart.
            for (answer, id) in answers.iter_mut().zip(ids).filter(|(answer, _)| answer.is_none()) {
                *answer = self.read(*id).await;
            }
            answers
        }
        .boxed()
    }

    /// Reads a payload as [`DiskTier::read`] does and says whether it is sound; `None` when it is not held.
    pub async fn check(&self, id: PayloadId) -> Option<bool> {
        match self.find(id).await {
            Found::Sound(_) => Some(true),
            Found::Damaged => Some(false),
            Found::Absent => None,
        }
    }

    async fn find(&self, id: PayloadId) -> Found {
        for _ in 0..LOOKS {
            if self.has(id).is_none() {
                return Found::Absent;
            }
            let entry = {
                let state = self.shared.state();
                if let Some(pending) = state.pending.get(&id) {
                    return Found::Sound(pending.bytes.clone());
                }
                // Gone since it was there a moment ago: whoever asks again learns the same.
                let Some(entry) = state.live.get(&id) else { return Found::Absent };
                *entry
            };
            let name = segment_name(entry.segment);
            let read = match entry.length {
                0 => Ok(Bytes::new()),
                _ => self.shared.store.read(&name, entry.payload().into()).await,
            };
            let fault = match read {
                Ok(bytes) if entry.matches(&bytes) => return Found::Sound(bytes),
                Ok(_) => None,
                Err(error) => Some(error),
            };
            // It may have moved while it was read; only a payload that is still said to lie there is damaged.
            let newer = self.follower.as_ref().is_some_and(|follower| follower.catch_up(&self.shared));
            if !newer && self.shared.condemn(id, &entry) {
                self.warn(fault.as_ref());
                self.queue.iter().for_each(Queue::wake);
                return Found::Damaged;
            }
        }
        Found::Absent
    }

    fn warn(&self, fault: Option<&Error>) {
        if self.warned.swap(true, Relaxed) {
            return;
        }
        let dir = self.shared.dir.display();
        if let Some(error) = fault {
            tracing::warn!(%dir, %error, "a payload of the disk cache cannot be read, it is fetched again");
        } else {
            tracing::warn!(%dir, "a payload of the disk cache is damaged, it is fetched again");
        }
    }
}
