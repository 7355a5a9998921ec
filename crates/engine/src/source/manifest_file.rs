//! Opening a manifest that somebody named: a file `x.fbm` on this machine or in a remote store.

use super::csv::{self, Home};
use super::dataset::Dataset;
use super::open::{patient, refuse_options};
use super::options::OpenOptions;
use super::{locate, parquet, reading};
use forebay_core::manifest::Manifest;
use forebay_core::{Error, Result};
use forebay_store::local::map::map_file;
use forebay_store::{ByteRange, Store, remote};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Largest manifest that is read from a remote store.
const MAX_MANIFEST_BYTES: u64 = 4 << 30;

/// A manifest file, which knows the folder or the remote store that it was built over.
pub(super) async fn open_manifest(
    root: &Path,
    key: &str,
    url: String,
    options: &OpenOptions,
) -> Result<Dataset> {
    let manifest = Manifest::open(map_file(root.join(key))?)
        .map_err(|error| error.while_doing(format_args!("open manifest `{url}`")))?;
    let built_over = manifest.meta().get("root").and_then(|root| root.as_str()).map(str::to_owned);
    if let Some(address) = built_over.as_deref().map(remote::address).transpose()?.flatten() {
        let data = remote::open(&address.root, &options.storage_options)?;
        let home = Home { remote: Some(&address.root), options: &options.storage_options };
        return with_manifest(manifest, &patient(&data), &data, home, url, options).await;
    }
    if manifest.meta().get(csv::META_KEY).is_none() {
        refuse_options(options, &url)?;
    }
    let folder = built_over.map_or_else(|| root.to_path_buf(), PathBuf::from);
    let data = reading::local(&folder, manifest.total_bytes());
    let home = Home { remote: None, options: &options.storage_options };
    with_manifest(manifest, &data, &data, home, url, options).await
}

/// A manifest that lies in a remote store, beside what it describes.
pub(super) async fn manifest_behind(
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
    let root = remote::address(&url)?.map(|address| address.root).unwrap_or_default();
    let home = Home { remote: Some(&root), options: &options.storage_options };
    with_manifest(manifest, store, &data, home, url.clone(), options).await
}

async fn with_manifest(
    manifest: Manifest,
    store: &Arc<dyn Store>,
    data: &Arc<dyn Store>,
    home: Home<'_>,
    url: String,
    options: &OpenOptions,
) -> Result<Dataset> {
    let asking: Arc<dyn Store> = match manifest.meta().get(csv::META_KEY) {
        Some(_) => Arc::new(csv::asking_store(&manifest, store, home)?),
        None => Arc::clone(store),
    };
    // Nobody lists the objects here, so the first and the last stand for all of them.
    for object in [0, manifest.object_count().saturating_sub(1)] {
        let known = manifest.object(object);
        let parts = manifest.meta().get(parquet::META_KEY).is_some();
        let (key, whole) = if parts { parquet::stored(&known.key) } else { (&*known.key, true) };
        let found =
            asking.head(key).await.map_err(|e| e.while_doing(format_args!("open manifest `{url}`")))?;
        let compressed = locate::is_packed(key);
        if found.stamp != known.stamp || (found.size != known.size && !compressed && whole) {
            let object = data.url(key);
            return Err(Error::stale(format!(
                "open manifest `{url}`: `{object}` changed since it was built"
            ))
            .with_hint("build the manifest again"));
        }
    }
    let mut notes = Vec::new();
    let data = reading::copied(data, options.local.as_deref(), &manifest, &mut notes).await?;
    let store = reading::expanded(&manifest, &data, home)?;
    Dataset::with_notes(manifest, store, url, notes)
}
