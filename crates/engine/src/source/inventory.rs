//! What is there before anything is opened: the objects that a spec means, and the kind of dataset they look like.

use super::locate::{INDEX_FILE, Item, is_hidden, literal_prefix, shard_name};
use super::materialized;
use super::options::{OpenOptions, SourceKind, extension};
use super::records::{self, Described, TokenOptions};
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
    /// What an `index.json` beside the objects tells.
    pub(super) described: Described,
    /// How files of tokens are cut.
    pub(super) tokens: Option<TokenOptions>,
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
    let kind = kind_of(store, &objects, options, url)?;
    // MDS shards that are named describe themselves; chunks need what lies beside them.
    let objects = records::with_indexes(store, objects, kind, options.parallel).await?;
    let described = match objects.first().filter(|_| kind == SourceKind::Litdata) {
        Some(first) => {
            let folder = first.key.rfind('/').map_or("", |slash| &first.key[..=slash]);
            let file =
                store.head(&format!("{folder}{INDEX_FILE}")).await.map_err(|error| no_index(error, url))?;
            Described::read(store, file, kind).await?
        }
        None => Described::default(),
    };
    Ok(Inventory {
        kind,
        prefix: String::new(),
        objects,
        others: Vec::new(),
        labels: None,
        described,
        tokens: options.tokens,
    })
}

fn no_index(error: Error, url: &str) -> Error {
    error
        .while_doing(format_args!("open dataset `{url}`"))
        .with_hint("LitData chunks are read with the `index.json` that was written beside them")
}

/// The kind of shards that were named: as the caller says, or as their names do.
fn kind_of(
    store: &dyn Store,
    objects: &[ObjectMeta],
    options: &OpenOptions,
    url: &str,
) -> Result<SourceKind> {
    if let Some(kind) = options.kind {
        if !kind.is_shards() {
            let kind = kind.name();
            return Err(Error::invalid_config(format!("open dataset `{url}` as `{kind}`: it names shards")));
        }
        return Ok(kind);
    }
    let mut kinds = objects.iter().map(|meta| (shard_name(&meta.key), meta));
    let Some((Some(kind), first)) = kinds.next() else {
        let strange = objects.first().map(|meta| meta.key.as_str()).unwrap_or_default();
        return Err(not_a_shard(store, strange, url));
    };
    match kinds.find(|(other, _)| *other != Some(kind)) {
        None => Ok(kind),
        Some((None, strange)) => Err(not_a_shard(store, &strange.key, url)),
        Some((Some(_), other)) => {
            let (first, other) = (store.url(&first.key), store.url(&other.key));
            let message = format!("open dataset `{url}`: `{first}` and `{other}` are of two kinds");
            Err(Error::invalid_config(message).with_hint("open each dataset and mix them"))
        }
    }
}

fn not_a_shard(store: &dyn Store, key: &str, url: &str) -> Error {
    if is_hdf5(key) {
        return hdf5(store, key, url);
    }
    let object = store.url(key);
    Error::unsupported(format!("open dataset `{url}`: `{object}` is not a shard")).with_hint(format!(
        "name a folder, or shards that end in {}; `kind` takes files of other names",
        shard_endings()
    ))
}

fn is_hdf5(key: &str) -> bool {
    matches!(extension(key).as_deref(), Some("h5" | "hdf5"))
}

fn hdf5(store: &dyn Store, key: &str, url: &str) -> Error {
    let object = store.url(key);
    let message = format!(
        "open dataset `{url}`: `{object}` is HDF5, whose index is a tree inside of the file that only its own library \
         follows, one thread at a time and on local disks"
    );
    Error::unsupported(message).with_hint(
        "write it once as tar shards: read rows with h5py, and write each array as a member `KEY.NAME.npy` with \
         numpy.save and Python's tarfile, or with webdataset's ShardWriter; or save `.npy` files in one folder for each \
         class and run `forebay pack`",
    )
}

/// The endings that tell shards.
fn shard_endings() -> &'static str {
    "`.tar`, `.tar.gz`, `.tgz`, `.tfrecord`, `.jsonl`, `.csv`, `.tsv`, `.zip`, `.rec`, `.mds`, `.parquet`, or of tokens `.bin`, `.u16` or `.u32`"
}

async fn objects_of(store: &dyn Store, item: &Item, options: &OpenOptions) -> Result<Vec<ObjectMeta>> {
    let prefix = match item {
        Item::Key(key) => return Ok(vec![store.head(key).await?]),
        Item::Pattern(glob) => literal_prefix(glob),
        Item::Folder(prefix) => prefix,
    };
    let wanted = |key: &str| {
        if let Item::Pattern(glob) = item {
            return glob_match(glob, key);
        }
        let kind = shard_name(key);
        let shy = |kind| matches!(kind, SourceKind::Tokens | SourceKind::Csv);
        kind.is_some_and(|kind| !shy(kind) || options.kind == Some(kind))
            && options.kind.is_none_or(|asked| kind == Some(asked))
            && !key[prefix.len()..].contains('/')
    };
    let mut found = options.list(store, prefix).await?;
    found.retain(|meta| wanted(&meta.key) && !is_hidden(&meta.key));
    Ok(found)
}

/// Everything below one folder, sorted into samples and the rest.
async fn folder(store: &dyn Store, prefix: &str, options: &OpenOptions, url: &str) -> Result<Inventory> {
    let (mut shards, mut files, mut others, mut labels) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut records, mut index, mut below) = (Vec::new(), None, Vec::new());
    let mut deeper = BTreeMap::<String, u64>::new();
    for meta in options.list(store, prefix).await? {
        let inside = &meta.key[prefix.len()..];
        if is_hidden(inside) {
            continue;
        }
        match (inside.rsplit_once('/'), shard_name(inside)) {
            (None, Some(SourceKind::Tar)) => shards.push(meta),
            (None, _) if LABEL_FILES.contains(&inside) => labels.push(meta),
            (None, _) if inside == INDEX_FILE && !options.accepts(inside) => index = Some(meta),
            (Some(_), Some(kind)) if kind.is_described() && !options.accepts(inside) => {
                below.push((kind, meta));
            }
            (Some((folder, _)), Some(SourceKind::Tar)) => *deeper.entry(folder.to_string()).or_default() += 1,
            _ if options.accepts(inside) => files.push(meta),
            (None, Some(kind)) => records.push((kind, meta)),
            (Some((folder, _)), Some(_)) => {
                *deeper.entry(folder.to_string()).or_default() += 1;
                others.push(meta.key);
            }
            // What is asked for by kind may have any name.
            (None, None) if options.kind.is_some_and(SourceKind::is_records) => {
                records.extend(options.kind.map(|kind| (kind, meta)));
            }
            _ => others.push(meta.key),
        }
    }
    // A table beside shards is about them; alone, it is the dataset.
    if options.kind.is_none() && records.iter().any(|(kind, _)| *kind != SourceKind::Csv) {
        let stray = records.extract_if(.., |(kind, _)| *kind == SourceKind::Csv);
        others.extend(stray.map(|(_, meta)| meta.key));
    }
    // Any file may be called `.bin`: it is a file of tokens where nothing else is there, or where that is said.
    let is_tokens = |kind: SourceKind| kind == SourceKind::Tokens;
    if options.kind.is_none() && records.iter().any(|(kind, _)| !is_tokens(*kind)) {
        let stray = records.extract_if(.., |(kind, _)| is_tokens(*kind));
        others.extend(stray.map(|(_, meta)| meta.key));
    }
    if index.is_some() && (!records.is_empty() || !below.is_empty()) {
        // An index may describe shards in folders below its own.
        records.append(&mut below);
    }
    for (_, meta) in below {
        let inside = &meta.key[prefix.len()..];
        *deeper.entry(inside.rsplit_once('/').map_or("", |(folder, _)| folder).to_string()).or_default() += 1;
        others.push(meta.key);
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
        None if files.is_empty() && labels.is_none() && !records.is_empty() => one_kind(&records, url)?,
        None if labels.is_some() => SourceKind::Table,
        None if files.iter().any(|meta| meta.key[prefix.len()..].contains('/')) => SourceKind::Tree,
        None => SourceKind::Table,
    };
    let (of_that_kind, strangers): (Vec<_>, Vec<_>) =
        records.into_iter().partition(|(found, _)| *found == kind);
    let mut of_that_kind: Vec<ObjectMeta> = of_that_kind.into_iter().map(|(_, meta)| meta).collect();
    others.extend(strangers.into_iter().map(|(_, meta)| meta.key));
    let mut described = Described::default();
    match index {
        Some(file) if kind.is_described() && !of_that_kind.is_empty() => {
            described = Described::read(store, file, kind).await?;
            of_that_kind = described.pick(store, of_that_kind)?;
        }
        Some(file) => others.push(file.key),
        None if kind == SourceKind::Litdata && !of_that_kind.is_empty() => {
            return Err(no_index(Error::not_found(format!("it has no `{INDEX_FILE}`")), url));
        }
        None => {}
    }
    others.sort_unstable();
    let objects = match kind {
        SourceKind::Tar => shards,
        kind if kind.is_records() => named_so(of_that_kind, kind),
        _ => files,
    };
    let objects = records::with_indexes(store, objects, kind, options.parallel).await?;
    if objects.is_empty() {
        return Err(match others.iter().find(|key| is_hdf5(key)) {
            Some(file) if deeper.is_empty() && mostly_hdf5(&others) => hdf5(store, file, url),
            _ => nothing_inside(kind, options, url, &others, &deeper),
        });
    }
    Ok(Inventory {
        kind,
        prefix: prefix.to_string(),
        objects,
        others,
        labels,
        described,
        tokens: options.tokens,
    })
}

/// The one kind of shards that a folder holds.
fn one_kind(records: &[(SourceKind, ObjectMeta)], url: &str) -> Result<SourceKind> {
    let first = records.first().map_or(SourceKind::Jsonl, |(kind, _)| *kind);
    match records.iter().find(|(kind, _)| *kind != first) {
        None => Ok(first),
        Some((other, _)) => {
            let (first, other) = (first.name(), other.name());
            let message = format!("open dataset `{url}`: it holds both `{first}` and `{other}`");
            Err(Error::invalid_config(message).with_hint("set kind to one of the two"))
        }
    }
}

/// Those whose names tell the kind, if there are any: a file of notes beside shards is none.
fn named_so(found: Vec<ObjectMeta>, kind: SourceKind) -> Vec<ObjectMeta> {
    let named = |meta: &ObjectMeta| shard_name(&meta.key) == Some(kind);
    if found.iter().any(named) { found.into_iter().filter(named).collect() } else { found }
}

/// Notes and lists may lie beside them.
fn mostly_hdf5(keys: &[String]) -> bool {
    2 * keys.iter().filter(|key| is_hdf5(key)).count() >= keys.len()
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
    } else if kind.is_records() {
        format!("what `{}` is called by", kind.name())
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
