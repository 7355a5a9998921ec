//! Leases in the state: in step with the workers that hold them and the feeds they are of.
//!
//! Leases that every attached job has passed go away by themselves, and beyond [`MAX_LEASES`] the oldest do: a span
//! that is asked for again is leased anew, which costs making some batches again and nothing else. Who gets one is
//! decided in `spans`.

use super::known::{Lease, Worker};
use super::state::State;
use super::words::WorkerId;
use crate::feed::{FeedId, Span};

/// Most leases that are remembered.
pub const MAX_LEASES: usize = 1 << 17;

impl State {
    /// Leases a span, instead of whom it was leased to before.
    pub(super) fn lease(&mut self, feed: FeedId, span: Span, lease: Lease) {
        self.next_lease = self.next_lease.max(lease.id.0 + 1);
        if !self.feeds.contains_key(&feed) || !self.workers.contains_key(&lease.worker) {
            return;
        }
        self.release(feed, span);
        if let Some(known) = self.feeds.get_mut(&feed) {
            known.leases.insert(span, lease);
            self.leases.insert(lease.id, (feed, span));
        }
        self.weigh(lease.worker, |worker| {
            worker.leased += 1;
            worker.spans.entry(feed).or_default().insert(span);
        });
        if self.leases.len() > MAX_LEASES
            && let Some((_, (feed, span))) = self.leases.pop_first()
        {
            self.release(feed, span);
        }
    }

    fn release(&mut self, feed: FeedId, span: Span) {
        let known = self.feeds.get_mut(&feed);
        let Some(lease) = known.and_then(|known| known.leases.remove(&span)) else { return };
        self.released(feed, span, lease);
    }

    /// A lease was taken out of its feed.
    pub(super) fn released(&mut self, feed: FeedId, span: Span, lease: Lease) {
        self.leases.remove(&lease.id);
        self.weigh(lease.worker, |worker| {
            worker.leased -= 1;
            if let Some(spans) = worker.spans.get_mut(&feed) {
                spans.remove(&span);
                if spans.is_empty() {
                    worker.spans.remove(&feed);
                }
            }
        });
    }

    /// Changes how much a worker has.
    fn weigh(&mut self, worker: WorkerId, change: impl FnOnce(&mut Worker)) {
        let Some(known) = self.workers.get_mut(&worker) else { return };
        if known.draining {
            return change(known);
        }
        self.placing.remove(worker, known.leased, known.slots);
        change(known);
        self.placing.add(worker, known.leased, known.slots);
    }

    pub(super) fn lose_worker(&mut self, worker: WorkerId) {
        let Some(known) = self.workers.remove(&worker) else { return };
        self.placing.remove(worker, known.leased, known.slots);
        self.addresses.remove(&known.address);
        for (feed, spans) in known.spans {
            let Some(feed) = self.feeds.get_mut(&feed) else { continue };
            for span in spans {
                if let Some(lease) = feed.leases.remove(&span) {
                    self.leases.remove(&lease.id);
                }
            }
        }
    }

    pub(super) fn drop_passed(&mut self, feed: FeedId) {
        loop {
            let Some(known) = self.feeds.get_mut(&feed) else { return };
            let Some((floor, _)) = known.floors.first() else { return };
            let first = Span { epoch: floor.epoch, number: floor.position / known.span_positions };
            let Some(entry) = known.leases.first_entry().filter(|entry| *entry.key() < first) else { return };
            let (span, lease) = entry.remove_entry();
            self.released(feed, span, lease);
        }
    }
}
