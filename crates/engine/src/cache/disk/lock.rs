//! One writer: whoever holds `flock` on the lock file. Everybody else reads.
//!
//! The kernel lets go of the lock when its holder ends, however it ends.

use super::folder::{LOCK, open_or_create};
use forebay_core::{Error, Result};
use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;

/// The right to write, until it is dropped.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock; `None` when another has it, or when nothing may be written here.
    pub(super) fn take(dir: &Path) -> Result<Option<Self>> {
        let path = dir.join(LOCK);
        let fault = |error| Error::io(format!("lock the cache `{}`", dir.display()), error);
        let file = match open_or_create(&path) {
            Ok(file) => file,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
                ) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(fault(error)),
        };
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(fault(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holds_the_lock_until_it_lets_go() {
        let dir = tempfile::tempdir().unwrap();
        let first = Lock::take(dir.path()).unwrap();
        assert!(first.is_some());
        assert!(Lock::take(dir.path()).unwrap().is_none());
        drop(first);
        assert!(Lock::take(dir.path()).unwrap().is_some());
    }
}
