//! What the local store counted: requests, system calls, bytes touched.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts since the store was made. Bytes are those that the operating system was asked for and gave, so gaps
/// between parts and the edges of aligned reads are in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocalStats {
    /// Calls of `read` and `read_parts`.
    pub requests: u64,
    /// System calls that read: `pread`, `preadv2`, or one submitted to `io_uring`.
    pub syscalls: u64,
    /// Bytes they gave.
    pub bytes: u64,
    /// Spans read past the page cache.
    pub direct_reads: u64,
    /// Spans read through the page cache.
    pub buffered_reads: u64,
    /// Files opened, descriptors for direct reads included.
    pub opens: u64,
}

impl LocalStats {
    /// Mean bytes that one reading system call gave; 0 before the first.
    pub fn bytes_per_syscall(&self) -> u64 {
        self.bytes.checked_div(self.syscalls).unwrap_or(0)
    }
}

/// The counters behind [`LocalStats`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(super) requests: AtomicU64,
    pub(super) syscalls: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) direct_reads: AtomicU64,
    pub(super) buffered_reads: AtomicU64,
    pub(super) opens: AtomicU64,
}

impl Counters {
    /// One system call that gave `bytes`.
    pub(super) fn add_call(&self, bytes: usize) {
        self.syscalls.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }

    pub(super) fn snapshot(&self) -> LocalStats {
        LocalStats {
            requests: self.requests.load(Relaxed),
            syscalls: self.syscalls.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            direct_reads: self.direct_reads.load(Relaxed),
            buffered_reads: self.buffered_reads.load(Relaxed),
            opens: self.opens.load(Relaxed),
        }
    }
}
