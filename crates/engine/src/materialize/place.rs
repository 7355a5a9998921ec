//! Where a materialized dataset lies: a folder or a store, with its card, its shards and the notices of its writers.
//!
//! Everything appears whole under its name: a shard is written to a folder of its writer's own first, then renamed, or
//! sent to the store in one request. Notices lie under `.forebay-writers/`, which opening a dataset passes over.

use super::card::{CARD, Card, MAX_CARD_BYTES};
use super::process::{has_ended, signed};
use bytes::Bytes;
use forebay_core::materialize::{MAX_CLAIMS, Notice, chunk_of, shard_name};
use forebay_core::{Error, ErrorKind, Result};
use forebay_store::local::map::map_file;
use forebay_store::{ByteRange, LocalStore, RetryOptions, RetryStore, Store, StoreOptions, remote};
use futures::TryStreamExt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The recipe that reads the shards back.
pub(crate) const SAVED_RECIPE: &str = "recipe.json";

/// What names of shards begin with.
const SHARDS: &str = "data-";

/// Where writers say what they do.
const WRITERS: &str = ".forebay-writers/";

/// Largest notice that is read.
const MAX_NOTICE_BYTES: u64 = 4096;

/// Most notices that are read.
const MAX_NOTICES: usize = 10_000;

/// A large shard on a slow link takes long, and is sent again as a whole when it fails.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3600);

/// A folder or a store, and a runtime to ask it from a thread that may wait.
pub(super) struct Place {
    store: Arc<dyn Store>,
    /// What keys begin with: empty, or ending with `/`.
    base: String,
    /// The folder, when it is one of this machine.
    folder: Option<PathBuf>,
    pub(super) name: String,
    runtime: tokio::runtime::Runtime,
}

impl Place {
    /// Nothing is made or asked yet.
    pub(super) fn open(out: &str, options: &StoreOptions) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|cause| Error::exhausted("start an executor").with_source(cause))?;
        let name = out.to_owned();
        if let Some(address) = remote::address(out)? {
            if address.root.starts_with("cassandra://") {
                return Err(Error::unsupported(format!("materialize to `{out}`: a table holds no shards"))
                    .with_hint("name a folder, or a store of objects such as `s3://bucket/folder`"));
            }
            let retry = RetryOptions {
                request_timeout: REQUEST_TIMEOUT,
                deadline: 4 * REQUEST_TIMEOUT,
                ..RetryOptions::default()
            };
            let store = Arc::new(RetryStore::new(remote::open(&address.root, options)?, retry));
            let base = address.key.trim_end_matches('/');
            let base = if base.is_empty() { String::new() } else { format!("{base}/") };
            return Ok(Self { store, base, folder: None, name, runtime });
        }
        if !options.is_empty() {
            return Err(Error::unsupported(format!(
                "materialize to `{out}`: a folder takes no storage_options"
            )));
        }
        let path = out.strip_prefix("file://").unwrap_or(out);
        let folder =
            std::path::absolute(path).map_err(|e| Error::io(format!("materialize to `{out}`"), e))?;
        let store = Arc::new(LocalStore::new(folder.clone()));
        Ok(Self { store, base: String::new(), folder: Some(folder), name, runtime })
    }

    /// The card, if there is one.
    pub(super) fn card(&self) -> Result<Option<Card>> {
        match self.read(CARD) {
            Ok(bytes) => Card::from_bytes(&bytes).map(Some).map_err(|error| self.doing(error)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Chunks whose shards are there, in order.
    pub(super) fn committed(&self) -> Result<Vec<u64>> {
        let names = self.list(SHARDS)?;
        let mut chunks: Vec<u64> = names.iter().filter_map(|(name, _)| chunk_of(name)).collect();
        chunks.sort_unstable();
        Ok(chunks)
    }

    /// Whether there is nothing, but for what is hidden.
    pub(super) fn is_empty(&self) -> Result<bool> {
        Ok(self.list("")?.iter().all(|(name, _)| name.starts_with('.')))
    }

    /// What writers say; what cannot be read is passed over, since it only saves work.
    pub(super) fn notices(&self) -> Result<Vec<Notice>> {
        let named = self.list(WRITERS)?;
        let notes = named.iter().filter(|(name, size)| {
            let own = name.strip_prefix(WRITERS).and_then(|name| name.strip_suffix(".json"));
            own.is_some_and(|own| !own.contains('/')) && *size <= MAX_NOTICE_BYTES
        });
        let mut notices = Vec::new();
        for (name, _) in notes.take(MAX_NOTICES) {
            let key = format!("{}{name}", self.base);
            let Ok(bytes) = self.runtime.block_on(self.store.read(&key, ByteRange::Full)) else { continue };
            notices.extend(serde_json::from_slice::<Notice>(&bytes));
        }
        notices.retain(|notice: &Notice| notice.claims.len() <= MAX_CLAIMS);
        Ok(notices)
    }

    /// Names and sizes of what begins with `prefix`; of a folder only what lies in it or in the folder of the prefix.
    fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>> {
        if let Some(folder) = &self.folder {
            return list_folder(folder, prefix);
        }
        let whole = format!("{}{prefix}", self.base);
        self.runtime.block_on(async {
            let mut names = Vec::new();
            let mut listing = self.store.list(&whole);
            while let Some(meta) = listing.try_next().await? {
                names.push((meta.key[self.base.len()..].to_owned(), meta.size));
            }
            Ok::<_, Error>(names)
        })
    }

    pub(super) fn write(&self, name: &str, bytes: Vec<u8>) -> Result<()> {
        let key = format!("{}{name}", self.base);
        self.runtime.block_on(self.store.write(&key, Bytes::from(bytes))).map_err(|error| self.full(error))
    }

    pub(super) fn publish(&self, notice: Notice) -> Result<()> {
        let name = format!("{WRITERS}{:016x}.json", notice.writer);
        let bytes = serde_json::to_vec(&signed(notice)).unwrap_or_default();
        self.write(&name, bytes)
    }

    /// Removes what a writer left, where things can be removed: a store keeps an empty notice of a hundred bytes.
    pub(super) fn forget(&self, writer: u64) {
        let Some(folder) = &self.folder else { return };
        let _ = fs::remove_file(folder.join(format!("{WRITERS}{writer:016x}.json")));
        let _ = fs::remove_dir_all(folder.join(format!("{WRITERS}{writer:016x}")));
    }

    /// Removes what is left of all writers. One that begins at this moment makes its folder again.
    pub(super) fn forget_all(&self) {
        if let Some(folder) = &self.folder {
            let _ = fs::remove_dir_all(folder.join(WRITERS));
        }
    }

    /// Whether a notice's writer has ended, as far as this machine knows.
    pub(super) fn has_ended(notice: &Notice) -> bool {
        has_ended(notice)
    }

    /// A folder for shards in the making.
    pub(super) fn scratch(&self, writer: u64) -> Result<Scratch> {
        let path = match &self.folder {
            Some(folder) => folder.join(format!("{WRITERS}{writer:016x}")),
            None => std::env::temp_dir().join(format!("forebay-materialize-{writer:016x}")),
        };
        // Another writer may remove the folder above when it leaves.
        let made = (0..3).map(|_| fs::create_dir_all(&path)).find(std::result::Result::is_ok);
        made.unwrap_or_else(|| fs::create_dir_all(&path))
            .map_err(|error| self.full(Error::io(format!("make folder `{}`", path.display()), error)))?;
        Ok(Scratch(path))
    }

    /// Gives a finished shard its name and returns its size.
    pub(super) fn commit(&self, shard: &Path, chunk: u64) -> Result<u64> {
        let name = shard_name(chunk);
        let Some(folder) = &self.folder else {
            let mapped = map_file(shard)?;
            let bytes = Bytes::from_owner(mapped);
            let size = bytes.len() as u64;
            let key = format!("{}{name}", self.base);
            self.runtime.block_on(self.store.write(&key, bytes))?;
            let _ = fs::remove_file(shard);
            return Ok(size);
        };
        let place = folder.join(&name);
        let doing = |error| Error::io(format!("finish shard `{}`", place.display()), error);
        let size = fs::metadata(shard).map_err(doing).map(|meta| meta.len());
        let renamed = size.and_then(|size| fs::rename(shard, &place).map_err(doing).map(|()| size));
        match renamed {
            // A writer that slept through its timeout finds its folder gone and its shard made by another.
            Err(error) if error.kind() == ErrorKind::NotFound && place.exists() => {
                Ok(fs::metadata(&place).map_err(doing)?.len())
            }
            Err(error) => Err(self.full(error)),
            Ok(size) => {
                File::open(folder).and_then(|folder| folder.sync_all()).map_err(doing)?;
                Ok(size)
            }
        }
    }

    /// A full disk is said with its cure.
    pub(super) fn full(&self, error: Error) -> Error {
        if error.kind() != ErrorKind::Exhausted || error.hint().is_some() {
            return error;
        }
        let cure = match &self.folder {
            Some(_) => "free space there".to_owned(),
            None => format!("free space in `{}`, or set TMPDIR", std::env::temp_dir().display()),
        };
        error.with_hint(format!(
            "{cure}, then run the same again: finished shards stay, and only what is missing is made"
        ))
    }

    fn read(&self, name: &str) -> Result<Bytes> {
        let key = format!("{}{name}", self.base);
        self.runtime.block_on(async {
            let meta = self.store.head(&key).await?;
            if meta.size > MAX_CARD_BYTES {
                return Err(Error::corrupt(format!(
                    "read `{}`: it has {} bytes",
                    self.store.url(&key),
                    meta.size
                )));
            }
            self.store.read(&key, ByteRange::Full).await
        })
    }

    fn doing(&self, error: Error) -> Error {
        error.while_doing(format!("look at `{}`", self.name))
    }
}

/// Files in a folder, or in the folder that a prefix names, as [`Place::list`] names them.
fn list_folder(folder: &Path, prefix: &str) -> Result<Vec<(String, u64)>> {
    let (below, begins) = prefix.rsplit_once('/').map_or(("", prefix), |(below, begins)| (below, begins));
    let path = folder.join(below);
    let entries = match fs::read_dir(&path) {
        Ok(entries) => entries,
        // A folder that is not there yet holds nothing.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::io(format!("list `{}`", path.display()), error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| Error::io(format!("list `{}`", path.display()), error))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // What vanishes meanwhile is not there.
        let Ok(meta) = entry.metadata() else { continue };
        if name.starts_with(begins) && !name.starts_with(".tmp-") && (meta.is_file() || below.is_empty()) {
            let name = if below.is_empty() { name } else { format!("{below}/{name}") };
            names.push((name, meta.len()));
        }
    }
    Ok(names)
}

/// A folder for shards in the making; it goes with its writer.
pub(super) struct Scratch(pub(super) PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
