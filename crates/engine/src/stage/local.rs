//! A store with a copy of a part of it on a local disk: what is whole there is read there.
//!
//! An object is taken from the copy when the journal has it in the version that the caller expects and a file of its
//! size is there. Everything else, and whatever the disk cannot give, comes from the origin.

use super::journal::{Journal, key_in};
use super::place::Place;
use super::plan::origin;
use crate::source::local_store;
use bytes::Bytes;
use forebay_core::{Error, Result};
use forebay_store::{ByteRange, ListPage, ObjectMeta, ObjectRead, PagePlace, Store};
use futures::future::{BoxFuture, FutureExt};
use futures::stream::BoxStream;
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// An object as a manifest or a listing knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Its key at the origin.
    pub key: String,
    /// Its size, where that is known: of compressed shards a manifest notes another.
    pub size: Option<u64>,
    /// Its version.
    pub stamp: u64,
}

/// A store that reads from a local copy where it can.
#[derive(Debug)]
pub struct LocalCopyStore {
    origin: Arc<dyn Store>,
    local: Arc<dyn Store>,
    /// What is read locally, by the key at the origin.
    here: HashMap<String, Here>,
    bytes: u64,
    everything: bool,
}

#[derive(Debug)]
struct Here {
    /// The key in the copy, where that is another.
    key: Option<String>,
    size: u64,
    stamp: u64,
}

impl LocalCopyStore {
    /// Looks which of the objects `expected` are whole in `folder`. Blocks; a folder without a journal has none.
    pub fn open(
        origin_store: Arc<dyn Store>,
        folder: &Path,
        expected: impl Iterator<Item = Expected>,
    ) -> Result<Self> {
        let place = Place::new(folder)?;
        let journal = Journal::read(&place)?;
        let store = origin(origin_store.as_ref());
        let (mut here, mut bytes, mut everything, mut foreign) = (HashMap::new(), 0, true, false);
        for object in expected {
            let key = key_in(&journal.origin, &store, &object.key);
            foreign |= key.is_none();
            let found = key.and_then(|key| {
                let whole = journal.whole.get(&key)?;
                let same = whole.stamp == object.stamp && object.size.is_none_or(|size| size == whole.size);
                (same && place.size(&key) == Some(whole.size)).then(|| {
                    let other = (key != object.key).then_some(key);
                    Here { key: other, size: whole.size, stamp: whole.stamp }
                })
            });
            match found {
                Some(found) => {
                    bytes += found.size;
                    here.insert(object.key, found);
                }
                None => everything = false,
            }
        }
        if foreign && here.is_empty() {
            journal.check_origin(&place, &store)?;
        }
        let local = local_store(&place.root, bytes);
        Ok(Self { origin: origin_store, local, here, bytes, everything })
    }

    /// How many objects are read from the copy.
    pub fn objects(&self) -> u64 {
        self.here.len() as u64
    }

    /// How many bytes these have.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether nothing that is expected comes from the origin.
    pub fn is_everything(&self) -> bool {
        self.everything
    }

    /// The key in the copy of an object that is there.
    fn local_key<'a>(&'a self, key: &'a str) -> Option<&'a str> {
        self.here.get(key).map(|here| here.key.as_deref().unwrap_or(key))
    }

    /// Whatever is wrong with the copy is no fault of the dataset.
    fn fall_back<T>(&self, key: &str, answer: Result<T>) -> Option<T> {
        match answer {
            Ok(answer) => Some(answer),
            Err(error) => {
                let object = self.local.url(key);
                tracing::warn!(object, %error, "the local copy cannot be read: read from the origin");
                None
            }
        }
    }
}

impl Store for LocalCopyStore {
    fn url(&self, key: &str) -> String {
        self.origin.url(key)
    }

    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta>> {
        match self.here.get(key) {
            Some(Here { size, stamp, .. }) => {
                let meta = ObjectMeta { key: key.to_owned(), size: *size, stamp: *stamp };
                futures::future::ready(Ok(meta)).boxed()
            }
            None => self.origin.head(key),
        }
    }

    fn read<'a>(&'a self, key: &'a str, range: ByteRange) -> BoxFuture<'a, Result<Bytes>> {
        let Some(local) = self.local_key(key) else { return self.origin.read(key, range) };
        async move {
            match self.fall_back(local, self.local.read(local, range).await) {
                Some(bytes) => Ok(bytes),
                None => self.origin.read(key, range).await,
            }
        }
        .boxed()
    }

    fn read_parts<'a>(&'a self, key: &'a str, parts: &'a [Range<u64>]) -> BoxFuture<'a, Result<Vec<Bytes>>> {
        let Some(local) = self.local_key(key) else { return self.origin.read_parts(key, parts) };
        async move {
            match self.fall_back(local, self.local.read_parts(local, parts).await) {
                Some(bytes) => Ok(bytes),
                None => self.origin.read_parts(key, parts).await,
            }
        }
        .boxed()
    }

    fn read_many<'a>(&'a self, reads: &'a [ObjectRead]) -> BoxFuture<'a, Vec<Result<Bytes>>> {
        if !reads.iter().any(|read| self.here.contains_key(&read.key)) {
            return self.origin.read_many(reads);
        }
        async move {
            let (here, far): (Vec<_>, Vec<_>) =
                reads.iter().cloned().enumerate().partition(|(_, read)| self.here.contains_key(&read.key));
            let (here_at, here): (Vec<usize>, Vec<ObjectRead>) = here.into_iter().unzip();
            let (far_at, far): (Vec<usize>, Vec<ObjectRead>) = far.into_iter().unzip();
            let local = futures::future::join_all(
                here.iter().map(|read| self.read(&read.key, read.range.clone().into())),
            );
            let (here, far) = futures::join!(local, async {
                if far.is_empty() { Vec::new() } else { self.origin.read_many(&far).await }
            });
            let mut answers: Vec<_> =
                here_at.into_iter().zip(here).chain(far_at.into_iter().zip(far)).collect();
            answers.sort_by_key(|(at, _)| *at);
            answers.into_iter().map(|(_, answer)| answer).collect()
        }
        .boxed()
    }

    fn reads_per_request(&self) -> usize {
        if self.everything { 1 } else { self.origin.reads_per_request() }
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<ObjectMeta>> {
        self.origin.list(prefix)
    }

    fn list_after<'a>(&'a self, prefix: &'a str, after: &str) -> BoxStream<'a, Result<ObjectMeta>> {
        self.origin.list_after(prefix, after)
    }

    fn list_page<'a>(&'a self, prefix: &'a str, place: &'a PagePlace) -> BoxFuture<'a, Result<ListPage>> {
        self.origin.list_page(prefix, place)
    }

    fn lists_pages(&self) -> bool {
        self.origin.lists_pages()
    }

    fn is_remote(&self) -> bool {
        !self.everything && self.origin.is_remote()
    }

    fn runtime(&self) -> Option<tokio::runtime::Handle> {
        if self.everything { None } else { self.origin.runtime() }
    }

    fn write<'a>(&'a self, key: &'a str, bytes: Bytes) -> BoxFuture<'a, Result<()>> {
        if self.here.contains_key(key) {
            let message = format!("write `{}`: a local copy of it is being read", self.url(key));
            return futures::future::ready(Err(Error::unsupported(message))).boxed();
        }
        self.origin.write(key, bytes)
    }
}
