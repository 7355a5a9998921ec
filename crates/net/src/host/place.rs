//! Where the socket of a host's cache lies, and who is on the other end.
//!
//! The folder belongs to the user alone, and both ends check whom they talk to: a socket of somebody else under a name
//! that we expect must not give us bytes, nor get ours.

use forebay_core::{Error, ErrorKind, Result};
use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock};
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The socket of this user on this host, in a folder that is made when it is missing.
pub fn default_socket() -> Result<PathBuf> {
    let folder = folder();
    private_folder(&folder)?;
    Ok(folder.join("cache.sock"))
}

fn folder() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty()) {
        Some(folder) => PathBuf::from(folder).join("forebay"),
        None => PathBuf::from(format!("/tmp/forebay-{}", geteuid().as_raw())),
    }
}

/// Sockets of this user's caches on this host. Nobody need be behind one any more.
pub fn running_hosts() -> Result<Vec<PathBuf>> {
    let folder = folder();
    let fail = |error| Error::io(format!("look into `{}`", folder.display()), error);
    let entries = match std::fs::read_dir(&folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(fail)?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(fail)?.path();
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with("cache") && path.extension().is_some_and(|ending| ending == "sock") {
            found.push(path);
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Makes a folder that nobody else may enter, or makes sure that it is one.
pub(super) fn private_folder(folder: &Path) -> Result<()> {
    let fail = |error| Error::io(format!("make `{}` for the cache of this host", folder.display()), error);
    match std::fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(fail(error)),
        _ => {}
    }
    let found = std::fs::symlink_metadata(folder).map_err(fail)?;
    let why = if !found.is_dir() {
        "it is no folder"
    } else if found.uid() != geteuid().as_raw() {
        "it belongs to another user"
    } else if found.mode() & 0o077 != 0 {
        "others may enter it"
    } else {
        return Ok(());
    };
    let message = format!("use `{}` for the cache of this host: {why}", folder.display());
    Err(Error::new(ErrorKind::Denied, message).with_hint("remove it, or set XDG_RUNTIME_DIR"))
}

/// An error when the process at the other end is not ours.
pub(crate) fn check_peer(socket: impl AsFd) -> Result<()> {
    let peer = socket_peercred(socket).map_err(|error| Error::io("ask who is connected", error.into()))?;
    if peer.uid == geteuid() {
        return Ok(());
    }
    let why = format!("talk to a cache on this host: it belongs to user {}", peer.uid.as_raw());
    Err(Error::new(ErrorKind::Denied, why))
}

/// A file beside the socket: `x.sock` and `lock` give `x.sock.lock`.
pub(crate) fn beside(socket: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(socket);
    name.push(".");
    name.push(ending);
    name.into()
}

/// Takes the lock of a file, which is made when it is missing; `None` when another process has it. It lasts as long
/// as the file is open, so it ends with the process whatever happens.
pub(crate) fn try_lock(path: &Path) -> Result<Option<File>> {
    let fail = |error: rustix::io::Errno| Error::io(format!("lock `{}`", path.display()), error.into());
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::openat(CWD, path, flags, Mode::RUSR | Mode::WUSR).map_err(fail)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(File::from(file))),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(fail(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_folder_that_is_not_ours_alone_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let made = temp.path().join("made");
        private_folder(&made).unwrap();
        private_folder(&made).unwrap();
        symlink(&made, temp.path().join("link")).unwrap();
        std::fs::write(temp.path().join("file"), "").unwrap();
        let open = temp.path().join("open");
        std::fs::create_dir(&open).unwrap();
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o755)).unwrap();
        for name in ["link", "file", "open"] {
            let error = private_folder(&temp.path().join(name)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Denied, "{name}: {error:?}");
        }
        assert!(private_folder(&temp.path().join("no/such")).is_err());
    }

    #[test]
    fn a_lock_is_had_by_one() {
        let temp = tempfile::tempdir().unwrap();
        let path = beside(&temp.path().join("a.sock"), "lock");
        let first = try_lock(&path).unwrap();
        assert!(first.is_some() && try_lock(&path).unwrap().is_none());
        drop(first);
        assert!(try_lock(&path).unwrap().is_some());
    }
}
