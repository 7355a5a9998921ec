//! Writes a file so that readers see all of it or none of it, also after a crash.
//!
//! The bytes go to a temporary file in the same directory, are flushed, and take their name by `rename`; then the
//! directory is flushed, since the name lives there. A crash leaves at most a `.tmp-` file, which listings hide.

use crate::fault;
use crate::key::TEMPORARY_PREFIX;
use forebay_core::{Error, Result};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Puts `bytes` at `path`, making the directories above it that are missing.
pub(super) fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let fail = |error| fault::system("write", &path.to_string_lossy(), None, error);
    let (Some(directory), Some(_)) = (path.parent(), path.file_name()) else {
        return Err(Error::invalid_config(format!("write `{}`: no file name", path.display())));
    };
    make_directories(directory).map_err(fail)?;
    if path.is_dir() {
        return Err(Error::invalid_config(format!("write `{}`: a directory has this name", path.display()))
            .with_facts(fault::facts(&path.to_string_lossy(), None)));
    }
    let (temporary, mut file) = create_temporary(directory).map_err(fail)?;
    let written = file
        .write_all(bytes)
        .and_then(|()| file.sync_all())
        .and_then(|()| std::fs::rename(&temporary, path))
        .and_then(|()| sync_directory(directory));
    written.map_err(|error| {
        // Gone already when only the last step did not work out.
        let _ = std::fs::remove_file(&temporary);
        fail(error)
    })
}

/// Tells processes and writes of one process apart; `create_new` settles what is left.
fn create_temporary(directory: &Path) -> io::Result<(PathBuf, File)> {
    static WRITES: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = WRITES.fetch_add(1, Relaxed);
        let path = directory.join(format!("{TEMPORARY_PREFIX}{}-{number}", std::process::id()));
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(file) => return Ok((path, file)),
            // Left by a crashed process that had the same id, or written by another machine: take the next name.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

/// As `create_dir_all`, and flushes the parent of each directory it made.
fn make_directories(directory: &Path) -> io::Result<()> {
    if directory.as_os_str().is_empty() || directory.is_dir() {
        return Ok(());
    }
    if let Some(parent) = directory.parent() {
        make_directories(parent)?;
    }
    match std::fs::create_dir(directory) {
        Ok(()) => directory.parent().map_or(Ok(()), sync_directory),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && directory.is_dir() => Ok(()),
        Err(error) => Err(error),
    }
}

fn sync_directory(directory: &Path) -> io::Result<()> {
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unfinished_write_of_another_process_is_stepped_over_and_no_temporary_file_stays() {
        let dir = tempfile::tempdir().unwrap();
        let (left, _) = create_temporary(dir.path()).unwrap();
        write_whole(&dir.path().join("a/b/c"), b"bytes").unwrap();
        write_whole(&dir.path().join("a/b/c"), b"others").unwrap();
        assert_eq!(std::fs::read(dir.path().join("a/b/c")).unwrap(), b"others");
        assert_eq!(std::fs::read_dir(dir.path().join("a/b")).unwrap().count(), 1);
        assert!(left.exists());
    }

    #[test]
    fn a_write_that_cannot_take_its_name_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("a")).unwrap();
        assert!(write_whole(&dir.path().join("a"), b"bytes").is_err());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
