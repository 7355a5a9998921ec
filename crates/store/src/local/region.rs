//! Memory for many blocks in large pages.
//!
//! A disk writes into memory page by page: a read of 76 KiB into pages of 4 KiB is up to twenty pieces that the device is
//! told of one by one, and in one large page it is one piece. Disks behind a virtual machine's queue read about twice as
//! fast that way, and the kernel has fewer pages to find and to hold. So blocks are cut from a [`Region`], one behind the
//! other. Where the system has no large pages nothing changes.
//!
//! A region goes when the last piece of it does. The memory of a piece that goes earlier is given back at once, so that
//! one who holds a piece for long holds no more than that.
#![expect(unsafe_code, reason = "pieces of one mapping are handed out by pointer, and given back by advice")]

use memmap2::{Advice, MmapMut, UncheckedAdvice};
use std::ptr::NonNull;
use std::sync::Arc;

/// Large pages of the processors we know; on others the advice does less.
const LARGE_PAGE: usize = 2 << 20;
/// What is asked of the system at once: the rest of a region that a piece does not fit into is lost.
const REGION_BYTES: usize = 4 * LARGE_PAGE;

/// Where pieces are cut from.
#[derive(Default)]
pub(super) struct Regions {
    filling: Option<(Arc<Region>, usize)>,
}

/// Fresh memory of the system.
struct Region {
    map: MmapMut,
    /// Where the first large page begins.
    start: usize,
    length: usize,
}

/// A part of a region that one has for itself.
pub(super) struct Piece {
    region: Arc<Region>,
    offset: usize,
    length: usize,
}

impl Regions {
    /// A piece of `length` bytes, which is a multiple of the page size; `None` when there is no memory.
    pub(super) fn cut(&mut self, length: usize) -> Option<Piece> {
        let fits = |(region, used): &(Arc<Region>, usize)| region.length - used >= length;
        let (region, offset) = match self.filling.take_if(|filling| fits(filling)) {
            Some(filling) => filling,
            None => (Arc::new(Region::new(length)?), 0),
        };
        self.filling = Some((Arc::clone(&region), offset + length));
        Some(Piece { region, offset, length })
    }

    /// Lets go of what was not cut yet.
    pub(super) fn clear(&mut self) {
        self.filling = None;
    }
}

impl Region {
    fn new(least: usize) -> Option<Self> {
        let length = least.max(REGION_BYTES);
        let map = MmapMut::map_anon(length.checked_add(LARGE_PAGE)?).ok()?;
        let start = map.as_ptr().align_offset(LARGE_PAGE);
        // Where the system has none, or will not, small pages serve as well.
        let _ = map.advise_range(Advice::HugePage, start, length);
        Some(Self { map, start, length })
    }
}

impl Piece {
    /// Its first byte. Nobody else has a pointer into it.
    pub(super) fn start(&self) -> NonNull<u8> {
        // SAFETY: the sum stays inside the mapping, which is not at address zero.
        unsafe { NonNull::new_unchecked(self.region.map.as_ptr().add(self.at()).cast_mut()) }
    }

    /// Its bytes.
    pub(super) fn length(&self) -> usize {
        self.length
    }

    fn at(&self) -> usize {
        self.region.start + self.offset
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        // The whole region goes with its last piece. Two that think so of each other give back a little more than needed.
        if Arc::strong_count(&self.region) > 1 {
            // SAFETY: whole pages that were ours alone; nobody reads them any more.
            let _ = unsafe {
                self.region.map.unchecked_advise_range(UncheckedAdvice::DontNeed, self.at(), self.length)
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages of a piece that are in memory.
    fn resident(piece: &Piece) -> usize {
        let page = rustix::param::page_size();
        let mut pages = vec![0u8; piece.length.div_ceil(page)];
        // SAFETY: the range is mapped, and there is a byte for each of its pages.
        let known = unsafe { libc::mincore(piece.start().as_ptr().cast(), piece.length, pages.as_mut_ptr()) };
        assert_eq!(known, 0);
        pages.iter().filter(|page| **page & 1 == 1).count() * page
    }

    fn write(piece: &Piece, byte: u8) {
        // SAFETY: these bytes are the piece's.
        unsafe { piece.start().as_ptr().write_bytes(byte, piece.length) };
    }

    fn read(piece: &Piece) -> &[u8] {
        // SAFETY: as above, and they have been written.
        unsafe { std::slice::from_raw_parts(piece.start().as_ptr(), piece.length) }
    }

    #[test]
    fn pieces_lie_side_by_side_and_larger_ones_have_regions_of_their_own() {
        let mut regions = Regions::default();
        let pieces: Vec<Piece> =
            [80 << 10, 36 << 10, 16 << 20, 80 << 10].map(|n| regions.cut(n).unwrap()).into();
        for (number, piece) in pieces.iter().enumerate() {
            assert_eq!(piece.start().as_ptr() as usize % 4096, 0);
            write(piece, number as u8);
        }
        for (number, piece) in pieces.iter().enumerate() {
            assert_eq!(read(piece), vec![number as u8; piece.length()]);
        }
        assert_eq!(pieces[0].start().as_ptr() as usize % LARGE_PAGE, 0);
        assert!(Arc::ptr_eq(&pieces[0].region, &pieces[1].region));
        assert!(!Arc::ptr_eq(&pieces[0].region, &pieces[2].region));
    }

    #[test]
    fn memory_of_a_piece_goes_back_although_others_of_its_region_stay() {
        let mut regions = Regions::default();
        let (first, second) = (regions.cut(1 << 20).unwrap(), regions.cut(1 << 20).unwrap());
        write(&first, 1);
        write(&second, 2);
        let gone = Piece { region: Arc::clone(&first.region), offset: first.offset, length: first.length };
        assert_eq!(resident(&gone), 1 << 20);
        drop(first);
        assert_eq!(resident(&gone), 0);
        assert_eq!(read(&second), vec![2; 1 << 20]);
        regions.clear();
    }
}
