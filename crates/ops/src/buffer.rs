//! Memory for batches: aligned buffers from a pool, written row by row by many threads.
//!
//! A [`Buffer`] is aligned to 4096 bytes (JAX copies silently below 64) and goes back to its pool when the last
//! owner, often a Python array, lets go. While a batch is being made its buffer is a [`Rows`]: every row can be
//! claimed once, so threads write disjoint parts without a lock and without a copy afterwards.
//!
//! Buffers of a pool made by [`BufferPool::shared`] can be shown to other processes of this host as they are; what
//! that takes is in [`shared`].

mod pages;
mod rows;
pub mod shared;
mod shelf;
mod views;

pub use rows::{RowMut, Rows};
pub use shared::SharedMemory;
pub use views::SharedViews;

use pages::{allocate, release};
use shelf::{Keep, Shelf};
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

/// Alignment of every buffer, in bytes: a page, more than any framework or device asks for.
pub const ALIGNMENT: usize = 4096;

/// Aligned memory that returns to its pool when dropped.
pub struct Buffer {
    start: NonNull<u8>,
    len: usize,
    capacity: usize,
    owner: Owner,
}

/// Who takes the memory back.
enum Owner {
    /// The pool it came from, if that still is there.
    Pool(Weak<Shelf>),
    /// The last of those who look at it: this buffer, and connections that have shown it to other processes.
    Shared(SharedMemory),
    /// Those who keep views for the next batch, or the system; and whoever showed it to us is told.
    Mapped { told: Option<Box<dyn FnOnce() + Send + Sync>>, home: Option<views::Return> },
}

// SAFETY: a buffer owns its memory and hands out references under the usual borrow rules.
unsafe impl Send for Buffer {}
// SAFETY: as above; shared references only read.
unsafe impl Sync for Buffer {}

/// A set of buffers kept for use again. Cloning gives another handle to the same set.
#[derive(Clone)]
pub struct BufferPool(Arc<Shelf>);

impl BufferPool {
    /// A pool that keeps at most `keep_bytes` of unused memory; more is given back to the system.
    pub fn new(keep_bytes: usize) -> Self {
        Self(Arc::new(Shelf::new(Keep::Idle(keep_bytes), false)))
    }

    /// A pool whose larger buffers other processes of this host can map.
    ///
    /// Where the system gives no such memory, or the process has too many descriptors, buffers are ordinary ones.
    pub fn shared(keep_bytes: usize) -> Self {
        Self(Arc::new(Shelf::new(Keep::Idle(keep_bytes), true)))
    }

    /// A pool whose unused memory and memory in use are together no more than `total_bytes`: where more than that is in
    /// use, nothing is kept. With `shared`, other processes of this host can map its larger buffers.
    pub fn within(total_bytes: usize, shared: bool) -> Self {
        Self(Arc::new(Shelf::new(Keep::WithUsed(total_bytes), shared)))
    }

    /// A buffer of `len` bytes. Its contents are unspecified but initialised: zeros, or an earlier batch.
    pub fn take(&self, len: usize) -> Buffer {
        let capacity = len.next_multiple_of(ALIGNMENT).max(ALIGNMENT);
        let pool = Arc::downgrade(&self.0);
        if self.0.is_shared() && capacity >= shared::SHARED_FROM {
            let fresh = || shared::Memory::new(capacity).inspect(|_| self.0.took_shared(capacity));
            if let Some(memory) = self.0.take_shared(capacity).or_else(fresh) {
                let start = memory.start();
                let owner = Owner::Shared(SharedMemory::new(memory, pool));
                return Buffer { start, len, capacity, owner };
            }
        }
        let start = self.0.take(capacity).unwrap_or_else(|| allocate(capacity));
        Buffer { start, len, capacity, owner: Owner::Pool(pool) }
    }

    /// Bytes lying unused in the pool.
    pub fn idle_bytes(&self) -> usize {
        self.0.idle_bytes()
    }
}

impl Buffer {
    /// A buffer outside any pool.
    pub fn alone(len: usize) -> Self {
        let capacity = len.next_multiple_of(ALIGNMENT).max(ALIGNMENT);
        Self { start: allocate(capacity), len, capacity, owner: Owner::Pool(Weak::new()) }
    }

    /// Bytes of payload.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no payload.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Address of the first byte, aligned to [`ALIGNMENT`].
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// The payload.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: `start` is valid for `len <= capacity` initialised bytes as long as `self` lives.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// The payload, writable.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` is the only way in.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }

    /// Makes the payload shorter; the memory stays.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// The memory behind it, when it can be shown to other processes.
    pub fn shared_memory(&self) -> Option<&SharedMemory> {
        match &self.owner {
            Owner::Shared(memory) => Some(memory),
            Owner::Pool(_) | Owner::Mapped { .. } => None,
        }
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} bytes)", self.len)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        match &mut self.owner {
            // Its own drop decides.
            Owner::Shared(_) => return,
            Owner::Mapped { told, home } => {
                if !home.take().is_some_and(|home| home.keep(self.start)) {
                    shared::unmap(self.start, self.capacity);
                }
                // Last: from here on the maker may write there.
                if let Some(told) = told.take() {
                    told();
                }
                return;
            }
            Owner::Pool(pool) => {
                if pool.upgrade().is_some_and(|shelf| shelf.put_back(self.start, self.capacity)) {
                    return;
                }
            }
        }
        release(self.start, self.capacity);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_buffer_is_used_again_and_the_pool_keeps_no_more_than_it_may() {
        let pool = BufferPool::new(ALIGNMENT * 2);
        let first = pool.take(5000);
        let address = first.as_ptr();
        drop(first);
        assert_eq!(pool.idle_bytes(), 8192);
        let again = pool.take(6000);
        assert_eq!(again.as_ptr(), address);
        assert_eq!(address as usize % ALIGNMENT, 0);
        drop(pool.take(100_000));
        drop(pool.take(3 << 20));
        assert_eq!(pool.idle_bytes(), 0, "a buffer above the limit goes back to the system");
        drop(again);
        assert_eq!(pool.idle_bytes(), 8192);
    }

    #[test]
    fn what_lies_idle_counts_together_with_what_is_in_use() {
        const ONE: usize = shared::SHARED_FROM;
        for shared in [false, true] {
            let pool = BufferPool::within(4 * ONE, shared);
            let mut held: Vec<Buffer> = (0..4).map(|_| pool.take(ONE)).collect();
            let address = held[3].as_ptr();
            held.truncate(3);
            assert_eq!(pool.idle_bytes(), ONE);
            assert_eq!(pool.take(ONE).as_ptr(), address, "what lies idle is used again");
            // A buffer of another size takes the place of idle ones, which would otherwise never be given back.
            let other = pool.take(2 * ONE);
            assert_eq!(pool.idle_bytes(), 0);
            drop(held.pop());
            assert_eq!(pool.idle_bytes(), 0, "four are in use");
            drop(other);
            drop(held);
            assert_eq!(pool.idle_bytes(), 4 * ONE);
            // More than allowed may be in use: whoever takes it has bounds of its own. Nothing is kept then.
            let held: Vec<Buffer> = (0..8).map(|_| pool.take(ONE + 1)).collect();
            assert_eq!(pool.idle_bytes(), 0);
            drop(held);
            assert!(pool.idle_bytes() > 0 && pool.idle_bytes() <= 4 * ONE);
        }
    }

    #[test]
    fn a_buffer_outlives_its_pool() {
        let pool = BufferPool::new(1 << 20);
        let mut buffer = pool.take(10);
        drop(pool);
        buffer.as_mut_slice().fill(7);
        assert_eq!(buffer.as_slice(), [7; 10]);
    }
}
