//! Locks, threads and channels of the data path, named in one place so that tests may draw how they interleave.
//!
//! As built for users these are the standard library's. With the feature `shuttle` they are shuttle's: the same names,
//! under a scheduler that switches at every one of them and finds the order in which something is lost or waits for
//! ever (`tests/interleavings`). Such a build works inside of those tests alone, and no wait in it ever times out.
//!
//! Not here: counters of the meter, for which nobody waits; tokio's `Notify`, `watch` and `mpsc`, which wake under any
//! executor and are left out of the drawing; and the disk tier, whose waits are for files.

#[cfg(not(feature = "shuttle"))]
pub(crate) use std::{
    sync::{Condvar, Mutex, MutexGuard, atomic::AtomicU64, mpsc},
    thread,
};

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::{
    sync::{Condvar, Mutex, MutexGuard, atomic::AtomicU64, mpsc},
    thread,
};
