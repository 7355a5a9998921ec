//! Names of the two files: those that they are to have, and hidden ones until both are whole.
//!
//! Whoever writes holds a lock on `.tmp-NAME.bin`. What a run that was killed left there is written over by the next one,
//! so nothing piles up.

use forebay_core::{Error, ErrorKind, Result};
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where both files go, and where they are until they are whole.
#[derive(Clone, Debug)]
pub(super) struct Names {
    pub(super) folder: PathBuf,
    pub(super) data: PathBuf,
    pub(super) index: PathBuf,
    pub(super) data_making: PathBuf,
    pub(super) index_making: PathBuf,
}

impl Names {
    /// Of files whose names begin with `out`, which may end with `.bin` itself.
    pub(super) fn of(out: &Path) -> Result<Self> {
        let name = out.file_name().and_then(|name| name.to_str());
        let ends_open = out.to_str().is_some_and(|out| out.ends_with('/'));
        let stem = name.map(|name| name.strip_suffix(".bin").unwrap_or(name));
        let name = stem.filter(|name| !ends_open && !name.is_empty()).ok_or_else(|| {
            Error::invalid_config(format!("write tokens to `{}`: it names no file", out.display()))
                .with_hint("name both files without their endings, such as `data/corpus`")
        })?;
        let folder = out.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let path = |name: String| folder.join(name);
        Ok(Self {
            folder: folder.to_path_buf(),
            data: path(format!("{name}.bin")),
            index: path(format!("{name}.idx")),
            data_making: path(format!(".tmp-{name}.bin")),
            index_making: path(format!(".tmp-{name}.idx")),
        })
    }

    /// An error where one is there already that is not to be replaced.
    pub(super) fn refuse_existing(&self, overwrite: bool) -> Result<()> {
        match [&self.data, &self.index].into_iter().find(|path| !overwrite && path.exists()) {
            None => Ok(()),
            Some(path) => {
                let why = format!("write tokens to `{}`: it exists already", path.display());
                Err(Error::invalid_config(why)
                    .with_hint("choose another name, or ask for existing files to be replaced"))
            }
        }
    }

    /// Opens the file for tokens that nobody else writes.
    pub(super) fn lock(&self) -> Result<File> {
        let path = &self.data_making;
        let doing = |cause| Error::io(format!("create `{}`", path.display()), cause);
        loop {
            let file = File::options().create(true).truncate(false).read(true).write(true).open(path);
            let file = file.map_err(doing)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    let why = format!("write tokens to `{}`: another run is at it", self.data.display());
                    return Err(Error::new(ErrorKind::Unavailable, why)
                        .with_hint("wait for it, or name another file"));
                }
                Err(TryLockError::Error(cause)) => return Err(doing(cause)),
            }
            // Another run may have given the file its name, or removed it, before the lock was free.
            let locked = file.metadata().map_err(doing)?;
            match fs::metadata(path) {
                Ok(named) if (named.dev(), named.ino()) == (locked.dev(), locked.ino()) => return Ok(file),
                Ok(_) => {}
                Err(cause) if cause.kind() == io::ErrorKind::NotFound => {}
                Err(cause) => return Err(doing(cause)),
            }
        }
    }
}
