//! The journal of a copy: which objects are whole, where they came from, what their bytes add up to.
//!
//! Append only, a line of JSON each: first the store that the copy is of, then every object that was finished. A later
//! line of a key wins over an earlier one. A line that cannot be read, such as a torn last one, is dropped: the object
//! is then copied again.

use super::place::{Place, writing};
use forebay_core::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

/// Raised when the meaning of a line changes.
const FORMAT: u32 = 1;
/// Longest line that is read: keys have a thousand bytes or so.
const LONGEST_LINE: u64 = 1 << 20;

/// An object that was copied whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Whole {
    pub(super) size: u64,
    pub(super) stamp: u64,
    /// xxh3 of 128 bits over all bytes, in hex.
    pub(super) xxh3: String,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    Head {
        forebay_stage: u32,
        origin: String,
    },
    Whole {
        key: String,
        #[serde(flatten)]
        whole: Whole,
    },
    /// What is in place is about to be replaced.
    Gone {
        key: String,
        gone: bool,
    },
}

/// What a journal says.
#[derive(Clone, Debug, Default)]
pub(super) struct Journal {
    /// The store that the copy is of, without a key; empty when there is no journal.
    pub(super) origin: String,
    pub(super) whole: HashMap<String, Whole>,
    /// Bytes up to the end of the last whole line.
    length: u64,
}

impl Journal {
    /// Reads the journal of a copy; an empty one when there is none.
    pub(super) fn read(place: &Place) -> Result<Self> {
        let path = place.journal();
        let doing = |error| Error::io(format!("read journal `{}`", path.display()), error);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(doing(error)),
        };
        let mut journal = Self::default();
        each_line(file, |line, end| {
            journal.length = end;
            match serde_json::from_slice(line) {
                Ok(Line::Head { forebay_stage: FORMAT, origin }) => journal.origin = origin,
                Ok(Line::Head { forebay_stage, .. }) => {
                    let message = format!(
                        "read journal `{}`: it has format {forebay_stage}, known is {FORMAT}",
                        path.display()
                    );
                    return Err(Error::unsupported(message).with_hint("stage into another folder"));
                }
                Ok(Line::Whole { key, whole }) => drop(journal.whole.insert(key, whole)),
                Ok(Line::Gone { key, .. }) => drop(journal.whole.remove(&key)),
                Err(error) => tracing::warn!(journal = %path.display(), %error, "a line is passed over"),
            }
            Ok(())
        })
        .map_err(|fault| fault.unwrap_or_else(doing))?;
        Ok(journal)
    }

    /// Refuses a folder that holds a copy of another store.
    pub(super) fn check_origin(&self, place: &Place, origin: &str) -> Result<()> {
        if self.origin.is_empty() || self.origin == origin {
            return Ok(());
        }
        let message =
            format!("stage `{origin}` into `{}`: it holds a copy of `{}`", place.root.display(), self.origin);
        Err(Error::invalid_config(message).with_hint("choose another folder for each store"))
    }

    /// Opens it for more lines. What is behind the last whole line is cut off.
    pub(super) fn append(&self, place: &Place, origin: &str) -> Result<Appender> {
        let path = place.journal();
        let open = || {
            let file = OpenOptions::new().create(true).append(true).open(&path)?;
            if file.metadata()?.len() > self.length {
                file.set_len(self.length)?;
            }
            io::Result::Ok(file)
        };
        let file = open().map_err(|error| writing(&path, error))?;
        let appender = Appender { file, path };
        if self.origin.is_empty() {
            appender.put(&Line::Head { forebay_stage: FORMAT, origin: origin.to_owned() })?;
        }
        Ok(appender)
    }
}

/// Adds lines, from any thread: each is one write at the end of the file.
#[derive(Debug)]
pub(super) struct Appender {
    file: File,
    path: PathBuf,
}

impl Appender {
    pub(super) fn whole(&self, key: &str, whole: &Whole) -> Result<()> {
        self.put(&Line::Whole { key: key.to_owned(), whole: whole.clone() })
    }

    /// Says that an object is no longer what was noted, for good, before it is replaced.
    pub(super) fn gone(&self, key: &str) -> Result<()> {
        self.put(&Line::Gone { key: key.to_owned(), gone: true })?;
        self.flush()
    }

    pub(super) fn flush(&self) -> Result<()> {
        self.file.sync_data().map_err(|error| writing(&self.path, error))
    }

    fn put(&self, line: &Line) -> Result<()> {
        let text = serde_json::to_string(line)
            .map_err(|error| Error::internal("write a line of the journal").with_source(error))?;
        put_line(&self.file, &text).map_err(|error| writing(&self.path, error))
    }
}

/// Adds a line at the end by one write.
pub(super) fn put_line(mut file: &File, text: &str) -> io::Result<()> {
    file.write_all(format!("{text}\n").as_bytes())
}

/// Gives every line that has an end to `seen`, with the offset behind it.
pub(super) fn each_line(
    file: File,
    mut seen: impl FnMut(&[u8], u64) -> Result<()>,
) -> std::result::Result<(), Fault> {
    let mut file = BufReader::with_capacity(1 << 16, file);
    let (mut line, mut end) = (Vec::new(), 0);
    loop {
        line.clear();
        let read = file.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line).map_err(Fault::Disk)?;
        if line.pop() != Some(b'\n') {
            return Ok(());
        }
        end += read as u64;
        seen(&line, end).map_err(Fault::Said)?;
    }
}

/// Why lines could not be read.
pub(super) enum Fault {
    Disk(io::Error),
    Said(Error),
}

impl Fault {
    pub(super) fn unwrap_or_else(self, disk: impl FnOnce(io::Error) -> Error) -> Error {
        match self {
            Self::Disk(error) => disk(error),
            Self::Said(error) => error,
        }
    }
}

/// The key in a copy of `origin` of what `store` calls `key`: folders of this machine may lie in each other.
pub(super) fn key_in(origin: &str, store: &str, key: &str) -> Option<String> {
    if origin == store {
        return Some(key.to_owned());
    }
    if origin.contains("://") || !Path::new(origin).is_absolute() {
        return None;
    }
    let full = Path::new(store).join(key);
    full.strip_prefix(origin).ok().and_then(Path::to_str).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(size: u64) -> Whole {
        Whole { size, stamp: 7, xxh3: "ab".into() }
    }

    #[test]
    fn p049_a_torn_last_line_is_dropped_and_the_next_one_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::new(folder.path()).unwrap();
        let journal = Journal::read(&place).unwrap().append(&place, "s3://b").unwrap();
        journal.whole("a", &whole(1)).unwrap();
        journal.whole("b\n\"", &whole(2)).unwrap();
        journal.whole("a", &whole(3)).unwrap();
        journal.whole("c", &whole(4)).unwrap();
        journal.gone("c").unwrap();
        let bytes = std::fs::read(place.journal()).unwrap();
        for torn in 0..bytes.len() {
            std::fs::write(place.journal(), &bytes[..torn]).unwrap();
            let found = Journal::read(&place).unwrap();
            found.append(&place, "s3://b").unwrap().whole("d", &whole(5)).unwrap();
            let again = Journal::read(&place).unwrap();
            assert_eq!(again.origin, "s3://b");
            assert_eq!(again.whole.len(), found.whole.len() + 1, "cut at {torn}");
        }
        std::fs::write(place.journal(), &bytes).unwrap();
        let found = Journal::read(&place).unwrap();
        assert_eq!((found.whole["a"].size, found.whole["b\n\""].size, found.whole.len()), (3, 2, 2));
        assert!(
            found.check_origin(&place, "s3://b").is_ok() && found.check_origin(&place, "s3://c").is_err()
        );
    }

    #[test]
    fn lines_that_mean_nothing_are_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::new(folder.path()).unwrap();
        let text = "{\"forebay_stage\":1,\"origin\":\"o\"}\n\0\0\0\n{}\n[1]\n{\"key\":\"a\",\"size\":1,\"stamp\":2,\"xxh3\":\"x\"}\n";
        std::fs::write(place.journal(), text).unwrap();
        let found = Journal::read(&place).unwrap();
        assert_eq!((found.origin.as_str(), found.whole.len()), ("o", 1));
        std::fs::write(place.journal(), "{\"forebay_stage\":2,\"origin\":\"o\"}\n").unwrap();
        assert!(Journal::read(&place).is_err());
    }

    #[test]
    fn folders_of_this_machine_may_lie_in_each_other() {
        assert_eq!(key_in("s3://b", "s3://b", "k").as_deref(), Some("k"));
        assert_eq!(key_in("s3://b", "s3://c", "k"), None);
        assert_eq!(key_in("/data", "/data/train", "a.tar").as_deref(), Some("train/a.tar"));
        assert_eq!(key_in("/data/train", "/data", "train/a.tar").as_deref(), Some("a.tar"));
        assert_eq!(key_in("/data/train", "/data", "val/a.tar"), None);
    }
}
