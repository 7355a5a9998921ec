//! The memory budget: bytes are reserved before they are fetched and let go when the sample was prepared.
//!
//! One fetching task reserves in the order in which payloads are needed, so waiting here is the back-pressure of the
//! whole plane. A single payload larger than the budget is let in alone: the bound is the limit plus one sample.
//! Batches are accounted by [`memory`](crate::memory), payloads they keep included; it sets this budget's limit to
//! what they leave.

use crate::sync::{AtomicU64, Mutex};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use tokio::sync::Notify;

/// Bytes that may be held at once. Cloning gives another handle to the same budget.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    limit: AtomicU64,
    used: Mutex<u64>,
    peak: AtomicU64,
    freed: Notify,
}

/// Reserved bytes; they are free again when this is dropped.
#[derive(Debug)]
pub struct Hold {
    bytes: u64,
    budget: Arc<Inner>,
}

impl Budget {
    /// A budget of `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Self(Arc::new(Inner {
            limit: AtomicU64::new(limit),
            used: Mutex::new(0),
            peak: AtomicU64::new(0),
            freed: Notify::new(),
        }))
    }

    /// The limit in bytes.
    pub fn limit(&self) -> u64 {
        self.0.limit.load(Ordering::Relaxed)
    }

    /// Changes the limit. What is held stays held; a lower limit holds for what is reserved from now on.
    pub fn set_limit(&self, limit: u64) {
        if self.0.limit.swap(limit, Ordering::Relaxed) < limit {
            self.0.freed.notify_waiters();
        }
    }

    /// Waits until `bytes` fit, or until nothing else is held when they never will. Safe to cancel.
    pub async fn reserve(&self, bytes: u64) -> Hold {
        loop {
            let freed = self.0.freed.notified();
            if let Some(hold) = self.try_reserve(bytes) {
                return hold;
            }
            freed.await;
        }
    }

    /// Reserves at once if `bytes` fit now.
    pub fn try_reserve(&self, bytes: u64) -> Option<Hold> {
        let mut used = self.0.used.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = used.checked_add(bytes).is_some_and(|total| total <= self.limit());
        (fits || *used == 0).then(|| self.hold(&mut used, bytes))
    }

    /// Reserves whatever the limit says: only for a payload that a held batch cannot be finished without.
    pub fn reserve_anyway(&self, bytes: u64) -> Hold {
        let mut used = self.0.used.lock().unwrap_or_else(PoisonError::into_inner);
        self.hold(&mut used, bytes)
    }

    fn hold(&self, used: &mut u64, bytes: u64) -> Hold {
        *used += bytes;
        self.0.peak.fetch_max(*used, Ordering::Relaxed);
        Hold { bytes, budget: Arc::clone(&self.0) }
    }

    /// Bytes held now.
    pub fn used(&self) -> u64 {
        *self.0.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Most bytes ever held at once.
    pub fn peak(&self) -> u64 {
        self.0.peak.load(Ordering::Relaxed)
    }
}

impl Hold {
    /// Bytes reserved.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes `bytes` out of this hold into one of its own.
    ///
    /// # Panics
    /// When fewer are held.
    #[must_use]
    pub fn split(&mut self, bytes: u64) -> Hold {
        assert!(bytes <= self.bytes, "{bytes} of {} held bytes", self.bytes);
        self.bytes -= bytes;
        Hold { bytes, budget: Arc::clone(&self.budget) }
    }

    /// Both as one. They are of one budget.
    #[must_use]
    pub fn join(mut self, mut other: Hold) -> Hold {
        self.bytes += std::mem::take(&mut other.bytes);
        self
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.bytes > 0 {
            *self.budget.used.lock().unwrap_or_else(PoisonError::into_inner) -= self.bytes;
            self.budget.freed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn a_reservation_waits_until_its_bytes_are_free() {
        let budget = Budget::new(100);
        let first = budget.try_reserve(60).unwrap();
        assert!(budget.try_reserve(41).is_none());
        let mut waiting = Box::pin(budget.reserve(41));
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(first);
        let second = waiting.now_or_never().expect("bytes are free");
        assert_eq!((budget.used(), budget.peak()), (41, 60));
        drop(second);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_raised_limit_lets_those_in_who_wait() {
        let budget = Budget::new(100);
        let _held = budget.try_reserve(60).unwrap();
        let mut waiting = Box::pin(budget.reserve(80));
        assert!(waiting.as_mut().now_or_never().is_none());
        budget.set_limit(140);
        assert!(waiting.now_or_never().is_some());
        budget.set_limit(10);
        assert!(budget.try_reserve(1).is_none());
    }

    #[test]
    fn a_payload_larger_than_the_budget_is_let_in_alone() {
        let budget = Budget::new(100);
        let small = budget.try_reserve(1).unwrap();
        assert!(budget.try_reserve(500).is_none());
        drop(small);
        assert!(budget.try_reserve(500).is_some());
    }

    #[test]
    fn a_split_hold_is_let_go_part_by_part() {
        let budget = Budget::new(100);
        let mut hold = budget.try_reserve(30).unwrap();
        let part = hold.split(10);
        drop(hold);
        assert_eq!(budget.used(), 10);
        let more = budget.try_reserve(7).unwrap();
        let both = part.join(more);
        assert_eq!(budget.used(), 17);
        drop(both);
        assert_eq!(budget.used(), 0);
    }
}
