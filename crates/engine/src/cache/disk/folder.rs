//! The files of a cache: their names, the marker, and which of the files in a directory are ours.
//!
//! Ours is a regular file (never what a link points to) with one of our names that begins as such a file begins.
//! Anything else in the directory is left alone and not counted.

use super::segment::{FORMAT, UNIT, Unit, segment_head};
use forebay_core::{Error, Result};
use rustix::fs::OFlags;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use xxhash_rust::xxh3::xxh3_64;

/// Says that the directory is a cache, of which format, and how large it may be.
pub(super) const MARKER: &str = "forebay-cache";
pub(super) const LOCK: &str = "forebay-cache.lock";
pub(super) const INDEX: &str = "index.fbi";
/// Behind the names of files that are written before they take the place of others.
pub(super) const NEW: &str = ".new";

pub(super) const MARKER_HEAD: &str = "forebay cache\n";
/// Longer than any marker.
const MARKER_LIMIT: u64 = 4096;

/// The name of a segment.
pub(super) fn segment_name(number: u32) -> String {
    format!("segment-{number:08}.fbs")
}

fn segment_number(name: &str) -> Option<u32> {
    let digits = name.strip_prefix("segment-")?.strip_suffix(".fbs")?;
    let number = digits.parse().ok()?;
    (number > 0 && segment_name(number) == name).then_some(number)
}

/// Opens one of our files, never by way of a link in its place.
pub(super) fn open_ours(path: &Path, write: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(write);
    // Without NONBLOCK the open of a pipe would wait for its other end.
    options.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32);
    let file = options.open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// As [`open_ours`] for writing; makes the file when it is not there.
pub(super) fn open_or_create(path: &Path) -> io::Result<File> {
    match create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => open_ours(path, true),
        made => made,
    }
}

/// Makes a file that is not there yet.
pub(super) fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).open(path)
}

/// Segments of a directory with their lengths, and the highest number that any file's name has.
pub(super) fn segments(dir: &Path) -> io::Result<(BTreeMap<u32, u64>, u32)> {
    let (mut found, mut highest) = (BTreeMap::new(), 0);
    for entry in std::fs::read_dir(dir)? {
        let Some(number) = entry?.file_name().to_str().and_then(segment_number) else { continue };
        highest = highest.max(number);
        if let Some(length) = segment_length(&dir.join(segment_name(number)), number) {
            found.insert(number, length);
        }
    }
    Ok((found, highest))
}

/// The length of a segment of ours; `None` for anything else.
fn segment_length(path: &Path, number: u32) -> Option<u64> {
    let file = open_ours(path, false).ok()?;
    let length = file.metadata().ok()?.len();
    let mut head = [0; UNIT as usize];
    let begun = length.min(UNIT) as usize;
    file.read_exact_at(&mut head[..begun], 0).ok()?;
    // A segment whose writer was killed at its first byte is a beginning of a header.
    (head[..begun] == segment_head(number)[..begun]).then_some(length)
}

/// The unit at an offset of a file.
pub(super) fn unit_at(file: &File, at: u64) -> Option<Unit> {
    let mut unit = [0; UNIT as usize];
    file.read_exact_at(&mut unit, at).ok().map(|()| unit)
}

/// Reads the marker: the limit that the last writer had. `None` when there is no marker.
pub(super) fn read_marker(dir: &Path) -> Result<Option<u64>> {
    let path = dir.join(MARKER);
    let doing = || format!("open the cache `{}`", dir.display());
    let damaged = || {
        Error::corrupt(format!("{}: `{MARKER}` is not what a cache's marker looks like", doing()))
            .with_hint(format!("name another directory, or remove `{}` if it was a cache", path.display()))
    };
    let file = match open_ours(&path, false) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io(doing(), error)),
    };
    let length = file.metadata().map_err(|error| Error::io(doing(), error))?.len();
    if length > MARKER_LIMIT {
        return Err(damaged());
    }
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(&mut bytes, 0).map_err(|error| Error::io(doing(), error))?;
    let text = String::from_utf8(bytes).map_err(|_| damaged())?;
    let format = text.strip_prefix(MARKER_HEAD).and_then(|rest| value(rest, "format "));
    if let Some(format) = format.filter(|format| *format > u64::from(FORMAT)) {
        return Err(Error::unsupported(format!(
            "{}: it has format {format}, this release reads up to {FORMAT}",
            doing()
        ))
        .with_hint("use a newer release of forebay, or name another directory"));
    }
    let limit = text.lines().nth(2).and_then(|line| value(line, "limit "));
    match limit {
        Some(limit) if text == marker(limit) => Ok(Some(limit)),
        _ => Err(damaged()),
    }
}

/// Writes the marker.
pub(super) fn write_marker(dir: &Path, limit: u64) -> io::Result<()> {
    replace(dir, MARKER, |file| file.write_all(marker(limit).as_bytes()))
}

/// Puts a file in the place of another: whoever opens it sees the old one or the new one.
pub(super) fn replace(
    dir: &Path,
    name: &str,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    let new = dir.join(format!("{name}{NEW}"));
    remove_left(&new)?;
    let mut file = create(&new)?;
    let written = write(&mut file)
        .and_then(|()| file.sync_all())
        .and_then(|()| std::fs::rename(&new, dir.join(name)))
        .and_then(|()| sync(dir));
    written.inspect_err(|_| {
        // Ours: it was made above. Gone already when only the last step did not work out.
        let _ = std::fs::remove_file(&new);
    })
}

/// Removes what a killed writer left under a temporary name, if it is ours.
pub(super) fn remove_left(path: &Path) -> io::Result<()> {
    match open_ours(path, false) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(file) if begins_as_ours(&file)? => std::fs::remove_file(path),
        Ok(_) => Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file of others has this name")),
    }
}

/// Whether a file is empty or begins like a marker or an index.
pub(super) fn begins_as_ours(file: &File) -> io::Result<bool> {
    let mut bytes = [0; 8];
    let length = file.metadata()?.len().min(8) as usize;
    file.read_exact_at(&mut bytes[..length], 0)?;
    let index = super::index::index_head(0);
    let heads = [&MARKER_HEAD.as_bytes()[..length], &index[..length]];
    Ok(heads.contains(&&bytes[..length]))
}

/// In a directory without our marker, files with our names that are not ours are somebody's.
pub(super) fn check_names(dir: &Path) -> Result<()> {
    for name in [MARKER, INDEX] {
        let ours = match open_ours(&dir.join(name), false) {
            Ok(file) => begins_as_ours(&file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
            Err(error) => Err(error),
        };
        if !ours.unwrap_or(false) {
            let why = format!("`{name}` is there and is not a cache's");
            return Err(Error::invalid_config(format!("open the cache `{}`: {why}", dir.display()))
                .with_hint("name an empty directory"));
        }
    }
    Ok(())
}

/// Flushes the names in a directory.
pub(super) fn sync(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

fn marker(limit: u64) -> String {
    let text = format!("{MARKER_HEAD}format {FORMAT}\nlimit {limit}\n");
    let sum = xxh3_64(text.as_bytes());
    format!("{text}check {sum:016x}\n")
}

fn value(text: &str, name: &str) -> Option<u64> {
    text.lines().next()?.strip_prefix(name)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::ErrorKind;

    #[test]
    fn the_marker_is_read_again_and_newer_or_damaged_ones_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read_marker(dir.path()).unwrap(), None);
        write_marker(dir.path(), 12_345).unwrap();
        assert_eq!(read_marker(dir.path()).unwrap(), Some(12_345));
        let path = dir.path().join(MARKER);
        let bytes = std::fs::read(&path).unwrap();
        for at in 0..bytes.len() {
            let mut broken = bytes.clone();
            broken[at] ^= 1;
            std::fs::write(&path, broken).unwrap();
            assert!(read_marker(dir.path()).is_err(), "byte {at}");
        }
        std::fs::write(&path, "forebay cache\nformat 2\nsomething new\n").unwrap();
        let error = read_marker(dir.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("format 2") && error.hint().is_some());
    }

    #[test]
    fn only_regular_files_with_our_names_and_heads_are_ours() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at(&segment_name(1)), segment_head(1)).unwrap();
        std::fs::write(at(&segment_name(2)), segment_head(1)).unwrap();
        std::fs::write(at(&segment_name(4)), &segment_head(4)[..9]).unwrap();
        std::fs::write(at("segment-5.fbs"), segment_head(5)).unwrap();
        std::os::unix::fs::symlink(at(&segment_name(1)), at(&segment_name(6))).unwrap();
        std::fs::create_dir(at(&segment_name(7))).unwrap();
        let (found, highest) = segments(dir.path()).unwrap();
        assert_eq!((found.into_iter().collect::<Vec<_>>(), highest), (vec![(1, 64), (4, 9)], 7));
    }

    #[test]
    fn a_temporary_file_of_others_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("forebay-cache.new");
        std::fs::write(&path, "a diary").unwrap();
        assert!(write_marker(dir.path(), 1).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"a diary");
        std::fs::write(&path, "forebay").unwrap();
        write_marker(dir.path(), 1).unwrap();
        assert!(!path.exists());
    }
}
