//! The quarantine file of a loader: read when the loader is made, added to while it runs.
//!
//! What is added counts from the next loader on, so that the batches of one are a function of what it was made with.
//! Several processes may add to one file: every entry is one write at the end of it.

use forebay_core::quarantine::{Quarantine, QuarantineEntry, read_quarantine};
use forebay_core::{Error, Result, SampleId};
use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Largest file that is read: more than a million entries.
const MAX_FILE_BYTES: u64 = 1 << 30;

/// Reads who is in quarantine of a version of a dataset. A file that is not there yet has nobody.
pub fn read(path: &Path, dataset: &str, samples: u64) -> Result<Quarantine> {
    let what = || format!("read quarantine `{}`", path.display());
    let file = match File::open(path) {
        Ok(file) => file,
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => return Ok(Quarantine::default()),
        Err(cause) => return Err(Error::io(what(), cause)),
    };
    let mut text = String::new();
    let read = file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text);
    read.map_err(|cause| Error::io(what(), cause))?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(Error::exhausted(format!("{}: it is larger than 1 GiB", what())));
    }
    read_quarantine(&text, dataset, samples).map_err(|error| error.while_doing(what()))
}

/// Adds entries to a quarantine file, each sample once.
pub struct QuarantineWriter {
    path: PathBuf,
    dataset: String,
    known: HashSet<u64>,
    file: Option<File>,
}

impl QuarantineWriter {
    /// Adds to `path` who is not among `known`. Nothing is opened before there is something to write.
    pub fn new(path: PathBuf, dataset: String, known: &Quarantine) -> Self {
        Self { path, dataset, known: known.ids().iter().copied().collect(), file: None }
    }

    /// Adds a sample, if what went wrong is its own fault and would happen again.
    pub fn add(&mut self, sample: SampleId, error: &Error) -> Result<()> {
        match QuarantineEntry::of(&self.dataset, sample, error) {
            Some(entry) => self.write(&entry),
            None => Ok(()),
        }
    }

    /// Adds an entry, unless its sample is there already.
    pub fn write(&mut self, entry: &QuarantineEntry) -> Result<()> {
        if !self.known.insert(entry.sample_id) {
            return Ok(());
        }
        let what = || format!("write quarantine `{}`", self.path.display());
        let file = match &mut self.file {
            Some(file) => file,
            empty => empty.insert(open(&self.path).map_err(|cause| Error::io(what(), cause))?),
        };
        file.write_all(entry.to_line().as_bytes()).map_err(|cause| Error::io(what(), cause))
    }
}

/// Opened for adding, behind a whole line.
fn open(path: &Path) -> std::io::Result<File> {
    let mut file = OpenOptions::new().create(true).append(true).read(true).open(path)?;
    let mut last = [b'\n'];
    if file.metadata()?.len() > 0 {
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
    }
    if last != [b'\n'] {
        // Somebody was killed while he wrote: what he began is no entry, and stays one line.
        file.set_len(whole_lines(path)?)?;
    }
    Ok(file)
}

/// Bytes of a file up to the end of its last whole line.
fn whole_lines(path: &Path) -> std::io::Result<u64> {
    let bytes = std::fs::read(path)?;
    Ok(bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last as u64 + 1))
}
