//! Memory for direct reads: it begins at a block edge, has whole blocks, and is used again.
//!
//! The system gives fresh memory page by page, each cleared first, which costs more than reading into it. So a
//! [`Block`] goes back to the [`Blocks`] it came from when the last who reads from it lets go, and to the system when
//! those are gone. Sizes that are used again are cut from large pages ([`super::region`]).
#![expect(unsafe_code, reason = "aligned memory is allocated by hand, and the kernel writes into it")]

use super::region::{Piece, Regions};
use crate::spare::{Spare, class, lock};
use std::alloc::{Layout, alloc, dealloc};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, Weak};

/// Memory, offsets and lengths are multiples of this: the block size of all but rare devices.
pub(super) const BLOCK: u64 = 4096;

/// Where blocks are taken from.
pub(super) struct Blocks {
    spare: Arc<Mutex<Spare<Memory>>>,
    regions: Regions,
}

impl Blocks {
    pub(super) fn new() -> Self {
        Self { spare: Arc::new(Mutex::new(Spare::new())), regions: Regions::default() }
    }

    /// A block of `length` bytes, a multiple of [`BLOCK`]; `None` when there is no memory.
    pub(super) fn take(&mut self, length: usize) -> Option<Block> {
        let class = class(length);
        let memory = match (class.and_then(|class| lock(&self.spare)?.take(class)), class) {
            (Some(memory), _) => memory,
            (None, Some(class)) => Memory::Piece(self.regions.cut(class)?),
            (None, None) => Memory::Own(Own::new(length)?),
        };
        Some(Block { memory: Some(memory), length, filled: 0, home: Arc::downgrade(&self.spare) })
    }

    /// Lets go what nobody has wanted for a while; true when something is left.
    pub(super) fn age(&mut self) -> bool {
        let Some(mut spare) = lock(&self.spare) else { return true };
        let (old, left) = (spare.age(), !spare.is_empty());
        drop(spare);
        if !left {
            self.regions.clear();
        }
        drop(old);
        left
    }

    /// Whether none lies here.
    pub(super) fn is_empty(&self) -> bool {
        lock(&self.spare).is_none_or(|spare| spare.is_empty())
    }
}

/// Memory of which only the first `filled` bytes are known to be written.
pub(super) struct Block {
    /// `None` only while it is dropped.
    memory: Option<Memory>,
    length: usize,
    filled: usize,
    home: Weak<Mutex<Spare<Memory>>>,
}

impl Block {
    /// How many bytes have been written.
    pub(super) fn filled(&self) -> usize {
        self.filled
    }

    /// What is still to be written: where it begins, and how many bytes.
    pub(super) fn rest(&self) -> (*mut u8, usize) {
        // SAFETY: `filled` is at most `length`, which is at most the size of the allocation.
        let start = self.memory.as_ref().map(|memory| unsafe { memory.start().as_ptr().add(self.filled) });
        start.map_or((std::ptr::null_mut(), 0), |start| (start, self.length - self.filled))
    }

    /// So many more bytes have been written.
    ///
    /// # Safety
    /// They have been, from where [`Block::rest`] begins.
    pub(super) unsafe fn advance(&mut self, bytes: usize) {
        self.filled = (self.filled + bytes).min(self.length);
    }
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        let Some(memory) = &self.memory else { return &[] };
        // SAFETY: the first `filled` bytes of our own allocation were written, as `advance` was promised.
        unsafe { std::slice::from_raw_parts(memory.start().as_ptr(), self.filled) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let (Some(memory), Some(home)) = (self.memory.take(), self.home.upgrade()) else { return };
        if let Memory::Piece(piece) = &memory {
            let class = piece.length();
            let too_many = lock(&home).map(|mut spare| spare.put(class, memory));
            drop(too_many);
        }
    }
}

/// What a block is made of.
enum Memory {
    /// A part of large pages, of a size that is used again.
    Piece(Piece),
    Own(Own),
}

impl Memory {
    fn start(&self) -> NonNull<u8> {
        match self {
            Self::Piece(piece) => piece.start(),
            Self::Own(own) => own.start,
        }
    }
}

/// One allocation.
struct Own {
    start: NonNull<u8>,
    layout: Layout,
}

impl Own {
    fn new(length: usize) -> Option<Self> {
        let layout =
            Layout::from_size_align(length, BLOCK as usize).ok().filter(|layout| layout.size() > 0)?;
        // SAFETY: the size is not zero.
        let start = NonNull::new(unsafe { alloc(layout) })?;
        Some(Self { start, layout })
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, and freed only here.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

// SAFETY: it owns its memory as a `Box<[u8]>` does; nothing is tied to a thread.
unsafe impl Send for Own {}
// SAFETY: what is shared is only read.
unsafe impl Sync for Own {}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(blocks: &mut Blocks, length: usize, byte: u8) -> Block {
        let mut block = blocks.take(length).unwrap();
        let (start, rest) = block.rest();
        assert_eq!((start as usize % BLOCK as usize, rest), (0, length));
        // SAFETY: `rest` bytes from `start` are the block's, and then they have been written.
        unsafe {
            start.write_bytes(byte, rest);
            block.advance(rest);
        }
        block
    }

    #[test]
    fn a_block_is_used_again_when_the_last_reader_lets_go_and_none_outlives_its_blocks() {
        let mut blocks = Blocks::new();
        let bytes = bytes::Bytes::from_owner(written(&mut blocks, 80 << 10, 7));
        let (address, part) = (bytes.as_ptr() as usize, bytes.slice(1000..2000));
        drop(bytes);
        assert!(blocks.is_empty());
        assert_eq!(part, vec![7; 1000]);
        drop(part);
        assert!(!blocks.is_empty());
        // Of the same class, and never wider than it was asked for.
        let again = written(&mut blocks, 76 << 10, 8);
        assert_eq!(again.as_ref(), vec![8; 76 << 10]);
        assert_eq!(again.as_ref().as_ptr() as usize, address);
        drop(again);
        assert!(blocks.age() && !blocks.age());
        let last = written(&mut blocks, 80 << 10, 9);
        drop(blocks);
        assert_eq!(last.as_ref().len(), 80 << 10);
    }

    #[test]
    fn sizes_that_are_not_kept_are_given_all_the_same() {
        let mut blocks = Blocks::new();
        for length in [BLOCK as usize, 20 << 20] {
            assert_eq!(written(&mut blocks, length, 1).filled(), length);
            assert!(blocks.is_empty());
        }
        assert!(blocks.take(0).is_none());
    }
}
