//! What the relay counts, readable from any thread while it runs.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What went over the line so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections accepted.
    pub connections: u64,
    /// Connections open now.
    pub open: u64,
    /// Most connections open at once.
    pub most_open: u64,
    /// Connections that the target refused.
    pub refused: u64,
    /// Bytes delivered to the server.
    pub up_bytes: u64,
    /// Bytes delivered to clients.
    pub down_bytes: u64,
    /// Pieces held up.
    pub stalls: u64,
    /// Connections reset.
    pub cuts: u64,
}

/// The same, while it changes.
#[derive(Debug, Default)]
pub(super) struct Meters {
    pub(super) connections: AtomicU64,
    pub(super) open: AtomicU64,
    pub(super) most_open: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) up_bytes: AtomicU64,
    pub(super) down_bytes: AtomicU64,
    pub(super) stalls: AtomicU64,
    pub(super) cuts: AtomicU64,
}

impl Meters {
    pub(super) fn counts(&self) -> Counts {
        Counts {
            connections: self.connections.load(Relaxed),
            open: self.open.load(Relaxed),
            most_open: self.most_open.load(Relaxed),
            refused: self.refused.load(Relaxed),
            up_bytes: self.up_bytes.load(Relaxed),
            down_bytes: self.down_bytes.load(Relaxed),
            stalls: self.stalls.load(Relaxed),
            cuts: self.cuts.load(Relaxed),
        }
    }
}
