//! Writes samples into tar shards: the same bytes on every run, and never a half shard under a shard's name.
//!
//! A shard is written as `.tmp-…` beside its place, synced and renamed, so a reader sees all of it or nothing, also
//! after `kill -9` or a power cut. Blocking: call it from a thread that may wait.

use super::encode::{file_bytes, file_header, padded};
use super::group::{is_meta, split_name};
use super::header::BLOCK;
use forebay_core::{Error, Result};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Two blocks of zeros end a tar.
const END: [u8; 2 * BLOCK] = [0; 2 * BLOCK];

/// Where shards go and when the next one begins.
#[derive(Clone, Debug)]
pub struct ShardWriterOptions {
    /// Path of the shards with one counter in it: `out/train-%06d.tar` or `out/train-{:06}.tar`. Folders are made.
    pub pattern: String,
    /// Most samples of one shard.
    pub max_samples: u64,
    /// Most bytes of one shard as a file. A single sample larger than that gets a shard of its own.
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
        let names = member_names(key, fields)?;
        if self.last_key.as_deref() == Some(key) {
            let why = "the sample before has the same key, so both would read back as one";
            return Err(Error::invalid_config(format!("write sample `{key}`: {why}")));
        }
        let sizes = names.iter().zip(fields).map(|(name, (_, bytes))| file_bytes(name, bytes.len() as u64));
        let sample_bytes: u64 = sizes.sum();
        if let Some(open) = &self.open {
            let full = open.bytes + sample_bytes + END.len() as u64 > self.options.max_bytes;
            if full || open.samples >= self.options.max_samples {
                self.close_shard()?;
            }
        }
        let open = match &mut self.open {
            Some(open) => open,
            closed => {
                let path = PathBuf::from(self.pattern.name(self.next));
                self.next += 1;
                closed.insert(OpenShard::create(path, self.options.overwrite)?)
            }
        };
        for (name, (_, bytes)) in names.iter().zip(fields) {
            open.write(name, bytes)?;
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
    /// `None` once published.
    file: Option<BufWriter<File>>,
    samples: u64,
    bytes: u64,
}

impl OpenShard {
    fn create(path: PathBuf, overwrite: bool) -> Result<Self> {
        refuse_existing(&path, overwrite)?;
        let folder = folder_of(&path);
        fs::create_dir_all(folder)
            .map_err(|e| Error::io(format!("make folder `{}`", folder.display()), e))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // The process id keeps two writers apart; a name left behind by a dead one is simply written again.
        let temporary = folder.join(format!(".tmp-{name}-{}", std::process::id()));
        let file = File::create(&temporary)
            .map_err(|e| Error::io(format!("create shard `{}`", temporary.display()), e))?;
        let file = Some(BufWriter::with_capacity(1 << 20, file));
        Ok(Self { path, temporary, file, samples: 0, bytes: 0 })
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
        file.write_all(bytes).map_err(|e| Error::io(format!("write shard `{}`", self.path.display()), e))?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    fn publish(mut self, overwrite: bool) -> Result<ShardInfo> {
        self.put(&END)?;
        let doing = |e| Error::io(format!("finish shard `{}`", self.path.display()), e);
        let file = self.file.take().expect("a shard is published once");
        let file = file.into_inner().map_err(|e| doing(e.into_error()))?;
        file.sync_all().map_err(doing)?;
        refuse_existing(&self.path, overwrite)?;
        fs::rename(&self.temporary, &self.path).map_err(doing)?;
        // The rename itself must survive a power cut too.
        File::open(folder_of(&self.path)).and_then(|folder| folder.sync_all()).map_err(doing)?;
        Ok(ShardInfo { path: self.path.clone(), samples: self.samples, bytes: self.bytes })
    }
}

impl Drop for OpenShard {
    fn drop(&mut self) {
        // After publishing there is nothing under this name; otherwise there is nobody left to tell.
        let _ = fs::remove_file(&self.temporary);
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn refuse_existing(path: &Path, overwrite: bool) -> Result<()> {
    if overwrite || !path.exists() {
        return Ok(());
    }
    let message = format!("write shard `{}`: it exists already", path.display());
    Err(Error::invalid_config(message)
        .with_hint("choose another name, or ask for existing shards to be replaced"))
}

/// The members of a sample, checked to read back as that sample.
fn member_names(key: &str, fields: &[(&str, &[u8])]) -> Result<Vec<String>> {
    let refuse = |why: &str| Err(Error::invalid_config(format!("write sample `{key}`: {why}")));
    if fields.is_empty() {
        return refuse("it has no fields");
    }
    if key.starts_with('/') || key.split('/').any(|part| part == "..") || key.contains('\0') {
        return refuse("a key is a relative path without `..`, so that any tar program can unpack the shard");
    }
    let mut names: Vec<String> = Vec::with_capacity(fields.len());
    for (at, (field, _)) in fields.iter().enumerate() {
        let name = format!("{key}.{field}");
        if field.is_empty()
            || field.contains('\0')
            || is_meta(&name)
            || split_name(&name) != Some((key, field))
        {
            let why = format!("member `{name}` would read back under another key");
            return Err(Error::invalid_config(format!("write sample `{key}`: {why}"))
                .with_hint("a key ends at the first dot of its file name; replace its dots"));
        }
        if fields[..at].iter().any(|(other, _)| other.to_lowercase() == field.to_lowercase()) {
            return refuse(&format!("field `{field}` is given twice (fields are lower-cased)"));
        }
        names.push(name);
    }
    Ok(names)
}

/// `before`, a counter of at least `width` digits, `after`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
    before: String,
    width: usize,
    after: String,
}

impl Pattern {
    fn parse(pattern: &str) -> Result<Self> {
        let found = ["%0", "{:0"].into_iter().find_map(|open| {
            let close = if open == "%0" { 'd' } else { '}' };
            let (before, rest) = pattern.split_once(open)?;
            let (digits, after) = rest.split_once(close)?;
            let width = digits.parse().ok().filter(|width| (1..=20).contains(width))?;
            Some(Self { before: before.into(), width, after: after.into() })
        });
        match found {
            Some(found) if !found.after.contains('/') && found.after.strip_suffix(".tar").is_some() => Ok(found),
            _ => Err(Error::invalid_config(format!(
                "write shards by pattern `{pattern}`: it needs one counter in its file name and must end in `.tar`"
            ))
            .with_hint("for example `out/train-%06d.tar`")),
        }
    }

    fn name(&self, number: u64) -> String {
        format!("{}{number:0width$}{}", self.before, self.after, width = self.width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_of_the_counter_are_understood() {
        for pattern in ["out/train-%06d.tar", "out/train-{:06}.tar"] {
            assert_eq!(Pattern::parse(pattern).unwrap().name(7), "out/train-000007.tar");
        }
        assert_eq!(Pattern::parse("s-%02d.tar").unwrap().name(123), "s-123.tar");
        for bad in ["train.tar", "train-%06d", "%06d/train.tar", "train-%0xd.tar", "train-%099d.tar", ""] {
            assert!(Pattern::parse(bad).is_err(), "{bad}");
        }
    }

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
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        writer.add("a", one).unwrap();
        assert!(writer.add("a", one).is_err(), "a key twice in a row would read back as one sample");
        assert_eq!(writer.finish().unwrap().len(), 1);
    }
}
