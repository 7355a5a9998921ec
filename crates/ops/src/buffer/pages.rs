//! Where the memory of buffers comes from.

use super::ALIGNMENT;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// Buffers from this size on are mapped rather than taken from the allocator, which would write zeros into an
/// over-aligned block at once, on one thread; mapped pages are zeroed by whoever touches them first.
const MAPPED_FROM: usize = 2 << 20;

fn layout(capacity: usize) -> Layout {
    Layout::from_size_align(capacity, ALIGNMENT)
        .expect("capacity is a multiple of a page, far below isize::MAX")
}

pub(super) fn allocate(capacity: usize) -> NonNull<u8> {
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

pub(super) fn release(start: NonNull<u8>, capacity: usize) {
    if capacity >= MAPPED_FROM {
        // SAFETY: `start` came from a mapping of `capacity` bytes in `allocate` and is owned by the caller.
        let _ = unsafe { munmap(start.as_ptr().cast(), capacity) };
    } else {
        // SAFETY: `start` came from `allocate(capacity)` and is owned by the caller.
        unsafe { dealloc(start.as_ptr(), layout(capacity)) }
    }
}
