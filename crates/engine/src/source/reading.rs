//! The store that a dataset is read through: past the page cache or not, from a copy or not, compressed shards
//! expanded.

use super::csv::{self, Home};
use super::locate::is_packed;
use super::{SourceKind, blocking, parquet, shards};
use crate::memory::available_memory_bytes;
use crate::stage::{Expected, LocalCopyStore};
use forebay_core::manifest::Manifest;
use forebay_core::size::format_bytes;
use forebay_core::{Error, Result};
use forebay_store::local::{LocalOptions, LocalStore, ReadMode};
use forebay_store::{ObjectMeta, Store};
use std::path::Path;
use std::sync::Arc;

/// Files below `root`, of which `bytes` will be read in every epoch.
///
/// What fits comfortably in memory is read through the page cache, so that the second epoch finds it there. What
/// does not would only push itself out again before it is read a second time: that is read past the cache, at a
/// fraction of the processor time.
pub(crate) fn local(root: &Path, bytes: u64) -> Arc<dyn Store> {
    let fits = available_memory_bytes().is_none_or(|available| bytes <= available / 2);
    let read_mode = if fits { ReadMode::Buffered } else { ReadMode::Auto };
    Arc::new(LocalStore::with_options(
        root.to_path_buf(),
        &LocalOptions { read_mode, ..LocalOptions::default() },
    ))
}

/// `store`, or one that shows compressed shards as what they hold, and what rows name.
pub(super) fn expanded(
    manifest: &Manifest,
    store: &Arc<dyn Store>,
    home: Home<'_>,
) -> Result<Arc<dyn Store>> {
    let kind = manifest.meta().get("kind").and_then(|kind| kind.as_str()).and_then(SourceKind::from_name);
    if !kind.is_some_and(SourceKind::is_shards) {
        return Ok(Arc::clone(store));
    }
    if kind == Some(SourceKind::Parquet) {
        return parquet::reading_store(manifest, store);
    }
    if kind == Some(SourceKind::Csv) {
        return csv::reading_store(manifest, store, home);
    }
    let keys: Vec<_> =
        (0..manifest.object_count()).map(|object| manifest.object(object).key.into_owned()).collect();
    Ok(shards::reading_store(store, keys.iter().map(String::as_str)))
}

/// `store`, or one that reads what is whole in the copy `folder` from there.
pub(super) async fn copied(
    store: &Arc<dyn Store>,
    folder: Option<&Path>,
    manifest: &Manifest,
    notes: &mut Vec<String>,
) -> Result<Arc<dyn Store>> {
    let Some(folder) = folder else { return Ok(Arc::clone(store)) };
    let keys = (0..manifest.object_count()).map(|object| manifest.object(object).key);
    let objects = keys.filter(|key| is_stored(manifest, key)).count();
    let manifest = manifest.clone();
    let copy = open_copy(store, folder, move || {
        let objects = (0..manifest.object_count()).filter_map(move |object| {
            let object = manifest.object(object);
            // Parts of an object come with it.
            let expected = || Expected {
                key: object.key.to_string(),
                size: size(&object.key, object.size),
                stamp: object.stamp,
            };
            is_stored(&manifest, &object.key).then(expected)
        });
        Box::new(objects)
    })
    .await?;
    let (here, bytes) = (copy.objects(), format_bytes(copy.bytes()));
    notes.push(match here {
        0 => format!("no object is read from the local copy `{}`", folder.display()),
        _ => format!(
            "{here} of {objects} objects, {bytes}, are read from the local copy `{}`",
            folder.display()
        ),
    });
    Ok(Arc::new(copy))
}

/// As [`copied`], for objects that a listing found.
pub(super) async fn copied_objects(
    store: &Arc<dyn Store>,
    folder: Option<&Path>,
    objects: &[ObjectMeta],
) -> Result<Arc<dyn Store>> {
    let Some(folder) = folder else { return Ok(Arc::clone(store)) };
    let objects = objects.to_vec();
    let expected =
        |object: ObjectMeta| Expected { key: object.key, size: Some(object.size), stamp: object.stamp };
    Ok(Arc::new(open_copy(store, folder, move || Box::new(objects.into_iter().map(expected))).await?))
}

async fn open_copy(
    store: &Arc<dyn Store>,
    folder: &Path,
    expected: impl FnOnce() -> Box<dyn Iterator<Item = Expected>> + Send + 'static,
) -> Result<LocalCopyStore> {
    let (store, path) = (Arc::clone(store), folder.to_path_buf());
    let doing = |error: Error| error.while_doing(format_args!("open the local copy `{}`", folder.display()));
    blocking(move || LocalCopyStore::open(store, &path, expected())).await?.map_err(doing)
}

/// Whether a key is that of a stored object, and not of a part of one.
fn is_stored(manifest: &Manifest, key: &str) -> bool {
    manifest.meta().get(parquet::META_KEY).is_none() || parquet::stored(key).1
}

/// The size that an object is expected to have. A compressed shard is noted with the size of what it holds.
fn size(key: &str, size: u64) -> Option<u64> {
    (!is_packed(key)).then_some(size)
}
