//! Datasets that `materialize` writes: a folder whose card says how many shards it will have.
//!
//! One that is not whole is refused when it is opened as a folder: what is missing would be missed silently. Who wants
//! to read while it is written asks to follow: then the shards from the first on that are there without a gap are a
//! dataset of their own, named one by one, so that its version says which they are and other processes open the same.

use super::open::patient;
use super::options::OpenOptions;
use crate::materialize::{CARD, Card, MAX_CARD_BYTES};
use forebay_core::materialize::{chunk_of, spec_of_first, unbroken};
use forebay_core::{Error, ErrorKind, Result};
use forebay_store::{ByteRange, LocalStore, ObjectMeta, Store, remote};
use futures::TryStreamExt;
use std::path::PathBuf;
use std::sync::Arc;

/// The name of a card inside of a folder.
pub(super) fn is_card(inside: &str) -> bool {
    inside == CARD
}

/// Refuses a folder with a card whose shards are not all there.
pub(super) async fn check_whole(
    store: &dyn Store,
    prefix: &str,
    shards: &[ObjectMeta],
    url: &str,
) -> Result<()> {
    let card = read_card(store, prefix, url).await?;
    let committed: Vec<u64> = shards.iter().filter_map(|meta| chunk_of(&meta.key[prefix.len()..])).collect();
    card.check_whole(&committed, url)
}

/// What is there of a dataset that may still be written.
pub(super) struct Followed {
    /// The spec of exactly that.
    pub(super) spec: Vec<String>,
    /// What to tell the user.
    pub(super) note: String,
}

/// The part of a materialized dataset that can be read now: all of it, or the shards before the first gap.
pub(super) async fn follow(spec: &[String], options: &OpenOptions) -> Result<Followed> {
    let url = spec.join("::");
    let refuse = |why: &str| {
        Error::invalid_config(format!("follow dataset `{url}`: {why}"))
            .with_hint("name the place that `forebay materialize` writes to, alone and without a pattern")
    };
    let [only] = spec else { return Err(refuse("several things are named")) };
    let folder = only.trim_end_matches('/');
    if folder.contains(['{', '*', '?', '[', '$']) || folder.contains("::") {
        return Err(refuse("it is a pattern"));
    }
    let (store, prefix): (Arc<dyn Store>, String) = if let Some(address) = remote::address(folder)? {
        let store = remote::open(&address.root, &options.storage_options)?;
        let key = address.key.trim_end_matches('/');
        (patient(&store), if key.is_empty() { String::new() } else { format!("{key}/") })
    } else {
        let path = PathBuf::from(folder.strip_prefix("file://").unwrap_or(folder));
        (Arc::new(LocalStore::new(path)), String::new())
    };
    let card = match read_card(store.as_ref(), &prefix, &url).await {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(Error::unavailable(format!(
                "follow dataset `{url}`: no run of `materialize` has begun there"
            ))
            .with_source(error));
        }
        other => other?,
    };
    let mut committed = Vec::new();
    let mut listing = store.list(&prefix);
    while let Some(meta) = listing.try_next().await? {
        committed.extend(chunk_of(&meta.key[prefix.len()..]));
    }
    let (there, wanted) = (unbroken(committed), card.chunks()?.count());
    if there >= wanted {
        let note = format!("the materialized dataset is whole: {wanted} shards");
        return Ok(Followed { spec: vec![format!("{folder}/")], note });
    }
    if there == 0 {
        return Err(Error::unavailable(format!("follow dataset `{url}`: its first shard is not there yet"))
            .with_hint("try again when `forebay materialize` has got further"));
    }
    let note = format!("follows a dataset that is being written: the first {there} of {wanted} shards");
    Ok(Followed { spec: vec![spec_of_first(folder, there)], note })
}

async fn read_card(store: &dyn Store, prefix: &str, url: &str) -> Result<Card> {
    let key = format!("{prefix}{CARD}");
    let found = store.head(&key).await?;
    if found.size > MAX_CARD_BYTES {
        return Err(Error::corrupt(format!("read `{}`: it has {} bytes", store.url(&key), found.size)));
    }
    let bytes = store.read(&key, ByteRange::Full).await?;
    Card::from_bytes(&bytes).map_err(|error| error.while_doing(format_args!("open dataset `{url}`")))
}
