//! What is there before anything is opened: the objects that a spec means, and the kind of dataset they look like.

use super::locate::{Item, is_hidden, literal_prefix, shard_name};
use super::materialized;
use super::options::{OpenOptions, SourceKind, extension};
use forebay_core::spec::glob_match;
use forebay_core::{Error, Result};
use forebay_store::{ObjectMeta, Store};
use futures::{StreamExt, TryStreamExt, stream};
use std::collections::BTreeMap;

/// The files of labels that are found without being named, in the order of preference.
const LABEL_FILES: [&str; 4] = ["labels.csv", "labels.jsonl", "metadata.csv", "metadata.jsonl"];

/// The objects of a dataset, ready to be compared with a kept manifest or indexed.
#[derive(Debug)]
pub(super) struct Inventory {
    pub(super) kind: SourceKind,
    /// What all keys of a folder begin with; empty for shards.
    pub(super) prefix: String,
    /// The objects that hold samples, in the order of the spec; those of a folder by key.
    pub(super) objects: Vec<ObjectMeta>,
    /// Files that are there but hold no samples: known to name class folders without samples.
    pub(super) others: Vec<String>,
    /// A file of labels found in the folder.
    pub(super) labels: Option<ObjectMeta>,
}

/// Finds the objects that `items` mean.
pub(super) async fn take(
    store: &dyn Store,
    items: &[Item],
    options: &OpenOptions,
    url: &str,
) -> Result<Inventory> {
    if let [Item::Folder(prefix)] = items {
        return folder(store, prefix, options, url).await;
    }
    let mut objects = Vec::new();
    // A long list of names is looked up many at a time; `buffered` keeps their order.
    let found =
        stream::iter(items).map(|item| objects_of(store, item, options)).buffered(options.parallel.max(1));
    let found: Vec<Vec<ObjectMeta>> = found.try_collect().await?;
    for (item, metas) in items.iter().zip(found) {
        if metas.is_empty() {
            return Err(nothing_matches(store, item, url).await);
        }
        objects.extend(metas);
    }
    if let Some(strange) = objects.iter().find(|meta| shard_name(&meta.key).is_none()) {
        let message = format!("open dataset `{url}`: `{}` is not a shard", store.url(&strange.key));
        return Err(Error::unsupported(message)
            .with_hint("name a folder, or shards that end in `.tar`, `.tar.gz` or `.tgz`"));
    }
    if options.kind.is_some_and(|kind| kind != SourceKind::Tar) {
        let kind = options.kind.map_or("", SourceKind::name);
        return Err(Error::invalid_config(format!("open dataset `{url}` as `{kind}`: it names shards")));
    }
    Ok(Inventory { kind: SourceKind::Tar, prefix: String::new(), objects, others: Vec::new(), labels: None })
}

async fn objects_of(store: &dyn Store, item: &Item, options: &OpenOptions) -> Result<Vec<ObjectMeta>> {
    let prefix = match item {
        Item::Key(key) => return Ok(vec![store.head(key).await?]),
        Item::Pattern(glob) => literal_prefix(glob),
        Item::Folder(prefix) => prefix,
    };
    let wanted = |key: &str| match item {
        Item::Pattern(glob) => glob_match(glob, key),
        _ => shard_name(key).is_some() && !key[prefix.len()..].contains('/'),
    };
    let mut found = options.list(store, prefix).await?;
    found.retain(|meta| wanted(&meta.key) && !is_hidden(&meta.key));
    Ok(found)
}

/// Everything below one folder, sorted into samples and the rest.
async fn folder(store: &dyn Store, prefix: &str, options: &OpenOptions, url: &str) -> Result<Inventory> {
    let (mut shards, mut files, mut others, mut labels) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut deeper = BTreeMap::<String, u64>::new();
    for meta in options.list(store, prefix).await? {
        let inside = &meta.key[prefix.len()..];
        if is_hidden(inside) {
            continue;
        }
        match (inside.rsplit_once('/'), shard_name(inside)) {
            (None, Some(_)) => shards.push(meta),
            (Some((folder, _)), Some(_)) => *deeper.entry(folder.to_string()).or_default() += 1,
            _ if options.accepts(inside) => files.push(meta),
            (None, None) if LABEL_FILES.contains(&inside) => labels.push(meta),
            _ => others.push(meta.key),
        }
    }
    if others.iter().any(|key| materialized::is_card(&key[prefix.len()..])) {
        materialized::check_whole(store, prefix, &shards, url).await?;
    }
    labels.sort_by_key(|meta| LABEL_FILES.iter().position(|name| meta.key.ends_with(name)));
    let labels = labels.into_iter().next();
    let kind = match options.kind {
        Some(kind) => kind,
        None if options.labels.is_some() => SourceKind::Table,
        None if !shards.is_empty() && !files.is_empty() => {
            let (shards, files) = (shards.len(), files.len());
            let message = format!(
                "open dataset `{url}`: it holds {shards} shards and {files} files, so its kind is not clear"
            );
            return Err(Error::invalid_config(message).with_hint("set kind to `tar`, `tree` or `table`"));
        }
        None if !shards.is_empty() => SourceKind::Tar,
        None if labels.is_some() => SourceKind::Table,
        None if files.iter().any(|meta| meta.key[prefix.len()..].contains('/')) => SourceKind::Tree,
        None => SourceKind::Table,
    };
    let objects = if kind == SourceKind::Tar { shards } else { files };
    if objects.is_empty() {
        return Err(nothing_inside(kind, options, url, &others, &deeper));
    }
    Ok(Inventory { kind, prefix: prefix.to_string(), objects, others, labels })
}

fn nothing_inside(
    kind: SourceKind,
    options: &OpenOptions,
    url: &str,
    others: &[String],
    deeper: &BTreeMap<String, u64>,
) -> Error {
    let wanted = if kind == SourceKind::Tar {
        "`.tar`, `.tar.gz` or `.tgz`".to_string()
    } else {
        options.extensions.iter().map(|extension| format!("`.{extension}`")).collect::<Vec<_>>().join(", ")
    };
    let mut there = BTreeMap::<String, u64>::new();
    for key in others {
        *there.entry(extension(key).map_or("no extension".into(), |e| format!("`.{e}`"))).or_default() += 1;
    }
    let error = Error::not_found(format!("open dataset `{url}`: no file ends in {wanted}"));
    if !deeper.is_empty() {
        let folders: Vec<_> =
            deeper.iter().take(5).map(|(folder, count)| format!("`{folder}/` ({count})")).collect();
        return error.with_hint(format!("shards lie in {}: name one of these folders", folders.join(", ")));
    }
    if there.is_empty() {
        return error.with_hint("the folder is empty, or holds only hidden and unfinished files");
    }
    let mut there: Vec<_> = there.into_iter().collect();
    there.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let there: Vec<_> = there.iter().take(5).map(|(what, count)| format!("{count} with {what}")).collect();
    error.with_hint(format!("there are files {}; set extensions to take others", there.join(", ")))
}

async fn nothing_matches(store: &dyn Store, item: &Item, url: &str) -> Error {
    let (Item::Key(what) | Item::Pattern(what) | Item::Folder(what)) = item;
    let folder = literal_prefix(what).rfind('/').map_or("", |slash| &what[..=slash]);
    let nearby = store.list(folder).take(2000).filter_map(|meta| async { meta.ok().map(|meta| meta.key) });
    let mut nearby: Vec<String> =
        nearby.filter(|key| futures::future::ready(!is_hidden(key))).collect().await;
    // Shards first: a name mistyped is the usual cause.
    nearby.sort_by_key(|key| (shard_name(key).is_none(), key.matches('/').count()));
    nearby.truncate(5);
    let error = Error::not_found(format!("open dataset `{url}`: nothing matches `{}`", store.url(what)));
    if nearby.is_empty() {
        return error.with_hint(format!("`{}` holds nothing", store.url(folder)));
    }
    let nearby: Vec<_> = nearby.iter().map(|key| format!("`{key}`")).collect();
    error.with_hint(format!("`{}` holds {}", store.url(folder), nearby.join(", ")))
}
