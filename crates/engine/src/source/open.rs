//! From a spec to a dataset: find what is there, take the kept manifest if it is still true, build one otherwise.

use super::dataset::Dataset;
use super::inventory::{self, Inventory};
use super::kept::{self, Kept};
use super::labels::{self, MAX_LABEL_BYTES};
use super::locate::{self, Item};
use super::options::{OpenOptions, SourceKind};
use super::origin::DataSpec;
use super::synthetic::{SyntheticSpec, synthetic};
use super::{blocking, reading, shards, table, tree};
use forebay_core::manifest::Manifest;
use forebay_core::{Error, ErrorKind, Result};
use forebay_store::local::map::map_file;
use forebay_store::{ByteRange, LocalStore, ObjectMeta, RetryOptions, RetryStore, Store, remote};
use futures::future::try_join_all;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Trees with more files than this are checked by the times of their folders instead of by listing every file.
const LISTED_FILES: u32 = 50_000;

/// Objects of a large remote dataset that are looked at instead of listing all of them.
const SPOT_CHECKS: u64 = 32;

/// Largest manifest that is read from a remote store.
const MAX_MANIFEST_BYTES: u64 = 4 << 30;

/// Opens the dataset that `spec` names: a folder, shards, a manifest `x.fbm`, all of them on this machine or behind a
/// URL, or `synthetic://`.
///
/// The manifest is kept between runs and built again when it is stale; [`Dataset::notes`] says when that happened.
pub async fn open(spec: &[String], options: &OpenOptions) -> Result<Dataset> {
    Ok(find(spec, options).await?.with_origin(DataSpec::new(spec, options)))
}

async fn find(spec: &[String], options: &OpenOptions) -> Result<Dataset> {
    let url = spec.join("::");
    if let Some(made) = SyntheticSpec::from_url(&url)? {
        refuse_copy(options, &url)?;
        return synthetic(made);
    }
    let parts = locate::expand(spec, options)?;
    if let Some(remote) = locate::locate_remote(&parts)? {
        #[cfg(feature = "cassandra")]
        if remote.root.starts_with("cassandra://") {
            refuse_copy(options, &url)?;
            return super::rows::open_rows(&remote.root, &options.storage_options, options).await;
        }
        return open_remote(remote, options, url).await;
    }
    refuse_options(options, &url)?;
    let located = locate::locate_local(&parts)?;
    let store: Arc<dyn Store> = Arc::new(LocalStore::new(located.root.clone()));
    if let [Item::Key(key)] = located.items.as_slice()
        && locate::is_manifest(key)
    {
        return open_manifest(&located.root, key, url, options).await;
    }
    let folder = options.manifest_dir.clone().or_else(|| kept::default_folder(options));
    let identity: Vec<String> =
        located.items.iter().map(|item| format!("{}: {item:?}", located.root.display())).collect();
    let kept = folder.map(|folder| Kept::new(folder, &identity, options));
    let data = Arc::clone(&store);
    let opening = Opening {
        store,
        data,
        items: located.items,
        root: Some(located.root),
        remote: None,
        kept,
        options,
        url,
    };
    opening.run().await
}

/// A dataset behind a URL. Found and indexed with patience; read bare, because the fetcher repeats requests itself.
async fn open_remote(located: locate::Remote, options: &OpenOptions, url: String) -> Result<Dataset> {
    let data = remote::open(&located.root, &options.storage_options)?;
    let store = patient(&data);
    if let [Item::Key(key)] = located.items.as_slice()
        && locate::is_manifest(key)
    {
        return manifest_behind(&store, data, key, url, options).await;
    }
    let folder = options.manifest_dir.clone().or_else(|| kept::default_folder(options));
    let identity: Vec<String> =
        located.items.iter().map(|item| format!("{}: {item:?}", located.root)).collect();
    let kept = folder.map(|folder| Kept::new(folder, &identity, options));
    let remote = Some(located.root);
    Opening { store, data, items: located.items, root: None, remote, kept, options, url }.run().await
}

/// A remote store whose passing faults are not seen.
fn patient(store: &Arc<dyn Store>) -> Arc<dyn Store> {
    Arc::new(RetryStore::new(Arc::clone(store), RetryOptions::default()))
}

pub(super) fn refuse_options(options: &OpenOptions, url: &str) -> Result<()> {
    if options.storage_options.is_empty() {
        return Ok(());
    }
    let names: Vec<_> = options.storage_options.keys().map(|name| format!("`{name}`")).collect();
    let message = format!(
        "open dataset `{url}`: files of this machine take no storage_options, {} was given",
        names.join(", ")
    );
    Err(Error::unsupported(message).with_hint("leave storage_options out"))
}

/// Samples that are no stored objects have no copy.
fn refuse_copy(options: &OpenOptions, url: &str) -> Result<()> {
    if options.local.is_none() {
        return Ok(());
    }
    let message = format!("open dataset `{url}` with a local copy: it holds no objects to copy");
    Err(Error::unsupported(message).with_hint("leave `local` out"))
}

/// Opens a dataset on any store. Specs are keys, patterns and folders of that store.
pub async fn open_with_store(
    store: Arc<dyn Store>,
    spec: &[String],
    options: &OpenOptions,
) -> Result<Dataset> {
    let url = spec.join("::");
    let parts = locate::expand(spec, options)?;
    let items = locate::locate_keys(&parts);
    let identity: Vec<String> = items.iter().map(|item| format!("{}: {item:?}", store.url(""))).collect();
    let kept = options.manifest_dir.clone().map(|folder| Kept::new(folder, &identity, options));
    let data = Arc::clone(&store);
    Opening { store, data, items, root: None, remote: None, kept, options, url }.run().await
}

/// The objects that a spec means, without opening them; for `verify`.
pub(super) async fn take_inventory(
    spec: &[String],
    options: &OpenOptions,
) -> Result<(Arc<dyn Store>, Inventory)> {
    let parts = locate::expand(spec, options)?;
    let (store, items): (Arc<dyn Store>, _) = if let Some(located) = locate::locate_remote(&parts)? {
        (patient(&remote::open(&located.root, &options.storage_options)?), located.items)
    } else {
        refuse_options(options, &spec.join("::"))?;
        let located = locate::locate_local(&parts)?;
        (Arc::new(LocalStore::new(located.root)), located.items)
    };
    let inventory = inventory::take(store.as_ref(), &items, options, &spec.join("::")).await?;
    Ok((store, inventory))
}

struct Opening<'a> {
    /// Through which the dataset is found and indexed.
    store: Arc<dyn Store>,
    /// Through which it is read afterwards.
    data: Arc<dyn Store>,
    items: Vec<Item>,
    /// The local folder behind the store, when there is one.
    root: Option<PathBuf>,
    /// The remote store, as a URL without a key.
    remote: Option<String>,
    kept: Option<Kept>,
    options: &'a OpenOptions,
    url: String,
}

impl Opening<'_> {
    async fn run(self) -> Result<Dataset> {
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
            match kept::stale(&manifest, &inventory) {
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
        let store = reading::expanded(&manifest, &data);
        Dataset::with_notes(manifest, store, self.url, notes)
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
            SourceKind::Tar => {
                let keys = inventory.objects.iter().map(|object| object.key.as_str());
                let copy = self.options.local.as_deref();
                let store = reading::copied_objects(&self.store, copy, &inventory.objects).await?;
                let store = shards::reading_store(&store, keys);
                shards::build(store.as_ref(), inventory, self.options, meta).await?
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
            SourceKind::Mix => {
                let message = format!("open dataset `{}` as `mix`: it names stored files", self.url);
                return Err(Error::invalid_config(message).with_hint("open each dataset and mix them"));
            }
            SourceKind::Rows => {
                let message = format!("open dataset `{}` as `rows`: it names stored files", self.url);
                return Err(Error::invalid_config(message)
                    .with_hint("write `cassandra://host[:port]/keyspace/table`"));
            }
            SourceKind::Synthetic => {
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

/// A manifest file, which knows the folder or the remote store that it was built over.
async fn open_manifest(root: &Path, key: &str, url: String, options: &OpenOptions) -> Result<Dataset> {
    let manifest = Manifest::open(map_file(root.join(key))?)
        .map_err(|error| error.while_doing(format_args!("open manifest `{url}`")))?;
    let built_over = manifest.meta().get("root").and_then(|root| root.as_str()).map(str::to_owned);
    if let Some(address) = built_over.as_deref().map(remote::address).transpose()?.flatten() {
        let data = remote::open(&address.root, &options.storage_options)?;
        return with_manifest(manifest, &patient(&data), &data, url, options).await;
    }
    refuse_options(options, &url)?;
    let folder = built_over.map_or_else(|| root.to_path_buf(), PathBuf::from);
    let data = reading::local(&folder, manifest.total_bytes());
    with_manifest(manifest, &data, &data, url, options).await
}

/// A manifest that lies in a remote store, beside what it describes.
async fn manifest_behind(
    store: &Arc<dyn Store>,
    data: Arc<dyn Store>,
    key: &str,
    url: String,
    options: &OpenOptions,
) -> Result<Dataset> {
    let doing = |error: Error| error.while_doing(format_args!("open manifest `{url}`"));
    let found = store.head(key).await.map_err(doing)?;
    if found.size > MAX_MANIFEST_BYTES {
        let message = format!(
            "open manifest `{url}`: it has {} bytes, at most {MAX_MANIFEST_BYTES} are read",
            found.size
        );
        return Err(Error::exhausted(message).with_hint("copy it to this machine and open it there"));
    }
    let bytes = store.read(key, ByteRange::from(0..found.size)).await.map_err(doing)?;
    let manifest = Manifest::open(bytes.to_vec()).map_err(doing)?;
    with_manifest(manifest, store, &data, url, options).await
}

async fn with_manifest(
    manifest: Manifest,
    store: &Arc<dyn Store>,
    data: &Arc<dyn Store>,
    url: String,
    options: &OpenOptions,
) -> Result<Dataset> {
    // Nobody lists the objects here, so the first and the last stand for all of them.
    for object in [0, manifest.object_count().saturating_sub(1)] {
        let known = manifest.object(object);
        let found =
            store.head(&known.key).await.map_err(|e| e.while_doing(format_args!("open manifest `{url}`")))?;
        let compressed = locate::shard_name(&known.key) == Some(true);
        if found.stamp != known.stamp || (found.size != known.size && !compressed) {
            let object = data.url(&known.key);
            return Err(Error::stale(format!(
                "open manifest `{url}`: `{object}` changed since it was built"
            ))
            .with_hint("build the manifest again"));
        }
    }
    let mut notes = Vec::new();
    let data = reading::copied(data, options.local.as_deref(), &manifest, &mut notes).await?;
    let store = reading::expanded(&manifest, &data);
    Dataset::with_notes(manifest, store, url, notes)
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
