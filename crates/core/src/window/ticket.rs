//! What goes into a window and comes out of it: limits, tickets, ends, estimates.

use std::time::Duration;

/// Hard limits of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowLimits {
    /// Bytes in flight; a single larger request is still let through, alone.
    pub max_bytes: u64,
    /// Requests in flight, which is connections where one carries one request at a time.
    pub max_requests: usize,
    /// Requests in flight set by hand: nothing adapts, and pauses asked for by the server are still kept.
    pub fixed_requests: Option<usize>,
}

/// A request in flight; given back by [`Window::finish`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ticket {
    pub(super) number: u64,
    pub(super) bytes: u64,
    pub(super) started: f64,
    pub(super) in_flight: usize,
    pub(super) mark: u32,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All its bytes came.
    Done {
        /// How many they were.
        bytes: u64,
    },
    /// The server refused it for now (429, 503) and asked for a pause; zero when it named none.
    Throttled {
        /// Nothing may start for this long.
        pause: Duration,
    },
    /// Nobody was there to answer it.
    Away,
    /// It failed for a reason that says nothing about load by itself, or was cancelled.
    Failed {
        /// An earlier try of the same request had failed too. A server that answers second tries is at work; one that
        /// fails those as well is spared.
        again: bool,
    },
}

/// What is known about the link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkEstimate {
    /// Bytes a second it delivers; 0 while unknown.
    pub bytes_per_second: f64,
    /// Latency of a request when nothing of ours queues on the link, its own transfer included; zero while unknown.
    pub delay: Duration,
    /// The start is over: the rate no longer rises with the window.
    pub settled: bool,
}
