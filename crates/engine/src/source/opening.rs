//! Opening stored files: the kept manifest if it is still true, one built from what is there otherwise.

use super::dataset::Dataset;
use super::inventory::{self, Inventory};
use super::kept::{self, Kept};
use super::labels::{self, MAX_LABEL_BYTES};
use super::locate::Item;
use super::options::{OpenOptions, SourceKind};
use super::{blocking, csv, parquet, reading, records, shards, table, tree};
use forebay_core::manifest::Manifest;
use forebay_core::{Error, ErrorKind, Result};
use forebay_store::{ByteRange, LocalStore, ObjectMeta, Store};
use futures::future::try_join_all;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Trees with more files than this are checked by the times of their folders instead of by listing every file.
const LISTED_FILES: u32 = 50_000;

/// Objects of a large remote dataset that are looked at instead of listing all of them.
const SPOT_CHECKS: u64 = 32;

/// A dataset of stored files that is being opened.
pub(super) struct Opening<'a> {
    /// Through which the dataset is found and indexed.
    pub(super) store: Arc<dyn Store>,
    /// Through which it is read afterwards.
    pub(super) data: Arc<dyn Store>,
    pub(super) items: Vec<Item>,
    /// The local folder behind the store, when there is one.
    pub(super) root: Option<PathBuf>,
    /// The remote store, as a URL without a key.
    pub(super) remote: Option<String>,
    pub(super) kept: Option<Kept>,
    pub(super) options: &'a OpenOptions,
    pub(super) url: String,
}

impl Opening<'_> {
    pub(super) async fn run(self) -> Result<Dataset> {
        let mut notes = Vec::new();
        let kept = match &self.kept {
            Some(kept) if !self.options.rebuild => kept.load(&mut notes),
            _ => None,
        };
        if let Some(manifest) = &kept
            && self.tree_unchanged(manifest).await?
        {
            return self.dataset(manifest.clone(), notes).await;
        }
        // Taken before the listing, so that a file that comes in between is seen the next time.
        let times = self.folder_times().await?;
        let mut inventory =
            inventory::take(self.store.as_ref(), &self.items, self.options, &self.url).await?;
        let label_store = self.find_labels(&mut inventory).await?;
        if let Some(manifest) = kept {
            let stale = match kept::stale(&manifest, &inventory) {
                None if inventory.kind == SourceKind::Csv => {
                    let asking = csv::asking_store(&manifest, &self.store, self.home())?;
                    csv::changed(&manifest, &asking, self.options.parallel).await?
                }
                stale => stale,
            };
            match stale {
                None => return self.dataset(manifest, notes).await,
                Some(reason) => {
                    tracing::warn!(dataset = self.url, reason, "manifest is stale");
                    notes.push(format!("manifest is stale and was built again: {reason}"));
                }
            }
        }
        let found = Found { inventory, label_store, times };
        let manifest = self.build(&found, &mut notes).await?;
        if let Some(kept) = &self.kept {
            kept.save(&manifest, &mut notes).await;
        }
        self.dataset(manifest, notes).await
    }

    async fn dataset(self, manifest: Manifest, mut notes: Vec<String>) -> Result<Dataset> {
        let local = self.root.as_ref().map(|root| reading::local(root, manifest.total_bytes()));
        let data = local.as_ref().unwrap_or(&self.data);
        let data = reading::copied(data, self.options.local.as_deref(), &manifest, &mut notes).await?;
        let store = reading::expanded(&manifest, &data, self.home())?;
        Dataset::with_notes(manifest, store, self.url, notes)
    }

    fn home(&self) -> csv::Home<'_> {
        // A store that the caller brought has no root that a URL could name.
        let remote = self.remote.as_deref().or(self.root.is_none().then_some(""));
        csv::Home { remote, options: &self.options.storage_options }
    }

    async fn build(&self, found: &Found, notes: &mut Vec<String>) -> Result<Manifest> {
        let inventory = &found.inventory;
        let mut meta = serde_json::json!({
            "kind": inventory.kind.name(),
            "spec": self.url,
            "root": self.root.as_ref().map(|root| root.display().to_string()).or_else(|| self.remote.clone()),
            "inventory": kept::fingerprint(inventory),
        });
        let bytes = match inventory.kind {
            SourceKind::Csv => {
                let copy = self.options.local.as_deref();
                let store = reading::copied_objects(&self.store, copy, &inventory.objects).await?;
                csv::build(&store, self.home(), inventory, self.options, meta, notes).await?
            }
            kind if kind.is_shards() => {
                let keys = inventory.objects.iter().map(|object| object.key.as_str());
                let copy = self.options.local.as_deref();
                let store = reading::copied_objects(&self.store, copy, &inventory.objects).await?;
                let store = shards::reading_store(&store, keys);
                if kind == SourceKind::Tar {
                    shards::build(store.as_ref(), inventory, self.options, meta).await?
                } else if kind == SourceKind::Parquet {
                    parquet::build(store.as_ref(), inventory, self.options, meta, notes).await?
                } else {
                    records::build(store.as_ref(), inventory, self.options, meta).await?
                }
            }
            SourceKind::Tree => {
                if let Some(times) =
                    found.times.as_ref().filter(|_| inventory.objects.len() > LISTED_FILES as usize)
                {
                    meta["folders"] = times.clone();
                }
                tree::build(inventory, meta, notes, &self.url)?
            }
            SourceKind::Table => {
                let rows = match (&inventory.labels, &found.label_store) {
                    (Some(labels), Some(store)) => {
                        let bytes = store.read(&labels.key, ByteRange::from(0..labels.size)).await?;
                        Some((labels.key.as_str(), labels::parse(&labels.key, &bytes)?))
                    }
                    _ => None,
                };
                table::build(inventory, rows, meta, notes)?
            }
            SourceKind::Mix | SourceKind::Join => {
                let kind = inventory.kind.name();
                let message = format!("open dataset `{}` as `{kind}`: it names stored files", self.url);
                return Err(
                    Error::invalid_config(message).with_hint("open each dataset, then mix or join them")
                );
            }
            SourceKind::Rows => {
                let message = format!("open dataset `{}` as `rows`: it names stored files", self.url);
                return Err(Error::invalid_config(message)
                    .with_hint("write `cassandra://host[:port]/keyspace/table`"));
            }
            _ => {
                let message = format!("open dataset `{}` as `synthetic`: it names stored files", self.url);
                return Err(
                    Error::invalid_config(message).with_hint("write `synthetic://?samples=1000&bytes=4096`")
                );
            }
        };
        kept::open_built(bytes)
    }

    /// Notes the file of labels in the inventory, one that the caller names or one found inside, and returns the
    /// store that holds it.
    async fn find_labels(&self, inventory: &mut Inventory) -> Result<Option<Arc<dyn Store>>> {
        if inventory.kind != SourceKind::Table {
            inventory.labels = None;
            return Ok(None);
        }
        let (store, key): (Arc<dyn Store>, String) = match (&self.options.labels, &inventory.labels) {
            (Some(path), _) => split_path(path)?,
            (None, Some(found)) => (Arc::clone(&self.store), found.key.clone()),
            (None, None) => return Ok(None),
        };
        let doing = |error: Error| error.while_doing(format_args!("read labels of dataset `{}`", self.url));
        let found: ObjectMeta = store.head(&key).await.map_err(doing)?;
        if found.size > MAX_LABEL_BYTES {
            let message =
                format!("`{}` has {} bytes, at most {MAX_LABEL_BYTES} are read", store.url(&key), found.size);
            return Err(doing(Error::exhausted(message)));
        }
        inventory.labels = Some(found);
        Ok(Some(store))
    }

    async fn tree_unchanged(&self, manifest: &Manifest) -> Result<bool> {
        let large_tree = manifest.object_count() > LISTED_FILES;
        match (&self.root, large_tree) {
            (Some(root), true) => {
                let (manifest, root) = (manifest.clone(), root.clone());
                blocking(move || kept::folders_unchanged(&manifest, &root) == Some(true)).await
            }
            (None, true) if self.remote.is_some() => self.spot_checked(manifest).await,
            _ => Ok(false),
        }
    }

    /// Whether a few objects, spread over a manifest too large to be compared with a listing, are as they were.
    async fn spot_checked(&self, manifest: &Manifest) -> Result<bool> {
        let (last, spots) = (u64::from(manifest.object_count()) - 1, SPOT_CHECKS - 1);
        let known = (0..=spots).map(|spot| manifest.object((last * spot / spots) as u32));
        let same = known.map(|known| async move {
            match self.store.head(&known.key).await {
                Ok(found) => Ok(found.size == known.size && found.stamp == known.stamp),
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
                Err(error) => Err(error),
            }
        });
        Ok(try_join_all(same).await?.into_iter().all(|same| same))
    }

    async fn folder_times(&self) -> Result<Option<serde_json::Value>> {
        match (&self.root, self.items.as_slice()) {
            (Some(root), [Item::Folder(_)]) if self.kept.is_some() => {
                let root = root.clone();
                // Without the times the tree is listed every time, which is slower and as good.
                Ok(blocking(move || kept::folder_times(&root)).await?.unwrap_or_default())
            }
            _ => Ok(None),
        }
    }
}

/// What was found before indexing.
struct Found {
    inventory: Inventory,
    label_store: Option<Arc<dyn Store>>,
    times: Option<serde_json::Value>,
}

/// A path as a store over its folder and a key in it.
fn split_path(path: &Path) -> Result<(Arc<dyn Store>, String)> {
    let bad =
        || Error::invalid_config(format!("read labels `{}`: the path has no file name", path.display()));
    let path =
        std::path::absolute(path).map_err(|e| Error::io(format!("read labels `{}`", path.display()), e))?;
    let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(bad)?;
    let folder = path.parent().ok_or_else(bad)?;
    Ok((Arc::new(LocalStore::new(folder.to_path_buf())), name.to_string()))
}
