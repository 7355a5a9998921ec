//! Walks a directory tree in the order of its keys, a bounded number of objects at a time.
//!
//! The order is that of the keys' bytes. Inside a directory a sub-directory sorts as its name followed by `/`, since
//! that is how the keys below it go on: `a.txt` comes before `a/b`, which comes before `ab`. So one directory's
//! names are sorted at a time and memory holds the names of the directories between the root and the current one.

use super::files::stamp;
use crate::key::TEMPORARY_PREFIX;
use crate::{ObjectMeta, fault};
use forebay_core::{Error, Result};
use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::vec::IntoIter;

/// A walk under way.
#[derive(Debug)]
pub(super) struct Walk {
    root: PathBuf,
    prefix: String,
    started: bool,
    open: Vec<Directory>,
}

#[derive(Debug)]
struct Directory {
    /// Key of the directory with a `/` at its end; empty for the root.
    key: String,
    /// Device and inode: a symlink that leads back to one of the directories above is not followed again.
    id: (u64, u64),
    entries: IntoIter<Entry>,
}

#[derive(Debug)]
struct Entry {
    /// The name, with a `/` at its end when it is a directory.
    name: String,
}

impl Directory {
    /// One that is passed through on the way to where the walk begins.
    fn above(key: String, meta: &Metadata) -> Self {
        Self { key, id: (meta.dev(), meta.ino()), entries: Vec::new().into_iter() }
    }
}

impl Walk {
    pub(super) fn new(root: PathBuf, prefix: &str) -> Self {
        Self { root, prefix: prefix.to_owned(), started: false, open: Vec::new() }
    }

    /// The next objects, at most `limit`; none when the walk is over.
    pub(super) fn next_objects(&mut self, limit: usize) -> Result<Vec<ObjectMeta>> {
        let mut found = Vec::new();
        if !self.started {
            self.started = true;
            self.start()?;
        }
        while let Some(directory) = self.open.last_mut() {
            if found.len() == limit {
                break;
            }
            let Some(entry) = directory.entries.next() else {
                self.open.pop();
                continue;
            };
            let key = format!("{}{}", directory.key, entry.name);
            let wanted =
                key.starts_with(&self.prefix) || (key.ends_with('/') && self.prefix.starts_with(&key));
            if !wanted {
                continue;
            }
            let path = self.root.join(&key);
            let Some(meta) = look(&path)? else { continue };
            if key.ends_with('/') {
                self.enter(key, &path, &meta)?;
            } else if meta.is_file() {
                found.push(ObjectMeta { key, size: meta.size(), stamp: stamp(&meta) });
            }
        }
        Ok(found)
    }

    /// Begins in the deepest directory that the prefix names, so that its neighbours are not even listed.
    fn start(&mut self) -> Result<()> {
        let Some(meta) = look(&self.root)? else {
            return Err(
                fault::missing("list", &self.root.to_string_lossy()).with_hint("check the dataset's path")
            );
        };
        let directory = self.prefix.rfind('/').map_or("", |end| &self.prefix[..end]);
        if directory.is_empty() && !self.prefix.starts_with('/') {
            let root = self.root.clone();
            return self.enter(String::new(), &root, &meta);
        }
        // No key begins with such a prefix, so there is nothing to list, and nothing outside is looked at.
        if crate::key::check(directory).is_err() {
            return Ok(());
        }
        // The directories above count as open, with nothing left in them, so that links back to them are known.
        self.open.push(Directory::above(String::new(), &meta));
        for (end, _) in directory.match_indices('/') {
            match look(&self.root.join(&directory[..end]))? {
                Some(meta) => self.open.push(Directory::above(format!("{}/", &directory[..end]), &meta)),
                None => return Ok(()),
            }
        }
        let path = self.root.join(directory);
        match look(&path)? {
            Some(meta) if meta.is_dir() => self.enter(format!("{directory}/"), &path, &meta),
            _ => Ok(()),
        }
    }

    fn enter(&mut self, key: String, path: &Path, meta: &Metadata) -> Result<()> {
        let id = (meta.dev(), meta.ino());
        if self.open.iter().any(|above| above.id == id) {
            return Ok(());
        }
        let fail = |error| fault::system("list", &path.to_string_lossy(), None, error);
        let listing = match std::fs::read_dir(path) {
            Ok(listing) => listing,
            Err(error) if gone(&error) && !self.open.is_empty() => return Ok(()),
            Err(error) => return Err(fail(error)),
        };
        let mut entries = Vec::new();
        for entry in listing {
            let entry = entry.map_err(fail)?;
            let mut name = entry.file_name().into_string().map_err(|name| not_a_key(&path.join(name)))?;
            if name.starts_with(TEMPORARY_PREFIX) {
                continue;
            }
            let mut kind = entry.file_type().map_err(fail)?;
            if kind.is_symlink() {
                // Where it leads decides how it sorts; one that leads nowhere is no object.
                match look(&entry.path())? {
                    Some(meta) => kind = meta.file_type(),
                    None => continue,
                }
            }
            if kind.is_dir() {
                name.push('/');
            } else if !kind.is_file() {
                continue;
            }
            entries.push(Entry { name });
        }
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        self.open.push(Directory { key, id, entries: entries.into_iter() });
        Ok(())
    }
}

/// Follows symlinks; `None` when nothing is there (any more), or when a link leads round in a circle.
fn look(path: &Path) -> Result<Option<Metadata>> {
    match std::fs::metadata(path) {
        Ok(meta) => Ok(Some(meta)),
        Err(error) if gone(&error) => Ok(None),
        Err(error) => Err(fault::system("look at", &path.to_string_lossy(), None, error)),
    }
}

fn gone(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
        || error.raw_os_error() == Some(libc::ELOOP)
}

fn not_a_key(path: &Path) -> Error {
    let name = path.to_string_lossy();
    Error::invalid_config(format!("list `{name}`: the name is not UTF-8, so no key can name it"))
        .with_hint("rename the file")
        .with_facts(fault::facts(&name, None))
}
