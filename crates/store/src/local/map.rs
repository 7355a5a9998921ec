//! A whole file mapped into memory, read only: how manifests are opened without reading them.
#![expect(
    unsafe_code,
    reason = "a mapping is sound only while the file keeps its length, which no type can promise"
)]

use super::files::open_regular;
use crate::fault;
use forebay_core::{Error, Result};
use memmap2::{Advice, Mmap, MmapOptions};
use rustix::fs::SealFlags;
use std::fs::File;
use std::mem::MaybeUninit;
use std::path::Path;

/// The bytes of a file; pages are read when they are touched.
#[derive(Debug)]
pub struct MappedFile {
    /// An empty file has no mapping: the system refuses mappings of length 0.
    map: Option<Mmap>,
}

impl AsRef<[u8]> for MappedFile {
    fn as_ref(&self) -> &[u8] {
        self.map.as_deref().unwrap_or_default()
    }
}

/// Maps a regular file. Directories, pipes and devices are refused.
///
/// Only for files that are replaced by `rename` and never changed in place, as [`crate::Store::write`] does it: the
/// mapping keeps showing the old file then. Touching pages of a file that was cut short would end the process.
pub fn map_file(path: impl AsRef<Path>) -> Result<MappedFile> {
    let path = path.as_ref();
    let fail = |error| fault::system("map", &path.to_string_lossy(), None, error);
    let file = open_regular(path)?;
    if file.metadata().map_err(fail)?.len() == 0 {
        return Ok(MappedFile { map: None });
    }
    // SAFETY: the mapping is read only, and the caller maps files that change by being replaced (see above), so the
    // bytes stay what they are as long as it lives.
    let map = unsafe { Mmap::map(&file) }.map_err(fail)?;
    Ok(MappedFile { map: Some(map) })
}

/// Maps the first `length` bytes of shared memory whose size is sealed, so that it cannot shrink under the mapping.
///
/// Only for memory where bytes are written once, before anyone is told of them: what was not announced yet may still
/// change and must not be looked at.
pub fn map_shared(memory: &File, length: u64) -> Result<MappedFile> {
    let fail = |error| fault::system("map", "shared memory", None, error);
    let seals = rustix::fs::fcntl_get_seals(memory).map_err(|error| fail(error.into()))?;
    let size = memory.metadata().map_err(fail)?.len();
    if !seals.contains(SealFlags::SHRINK) || length == 0 || length > size {
        return Err(Error::corrupt("map shared memory: it is not sealed, or not as long as was said"));
    }
    let length = usize::try_from(length)
        .map_err(|_| Error::unsupported("map shared memory: it is too long for this machine"))?;
    // SAFETY: the mapping is read only and cannot lose its pages, since the seal keeps the memory from shrinking.
    // Bytes that were announced are never written again (see above), and others are not looked at.
    let map = unsafe { MmapOptions::new().len(length).map(memory) }.map_err(fail)?;
    // Fewer and larger pages where the system grants them; it works as well without.
    let _ = map.advise(Advice::HugePage);
    Ok(MappedFile { map: Some(map) })
}

/// Asks for large pages behind memory that was not written yet: filling it then costs less than half, since pages are
/// handed out by two megabytes instead of four kilobytes. Where the system has none nothing changes.
pub fn prefer_huge_pages(memory: &mut [MaybeUninit<u8>]) {
    let range = memory.as_mut_ptr_range();
    let page = rustix::param::page_size();
    let skipped = range.start.align_offset(page);
    let Some(length) = memory.len().checked_sub(skipped).map(|length| length / page * page) else { return };
    if length == 0 {
        return;
    }
    // SAFETY: whole pages inside of memory that the caller alone holds; the advice changes none of its bytes.
    let _ = unsafe {
        rustix::mm::madvise(range.start.add(skipped).cast(), length, rustix::mm::Advice::LinuxHugepage)
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::ErrorKind;

    #[test]
    fn a_mapping_shows_the_file_also_after_it_was_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, "old").unwrap();
        let map = map_file(&path).unwrap();
        std::fs::write(dir.path().join("b"), "new").unwrap();
        std::fs::rename(dir.path().join("b"), &path).unwrap();
        assert_eq!((map.as_ref(), map_file(&path).unwrap().as_ref()), (&b"old"[..], &b"new"[..]));
    }

    #[test]
    fn an_empty_file_is_mapped_and_what_is_no_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("empty"), "").unwrap();
        assert!(map_file(dir.path().join("empty")).unwrap().as_ref().is_empty());
        for (path, kind) in
            [(dir.path().to_owned(), ErrorKind::NotFound), ("/dev/zero".into(), ErrorKind::NotFound)]
        {
            assert_eq!(map_file(path).unwrap_err().kind(), kind);
        }
        assert_eq!(map_file(dir.path().join("none")).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn shared_memory_shows_what_is_written_and_is_mapped_only_when_sealed() {
        use std::os::unix::fs::FileExt;
        let flags = rustix::fs::MemfdFlags::ALLOW_SEALING | rustix::fs::MemfdFlags::CLOEXEC;
        let memory = File::from(rustix::fs::memfd_create("forebay", flags).unwrap());
        memory.set_len(8192).unwrap();
        assert_eq!(map_shared(&memory, 8192).unwrap_err().kind(), ErrorKind::Corrupt);
        rustix::fs::fcntl_add_seals(&memory, SealFlags::SHRINK).unwrap();
        assert!(map_shared(&memory, 8193).is_err() && map_shared(&memory, 0).is_err());
        memory.write_all_at(b"here", 4096).unwrap();
        assert_eq!(&map_shared(&memory, 8192).unwrap().as_ref()[4096..4100], b"here");
    }
}
