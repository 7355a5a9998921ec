//! Batches from other processes: one of this host, or workers anywhere.
//!
//! [`message`] is what a client and a worker say to each other; the same words over a unix socket, where batches are
//! handed over as shared memory, and over TCP, where their bytes follow.

pub mod message;
mod via;

pub use via::{DEFAULT_PORT, ViaConfig, ViaUrl, Visitation, late_named};
