//! Which stored objects a spec means, as they lie there: for copying them, not for reading samples out of them.
//!
//! Listings pass over what is hidden or unfinished, as opening a dataset does. What is named is taken as named.

use super::locate::{self, Item, is_hidden, literal_prefix};
use super::open::refuse_options;
use super::options::OpenOptions;
use forebay_core::spec::glob_match;
use forebay_core::{Error, ErrorKind, Result};
use forebay_store::{LocalStore, ObjectMeta, RetryOptions, RetryStore, Store, remote};
use futures::{StreamExt, TryStreamExt, stream};
use std::sync::Arc;
use std::time::Duration;

/// Large pieces of many objects share the link, so each may take its time.
const PATIENCE: RetryOptions = RetryOptions {
    tries: 5,
    first_pause: Duration::from_millis(100),
    longest_pause: Duration::from_secs(10),
    request_timeout: Duration::from_secs(300),
    deadline: Duration::from_secs(1200),
    seed: 0,
};

/// The part of what a spec names.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part<'a> {
    /// All of it.
    All,
    /// Keys that go on with this text behind the folder that the spec names.
    Prefix(&'a str),
    /// These keys of the folder that the spec names.
    Keys(&'a [String]),
}

/// The store that a spec is about, patient with passing faults, and the objects.
pub(crate) async fn select(
    spec: &[String],
    part: Part<'_>,
    options: &OpenOptions,
) -> Result<(Arc<dyn Store>, Vec<ObjectMeta>)> {
    let url = spec.join("::");
    if url.to_ascii_lowercase().starts_with("synthetic:") {
        return Err(Error::unsupported(format!("stage `{url}`: it is made up and needs no storage")));
    }
    let parts = locate::expand(spec, options)?;
    let (store, items): (Arc<dyn Store>, _) = if let Some(located) = locate::locate_remote(&parts)? {
        let mut words = options.storage_options.clone();
        if located.root.starts_with("cassandra://") {
            // They name fields of samples, and a row is copied as it is.
            for word in ["data_field", "label_field"] {
                words.remove(word);
            }
        }
        let store = remote::open(&located.root, &words)?;
        (Arc::new(RetryStore::new(store, PATIENCE)), located.items)
    } else {
        refuse_options(options, &url)?;
        let located = locate::locate_local(&parts)?;
        (Arc::new(LocalStore::new(located.root)), located.items)
    };
    let objects = objects(store.as_ref(), &items, part, options, &url).await?;
    Ok((store, objects))
}

/// As [`select`], from a store that the caller brought.
pub(crate) async fn select_with_store(
    store: &dyn Store,
    spec: &[String],
    part: Part<'_>,
    options: &OpenOptions,
) -> Result<Vec<ObjectMeta>> {
    let items = locate::locate_keys(&locate::expand(spec, options)?);
    objects(store, &items, part, options, &spec.join("::")).await
}

async fn objects(
    store: &dyn Store,
    items: &[Item],
    part: Part<'_>,
    options: &OpenOptions,
    url: &str,
) -> Result<Vec<ObjectMeta>> {
    let parallel = options.parallel.max(1);
    let found: Vec<ObjectMeta> = match part {
        Part::All => {
            let found = stream::iter(items).map(|item| meant(store, item, options, url)).buffered(parallel);
            found.try_collect::<Vec<_>>().await?.concat()
        }
        Part::Prefix(prefix) => {
            listed(store, &format!("{}{prefix}", base(items, url)?), options, |_| true).await?
        }
        Part::Keys(keys) => {
            let base = base(items, url)?;
            let keys = keys.iter().map(|key| format!("{base}{key}")).collect::<Vec<_>>();
            for key in &keys {
                forebay_store::key::check(key)
                    .map_err(|error| error.while_doing(format_args!("stage `{url}`")))?;
            }
            let found = stream::iter(&keys).map(|key| store.head(key)).buffered(parallel);
            found.try_collect().await?
        }
    };
    if found.is_empty() {
        let why = match part {
            Part::All => "nothing is there".to_owned(),
            Part::Prefix(prefix) => format!("no key goes on with `{prefix}`"),
            Part::Keys(_) => "the list names nothing".to_owned(),
        };
        return Err(Error::not_found(format!("stage `{url}`: {why}")));
    }
    Ok(found)
}

/// The folder that prefixes and lists are relative to.
fn base<'a>(items: &'a [Item], url: &str) -> Result<&'a str> {
    if let [Item::Folder(prefix)] = items {
        return Ok(prefix);
    }
    let message = format!("stage a part of `{url}`: a prefix or a list needs the URL of one folder");
    Err(Error::invalid_config(message).with_hint("for example `s3://bucket/train/`"))
}

async fn meant(store: &dyn Store, item: &Item, options: &OpenOptions, url: &str) -> Result<Vec<ObjectMeta>> {
    let found = match item {
        Item::Key(key) => return Ok(vec![store.head(key).await?]),
        Item::Pattern(glob) => {
            listed(store, literal_prefix(glob), options, |key| glob_match(glob, key)).await?
        }
        Item::Folder(prefix) => match listed(store, prefix, options, |_| true).await {
            // A name without a known ending may be that of an object, also where nothing can be listed.
            Ok(found) if found.is_empty() && !prefix.is_empty() => {
                vec![store.head(prefix.trim_end_matches('/')).await?]
            }
            Err(error) if error.kind() == ErrorKind::Unsupported && !prefix.is_empty() => {
                let found = store.head(prefix.trim_end_matches('/')).await;
                let hint =
                    "what is no object may be a folder, and web servers cannot list those: name its objects";
                vec![found.map_err(|error| match error.kind() {
                    ErrorKind::NotFound => error.with_hint(hint),
                    _ => error,
                })?]
            }
            found => found?,
        },
    };
    if found.is_empty() {
        let (Item::Key(what) | Item::Pattern(what) | Item::Folder(what)) = item;
        return Err(Error::not_found(format!("stage `{url}`: nothing matches `{}`", store.url(what))));
    }
    Ok(found)
}

async fn listed(
    store: &dyn Store,
    prefix: &str,
    options: &OpenOptions,
    wanted: impl Fn(&str) -> bool,
) -> Result<Vec<ObjectMeta>> {
    let folder = prefix.rfind('/').map_or(0, |slash| slash + 1);
    let mut found = options.list(store, prefix).await?;
    found.retain(|meta| {
        // A folder that the caller named may be hidden; what lies below it may not.
        let hidden = meta.key.get(folder..).is_none_or(is_hidden);
        // An odd key is no file that lies around unfinished: whoever copies has to see it.
        let odd = forebay_store::key::check(&meta.key).is_err();
        (odd || !hidden) && wanted(&meta.key)
    });
    Ok(found)
}
