//! S3 and everything that speaks like it: `s3://bucket`.
//!
//! [`S3Store`] answers reads with one GET each, lists page by page, and writes large objects in parts of which nobody
//! sees any before all are there. [`options`] says where the bucket is, [`wire`] carries requests, [`read`]
//! checks what comes, [`listing`] reads pages, [`upload`] writes.
//! Retries are not made here: the adapter around the store decides.

mod listing;
mod options;
mod read;
mod sign;
mod upload;
mod wire;

use crate::http::{HttpOptions, Method, ProcessClient, uri};
use crate::{ByteRange, ListPage, ObjectMeta, PagePlace, Store, StoreOptions, fault, key};
use bytes::Bytes;
use forebay_core::{Error, Result};
use futures::future::{self, BoxFuture, FutureExt};
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use std::ops::Range;
use std::sync::Arc;
use wire::{Ask, Wire};

/// A page of a listing: a thousand keys of at most 1 KiB, each byte of which may be written as three.
const MOST_PAGE_BYTES: u64 = 16 << 20;

/// The objects of a page.
pub(crate) fn listed(page: &[u8]) -> Result<Vec<ObjectMeta>> {
    listing::parse(page).map(|page| page.objects)
}

/// The objects of a bucket.
pub struct S3Store {
    wire: Arc<Wire>,
}

impl S3Store {
    /// Opens `s3://bucket` with the words in `options` over the environment's `AWS_*`. Connects to nothing.
    pub fn open(root: &str, options: &StoreOptions) -> Result<Self> {
        let bucket = root.split_once("://").map_or(root, |(_, bucket)| bucket).trim_end_matches('/');
        let root = format!("s3://{bucket}");
        let place = options::Place::from_words(&root, bucket, options)?;
        let client = ProcessClient::new(HttpOptions::from_words(options)?)?;
        let signer = sign::Signer::new(place.region.clone(), place.request_payer);
        Ok(Self { wire: Arc::new(Wire { root, place, client, signer }) })
    }

    /// Runs a request on the network threads.
    async fn run<T: Send + 'static, F>(&self, work: impl FnOnce(Arc<Wire>) -> F + Send) -> Result<T>
    where
        F: Future<Output = Result<T>> + Send + 'static,
    {
        self.wire.client.get()?.net().run(work(Arc::clone(&self.wire))).await
    }

    fn pages<'a>(&'a self, prefix: &'a str, after: String) -> BoxStream<'a, Result<ObjectMeta>> {
        let start = Some(PagePlace { after, tokens: Vec::new() });
        stream::try_unfold(start, move |place| async move {
            let Some(place) = place else { return Ok(None) };
            let page = self.list_page(prefix, &place).await?;
            Ok::<_, Error>(Some((stream::iter(page.objects.into_iter().map(Ok)), page.next)))
        })
        .try_flatten()
        .boxed()
    }
}

impl Wire {
    async fn page(&self, prefix: &str, place: PagePlace) -> Result<ListPage> {
        let PagePlace { after, tokens } = place;
        let token = tokens.into_iter().next();
        // The parts of a query ascend by name, as the signature wants them.
        let mut query = String::new();
        if let Some(token) = &token {
            query = format!("continuation-token={}&", uri::encode_value(token));
        }
        query.push_str("encoding-type=url&list-type=2&prefix=");
        query.push_str(&uri::encode_value(prefix));
        if token.is_none() && !after.is_empty() {
            query.push_str("&start-after=");
            query.push_str(&uri::encode_value(&after));
        }
        let ask = Ask { query, expect: MOST_PAGE_BYTES, ..Ask::default() };
        let answer = self.ask("list", Method::Get, ask).await?;
        let name = self.url(prefix);
        let mut page =
            listing::parse(&answer.body).map_err(|error| fault::located(error, "list", &name, None))?;
        // Whoever lists relies on the order; some kinds of buckets do not keep it.
        let ascends = page.objects.is_sorted_by(|a, b| a.key < b.key);
        if !ascends || page.objects.first().is_some_and(|first| first.key <= after) {
            let why = "the server lists keys in another order than that of their bytes";
            return Err(
                Error::unsupported(format!("list `{name}`: {why}")).with_facts(fault::facts(&name, None))
            );
        }
        page.objects.retain(|meta| meta.key.starts_with(prefix));
        let behind = page.last.clone().unwrap_or_else(|| after.clone());
        let stuck = page.token == token && behind == after;
        let next = PagePlace { after: behind, tokens: page.token.into_iter().collect() };
        let next = (page.is_truncated && !stuck).then_some(next);
        Ok(ListPage { objects: page.objects, last: page.last, next })
    }
}

impl std::fmt::Debug for S3Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("S3Store").field("root", &self.wire.root).field("place", &self.wire.place).finish()
    }
}

impl Store for S3Store {
    fn url(&self, key: &str) -> String {
        self.wire.url(key)
    }

    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta>> {
        async move {
            key::check(key)?;
            let key = key.to_owned();
            self.run(|wire| async move { wire.head(&key).await }).await
        }
        .boxed()
    }

    fn read<'a>(&'a self, key: &'a str, range: ByteRange) -> BoxFuture<'a, Result<Bytes>> {
        async move {
            key::check(key)?;
            let key = key.to_owned();
            self.run(|wire| async move { Ok(wire.get(&key, range).await?.bytes) }).await
        }
        .boxed()
    }

    fn read_parts<'a>(&'a self, key: &'a str, parts: &'a [Range<u64>]) -> BoxFuture<'a, Result<Vec<Bytes>>> {
        async move {
            key::check(key)?;
            let (key, parts) = (key.to_owned(), parts.to_vec());
            self.run(|wire| async move { wire.get_parts(&key, &parts).await }).await
        }
        .boxed()
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<ObjectMeta>> {
        self.pages(prefix, String::new())
    }

    fn list_after<'a>(&'a self, prefix: &'a str, after: &str) -> BoxStream<'a, Result<ObjectMeta>> {
        self.pages(prefix, after.to_owned())
    }

    fn list_page<'a>(&'a self, prefix: &'a str, place: &'a PagePlace) -> BoxFuture<'a, Result<ListPage>> {
        if !crate::cloud::begins_a_key(prefix) {
            return future::ready(Ok(ListPage::default())).boxed();
        }
        let (prefix, place) = (prefix.to_owned(), place.clone());
        self.run(|wire| async move { wire.page(&prefix, place).await }).boxed()
    }

    fn lists_pages(&self) -> bool {
        true
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn runtime(&self) -> Option<tokio::runtime::Handle> {
        self.wire.client.get().ok()?.net().handle()
    }

    fn write<'a>(&'a self, key: &'a str, bytes: Bytes) -> BoxFuture<'a, Result<()>> {
        if let Err(error) = key::check_for_write(key) {
            return future::ready(Err(error)).boxed();
        }
        let key = key.to_owned();
        self.run(|wire| async move { upload::put(&wire, &key, bytes).await }).boxed()
    }
}
