//! Views of shared memory that other processes made, kept from one batch to the next.
//!
//! Mapping 150 MB and filling in its page table costs a tenth of what decoding so many pixels costs, for every job that
//! looks at the batch. Makers use the same pieces of memory over and over, so a view whose buffer was dropped is kept
//! and shows the next batch that comes in that piece: the pages are the maker's own, and what it wrote since is there.
//!
//! That holds only as long as nobody wrote through the view: a page that was written to is a private copy and would
//! show the old batch for ever. The kernel says which pages are such copies; a view that has one, or of which that
//! cannot be found out, is let go. So what a user writes is never seen in a later batch.

use super::shared::{check, map, unmap};
use super::{Buffer, Owner};
use forebay_core::Result;
use rustix::fs::Stat;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A view that no batch came in for so many others is let go: its maker may have given the memory back.
const UNUSED_AFTER: u64 = 64;

/// Views of memory of one other process. Cloning gives another handle to the same set.
#[derive(Clone)]
pub struct SharedViews(Arc<Shelf>);

pub(super) struct Shelf {
    keep_bytes: usize,
    idle: Mutex<Idle>,
}

#[derive(Default)]
struct Idle {
    views: BTreeMap<Piece, View>,
    bytes: usize,
    /// Batches that were looked at so far.
    turn: u64,
}

/// A piece of memory, whoever has a descriptor of it: device, inode and size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Piece(u64, u64, usize);

/// A mapping of a whole piece.
struct View {
    start: usize,
    turn: u64,
}

/// Where the view of a buffer goes when the buffer is dropped.
pub(super) struct Return {
    shelf: Weak<Shelf>,
    piece: Piece,
}

impl SharedViews {
    /// Keeps at most `keep_bytes` of views that nobody looks through.
    pub fn new(keep_bytes: usize) -> Self {
        Self(Arc::new(Shelf { keep_bytes, idle: Mutex::default() }))
    }

    /// The first `len` bytes of memory of `size` bytes that another process made, as [`Buffer::map_private`].
    pub fn look(
        &self,
        memory: BorrowedFd<'_>,
        size: usize,
        len: usize,
        told: Option<Box<dyn FnOnce() + Send + Sync>>,
    ) -> Result<Buffer> {
        let found = check(memory, size, len)?;
        let piece = Piece::of(&found, size);
        let (kept, old) = self.0.take(piece);
        for (piece, view) in old {
            view.unmap(piece);
        }
        let start = match kept.and_then(|view| NonNull::new(view.start as *mut u8)) {
            Some(start) => start,
            None => map(memory, size)?,
        };
        let home = Return { shelf: Arc::downgrade(&self.0), piece };
        Ok(Buffer { start, len, capacity: size, owner: Owner::Mapped { told, home: Some(home) } })
    }

    /// Bytes of views that are kept and that nobody looks through.
    pub fn idle_bytes(&self) -> usize {
        self.0.lock().bytes
    }
}

impl Piece {
    #[allow(clippy::useless_conversion, reason = "the fields' types differ between systems")]
    fn of(found: &Stat, size: usize) -> Self {
        Self(u64::from(found.st_dev), u64::from(found.st_ino), size)
    }
}

impl Shelf {
    fn lock(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The view of a piece, if one is kept, and those that were not used for long.
    fn take(&self, piece: Piece) -> (Option<View>, Vec<(Piece, View)>) {
        let mut idle = self.lock();
        idle.turn += 1;
        let kept = idle.views.remove(&piece);
        let turn = idle.turn;
        let old: Vec<Piece> = idle
            .views
            .iter()
            .filter(|(_, view)| turn - view.turn > UNUSED_AFTER)
            .map(|(piece, _)| *piece)
            .collect();
        let old: Vec<(Piece, View)> =
            old.into_iter().filter_map(|piece| Some((piece, idle.views.remove(&piece)?))).collect();
        let gone = kept.iter().map(|_| piece.2).chain(old.iter().map(|(piece, _)| piece.2)).sum::<usize>();
        idle.bytes -= gone;
        (kept, old)
    }
}

impl Return {
    /// Keeps a view for the next batch that comes in its memory. False when it is to be unmapped.
    pub(super) fn keep(&self, start: NonNull<u8>) -> bool {
        let Some(shelf) = self.shelf.upgrade() else { return false };
        let size = self.piece.2;
        // A piece that is looked at twice at once has two views; one is enough later.
        let has_room =
            |idle: &Idle| idle.bytes + size <= shelf.keep_bytes && !idle.views.contains_key(&self.piece);
        if !has_room(&shelf.lock()) || is_written(start, size) {
            return false;
        }
        let mut idle = shelf.lock();
        let keeps = has_room(&idle);
        if keeps {
            let turn = idle.turn;
            idle.bytes += size;
            idle.views.insert(self.piece, View { start: start.as_ptr() as usize, turn });
        }
        keeps
    }
}

impl View {
    fn unmap(self, piece: Piece) {
        if let Some(start) = NonNull::new(self.start as *mut u8) {
            unmap(start, piece.2);
        }
    }
}

impl Drop for Shelf {
    fn drop(&mut self) {
        for (piece, view) in std::mem::take(&mut self.lock().views) {
            view.unmap(piece);
        }
    }
}

/// Bits of an entry of `pagemap`: the page is here, is on swap, is the file's own rather than a private copy.
const HERE: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const OF_FILE: u64 = 1 << 61;

/// Whether a private mapping may have pages of its own, which writing to it makes. Also when that cannot be known.
fn is_written(start: NonNull<u8>, size: usize) -> bool {
    const ENTRIES: usize = 4096;
    let page = rustix::param::page_size();
    let Ok(pages) = File::open("/proc/self/pagemap") else { return true };
    let (mut at, end) = (start.as_ptr() as usize / page, (start.as_ptr() as usize + size).div_ceil(page));
    let mut bytes = vec![0; ENTRIES * 8];
    while at < end {
        let part = &mut bytes[..(end - at).min(ENTRIES) * 8];
        if pages.read_exact_at(part, at as u64 * 8).is_err() {
            return true;
        }
        let is_copy = |entry: u64| entry & (HERE | SWAPPED) != 0 && entry & OF_FILE == 0;
        if part.as_chunks::<8>().0.iter().any(|entry| is_copy(u64::from_ne_bytes(*entry))) {
            return true;
        }
        at += part.len() / 8;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::{BufferPool, SharedMemory};

    const BYTES: usize = 409_600;

    fn look(views: &SharedViews, memory: &SharedMemory, len: usize) -> Buffer {
        views.look(memory.descriptor().unwrap(), memory.size(), len, None).unwrap()
    }

    fn made(pool: &BufferPool, value: u8) -> Buffer {
        let mut made = pool.take(BYTES);
        made.as_mut_slice().fill(value);
        made
    }

    #[test]
    fn a_view_is_used_again_and_shows_what_its_maker_wrote_since() {
        let (pool, views) = (BufferPool::shared(1 << 20), SharedViews::new(1 << 20));
        let mut first = None;
        for value in 1..10 {
            // Dropped and taken again: the same memory.
            let made = made(&pool, value);
            let memory = made.shared_memory().unwrap();
            let seen = look(&views, memory, BYTES - value as usize);
            assert_eq!(*first.get_or_insert((memory.id(), seen.as_ptr())), (memory.id(), seen.as_ptr()));
            assert_eq!(seen.len(), BYTES - value as usize);
            assert!(seen.as_slice().iter().all(|byte| *byte == value));
            assert_eq!(views.idle_bytes(), 0);
            drop(seen);
            assert_eq!(views.idle_bytes(), BYTES);
        }
    }

    #[test]
    fn what_a_user_wrote_is_not_seen_in_the_next_batch_wherever_it_was_written() {
        let (pool, views) = (BufferPool::shared(1 << 20), SharedViews::new(1 << 20));
        for at in [0, 4095, 4096, BYTES / 2, BYTES - 1] {
            let made_first = made(&pool, 1);
            let mut seen = look(&views, made_first.shared_memory().unwrap(), BYTES);
            seen.as_mut_slice()[at] = 77;
            drop(seen);
            assert_eq!(views.idle_bytes(), 0, "a view that was written to is not kept");
            drop(made_first);
            let made_next = made(&pool, 2);
            let seen = look(&views, made_next.shared_memory().unwrap(), BYTES);
            assert!(seen.as_slice().iter().all(|byte| *byte == 2), "{at}");
            assert!(made_next.as_slice().iter().all(|byte| *byte == 2), "{at}");
        }
    }

    #[test]
    fn two_looks_at_one_piece_are_apart_and_one_view_of_it_is_kept() {
        let (pool, views) = (BufferPool::shared(1 << 20), SharedViews::new(1 << 20));
        let made = made(&pool, 1);
        let memory = made.shared_memory().unwrap();
        let (mut one, other) = (look(&views, memory, BYTES), look(&views, memory, BYTES));
        one.as_mut_slice().fill(9);
        assert!(other.as_slice().iter().all(|byte| *byte == 1));
        drop((one, other));
        assert_eq!(views.idle_bytes(), BYTES);
        assert!(look(&views, memory, BYTES).as_slice().iter().all(|byte| *byte == 1));
    }

    #[test]
    fn views_stay_within_their_limit_and_go_when_unused_or_when_their_set_is_gone() {
        let (pool, views) = (BufferPool::shared(8 << 20), SharedViews::new(2 * BYTES));
        let many: Vec<Buffer> = (0..4).map(|value| made(&pool, value)).collect();
        let seen: Vec<Buffer> =
            many.iter().map(|made| look(&views, made.shared_memory().unwrap(), BYTES)).collect();
        drop(seen);
        assert_eq!(views.idle_bytes(), 2 * BYTES);
        for _ in 0..=UNUSED_AFTER {
            drop(look(&views, many[0].shared_memory().unwrap(), BYTES));
        }
        assert_eq!(views.idle_bytes(), BYTES, "the other one was not used for long");
        let last = look(&views, many[1].shared_memory().unwrap(), BYTES);
        drop(views);
        assert!(last.as_slice().iter().all(|byte| *byte == 1), "it outlives its set");
    }
}
