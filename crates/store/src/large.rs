//! An allocator that keeps large blocks for the next who wants one of about that size.
//!
//! Answers of a driver, bodies and payloads are blocks of a hundred kilobytes that live for milliseconds. The system's
//! allocator gives such blocks back at once, and the kernel clears and maps every page of the next one again, which
//! costs as much as receiving it. [`LargeBlocks`] is the system's allocator but for that: up to [`MOST_BYTES`] of freed
//! blocks stay, by size. Programs choose it (`#[global_allocator]`), libraries do not.
//!
//! Nobody waits for the lock: a process that was forked while another thread held it would wait for ever. Who does not
//! get it asks the system.
#![expect(unsafe_code, reason = "an allocator deals in raw memory")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::ptr::null_mut;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Freed blocks that stay, all together.
pub const MOST_BYTES: usize = 32 << 20;
/// Sizes that stay: smaller ones the system's allocator keeps itself, larger ones are rare and worth a page fault.
const LEAST: usize = 32 << 10;
const MOST: usize = 2 << 20;
/// Sizes between two powers of two that are told apart: a block is at most an eighth larger than what was asked for.
const STEPS: usize = 8;
const CLASSES: usize = (MOST.ilog2() - LEAST.ilog2()) as usize * STEPS + 1;
/// What the system's allocator aligns to anyway.
const ALIGN: usize = 16;
/// Tries to get the lock, which is held for a few instructions.
const TRIES: usize = 32;

/// The system's allocator, with large blocks kept.
#[derive(Debug)]
pub struct LargeBlocks {
    locked: AtomicBool,
    kept: UnsafeCell<Kept>,
}

/// Free blocks by class, each a list whose links lie in the blocks themselves.
#[derive(Debug)]
struct Kept {
    first: [*mut Free; CLASSES],
    bytes: usize,
}

/// The beginning of a free block.
struct Free {
    next: *mut Free,
}

// SAFETY: `kept` is touched only under the lock, and the blocks in it belong to nobody else.
unsafe impl Sync for LargeBlocks {}

impl LargeBlocks {
    /// With nothing kept.
    #[expect(clippy::new_without_default, reason = "it is made once, for a static")]
    pub const fn new() -> Self {
        let kept = Kept { first: [null_mut(); CLASSES], bytes: 0 };
        Self { locked: AtomicBool::new(false), kept: UnsafeCell::new(kept) }
    }

    /// Bytes of freed blocks that are kept at the moment; `None` while somebody else has the lock.
    pub fn kept_bytes(&self) -> Option<usize> {
        self.with(|kept| kept.bytes)
    }

    fn with<T>(&self, work: impl FnOnce(&mut Kept) -> T) -> Option<T> {
        for _ in 0..TRIES {
            if !self.locked.load(Relaxed) && !self.locked.swap(true, Acquire) {
                // SAFETY: the lock is ours, and `work` neither allocates nor panics nor comes back here.
                let done = work(unsafe { &mut *self.kept.get() });
                self.locked.store(false, Release);
                return Some(done);
            }
            std::hint::spin_loop();
        }
        None
    }
}

impl Kept {
    fn take(&mut self, class: usize, size: usize) -> *mut u8 {
        let block = self.first[class];
        if !block.is_null() {
            // SAFETY: blocks in the list begin with a `Free` that `put` wrote.
            self.first[class] = unsafe { (*block).next };
            self.bytes -= size;
        }
        block.cast()
    }

    /// Whether the block stays.
    fn put(&mut self, class: usize, size: usize, block: *mut u8) -> bool {
        if self.bytes + size > MOST_BYTES {
            return false;
        }
        let block: *mut Free = block.cast();
        // SAFETY: the block is free, at least `LEAST` bytes long, and aligned for a pointer.
        unsafe { block.write(Free { next: self.first[class] }) };
        self.first[class] = block;
        self.bytes += size;
        true
    }
}

/// The class of a size and how large blocks of that class are; `None` for sizes that are the system's business.
fn class_of(layout: Layout) -> Option<(usize, Layout)> {
    let size = layout.size();
    if !(LEAST..=MOST).contains(&size) || layout.align() > ALIGN {
        return None;
    }
    let power = size.ilog2();
    let step = (1 << power) / STEPS;
    let above = (size - (1 << power)).div_ceil(step);
    let class = (power - LEAST.ilog2()) as usize * STEPS + above;
    let whole = Layout::from_size_align((1 << power) + above * step, ALIGN).ok()?;
    Some((class, whole))
}

// SAFETY: every block comes from the system's allocator, and goes back there with the layout it came with: that of its
// class, which follows from the size asked for. A kept block is in one list and nowhere else.
unsafe impl GlobalAlloc for LargeBlocks {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises for `layout`; a class has a size that is not zero.
        unsafe {
            let Some((class, whole)) = class_of(layout) else { return System.alloc(layout) };
            let kept = self.with(|kept| kept.take(class, whole.size())).unwrap_or(null_mut());
            if kept.is_null() { System.alloc(whole) } else { kept }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // Fresh pages are clear already, and only those that are touched cost something.
        let whole = class_of(layout).map_or(layout, |(_, whole)| whole);
        // SAFETY: as the caller promises for `layout`; a class has a size that is not zero.
        unsafe { System.alloc_zeroed(whole) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller gives back a block of `layout`, which came from us with the layout of its class.
        unsafe {
            let Some((class, whole)) = class_of(layout) else { return System.dealloc(block, layout) };
            if self.with(|kept| kept.put(class, whole.size(), block)) != Some(true) {
                System.dealloc(block, whole);
            }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as the caller promises for `block`, `layout` and `size`.
        unsafe {
            let wanted = Layout::from_size_align_unchecked(size, layout.align());
            match (class_of(layout), class_of(wanted)) {
                (None, None) => System.realloc(block, layout, size),
                (Some((old, _)), Some((new, _))) if old == new => block,
                _ => {
                    let moved = self.alloc(wanted);
                    if !moved.is_null() {
                        block.copy_to_nonoverlapping(moved, layout.size().min(size));
                        self.dealloc(block, layout);
                    }
                    moved
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, 1).unwrap()
    }

    #[test]
    fn a_freed_block_is_the_next_of_its_size_and_small_and_huge_ones_are_the_systems() {
        let blocks = LargeBlocks::new();
        // SAFETY: every block is given back once, with its layout.
        unsafe {
            let first = blocks.alloc(layout(115_000));
            blocks.dealloc(first, layout(115_000));
            assert_eq!(blocks.kept_bytes(), Some(120 << 10));
            assert_eq!(blocks.alloc(layout(116_001)), first);
            assert_eq!(blocks.kept_bytes(), Some(0));
            blocks.dealloc(first, layout(116_001));
            for size in [LEAST - 1, MOST + 1] {
                let block = blocks.alloc(layout(size));
                blocks.dealloc(block, layout(size));
            }
            assert_eq!(blocks.kept_bytes(), Some(120 << 10));
            let clear = blocks.alloc_zeroed(layout(115_000));
            assert!(std::slice::from_raw_parts(clear, 115_000).iter().all(|byte| *byte == 0));
            blocks.dealloc(clear, layout(115_000));
            assert_eq!(blocks.kept_bytes(), Some(240 << 10));
        }
    }

    #[test]
    fn no_more_than_the_limit_is_kept_and_a_lock_that_is_held_stops_nobody() {
        let blocks = LargeBlocks::new();
        // SAFETY: every block is given back once, with its layout.
        unsafe {
            let all: Vec<*mut u8> = (0..40).map(|_| blocks.alloc(layout(1 << 20))).collect();
            for block in all {
                blocks.dealloc(block, layout(1 << 20));
            }
            assert_eq!(blocks.kept_bytes(), Some(MOST_BYTES));
            blocks.locked.store(true, Relaxed);
            let block = blocks.alloc(layout(1 << 20));
            block.write_bytes(1, 1 << 20);
            blocks.dealloc(block, layout(1 << 20));
            assert_eq!(blocks.kept_bytes(), None);
        }
    }

    proptest! {
        #[test]
        fn a_class_holds_what_was_asked_for_and_at_most_an_eighth_more(size in LEAST..=MOST) {
            let (class, whole) = class_of(layout(size)).unwrap();
            prop_assert!(class < CLASSES);
            prop_assert!(whole.size() >= size && whole.size() - size <= size / STEPS);
            prop_assert_eq!(class_of(whole).unwrap(), (class, whole));
        }

        #[test]
        fn bytes_survive_whatever_is_done_beside_them(
            acts in prop::collection::vec((0..8usize, 1..3_000_000usize), 1..60)
        ) {
            let blocks = LargeBlocks::new();
            let mut held: Vec<Option<(*mut u8, usize)>> = vec![None; 8];
            for (slot, size) in acts {
                // SAFETY: a slot owns its block; it is grown, shrunk or given back with the layout it has.
                unsafe {
                    let block = match held[slot].take() {
                        Some((block, old)) => blocks.realloc(block, layout(old), size),
                        None => blocks.alloc(layout(size)),
                    };
                    // The ends carry the slot's number, so that blocks that overlap are found out.
                    block.write(slot as u8);
                    block.add(size - 1).write(slot as u8);
                    held[slot] = Some((block, size));
                    for (number, (block, size)) in held.iter().enumerate().filter_map(|(n, h)| Some((n, (*h)?))) {
                        prop_assert_eq!((block.read(), block.add(size - 1).read()), (number as u8, number as u8));
                    }
                    if size % 3 == 0 && let Some((block, size)) = held[slot].take() {
                        blocks.dealloc(block, layout(size));
                    }
                }
            }
            for (block, size) in held.into_iter().flatten() {
                // SAFETY: as above.
                unsafe { blocks.dealloc(block, layout(size)) };
            }
        }
    }
}
