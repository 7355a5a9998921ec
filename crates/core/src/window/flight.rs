//! What is in flight on a link, with requests that hang set aside.
//!
//! A request that hangs occupies no bandwidth, yet it would occupy a place in the window: with one request in a
//! hundred hanging for two hundred round trips, hung ones alone would fill a window of twice the link. So a request
//! far beyond the usual latency is *overdue* and no longer counts against the window, only against the hard limits.

use std::collections::VecDeque;

/// Requests in flight, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Flight {
    requests: usize,
    bytes: u64,
    /// Requests started and not yet known to be overdue, some of them ended; `first` is the number of the oldest.
    queue: VecDeque<Started>,
    first: u64,
    overdue_requests: usize,
    overdue_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Started {
    at: f64,
    bytes: u64,
    ended: bool,
}

impl Flight {
    pub(super) fn requests(&self) -> usize {
        self.requests
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Requests kept track of one by one, ended ones included.
    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        self.queue.len()
    }

    /// Requests that are not overdue.
    pub(super) fn timely_requests(&self) -> usize {
        self.requests - self.overdue_requests
    }

    /// Bytes that count against the window: all but the overdue ones, of which at most `excused` are let off. When
    /// the whole link hangs everything is overdue, and the excuse is what bounds the requests added on top.
    pub(super) fn counted_bytes(&self, excused: u64) -> u64 {
        self.bytes - self.overdue_bytes.min(excused)
    }

    /// Counts a request as started and gives it a number.
    pub(super) fn start(&mut self, now: f64, bytes: u64) -> u64 {
        self.requests += 1;
        self.bytes += bytes;
        self.queue.push_back(Started { at: now, bytes, ended: false });
        self.first + self.queue.len() as u64 - 1
    }

    /// Counts a request as ended; true when it was overdue.
    pub(super) fn end(&mut self, number: u64, bytes: u64) -> bool {
        self.requests = self.requests.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
        let Some(place) = number.checked_sub(self.first) else {
            self.overdue_requests = self.overdue_requests.saturating_sub(1);
            self.overdue_bytes = self.overdue_bytes.saturating_sub(bytes);
            return true;
        };
        if let Some(started) = self.queue.get_mut(place as usize) {
            started.ended = true;
        }
        false
    }

    /// Sets aside the requests that started before `since`.
    pub(super) fn set_aside(&mut self, since: f64) {
        while let Some(oldest) = self.queue.front().copied()
            && (oldest.ended || oldest.at < since)
        {
            if !oldest.ended {
                self.overdue_requests += 1;
                self.overdue_bytes += oldest.bytes;
            }
            self.queue.pop_front();
            self.first += 1;
        }
    }
}

/// How large requests are, lately.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sizes {
    mean: f64,
    mean_square: f64,
}

impl Sizes {
    const MEMORY: f64 = 64.0;

    pub(super) fn is_empty(self) -> bool {
        self.mean == 0.0
    }

    pub(super) fn add(&mut self, bytes: u64) {
        let bytes = bytes.max(1) as f64;
        if self.is_empty() {
            (self.mean, self.mean_square) = (bytes, bytes * bytes);
        }
        self.mean += (bytes - self.mean) / Self::MEMORY;
        self.mean_square += (bytes * bytes - self.mean_square) / Self::MEMORY;
    }

    /// Mean bytes of a request.
    pub(super) fn mean(self) -> f64 {
        self.mean
    }

    /// Mean bytes of the request that a byte belongs to: where sizes vary, the large ones are what fills a link.
    pub(super) fn typical(self) -> f64 {
        if self.is_empty() { 0.0 } else { self.mean_square / self.mean }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hung_request_leaves_the_count_and_comes_back_only_once() {
        let mut flight = Flight::default();
        let hung = flight.start(0.0, 10);
        let quick = flight.start(1.0, 20);
        flight.set_aside(0.5);
        assert_eq!((flight.requests(), flight.bytes()), (2, 30));
        assert_eq!((flight.timely_requests(), flight.counted_bytes(u64::MAX)), (1, 20));
        assert_eq!(flight.counted_bytes(4), 26, "no more is excused than allowed");
        assert!(!flight.end(quick, 20));
        assert!(flight.end(hung, 10));
        assert_eq!((flight.requests(), flight.bytes(), flight.timely_requests()), (0, 0, 0));
        flight.set_aside(0.0);
        assert_eq!(flight.queue.len(), 0);
    }
}
