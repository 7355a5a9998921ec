//! Buffers that other processes of this host can map: anonymous memory behind a descriptor (`memfd`), so that no
//! `/dev/shm` is needed and nothing is left behind by a process that dies.
//!
//! The maker maps it once, for reading and writing, and seals it against everything else: its size stays, and nobody
//! can map it for writing in common any more. Others map it privately ([`Buffer::map_private`]): what they write is
//! theirs alone. The memory is used again only after its buffer and every [`SharedMemory`] of it are gone, so whoever
//! shows it to a process keeps one until that process says that it no longer looks. Of a process that is gone without
//! a word nobody knows: [`SharedMemory::retire`] leaves the memory to it and the maker takes fresh one.

use super::{Buffer, Owner, Shelf};
use forebay_core::{Error, Result};
use rustix::fs::{
    MemfdFlags, SealFlags, Stat, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// Smaller buffers are not worth a descriptor: copying them is cheaper than mapping them.
pub const SHARED_FROM: usize = 64 << 10;

/// Descriptors that all pools of this process may hold, unless the system allows fewer.
const MOST_DESCRIPTORS: usize = 4096;

static NEXT: AtomicU64 = AtomicU64::new(1);
static DESCRIPTORS: AtomicUsize = AtomicUsize::new(0);

/// Memory that can be shown to other processes. Clones count as users of it.
#[derive(Clone)]
pub struct SharedMemory(Arc<Used>);

struct Used {
    /// `None` only while it is being dropped.
    memory: Option<Memory>,
    retired: AtomicBool,
    pool: Weak<Shelf>,
}

/// A piece of shared memory, mapped by its maker.
pub(super) struct Memory {
    file: OwnedFd,
    start: NonNull<u8>,
    size: usize,
    id: u64,
}

// SAFETY: the mapping belongs to this value alone; it is used through `Buffer`, under its rules.
unsafe impl Send for Memory {}
// SAFETY: as above; nothing is written through a shared reference.
unsafe impl Sync for Memory {}

impl SharedMemory {
    pub(super) fn new(memory: Memory, pool: Weak<Shelf>) -> Self {
        Self(Arc::new(Used { memory: Some(memory), retired: AtomicBool::new(false), pool }))
    }

    /// What to send to the other process. It cannot be used to change the memory.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.0.memory.as_ref().map(|memory| memory.file.as_fd())
    }

    /// Bytes of it.
    pub fn size(&self) -> usize {
        self.0.memory.as_ref().map_or(0, |memory| memory.size)
    }

    /// Its number in this process, the same when it is used again.
    pub fn id(&self) -> u64 {
        self.0.memory.as_ref().map_or(0, |memory| memory.id)
    }

    /// It is not used again: a process may look at it that will not tell when it no longer does.
    pub fn retire(&self) {
        self.0.retired.store(true, Ordering::Release);
    }
}

impl std::fmt::Debug for SharedMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SharedMemory({}, {} bytes)", self.id(), self.size())
    }
}

impl Drop for Used {
    fn drop(&mut self) {
        let Some(memory) = self.memory.take() else { return };
        if let Some(shelf) = self.pool.upgrade() {
            shelf.put_back_shared(memory, *self.retired.get_mut());
        }
    }
}

impl Memory {
    /// New memory of `size` bytes, a multiple of a page; `None` when the system has none of this kind.
    pub(super) fn new(size: usize) -> Option<Self> {
        let place = Place::take()?;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("forebay-batch", flags).ok()?;
        ftruncate(&file, size as u64).ok()?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists. Nobody else has the
        // descriptor yet, and once the seals are set nobody can write to the memory or change its size.
        let start =
            unsafe { mmap(std::ptr::null_mut(), size, protection, MapFlags::SHARED, &file, 0) }.ok()?;
        let memory =
            Self { file, start: NonNull::new(start.cast())?, size, id: NEXT.fetch_add(1, Ordering::Relaxed) };
        // From here on the place is given back by the memory's own drop.
        std::mem::forget(place);
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
        fcntl_add_seals(&memory.file, seals).ok()?;
        // SAFETY: the range was mapped a moment ago. Huge pages are a wish: refusing it changes nothing.
        let _ = unsafe { madvise(start, size, Advice::LinuxHugepage) };
        Some(memory)
    }

    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        unmap(self.start, self.size);
        DESCRIPTORS.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The right to one more descriptor.
struct Place;

impl Place {
    /// At most a quarter of what the process may have: the rest is for files and sockets.
    fn take() -> Option<Self> {
        let allowed = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let most = allowed.map_or(MOST_DESCRIPTORS, |most| MOST_DESCRIPTORS.min(most as usize / 4));
        let took = DESCRIPTORS
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| (count < most).then_some(count + 1));
        took.ok().map(|_| Self)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        DESCRIPTORS.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Buffer {
    /// The first `len` bytes of memory of `size` bytes that another process made. Writing changes our view alone.
    ///
    /// `told` is called when the buffer is dropped: from then on the maker may write there again. The memory must be
    /// sealed against shrinking, since touching what is no longer there would end this process.
    pub fn map_private(
        memory: BorrowedFd<'_>,
        size: usize,
        len: usize,
        told: Option<Box<dyn FnOnce() + Send + Sync>>,
    ) -> Result<Self> {
        check(memory, size, len)?;
        let start = map(memory, size)?;
        Ok(Self { start, len, capacity: size, owner: Owner::Mapped { told, home: None } })
    }
}

/// Holds memory of another process against what was said of it.
pub(super) fn check(memory: BorrowedFd<'_>, size: usize, len: usize) -> Result<Stat> {
    let corrupt = |why: &str| Error::corrupt(format!("map shared memory: {why}"));
    let seals = fcntl_get_seals(memory).map_err(|_| corrupt("it is none"))?;
    if !seals.contains(SealFlags::SHRINK) {
        return Err(corrupt("it is not sealed"));
    }
    let found = fstat(memory).map_err(|error| Error::io("map shared memory", error.into()))?;
    if size == 0 || len > size || u64::try_from(found.st_size).ok() != Some(size as u64) {
        return Err(corrupt(&format!("it has {} bytes, not the {size} that were said", found.st_size)));
    }
    Ok(found)
}

/// A private mapping of a whole piece of memory that was checked.
pub(super) fn map(memory: BorrowedFd<'_>, size: usize) -> Result<NonNull<u8>> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists. It is private, so
    // writes stay ours, and the seal keeps its pages there. The maker writes to them only before it shows them
    // and after it was told that nobody looks.
    let start = unsafe { mmap(std::ptr::null_mut(), size, protection, MapFlags::PRIVATE, memory, 0) };
    let start = start.map_err(|error| Error::io("map shared memory", error.into()))?;
    // SAFETY: the range was mapped a moment ago. One call instead of a fault for every few pages; older systems
    // do not know it, and the pages come when they are touched.
    let _ = unsafe { madvise(start, size, Advice::LinuxPopulateRead) };
    NonNull::new(start.cast::<u8>()).ok_or_else(|| Error::corrupt("map shared memory: it lies nowhere"))
}

pub(super) fn unmap(start: NonNull<u8>, capacity: usize) {
    // SAFETY: `start` came from a mapping of `capacity` bytes in this file and is owned by the caller.
    let _ = unsafe { munmap(start.as_ptr().cast(), capacity) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::{ALIGNMENT, BufferPool};
    use rustix::fs::fallocate;
    use std::sync::atomic::AtomicU32;

    fn map(memory: &SharedMemory, len: usize) -> Buffer {
        Buffer::map_private(memory.descriptor().unwrap(), memory.size(), len, None).unwrap()
    }

    #[test]
    fn what_a_user_writes_is_not_seen_by_the_maker_nor_by_other_users() {
        let pool = BufferPool::shared(1 << 20);
        let mut made = pool.take(100_000);
        made.as_mut_slice().fill(7);
        let memory = made.shared_memory().unwrap();
        let (mut one, other) = (map(memory, 100_000), map(memory, 100_000));
        assert_eq!(one.as_slice(), made.as_slice());
        one.as_mut_slice().fill(9);
        assert!(made.as_slice().iter().chain(other.as_slice()).all(|byte| *byte == 7));
        assert!(one.as_slice().iter().all(|byte| *byte == 9));
    }

    #[test]
    fn memory_is_used_again_only_when_nobody_looks_at_it() {
        let pool = BufferPool::shared(1 << 20);
        let made = pool.take(100_000);
        let memory = made.shared_memory().unwrap().clone();
        let id = memory.id();
        drop(made);
        assert_eq!(pool.idle_bytes(), 0, "someone still looks");
        assert_ne!(pool.take(100_000).shared_memory().unwrap().id(), id);
        drop(memory);
        assert_eq!(pool.idle_bytes(), 2 * 102_400);
        assert_eq!(pool.take(100_000).shared_memory().unwrap().id(), id);
        let last = pool.take(100_000);
        last.shared_memory().unwrap().retire();
        let seen = map(last.shared_memory().unwrap(), 10);
        drop(last);
        assert_eq!(pool.idle_bytes(), 102_400, "what was retired does not come back");
        assert_eq!(seen.as_slice(), [0; 10]);
    }

    #[test]
    fn who_drops_a_mapping_tells_once() {
        let pool = BufferPool::shared(0);
        let made = pool.take(SHARED_FROM);
        let memory = made.shared_memory().unwrap();
        let count = Arc::new(AtomicU32::new(0));
        let told = count.clone();
        let hook = Box::new(move || {
            told.fetch_add(1, Ordering::AcqRel);
        });
        let seen = Buffer::map_private(memory.descriptor().unwrap(), memory.size(), 5, Some(hook)).unwrap();
        assert_eq!(count.load(Ordering::Acquire), 0);
        drop(seen);
        assert_eq!(count.load(Ordering::Acquire), 1);
    }

    #[test]
    fn those_it_is_shown_to_can_neither_write_to_it_nor_change_its_size() {
        let made = BufferPool::shared(0).take(SHARED_FROM);
        let file = made.shared_memory().unwrap().descriptor().unwrap();
        assert!(ftruncate(file, 1).is_err() && ftruncate(file, 1 << 20).is_err());
        assert!(rustix::io::pwrite(file, b"x", 0).is_err());
        let hole = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        assert!(fallocate(file, hole, 0, 4096).is_err());
        assert!(fcntl_add_seals(file, SealFlags::WRITE).is_err());
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: refused; nothing is mapped.
        let mapped = unsafe { mmap(std::ptr::null_mut(), 4096, protection, MapFlags::SHARED, file, 0) };
        assert!(mapped.is_err());
    }

    #[test]
    fn memory_that_could_shrink_or_is_not_what_was_said_is_not_mapped() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let loose = memfd_create("loose", flags).unwrap();
        ftruncate(&loose, 8192).unwrap();
        assert!(Buffer::map_private(loose.as_fd(), 8192, 10, None).is_err());
        fcntl_add_seals(&loose, SealFlags::SHRINK).unwrap();
        assert!(Buffer::map_private(loose.as_fd(), 8192, 10, None).is_ok());
        for (size, len) in [(4096, 10), (8192, 8193), (1 << 40, 10), (0, 0)] {
            assert!(Buffer::map_private(loose.as_fd(), size, len, None).is_err(), "{size} {len}");
        }
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(Buffer::map_private(file.as_fd(), 4096, 1, None).is_err());
    }

    #[test]
    fn small_buffers_and_ordinary_pools_have_no_shared_memory() {
        assert!(BufferPool::shared(0).take(SHARED_FROM - ALIGNMENT).shared_memory().is_none());
        assert!(BufferPool::new(0).take(SHARED_FROM).shared_memory().is_none());
        assert!(Buffer::alone(SHARED_FROM).shared_memory().is_none());
    }
}
