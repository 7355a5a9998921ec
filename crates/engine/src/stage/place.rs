//! Where objects lie below the folder of a copy. Keys come from outside: none may lead anywhere else.
//!
//! A key is a relative path without `.` and `..`, so joined to the folder it stays below it, but for symlinks: no folder
//! on the way may be one. All keys are checked before the first byte is written.

use forebay_core::{Error, Facts, Result};
use forebay_store::key;
use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_128;

/// The journal, in the folder of the copy.
pub(super) const JOURNAL: &str = ".forebay-stage.jsonl";
/// The folder of half objects, in the folder of the copy.
pub(super) const WORK: &str = ".forebay-stage";
/// Longest part of a path that file systems take.
const LONGEST_PART: usize = 255;

/// The folder of a copy.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) root: PathBuf,
}

impl Place {
    pub(super) fn new(root: &Path) -> Result<Self> {
        let root = std::path::absolute(root)
            .map_err(|error| Error::io(format!("stage into `{}`", root.display()), error))?;
        match fs::metadata(&root) {
            Ok(found) if !found.is_dir() => {
                Err(Error::invalid_config(format!("stage into `{}`: it is no folder", root.display())))
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::io(format!("stage into `{}`", root.display()), error))
            }
            _ => Ok(Self { root }),
        }
    }

    /// Where the object of a checked key lies.
    pub(super) fn object(&self, key: &str) -> PathBuf {
        self.root.join(key)
    }

    pub(super) fn journal(&self) -> PathBuf {
        self.root.join(JOURNAL)
    }

    pub(super) fn work(&self) -> PathBuf {
        self.root.join(WORK)
    }

    /// A half object.
    pub(super) fn part(&self, key: &str) -> PathBuf {
        self.work().join(format!("{:032x}.part", xxh3_128(key.as_bytes())))
    }

    /// The size of a regular file that is there; `None` for anything else.
    pub(super) fn size(&self, key: &str) -> Option<u64> {
        let found = fs::symlink_metadata(self.object(key)).ok()?;
        found.is_file().then_some(found.len())
    }

    /// Refuses keys whose places are taken by something else, or lie behind a symlink.
    pub(super) fn check<'a>(&self, keys: impl Iterator<Item = &'a str>) -> Result<()> {
        for own in [self.journal(), self.work()] {
            if fs::symlink_metadata(&own).is_ok_and(|found| found.is_symlink()) {
                return Err(refused(&own, "it is a symlink"));
            }
        }
        let mut seen = HashSet::new();
        for key in keys {
            for folder in folders(key) {
                if !seen.insert(folder) {
                    continue;
                }
                let path = self.root.join(folder);
                match fs::symlink_metadata(&path) {
                    Ok(found) if found.is_symlink() => return Err(refused(&path, "it is a symlink")),
                    Ok(found) if !found.is_dir() => {
                        return Err(refused(&path, &format!("it is no folder, and `{key}` goes below it")));
                    }
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(Error::io(format!("stage `{}`", path.display()), error)),
                }
            }
            match fs::symlink_metadata(self.object(key)) {
                Ok(found) if found.is_symlink() => {
                    return Err(refused(&self.object(key), "it is a symlink"));
                }
                Ok(found) if found.is_dir() => {
                    return Err(refused(&self.object(key), "a folder has this name"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Makes the folders above an object, each of them looked at again, and flushes what was made.
    pub(super) fn make_folders(&self, key: &str) -> Result<()> {
        for folder in folders(key) {
            self.make_folder(&self.root.join(folder))?;
        }
        Ok(())
    }

    /// The folder of the copy and the one of half objects.
    pub(super) fn make(&self) -> Result<()> {
        fs::create_dir_all(&self.root).map_err(|error| writing(&self.root, error))?;
        self.make_folder(&self.work())
    }

    fn make_folder(&self, path: &Path) -> Result<()> {
        match fs::create_dir(path) {
            Ok(()) => flush_folder(path.parent().unwrap_or(&self.root)).map_err(|error| writing(path, error)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match fs::symlink_metadata(path) {
                Ok(found) if found.is_dir() => Ok(()),
                _ => Err(refused(path, "it is no folder")),
            },
            Err(error) => Err(writing(path, error)),
        }
    }
}

/// Refuses keys that cannot all be files below one folder, whatever is on the disk.
pub(super) fn check_keys(keys: &[&str]) -> Result<()> {
    let all: HashSet<&str> = keys.iter().copied().collect();
    let mut parts = HashSet::with_capacity(keys.len());
    for key in keys {
        let shown = key.escape_debug();
        key::check(key).map_err(|error| error.while_doing("stage an object"))?;
        let refuse = |why: &str| Err(Error::invalid_config(format!("stage object `{shown}`: {why}")));
        if matches!(key.split('/').next(), Some(WORK | JOURNAL)) {
            return refuse("this name is kept for the copy's own files");
        }
        if key.split('/').any(|part| part.len() > LONGEST_PART) {
            return refuse(&format!("a part of its key is longer than {LONGEST_PART} bytes"));
        }
        if let Some(folder) = folders(key).find(|folder| all.contains(folder)) {
            return refuse(&format!(
                "`{}` is an object too, and cannot be file and folder at once",
                folder.escape_debug()
            ));
        }
        if !parts.insert(xxh3_128(key.as_bytes())) {
            return refuse("another key has the same checksum");
        }
    }
    Ok(())
}

/// The folders above a key, the outermost first: `a`, `a/b` of `a/b/c`.
fn folders(key: &str) -> impl Iterator<Item = &str> {
    key.match_indices('/').map(|(at, _)| &key[..at])
}

/// A rename lives in its folder.
pub(super) fn flush_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// A fault of the disk that the copy is written to.
pub(super) fn writing(path: &Path, error: io::Error) -> Error {
    let hint = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            "make room and run it again: it goes on where it ended"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "stage into a folder that you may write to"
        }
        _ => "run it again: it goes on where it ended",
    };
    let facts = Facts { object: Some(path.display().to_string()), ..Facts::default() };
    Error::io(format!("write `{}`", path.display()), error).with_hint(hint).with_facts(facts)
}

fn refused(path: &Path, why: &str) -> Error {
    Error::invalid_config(format!("stage to `{}`: {why}", path.display()))
        .with_hint("stage into a folder of its own")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p049_keys_that_would_leave_the_folder_or_collide_are_refused() {
        for bad in ["../a", "/etc/passwd", "a/../../b", "a\0b", "a/", "a//b", "./a", ""] {
            assert!(check_keys(&[bad]).is_err(), "{bad:?}");
        }
        let long = "x".repeat(256);
        for bad in
            [&["a", "a/b"][..], &["x/y/z", "x/y"], &[WORK], &[".forebay-stage/a"], &[JOURNAL], &[&long]]
        {
            assert!(check_keys(bad).is_err(), "{bad:?}");
        }
        check_keys(&["a", "b/a", "b/c", "..a", "a.b", "ü/日"]).unwrap();
    }

    #[test]
    fn p049_nothing_is_written_through_a_symlink() {
        let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let place = Place::new(folder.path()).unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), folder.path().join("link")).unwrap();
        fs::write(folder.path().join("file"), b"x").unwrap();
        fs::create_dir(folder.path().join("folder")).unwrap();
        for bad in ["link/a", "link", "file/a", "folder"] {
            assert!(place.check([bad].into_iter()).is_err(), "{bad}");
        }
        place.check(["file", "folder/a", "new/a"].into_iter()).unwrap();
        assert!(place.make_folders("link/a/b").is_err());
        assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
        std::os::unix::fs::symlink(elsewhere.path(), folder.path().join(WORK)).unwrap();
        assert!(place.check(["file"].into_iter()).is_err());
    }
}
