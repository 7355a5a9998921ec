//! Where packed shards go: into a folder, or one after the other to a store.
//!
//! A shard for a store is written to a temporary folder first, since its size is part of the request; so no more than one
//! shard lies on this machine at a time. A store sees a shard whole or not at all.

use crate::args::PackPlan;
use bytes::Bytes;
use forebay_core::{Error, ErrorKind, Result};
use forebay_engine::shard::{ShardInfo, ShardWriterOptions};
use forebay_store::local::map::map_file;
use forebay_store::{RetryOptions, RetryStore, Store, remote};
use futures::TryStreamExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A large shard on a slow link takes long, and is sent again as a whole when it fails.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3600);
const DEADLINE: Duration = Duration::from_secs(4 * 3600);

/// Where shards go.
#[derive(Debug)]
pub(super) enum Target {
    Folder(PathBuf),
    Store(Upload),
}

/// Shards on their way to a store.
#[derive(Debug)]
pub(super) struct Upload {
    store: Arc<dyn Store>,
    /// What keys begin with: empty, or ending with `/`.
    base: String,
    overwrite: bool,
    temporary: tempfile::TempDir,
}

/// A shard that is where it was to go.
#[derive(Clone, Debug)]
pub(super) struct Packed {
    /// Its path or URL.
    pub(super) place: String,
    pub(super) samples: u64,
    pub(super) bytes: u64,
}

impl Target {
    pub(super) fn open(plan: &PackPlan) -> Result<Self> {
        let Some(to) = &plan.to else { return Ok(Self::Folder(plan.out.clone())) };
        let Some(address) = remote::address(&to.url)? else {
            return Err(Error::invalid_config(format!("pack to `{}`: it is no URL of a store", to.url))
                .with_hint("name a folder of this machine as OUT, without `--to`"));
        };
        if address.root.starts_with("cassandra://") {
            return Err(Error::unsupported(format!("pack to `{}`: this build leaves tables out", to.url))
                .with_hint("build it with the feature `cassandra`"));
        }
        let retry =
            RetryOptions { request_timeout: REQUEST_TIMEOUT, deadline: DEADLINE, ..RetryOptions::default() };
        let store = Arc::new(RetryStore::new(remote::open(&address.root, &to.options)?, retry));
        let base = address.key.trim_end_matches('/');
        let base = if base.is_empty() { String::new() } else { format!("{base}/") };
        let temporary = tempfile::Builder::new().prefix("forebay-pack-").tempdir();
        let temporary = temporary.map_err(|error| Error::io("make a temporary folder for shards", error))?;
        Ok(Self::Store(Upload { store, base, overwrite: plan.shards.overwrite, temporary }))
    }

    /// How the writer names its files.
    pub(super) fn writer_options(&self, plan: &PackPlan) -> ShardWriterOptions {
        let Self::Store(upload) = self else { return plan.shards.clone() };
        let pattern = upload.temporary.path().join(format!("{}-%06d.tar", plan.prefix));
        ShardWriterOptions { pattern: pattern.to_string_lossy().into_owned(), ..plan.shards.clone() }
    }

    /// Shards of this prefix that are there, in order, as far as the store can tell.
    pub(super) async fn existing(&self, prefix: &str) -> Result<Vec<String>> {
        let upload = match self {
            Self::Folder(folder) => return Ok(shards_of(folder, prefix)),
            Self::Store(upload) => upload,
        };
        let (store, base) = (&upload.store, &upload.base);
        let listed: Result<Vec<_>> = store.list(&format!("{base}{prefix}-")).try_collect().await;
        match listed {
            Ok(found) => {
                let name = |key: &str| key.strip_prefix(base.as_str()).map(str::to_owned);
                let ours =
                    found.iter().filter(|meta| name(&meta.key).is_some_and(|name| is_shard(&name, prefix)));
                Ok(ours.map(|meta| store.url(&meta.key)).collect())
            }
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                let first = format!("{base}{prefix}-000000.tar");
                Ok(if upload.is_there(&first).await? { vec![store.url(&first)] } else { Vec::new() })
            }
            Err(error) => Err(error),
        }
    }

    /// Brings finished shards to their place.
    pub(super) async fn take(&self, shards: Vec<ShardInfo>, packed: &mut Vec<Packed>) -> Result<()> {
        for shard in shards {
            let place = match self {
                Self::Folder(_) => shard.path.display().to_string(),
                Self::Store(upload) => upload.put(&shard.path).await?,
            };
            packed.push(Packed { place, samples: shard.samples, bytes: shard.bytes });
        }
        Ok(())
    }

    /// Names of the classes, a line each in the order of their numbers; whole or not at all.
    pub(super) async fn put_classes(&self, prefix: &str, names: &[String]) -> Result<String> {
        let name = format!("{prefix}-classes.txt");
        let lines: Vec<String> = names.iter().map(|name| name.replace('\n', " ")).collect();
        let text = lines.join("\n") + "\n";
        match self {
            Self::Folder(folder) => write_classes(folder, &name, &text),
            Self::Store(upload) => {
                let key = format!("{}{name}", upload.base);
                upload.store.write(&key, Bytes::from(text)).await?;
                Ok(upload.store.url(&key))
            }
        }
    }
}

impl Upload {
    /// Sends a finished shard and removes the file; returns the object's URL.
    async fn put(&self, path: &Path) -> Result<String> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let key = format!("{}{name}", self.base);
        if !self.overwrite && self.is_there(&key).await? {
            let message = format!("write shard `{}`: it exists already", self.store.url(&key));
            return Err(Error::invalid_config(message)
                .with_hint("add `--overwrite` to replace it, or choose another `--prefix`"));
        }
        // Nobody else changes files of the temporary folder, so the bytes can be sent from where they lie.
        self.store.write(&key, Bytes::from_owner(map_file(path)?)).await?;
        std::fs::remove_file(path)
            .map_err(|error| Error::io(format!("remove `{}`", path.display()), error))?;
        Ok(self.store.url(&key))
    }

    async fn is_there(&self, key: &str) -> Result<bool> {
        match self.store.head(key).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn write_classes(folder: &Path, name: &str, text: &str) -> Result<String> {
    let path = folder.join(name);
    let doing = |error| Error::io(format!("write class names `{}`", path.display()), error);
    let mut file = tempfile::Builder::new().prefix(".tmp-").tempfile_in(folder).map_err(doing)?;
    std::io::Write::write_all(&mut file, text.as_bytes()).map_err(doing)?;
    // Other files of a dataset are readable by everybody who may enter its folder; a temporary file is not.
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    file.as_file().set_permissions(permissions).map_err(doing)?;
    file.persist(&path).map_err(|error| doing(error.error))?;
    Ok(path.display().to_string())
}

fn shards_of(folder: &Path, prefix: &str) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let ours = |path: &PathBuf| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| is_shard(name, prefix))
    };
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(ours).collect();
    found.sort();
    found.iter().map(|path| path.display().to_string()).collect()
}

/// Whether a name is `PREFIX-000000.tar` or the like.
fn is_shard(name: &str, prefix: &str) -> bool {
    let number = name.strip_prefix(prefix).and_then(|name| name.strip_prefix('-')?.strip_suffix(".tar"));
    number.is_some_and(|number| number.len() >= 6 && number.bytes().all(|byte| byte.is_ascii_digit()))
}
