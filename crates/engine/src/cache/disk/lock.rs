//! One writer: whoever holds `flock` on the lock file. Everybody else reads.
//!
//! The kernel lets go of the lock when its holder ends, however it ends.

use super::folder::{LOCK, open_or_create};
use forebay_core::{Error, Result};
use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long to wait for a lock. A process that its holder started has the lock too for the moment until it runs a
/// program of its own, also when the holder has let go meanwhile.
const PATIENCE: Duration = Duration::from_millis(300);
/// How often to look.
const PAUSE: Duration = Duration::from_millis(5);

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
        let since = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Some(Self { _file: file })),
                Err(TryLockError::WouldBlock) if since.elapsed() < PATIENCE => std::thread::sleep(PAUSE),
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(fault(error)),
            }
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
