//! Which worker gets the next span: the one with the least to do for its threads.
//!
//! Workers are sorted by leases for each thread. Among those with equally little, a hash of the span says where on a
//! ring of workers to begin, so that equal states choose equally and no worker is always first. A choice looks at the
//! front of a sorted set: it takes as long with ten workers as with ten thousand, unless only those with a tag will do and
//! few have it.

use super::words::WorkerId;
use crate::feed::{FeedId, Span};
use crate::rng::{fold, mix64};
use std::collections::BTreeSet;

/// Workers that may be passed over in one choice. Beyond, one that is suspected is as good as any.
const MAX_PASSED_OVER: usize = 64;

/// Workers by what they have to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Placing(BTreeSet<(u64, u64, WorkerId)>);

fn key(worker: WorkerId, leased: u64, slots: u32) -> (u64, u64, WorkerId) {
    ((leased << 16) / u64::from(slots.max(1)), mix64(worker.0), worker)
}

impl Placing {
    pub(super) fn add(&mut self, worker: WorkerId, leased: u64, slots: u32) {
        self.0.insert(key(worker, leased, slots));
    }

    pub(super) fn remove(&mut self, worker: WorkerId, leased: u64, slots: u32) {
        self.0.remove(&key(worker, leased, slots));
    }

    /// The worker for a span. Those that do not fit are out of the question, `doubted` come last.
    pub(super) fn choose(
        &self,
        feed: FeedId,
        span: Span,
        fits: impl Fn(WorkerId) -> bool,
        doubted: impl Fn(WorkerId) -> bool,
    ) -> Option<WorkerId> {
        let ring = fold(&[feed.0 as u64, (feed.0 >> 64) as u64, span.epoch, span.number]);
        let (mut level, mut passed_over, mut fallback) = (0, 0, None);
        while let Some((found, _, _)) = self.0.range((level, 0, WorkerId(0))..).next() {
            level = *found;
            let first = (level, 0, WorkerId(0));
            let (start, end) = ((level, ring, WorkerId(0)), (level.saturating_add(1), 0, WorkerId(0)));
            for (_, _, worker) in self.0.range(start..end).chain(self.0.range(first..start)) {
                if fits(*worker) {
                    if !doubted(*worker) {
                        return Some(*worker);
                    }
                    fallback = fallback.or(Some(*worker));
                    passed_over += 1;
                    if passed_over == MAX_PASSED_OVER {
                        return fallback;
                    }
                }
            }
            level = level.saturating_add(1);
        }
        fallback
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_busy_is_chosen_by_its_threads_and_ties_are_spread() {
        let mut placing = Placing::default();
        let span = |number| Span { epoch: 0, number };
        assert_eq!(placing.choose(FeedId(1), span(0), |_| true, |_| false), None);
        for worker in 0..8 {
            placing.add(WorkerId(worker), 4, if worker == 5 { 4 } else { 2 });
        }
        assert_eq!(placing.choose(FeedId(1), span(0), |_| true, |_| false), Some(WorkerId(5)));
        let without =
            |number| placing.choose(FeedId(1), span(number), |worker| worker != WorkerId(5), |_| false);
        let chosen: BTreeSet<_> = (0..200).filter_map(without).collect();
        assert_eq!(chosen.len(), 7, "{chosen:?}");
        let doubting = placing.choose(FeedId(1), span(0), |_| true, |worker| worker == WorkerId(5));
        assert!(doubting.is_some() && doubting != Some(WorkerId(5)));
        assert_eq!(placing.choose(FeedId(1), span(0), |_| true, |_| true), Some(WorkerId(5)));
    }
}
