//! Writes samples into shards, tar or TFRecord: the same bytes on every run, and never a half shard under a shard's name.
//!
//! A shard is written as `.tmp-…` beside its place, synced and renamed, so a reader sees all of it or nothing, also
//! after `kill -9` or a power cut. Blocking: call it from a thread that may wait.

use super::encode::{file_header, padded};
use super::form::{Cell, END, Format, Sample, Sink, members, record};
use super::pattern::{Pattern, folder_of, temporary};
use forebay_core::{Error, Result};
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};

/// Where shards go and when the next one begins.
#[derive(Clone, Debug)]
pub struct ShardWriterOptions {
    /// Path of the shards with one counter in it: `out/train-%06d.tar` or `out/train-{:06}.tar`. Folders are made. What it
    /// ends with tells the format: `.tar`, `.tfrecord` or `.tfrecord.gz`.
    pub pattern: String,
    /// Most samples of one shard.
    pub max_samples: u64,
    /// Most bytes of one shard as a file, before it is compressed. A single sample larger than that gets a shard of its
    /// own.
    pub max_bytes: u64,
    /// The counter of the first shard.
    pub first: u64,
    /// Whether a shard that exists already is replaced. Otherwise it is an error.
    pub overwrite: bool,
}

impl ShardWriterOptions {
    /// Shards by `pattern`, each of at most 100,000 samples and 1 GiB.
    pub fn new(pattern: impl Into<String>) -> Self {
        Self { pattern: pattern.into(), max_samples: 100_000, max_bytes: 1 << 30, first: 0, overwrite: false }
    }

    /// Where the shard of this number goes, counted from the first.
    pub fn path(&self, shard: u64) -> Result<String> {
        Ok(Pattern::parse(&self.pattern)?.name(self.first.saturating_add(shard)))
    }

    /// Whether shards are TFRecord, plain or compressed.
    pub fn is_tfrecord(&self) -> Result<bool> {
        Ok(matches!(Pattern::parse(&self.pattern)?.format, Format::Tfrecord { .. }))
    }
}

/// A finished shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardInfo {
    /// Where it is.
    pub path: PathBuf,
    /// Samples in it.
    pub samples: u64,
    /// Its size.
    pub bytes: u64,
}

/// Writes shards one after the other. Dropping it without [`ShardWriter::finish`] throws the open shard away.
#[derive(Debug)]
pub struct ShardWriter {
    options: ShardWriterOptions,
    pattern: Pattern,
    next: u64,
    open: Option<OpenShard>,
    done: Vec<ShardInfo>,
    last_key: Option<String>,
}

impl ShardWriter {
    /// A writer. Nothing is touched before the first sample.
    pub fn new(options: ShardWriterOptions) -> Result<Self> {
        let pattern = Pattern::parse(&options.pattern)?;
        if options.max_samples == 0 || options.max_bytes == 0 {
            let message = "write shards: max_samples and max_bytes must be at least 1";
            return Err(Error::invalid_config(message));
        }
        let next = options.first;
        Ok(Self { options, pattern, next, open: None, done: Vec::new(), last_key: None })
    }

    /// Adds one sample: its key and its fields in the order in which they are to lie in the shard.
    ///
    /// What would read back as something else is refused: a dot in the key's file name, a field given twice, a key
    /// equal to the one before, names that begin with `/` or climb with `..`.
    pub fn add(&mut self, key: &str, fields: &[(&str, &[u8])]) -> Result<()> {
        let cells: Vec<(&str, Cell<'_>)> =
            fields.iter().map(|(name, bytes)| (*name, Cell::Bytes(bytes))).collect();
        self.add_cells(key, &cells)
    }

    /// As [`Self::add`], for samples that hold integers and records too.
    ///
    /// TFRecord takes any key, which it holds as the feature [`KEY_FEATURE`](super::KEY_FEATURE), and features in the order of their names.
    pub fn add_cells(&mut self, key: &str, fields: &[(&str, Cell<'_>)]) -> Result<()> {
        let sample = match self.pattern.format {
            Format::Tar => {
                if self.last_key.as_deref() == Some(key) {
                    let why = "the sample before has the same key, so both would read back as one";
                    return Err(Error::invalid_config(format!("write sample `{key}`: {why}")));
                }
                Sample::Members(members(key, fields)?)
            }
            Format::Tfrecord { .. } => Sample::Record(record(key, fields)?),
        };
        if let Some(open) = &self.open {
            let full =
                open.bytes + sample.bytes() + self.pattern.format.end().len() as u64 > self.options.max_bytes;
            if full || open.samples >= self.options.max_samples {
                self.close_shard()?;
            }
        }
        let open = match &mut self.open {
            Some(open) => open,
            closed => {
                let path = PathBuf::from(self.pattern.name(self.next));
                self.next += 1;
                closed.insert(OpenShard::create(path, self.pattern.format, self.options.overwrite)?)
            }
        };
        match sample {
            Sample::Members(members) => {
                members.iter().try_for_each(|(name, bytes)| open.write(name, bytes))?;
            }
            Sample::Record(record) => open.put(&record)?,
        }
        open.samples += 1;
        self.last_key = Some(key.to_string());
        Ok(())
    }

    /// Shards that were finished since this was asked the last time; [`Self::finish`] leaves them out.
    pub fn take_finished(&mut self) -> Vec<ShardInfo> {
        std::mem::take(&mut self.done)
    }

    /// Closes the last shard and lists all of them.
    pub fn finish(mut self) -> Result<Vec<ShardInfo>> {
        self.close_shard()?;
        Ok(std::mem::take(&mut self.done))
    }

    fn close_shard(&mut self) -> Result<()> {
        if let Some(open) = self.open.take() {
            self.done.push(open.publish(self.options.overwrite)?);
        }
        Ok(())
    }
}

#[derive(Debug)]
struct OpenShard {
    path: PathBuf,
    temporary: PathBuf,
    format: Format,
    /// `None` once published.
    file: Option<Sink>,
    samples: u64,
    bytes: u64,
}

impl OpenShard {
    fn create(path: PathBuf, format: Format, overwrite: bool) -> Result<Self> {
        refuse_existing(&path, overwrite)?;
        let folder = folder_of(&path);
        fs::create_dir_all(folder)
            .map_err(|e| Error::io(format!("make folder `{}`", folder.display()), e))?;
        let temporary = temporary(&path);
        let file = File::create(&temporary)
            .map_err(|e| Error::io(format!("create shard `{}`", temporary.display()), e))?;
        let file = Some(Sink::new(BufWriter::with_capacity(1 << 20, file), format));
        Ok(Self { path, temporary, format, file, samples: 0, bytes: 0 })
    }

    fn write(&mut self, name: &str, payload: &[u8]) -> Result<()> {
        let header = file_header(name, payload.len() as u64);
        let padding = (padded(payload.len() as u64) - payload.len() as u64) as usize;
        for part in [header.as_slice(), payload, &END[..padding]] {
            self.put(part)?;
        }
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        let file = self.file.as_mut().expect("a shard is written only while it is open");
        file.put(bytes).map_err(|e| Error::io(format!("write shard `{}`", self.path.display()), e))?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    fn publish(mut self, overwrite: bool) -> Result<ShardInfo> {
        self.put(self.format.end())?;
        let doing = |e| Error::io(format!("finish shard `{}`", self.path.display()), e);
        let file = self.file.take().expect("a shard is published once");
        let file = file.finish().map_err(doing)?;
        file.sync_all().map_err(doing)?;
        refuse_existing(&self.path, overwrite)?;
        fs::rename(&self.temporary, &self.path).map_err(doing)?;
        // The rename itself must survive a power cut too.
        File::open(folder_of(&self.path)).and_then(|folder| folder.sync_all()).map_err(doing)?;
        let bytes = match self.format {
            Format::Tfrecord { gzip: true } => file.metadata().map_err(doing)?.len(),
            _ => self.bytes,
        };
        Ok(ShardInfo { path: self.path.clone(), samples: self.samples, bytes })
    }
}

impl Drop for OpenShard {
    fn drop(&mut self) {
        // After publishing there is nothing under this name; otherwise there is nobody left to tell.
        let _ = fs::remove_file(&self.temporary);
    }
}

fn refuse_existing(path: &Path, overwrite: bool) -> Result<()> {
    if overwrite || !path.exists() {
        return Ok(());
    }
    let message = format!("write shard `{}`: it exists already", path.display());
    Err(Error::invalid_config(message)
        .with_hint("choose another name, or ask for existing shards to be replaced"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_not_read_back_is_refused_before_a_file_is_touched() {
        let folder = tempfile::tempdir().unwrap();
        let pattern = folder.path().join("s-%03d.tar").display().to_string();
        let mut writer = ShardWriter::new(ShardWriterOptions::new(pattern)).unwrap();
        let one: &[(&str, &[u8])] = &[("jpg", b"x")];
        for key in ["a.b", "/a", "../a", "a/../b", "", "a\0b", "__a__/b"] {
            assert!(writer.add(key, one).is_err(), "{key:?}");
        }
        assert!(writer.add("a", &[]).is_err());
        assert!(writer.add("a", &[("jpg", b"x"), ("JPG", b"y")]).is_err());
        assert!(writer.add("a", &[("", b"x")]).is_err());
        assert!(writer.add("a", &[("x/y", b"x")]).is_err());
        let names: Vec<String> = (0..257).map(|name| name.to_string()).collect();
        let many: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &b"x"[..])).collect();
        assert!(writer.add("a", &many).unwrap_err().hint().unwrap().contains("TFRecord"));
        assert!(writer.add_cells("a", &[("r", Cell::Record(b"x"))]).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        writer.add("a", one).unwrap();
        assert!(writer.add("a", one).is_err(), "a key twice in a row would read back as one sample");
        assert_eq!(writer.finish().unwrap().len(), 1);
    }
}
