//! Half objects: pieces that were written, in any order, and the log that says which.
//!
//! The bytes lie in `<checksum of the key>.part`, of the object's full size from the beginning; the log beside it,
//! `.pieces`, names the object's version and has a line for each piece with its checksum. Nothing is taken for whole by
//! that alone: sealing reads every byte back. Objects of one piece have no log, since half of them is nothing.

use super::journal::{Appender, Fault, Whole, each_line, put_line};
use super::place::{Place, flush_folder, writing};
use forebay_core::{Error, Result};
use forebay_store::ObjectMeta;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

/// Most pieces of one object: beyond that they get larger.
const MOST_PIECES: u64 = 1 << 16;
/// Bytes that are read back at once.
const READ_BYTES: usize = 1 << 20;

/// An object that is being copied.
#[derive(Debug)]
pub(super) struct Half {
    place: Place,
    object: ObjectMeta,
    piece_bytes: u64,
    part: PathBuf,
    file: File,
    log: Option<File>,
    /// Checksums of the pieces that are written.
    sums: Mutex<Vec<Option<u128>>>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    Head {
        key: String,
        size: u64,
        stamp: u64,
        piece_bytes: u64,
    },
    Piece {
        piece: u64,
        xxh3: String,
    },
    /// All pieces are sound; what follows is only a change of names.
    Whole {
        whole: String,
    },
}

/// What the log of an object's version says.
#[derive(Debug, Default)]
struct Log {
    piece_bytes: u64,
    sums: Vec<Option<u128>>,
    whole: Option<String>,
    length: u64,
}

impl Half {
    /// Goes on with what is there, if it is of this version of the object, or begins anew.
    pub(super) fn open(place: &Place, object: &ObjectMeta, piece_bytes: u64) -> Result<Self> {
        let (part, log_path) = (place.part(&object.key), log_path(place, &object.key));
        let fault = |error| writing(&part, error);
        if let Some(log) = Log::read(place, object)?.filter(|_| size_of(&part) == Some(object.size)) {
            let file = OpenOptions::new().read(true).write(true).open(&part).map_err(fault)?;
            let lines = OpenOptions::new().append(true).open(&log_path).map_err(fault)?;
            lines.set_len(log.length).map_err(fault)?;
            let (piece_bytes, sums) = (log.piece_bytes, Mutex::new(log.sums));
            let (place, object) = (place.clone(), object.clone());
            return Ok(Self { place, object, piece_bytes, part, file, log: Some(lines), sums });
        }
        let piece_bytes = piece_bytes.max(1).max(object.size.div_ceil(MOST_PIECES));
        let pieces = object.size.div_ceil(piece_bytes);
        let fresh = |path: &Path| {
            remove(path)?;
            OpenOptions::new().read(true).append(path != part).write(true).create_new(true).open(path)
        };
        remove(&log_path).map_err(fault)?;
        let file = fresh(&part).map_err(fault)?;
        file.set_len(object.size).map_err(fault)?;
        let log = (pieces > 1).then(|| fresh(&log_path)).transpose().map_err(fault)?;
        let (key, size, stamp) = (object.key.clone(), object.size, object.stamp);
        let sums = Mutex::new(vec![None; pieces as usize]);
        let half = Self { place: place.clone(), object: object.clone(), piece_bytes, part, file, log, sums };
        half.note(&Line::Head { key, size, stamp, piece_bytes })?;
        Ok(half)
    }

    /// The pieces still to be fetched, in order.
    pub(super) fn missing(&self) -> Vec<u64> {
        let sums = self.sums();
        (0..sums.len() as u64).filter(|piece| sums[*piece as usize].is_none()).collect()
    }

    /// Bytes that need not be fetched.
    pub(super) fn bytes(&self) -> u64 {
        let missing = self.missing();
        self.object.size
            - missing.iter().map(|piece| self.range(*piece)).map(|at| at.end - at.start).sum::<u64>()
    }

    /// Where a piece lies in the object.
    pub(super) fn range(&self, piece: u64) -> Range<u64> {
        let start = piece * self.piece_bytes;
        start..(start + self.piece_bytes).min(self.object.size)
    }

    /// Writes a piece and notes it. From any thread.
    pub(super) fn put(&self, piece: u64, bytes: &[u8]) -> Result<()> {
        self.file
            .write_all_at(bytes, piece * self.piece_bytes)
            .map_err(|error| writing(&self.place.object(&self.object.key), error))?;
        let sum = xxh3_128(bytes);
        self.note(&Line::Piece { piece, xxh3: hex(sum) })?;
        self.sums()[piece as usize] = Some(sum);
        Ok(())
    }

    /// Reads everything back. `None` when a piece is not what was fetched: it counts as missing again.
    pub(super) fn seal(&self) -> Result<Option<Whole>> {
        let mut whole = Xxh3::new();
        let mut buffer = vec![0; READ_BYTES.min(self.object.size.max(1) as usize)];
        let pieces = self.sums().clone();
        let mut sound = true;
        for (piece, expected) in pieces.iter().enumerate() {
            let (mut sum, at) = (Xxh3::new(), self.range(piece as u64));
            let mut offset = at.start;
            while offset < at.end {
                let length = buffer.len().min((at.end - offset) as usize);
                let bytes = &mut buffer[..length];
                self.file.read_exact_at(bytes, offset).map_err(|error| {
                    Error::io(format!("read back `{}`", self.place.object(&self.object.key).display()), error)
                })?;
                sum.update(bytes);
                whole.update(bytes);
                offset += length as u64;
            }
            if *expected != Some(sum.digest128()) {
                self.sums()[piece] = None;
                sound = false;
            }
        }
        let (size, stamp, xxh3) = (self.object.size, self.object.stamp, hex(whole.digest128()));
        Ok(sound.then_some(Whole { size, stamp, xxh3 }))
    }

    /// Gives a sealed object its name, for good, and notes it in the journal.
    pub(super) fn publish(&self, whole: &Whole, journal: &Appender, replaces: bool) -> Result<()> {
        let path = self.place.object(&self.object.key);
        let fault = |error| writing(&path, error);
        self.file.sync_all().map_err(fault)?;
        self.note(&Line::Whole { whole: whole.xxh3.clone() })?;
        self.place.make_folders(&self.object.key)?;
        if replaces {
            journal.gone(&self.object.key)?;
        }
        fs::rename(&self.part, &path).map_err(fault)?;
        flush_folder(path.parent().unwrap_or(&self.place.root)).map_err(fault)?;
        journal.whole(&self.object.key, whole)?;
        remove(&log_path(&self.place, &self.object.key)).map_err(fault)
    }

    /// Throws away what was fetched.
    pub(super) fn discard(&self) -> Result<()> {
        remove(&log_path(&self.place, &self.object.key))
            .and_then(|()| remove(&self.part))
            .map_err(|error| writing(&self.part, error))
    }

    fn sums(&self) -> MutexGuard<'_, Vec<Option<u128>>> {
        self.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, line: &Line) -> Result<()> {
        let Some(log) = &self.log else { return Ok(()) };
        let text = serde_json::to_string(line)
            .map_err(|error| Error::internal("write a line about a half object").with_source(error))?;
        put_line(log, &text).map_err(|error| writing(&self.part, error))
    }
}

/// Bytes of this version of an object that lie in a half object.
pub(super) fn half_bytes(place: &Place, object: &ObjectMeta) -> Result<u64> {
    if size_of(&place.part(&object.key)) != Some(object.size) {
        return Ok(0);
    }
    let Some(log) = Log::read(place, object)? else { return Ok(0) };
    let length = |piece: usize| (object.size - piece as u64 * log.piece_bytes).min(log.piece_bytes);
    Ok(log.sums.iter().enumerate().filter(|(_, sum)| sum.is_some()).map(|(piece, _)| length(piece)).sum())
}

/// An object that got its name and was not noted: the process ended in between. It is read through to be sure.
pub(super) fn unnoted(place: &Place, object: &ObjectMeta) -> Result<Option<Whole>> {
    let Some(Log { whole: Some(xxh3), .. }) = Log::read(place, object)? else { return Ok(None) };
    let whole = Whole { size: object.size, stamp: object.stamp, xxh3 };
    let named = size_of(&place.part(&object.key)).is_none() && place.size(&object.key) == Some(object.size);
    Ok((named && checksum(&place.object(&object.key)).is_ok_and(|found| found == whole.xxh3))
        .then_some(whole))
}

/// The checksum of a file.
pub(super) fn checksum(path: &Path) -> Result<String> {
    let read = || {
        let (mut file, mut sum) = (File::open(path)?, Xxh3::new());
        let mut buffer = vec![0; READ_BYTES];
        loop {
            match io::Read::read(&mut file, &mut buffer)? {
                0 => return io::Result::Ok(hex(sum.digest128())),
                length => sum.update(&buffer[..length]),
            }
        }
    };
    read().map_err(|error| Error::io(format!("read `{}`", path.display()), error))
}

impl Log {
    /// The log of this version of the object; `None` when there is none, or one of another version.
    fn read(place: &Place, object: &ObjectMeta) -> Result<Option<Self>> {
        let path = log_path(place, &object.key);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io(format!("read `{}`", path.display()), error)),
        };
        let mut log = Self::default();
        each_line(file, |line, end| {
            let line = serde_json::from_slice(line).ok();
            match line {
                Some(Line::Head { key, size, stamp, piece_bytes })
                    if (&key, size, stamp) == (&object.key, object.size, object.stamp)
                        && piece_bytes > 0
                        && size.div_ceil(piece_bytes) <= MOST_PIECES =>
                {
                    log.piece_bytes = piece_bytes;
                    log.sums = vec![None; size.div_ceil(piece_bytes) as usize];
                }
                Some(Line::Piece { piece, xxh3 }) => {
                    if let Some(sum) = usize::try_from(piece).ok().and_then(|piece| log.sums.get_mut(piece)) {
                        *sum = u128::from_str_radix(&xxh3, 16).ok();
                    }
                }
                Some(Line::Whole { whole }) => log.whole = Some(whole),
                Some(Line::Head { .. }) | None => {}
            }
            log.length = end;
            Ok(())
        })
        .map_err(|fault: Fault| {
            fault.unwrap_or_else(|error| Error::io(format!("read `{}`", path.display()), error))
        })?;
        Ok((log.piece_bytes > 0).then_some(log))
    }
}

fn log_path(place: &Place, key: &str) -> PathBuf {
    place.part(key).with_extension("pieces")
}

fn size_of(path: &Path) -> Option<u64> {
    fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file).map(|found| found.len())
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn hex(sum: u128) -> String {
    format!("{sum:032x}")
}

#[cfg(test)]
mod tests;
