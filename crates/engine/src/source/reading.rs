//! The store that a dataset is read through: past the page cache or not, compressed shards expanded.

use super::{SourceKind, shards};
use crate::memory::available_memory_bytes;
use forebay_core::manifest::Manifest;
use forebay_store::Store;
use forebay_store::local::{LocalOptions, LocalStore, ReadMode};
use std::path::Path;
use std::sync::Arc;

/// Files below `root`, of which `bytes` will be read in every epoch.
///
/// What fits comfortably in memory is read through the page cache, so that the second epoch finds it there. What
/// does not would only push itself out again before it is read a second time: that is read past the cache, at a
/// fraction of the processor time.
pub(super) fn local(root: &Path, bytes: u64) -> Arc<dyn Store> {
    let fits = available_memory_bytes().is_none_or(|available| bytes <= available / 2);
    let read_mode = if fits { ReadMode::Buffered } else { ReadMode::Auto };
    Arc::new(LocalStore::with_options(
        root.to_path_buf(),
        &LocalOptions { read_mode, ..LocalOptions::default() },
    ))
}

/// `store`, or one that shows compressed shards as what they hold.
pub(super) fn expanded(manifest: &Manifest, store: &Arc<dyn Store>) -> Arc<dyn Store> {
    if manifest.meta().get("kind").and_then(|kind| kind.as_str()) != Some(SourceKind::Tar.name()) {
        return Arc::clone(store);
    }
    let keys: Vec<_> =
        (0..manifest.object_count()).map(|object| manifest.object(object).key.into_owned()).collect();
    shards::reading_store(store, keys.iter().map(String::as_str))
}
