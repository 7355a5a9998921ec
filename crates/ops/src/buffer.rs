//! Memory for batches: aligned buffers from a pool, written row by row by many threads.
//!
//! A [`Buffer`] is aligned to 4096 bytes (JAX copies silently below 64) and goes back to its pool when the last
//! owner, often a Python array, lets go. While a batch is being made its buffer is a [`Rows`]: every row can be
//! claimed once, so threads write disjoint parts without a lock and without a copy afterwards.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Alignment of every buffer, in bytes: a page, more than any framework or device asks for.
pub const ALIGNMENT: usize = 4096;

/// Aligned memory that returns to its pool when dropped.
pub struct Buffer {
    start: NonNull<u8>,
    len: usize,
    capacity: usize,
    pool: Weak<Shelf>,
}

// SAFETY: a buffer owns its memory and hands out references under the usual borrow rules.
unsafe impl Send for Buffer {}
// SAFETY: as above; shared references only read.
unsafe impl Sync for Buffer {}

/// A set of buffers kept for use again. Cloning gives another handle to the same set.
#[derive(Clone)]
pub struct BufferPool(Arc<Shelf>);

struct Shelf {
    keep_bytes: usize,
    free: Mutex<Free>,
}

#[derive(Default)]
struct Free {
    /// Start addresses by capacity; addresses are integers so that the map is `Send`.
    by_capacity: BTreeMap<usize, Vec<usize>>,
    bytes: usize,
}

impl BufferPool {
    /// A pool that keeps at most `keep_bytes` of unused memory; more is given back to the system.
    pub fn new(keep_bytes: usize) -> Self {
        Self(Arc::new(Shelf { keep_bytes, free: Mutex::default() }))
    }

    /// A buffer of `len` bytes. Its contents are unspecified but initialised: zeros, or an earlier batch.
    pub fn take(&self, len: usize) -> Buffer {
        let capacity = len.next_multiple_of(ALIGNMENT).max(ALIGNMENT);
        let reused = self.0.lock().take(capacity);
        let start = reused.unwrap_or_else(|| allocate(capacity));
        Buffer { start, len, capacity, pool: Arc::downgrade(&self.0) }
    }

    /// Bytes lying unused in the pool.
    pub fn idle_bytes(&self) -> usize {
        self.0.lock().bytes
    }
}

impl Shelf {
    fn lock(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Free {
    fn take(&mut self, capacity: usize) -> Option<NonNull<u8>> {
        let stack = self.by_capacity.get_mut(&capacity)?;
        let start = NonNull::new(stack.pop()? as *mut u8)?;
        self.bytes -= capacity;
        Some(start)
    }
}

impl Drop for Shelf {
    fn drop(&mut self) {
        for (capacity, starts) in std::mem::take(&mut self.lock().by_capacity) {
            for start in starts {
                if let Some(start) = NonNull::new(start as *mut u8) {
                    release(start, capacity);
                }
            }
        }
    }
}

impl Buffer {
    /// A buffer outside any pool.
    pub fn alone(len: usize) -> Self {
        let capacity = len.next_multiple_of(ALIGNMENT).max(ALIGNMENT);
        Self { start: allocate(capacity), len, capacity, pool: Weak::new() }
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
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} bytes)", self.len)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(shelf) = self.pool.upgrade() {
            let mut free = shelf.lock();
            if free.bytes + self.capacity <= shelf.keep_bytes {
                free.bytes += self.capacity;
                free.by_capacity.entry(self.capacity).or_default().push(self.start.as_ptr() as usize);
                return;
            }
        }
        release(self.start, self.capacity);
    }
}

/// A buffer cut into equal rows, each of which may be claimed once by any thread.
pub struct Rows {
    buffer: Buffer,
    row_bytes: usize,
    claimed: Vec<AtomicBool>,
}

/// The right to write one row.
pub struct RowMut {
    rows: Arc<Rows>,
    row: usize,
}

impl Rows {
    /// Cuts `buffer` into `count` rows of `row_bytes` each.
    ///
    /// # Panics
    /// When the buffer is too small for that.
    pub fn new(buffer: Buffer, row_bytes: usize, count: usize) -> Arc<Self> {
        let wanted = row_bytes.checked_mul(count);
        assert!(wanted.is_some_and(|bytes| bytes <= buffer.len()), "{count} rows of {row_bytes} do not fit");
        Arc::new(Self { buffer, row_bytes, claimed: (0..count).map(|_| AtomicBool::new(false)).collect() })
    }

    /// The right to write row `row`, or `None` when it was given away before or does not exist.
    pub fn claim(self: &Arc<Self>, row: usize) -> Option<RowMut> {
        let taken = self.claimed.get(row)?.swap(true, Ordering::AcqRel);
        (!taken).then(|| RowMut { rows: Arc::clone(self), row })
    }

    /// The buffer, once no claimed row is being written any more; itself otherwise.
    pub fn into_buffer(self: Arc<Self>) -> Result<Buffer, Arc<Self>> {
        Arc::try_unwrap(self).map(|rows| rows.buffer)
    }
}

impl std::ops::Deref for RowMut {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        let start = self.row * self.rows.row_bytes;
        // SAFETY: rows are disjoint, this one was claimed once, and the buffer cannot leave `Rows` while we hold it.
        unsafe { std::slice::from_raw_parts(self.rows.buffer.as_ptr().add(start), self.rows.row_bytes) }
    }
}

impl std::ops::DerefMut for RowMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        let start = self.row * self.rows.row_bytes;
        // SAFETY: as above; `&mut self` makes this the only reference into the row.
        unsafe { std::slice::from_raw_parts_mut(self.rows.buffer.as_ptr().add(start), self.rows.row_bytes) }
    }
}

/// Buffers from this size on are mapped rather than taken from the allocator, which would write zeros into an
/// over-aligned block at once, on one thread; mapped pages are zeroed by whoever touches them first.
const MAPPED_FROM: usize = 2 << 20;

fn layout(capacity: usize) -> Layout {
    Layout::from_size_align(capacity, ALIGNMENT)
        .expect("capacity is a multiple of a page, far below isize::MAX")
}

fn allocate(capacity: usize) -> NonNull<u8> {
    let layout = layout(capacity);
    let start = if capacity >= MAPPED_FROM {
        let flags = MapFlags::PRIVATE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing that exists.
        let start = unsafe {
            mmap_anonymous(std::ptr::null_mut(), capacity, ProtFlags::READ | ProtFlags::WRITE, flags)
        };
        let start = start.unwrap_or(std::ptr::null_mut());
        if !start.is_null() {
            // SAFETY: the range was mapped a moment ago. Huge pages are a wish: refusing it changes nothing.
            let _ = unsafe { madvise(start, capacity, Advice::LinuxHugepage) };
        }
        start.cast()
    } else {
        // SAFETY: the layout has a non-zero size.
        unsafe { alloc_zeroed(layout) }
    };
    NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout))
}

fn release(start: NonNull<u8>, capacity: usize) {
    if capacity >= MAPPED_FROM {
        // SAFETY: `start` came from a mapping of `capacity` bytes in `allocate` and is owned by the caller.
        let _ = unsafe { munmap(start.as_ptr().cast(), capacity) };
    } else {
        // SAFETY: `start` came from `allocate(capacity)` and is owned by the caller.
        unsafe { dealloc(start.as_ptr(), layout(capacity)) }
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
    fn a_buffer_outlives_its_pool() {
        let pool = BufferPool::new(1 << 20);
        let mut buffer = pool.take(10);
        drop(pool);
        buffer.as_mut_slice().fill(7);
        assert_eq!(buffer.as_slice(), [7; 10]);
    }

    #[test]
    fn rows_are_written_by_many_threads_each_once() {
        let rows = Rows::new(BufferPool::new(0).take(64 * 100), 64, 100);
        std::thread::scope(|scope| {
            for worker in 0..4u8 {
                let rows = &rows;
                scope.spawn(move || {
                    for row in 0..100 {
                        if let Some(mut target) = rows.claim(row) {
                            target.fill(row as u8);
                            let _ = worker;
                        }
                    }
                });
            }
        });
        assert!(rows.claim(3).is_none() && rows.claim(100).is_none());
        let buffer = rows.into_buffer().ok().expect("nobody writes any more");
        assert!(
            buffer
                .as_slice()
                .chunks(64)
                .enumerate()
                .all(|(row, bytes)| bytes.iter().all(|b| *b == row as u8))
        );
    }
}
