//! Batches between processes: every kind of column, every way to pack and to pass it, and everything that can be wrong
//! with bytes from outside.
#![allow(clippy::unwrap_used, reason = "a test helper fails by panicking")]

mod hostile;
mod make;
mod round_trip;
mod shared;
mod sockets;
