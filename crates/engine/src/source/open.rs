//! From a spec to a dataset: whose store it lies in, and which way it is opened there.
//!
//! Stored files go through `opening`, which keeps and renews their manifest; a manifest that is itself named is opened by
//! `manifest_file`; synthetic data and rows of tables have files of their own.

use super::dataset::Dataset;
use super::inventory::{self, Inventory};
use super::kept::{self, Kept};
use super::locate::{self, Item};
use super::manifest_file::{manifest_behind, open_manifest};
use super::materialized::{self, Followed};
use super::opening::Opening;
use super::options::{OpenOptions, SourceKind};
use super::origin::DataSpec;
use super::synthetic::{SyntheticSpec, synthetic};
use forebay_core::{Error, Result};
use forebay_store::{LocalStore, RetryOptions, RetryStore, Store, remote};
use std::sync::Arc;

/// Opens the dataset that `spec` names: a folder, shards, a manifest `x.fbm`, all of them on this machine or behind a
/// URL, or `synthetic://`.
///
/// The manifest is kept between runs and built again when it is stale; [`Dataset::notes`] says when that happened.
pub async fn open(spec: &[String], options: &OpenOptions) -> Result<Dataset> {
    if options.follow {
        let Followed { spec, note } = materialized::follow(spec, options).await?;
        return Ok(find(&spec, options).await?.with_origin(DataSpec::new(&spec, options)).with_note(note));
    }
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
            return super::rows::open_rows(&remote.root, &options.storage_options, options).await;
        }
        return open_remote(remote, options, url).await;
    }
    let located = locate::locate_local(&parts)?;
    let store: Arc<dyn Store> = Arc::new(LocalStore::new(located.root.clone()));
    if let [Item::Key(key)] = located.items.as_slice()
        && locate::is_manifest(key)
    {
        // What it describes may lie far away.
        return open_manifest(&located.root, key, url, options).await;
    }
    check_options(&located.items, options, &url)?;
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
pub(super) fn patient(store: &Arc<dyn Store>) -> Arc<dyn Store> {
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

/// As [`refuse_options`], but for tables: their rows may name objects of remote stores.
fn check_options(items: &[Item], options: &OpenOptions, url: &str) -> Result<()> {
    let table = |key: &str| locate::shard_name(key) == Some(SourceKind::Csv);
    let table = |item: &Item| matches!(item, Item::Key(key) | Item::Pattern(key) if table(key));
    if options.kind == Some(SourceKind::Csv) || items.iter().all(table) {
        return Ok(());
    }
    refuse_options(options, url)
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

/// The objects that a spec means, without opening them, their store, and its root when it is a remote one; for `verify`.
pub(super) async fn take_inventory(
    spec: &[String],
    options: &OpenOptions,
) -> Result<(Arc<dyn Store>, Option<String>, Inventory)> {
    let parts = locate::expand(spec, options)?;
    let (store, root, items): (Arc<dyn Store>, _, _) = if let Some(located) = locate::locate_remote(&parts)? {
        let store = patient(&remote::open(&located.root, &options.storage_options)?);
        (store, Some(located.root), located.items)
    } else {
        let located = locate::locate_local(&parts)?;
        check_options(&located.items, options, &spec.join("::"))?;
        (Arc::new(LocalStore::new(located.root)), None, located.items)
    };
    let inventory = inventory::take(store.as_ref(), &items, options, &spec.join("::")).await?;
    Ok((store, root, inventory))
}
