//! The store that rows and what they name are read through: keys of the table's own store, and URLs of others.

use crate::source::locate::{is_packed, percent_decoded};
use crate::source::open::patient;
use crate::source::shards;
use bytes::Bytes;
use forebay_core::manifest::Manifest;
use forebay_core::{Error, ErrorKind, Result};
use forebay_store::{ByteRange, LocalStore, ObjectMeta, Store, StoreOptions, remote};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;
use std::sync::Arc;

/// Key of the manifest's meta under which it stands what rows need to be read.
pub(in crate::source) const META_KEY: &str = "csv";

/// Most stores that the rows of one dataset may name.
pub(super) const MAX_ROOTS: usize = 64;

/// The root of files of this machine.
const FILES: &str = "file://";

/// Where a table itself lies.
#[derive(Clone, Copy, Debug)]
pub(in crate::source) struct Home<'a> {
    /// The remote store; `None` is this machine. A table that comes from elsewhere names no file of this machine, and
    /// takes credentials to no store but its own.
    pub(in crate::source) remote: Option<&'a str>,
    /// What the user says to remote stores.
    pub(in crate::source) options: &'a StoreOptions,
}

/// What a manifest says about its stores.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::source) struct Told {
    /// Keys of the tables themselves.
    pub(super) files: Vec<String>,
    /// The other stores.
    pub(super) roots: Vec<String>,
}

/// The keys of the tables of a manifest; `None` when it is of another kind.
pub(in crate::source) fn tables(manifest: &Manifest) -> Option<HashSet<&str>> {
    let files = manifest.meta().get(META_KEY)?.get("files")?.as_array()?;
    Some(files.iter().filter_map(|file| file.as_str()).collect())
}

/// The store through which a dataset is read that a manifest describes. `store` has the tables and what lies beside them.
pub(in crate::source) fn reading_store(
    manifest: &Manifest,
    store: &Arc<dyn Store>,
    home: Home<'_>,
) -> Result<Arc<dyn Store>> {
    let told = told(manifest)?;
    if told.roots.is_empty() && !told.files.iter().any(|file| is_packed(file)) {
        return Ok(Arc::clone(store));
    }
    Ok(Arc::new(LinkedStore::new(store, &told, home, false)?))
}

/// As [`reading_store`], for looking things up: passing faults are not seen.
pub(in crate::source) fn asking_store(
    manifest: &Manifest,
    store: &Arc<dyn Store>,
    home: Home<'_>,
) -> Result<LinkedStore> {
    LinkedStore::new(store, &told(manifest)?, home, true)
}

fn told(manifest: &Manifest) -> Result<Told> {
    let said = manifest.meta().get(META_KEY).cloned().unwrap_or_default();
    let told: Told = serde_json::from_value(said).map_err(|cause| {
        Error::unsupported("read a manifest: it describes rows in a way that this release does not know")
            .with_source(cause)
    })?;
    if told.roots.len() > MAX_ROOTS {
        return Err(Error::corrupt(format!("read a manifest: its rows name more than {MAX_ROOTS} stores")));
    }
    Ok(told)
}

/// Store and key of a URL; `None` for keys of the table's own store.
pub(super) fn address(key: &str) -> Result<Option<(String, String)>> {
    if !key.contains("://") {
        return Ok(None);
    }
    if let Some(path) = key.strip_prefix("file:///") {
        return Ok(Some((FILES.to_owned(), percent_decoded(path))));
    }
    Ok(remote::address(key)?.map(|address| (address.root, address.key)))
}

/// Finds the store of a key.
#[derive(Debug)]
pub(in crate::source) struct LinkedStore {
    /// What lies beside the tables.
    near: Arc<dyn Store>,
    /// The tables, expanded where they are compressed.
    tables: Arc<dyn Store>,
    files: BTreeSet<String>,
    far: BTreeMap<String, Arc<dyn Store>>,
}

impl LinkedStore {
    pub(in crate::source) fn new(
        near: &Arc<dyn Store>,
        told: &Told,
        home: Home<'_>,
        asking: bool,
    ) -> Result<Self> {
        let files: BTreeSet<String> = told.files.iter().cloned().collect();
        let tables = shards::reading_store(near, files.iter().map(String::as_str));
        let mut far: BTreeMap<String, Arc<dyn Store>> = BTreeMap::new();
        for root in &told.roots {
            let store = if root == FILES {
                if home.remote.is_some() {
                    let why = "open a table from elsewhere: it names files of this machine";
                    return Err(Error::new(ErrorKind::Denied, why));
                }
                Arc::new(LocalStore::new("/".into()))
            } else {
                let none = StoreOptions::new();
                let trusted = home.remote.is_none_or(|own| own == root);
                let store = remote::open(root, if trusted { home.options } else { &none })?;
                if asking { patient(&store) } else { store }
            };
            far.insert(root.clone(), store);
        }
        Ok(Self { near: Arc::clone(near), tables, files, far })
    }

    /// The store of a key, and the key there.
    fn route(&self, key: &str) -> Result<(&Arc<dyn Store>, String)> {
        match address(key)? {
            None if self.files.contains(key) => Ok((&self.tables, key.to_owned())),
            None => Ok((&self.near, key.to_owned())),
            Some((root, key)) => match self.far.get(&root) {
                Some(store) => Ok((store, key)),
                None => Err(Error::not_found(format!("read from `{root}`: the manifest does not name it"))),
            },
        }
    }
}

impl Store for LinkedStore {
    fn url(&self, key: &str) -> String {
        match self.route(key) {
            Ok((store, key)) => store.url(&key),
            Err(_) => self.near.url(key),
        }
    }

    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta>> {
        async move {
            let (store, inside) = self.route(key)?;
            let found = store.head(&inside).await?;
            Ok(ObjectMeta { key: key.to_owned(), ..found })
        }
        .boxed()
    }

    fn read<'a>(&'a self, key: &'a str, range: ByteRange) -> BoxFuture<'a, Result<Bytes>> {
        async move {
            let (store, inside) = self.route(key)?;
            store.read(&inside, range).await
        }
        .boxed()
    }

    fn read_parts<'a>(&'a self, key: &'a str, parts: &'a [Range<u64>]) -> BoxFuture<'a, Result<Vec<Bytes>>> {
        async move {
            let (store, inside) = self.route(key)?;
            store.read_parts(&inside, parts).await
        }
        .boxed()
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<ObjectMeta>> {
        self.near.list(prefix).boxed()
    }

    fn is_remote(&self) -> bool {
        self.near.is_remote() || self.far.values().any(|store| store.is_remote())
    }

    fn runtime(&self) -> Option<tokio::runtime::Handle> {
        self.near.runtime().or_else(|| self.far.values().find_map(|store| store.runtime()))
    }

    fn write<'a>(&'a self, key: &'a str, _bytes: Bytes) -> BoxFuture<'a, Result<()>> {
        let url = self.url(key);
        async move { Err(Error::unsupported(format!("write `{url}`: tables and what they name are only read"))) }
            .boxed()
    }
}
