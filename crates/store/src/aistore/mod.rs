//! AIStore by its own protocol: objects, ranges, members of archives, and many reads in one request.
//!
//! The proxy answers with a redirect to the machine that holds the object, so every request is made twice and
//! credentials go along. [`AisStore::read_member`] lets the server open an archive; `read_many` is GetBatch
//! (`batch`), whose answer is an archive (`tar`); `list` reads pages of keys, `refusal` what the server says when it
//! does not do as asked.

mod batch;
mod list;
mod refusal;
mod tar;

pub(crate) use tar::entries as batch_entries_of;

use crate::http::client::{HttpRequest, Method, Redirects};
use crate::http::exchange::Limits;
use crate::http::fetch::{Fetch, MOST_BODY_BYTES};
use crate::http::store::{WAITING_BODY_BYTES, first_of};
use crate::http::tag::Tag;
use crate::http::{HttpClient, HttpOptions, ProcessClient, options, parts, tls, uri};
use crate::net::Net;
use crate::{ByteRange, ListPage, ObjectMeta, ObjectRead, PagePlace, Store, StoreOptions, fault, key};
use bytes::{Bytes, BytesMut};
use forebay_core::{Error, Result};
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use refusal::refusal;
use std::ops::Range;
use std::sync::Arc;
use url::Url;

/// Option words of this store alone.
const WORDS: &[&str] = &["endpoint", "token", "provider"];
/// Of one page, and of other answers that are no objects.
const MOST_LIST_BYTES: u64 = 64 << 20;
/// Single reads at once, for what a batch did not bring.
const SINGLE_READS: usize = 16;

/// A bucket of an AIStore cluster.
#[derive(Clone, Debug)]
pub struct AisStore(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    endpoint: Url,
    bucket: String,
    provider: String,
    headers: Vec<(&'static str, String)>,
    client: ProcessClient,
}

impl AisStore {
    /// The bucket of `ais://bucket`. The cluster is named by the option `endpoint` or the variable `AIS_ENDPOINT`,
    /// credentials by `token` or `AIS_AUTHN_TOKEN`; `provider` is `ais` unless the bucket stands for another store.
    pub fn open(root: &str, words: &StoreOptions) -> Result<Self> {
        options::refuse_unknown(words, "ais", &[WORDS, options::WORDS, tls::WORDS])?;
        let bucket = root.strip_prefix("ais://").unwrap_or(root).trim_end_matches('/').to_owned();
        let said = |word: &str, variable: &str| {
            let word = words.get(word).cloned().or_else(|| std::env::var(variable).ok());
            word.filter(|value| !value.is_empty())
        };
        let Some(endpoint) = said("endpoint", "AIS_ENDPOINT") else {
            return Err(Error::invalid_config(format!("open `ais://{bucket}`: no cluster is named"))
                .with_hint("give option `endpoint` or set AIS_ENDPOINT, for example http://proxy:51080"));
        };
        let mut endpoint = uri::parse(&endpoint)?;
        endpoint.set_query(None);
        let mut headers = Vec::new();
        if let Some(token) = said("token", "AIS_AUTHN_TOKEN") {
            headers.push(("authorization", format!("Bearer {token}")));
        }
        let provider = words.get("provider").cloned().unwrap_or_else(|| "ais".to_owned());
        let client = ProcessClient::new(HttpOptions::from_words(words)?)?;
        Ok(Self(Arc::new(Inner { endpoint, bucket, provider, headers, client })))
    }

    /// One member of the archive `key`, cut out by the server. Its range is cut here: the server takes no range
    /// together with a member.
    pub async fn read_member(&self, key: &str, member: &str, range: ByteRange) -> Result<Bytes> {
        key::check(key)?;
        let located = |error| fault::located(error, "read a member of", &self.url(key), None);
        let query = format!("&archpath={}", uri::encode_value(member));
        let read = |inner: Arc<Inner>, client: HttpClient| {
            let url = inner.object(key, &query);
            async move {
                // What is told about the archive says nothing about its member.
                let url = url?;
                let member = Fetch { is_object: false, ..inner.fetch(&client, &url) };
                let bytes = member.fetch(ByteRange::Full).await?.bytes;
                let range = range.resolve(bytes.len() as u64)?;
                Ok(bytes.slice(range.start as usize..range.end as usize))
            }
        };
        self.run(read).await.map_err(located)
    }

    /// Runs `work` on the network threads.
    async fn run<T: Send + 'static, F: Future<Output = Result<T>> + Send + 'static>(
        &self,
        work: impl FnOnce(Arc<Inner>, HttpClient) -> F,
    ) -> Result<T> {
        let client = self.0.client.get()?;
        let net: Net = client.net().clone();
        net.run(work(self.0.clone(), client)).await
    }

    async fn read_batch(&self, reads: &[ObjectRead]) -> Vec<Result<Bytes>> {
        let answers = if reads.len() < 2 || !reads.iter().all(batch::fits) {
            vec![None; reads.len()]
        } else {
            let asked = reads.to_vec();
            let work = |inner: Arc<Inner>, client: HttpClient| async move {
                batch::read(&inner, &client, &asked).await
            };
            match self.run(work).await {
                Ok(answers) => answers,
                Err(error) if error.kind().is_transient() => {
                    let root = format!("ais://{}", self.0.bucket);
                    return batch::each(
                        &fault::located(error, "read many objects of", &root, None),
                        reads.len(),
                    );
                }
                // The server may not know batches, or not for these objects: single reads tell.
                Err(error) => {
                    tracing::debug!(%error, "batched read is done by single ones");
                    vec![None; reads.len()]
                }
            }
        };
        let single = |(read, answer): (&ObjectRead, Option<Bytes>)| {
            let (store, read) = (self.clone(), read.clone());
            async move {
                match answer {
                    Some(bytes) => Ok(bytes),
                    None => store.read(&read.key, read.range.into()).await,
                }
            }
        };
        let singles: Vec<_> = reads.iter().zip(answers).map(single).collect();
        stream::iter(singles).buffered(SINGLE_READS).collect().await
    }

    fn pages<'a>(&'a self, prefix: &'a str, after: String) -> BoxStream<'a, Result<ObjectMeta>> {
        let begin = Some(PagePlace { after, tokens: Vec::new() });
        stream::try_unfold(begin, move |place| async move {
            let Some(place) = place else { return Ok(None) };
            let page = self.page(prefix, &place).await?;
            Ok(Some((stream::iter(page.objects.into_iter().map(Ok)), page.next)))
        })
        .try_flatten()
        .boxed()
    }

    async fn page(&self, prefix: &str, place: &PagePlace) -> Result<ListPage> {
        if list::names_nothing(prefix) {
            return Ok(ListPage::default());
        }
        let (asked, place) = (prefix.to_owned(), place.clone());
        let list = |inner: Arc<Inner>, client| async move { inner.page(&client, &asked, place).await };
        self.run(list).await.map_err(|error: Error| fault::located(error, "list", &self.url(prefix), None))
    }
}

impl Inner {
    fn address(&self, path: &str) -> Result<Url> {
        let root = self.endpoint.as_str().trim_end_matches('/');
        uri::parse(&format!("{root}{path}?provider={}", uri::encode_value(&self.provider)))
    }

    fn object(&self, key: &str, query: &str) -> Result<Url> {
        let path = format!("/v1/objects/{}/{}", uri::encode_value(&self.bucket), uri::encode_path(key));
        uri::parse(&format!("{}{query}", self.address(&path)?))
    }

    fn fetch<'a>(&'a self, client: &'a HttpClient, url: &'a Url) -> Fetch<'a> {
        let (headers, redirects) = (&self.headers[..], Redirects::SamePath);
        Fetch { client, url, headers, redirects, refusal, is_object: true }
    }

    async fn put(&self, client: &HttpClient, url: &Url, bytes: Bytes) -> Result<()> {
        let mut headers = self.headers.clone();
        if bytes.len() >= WAITING_BODY_BYTES {
            // The proxy sends us on without wanting the body.
            headers.push(("expect", "100-continue".to_owned()));
        }
        let request = HttpRequest { method: Method::Put, url, headers: &headers, body: bytes, expect: 0 };
        let limits = Limits { part: 0, whole: MOST_LIST_BYTES };
        let done = client.follow(&request, limits, BytesMut::new(), Redirects::SamePath).await?;
        match done.status {
            200..300 => Ok(()),
            status => Err(refusal(status, &done.headers, &done.body)),
        }
    }
}

impl Store for AisStore {
    fn url(&self, key: &str) -> String {
        format!("ais://{}/{key}", self.0.bucket)
    }

    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta>> {
        async move {
            key::check(key)?;
            let look = |inner: Arc<Inner>, client| {
                let url = inner.object(key, "");
                async move { inner.fetch(&client, &url?).look().await }
            };
            let located = |error| fault::located(error, "look at", &self.url(key), None);
            let (size, tag) = self.run(look).await.map_err(located)?;
            Ok(ObjectMeta { key: key.to_owned(), size, stamp: Tag::stamp(tag.as_ref()) })
        }
        .boxed()
    }

    fn read<'a>(&'a self, key: &'a str, range: ByteRange) -> BoxFuture<'a, Result<Bytes>> {
        async move {
            key::check(key)?;
            let read = |inner: Arc<Inner>, client| {
                let url = inner.object(key, "");
                async move { Ok(inner.fetch(&client, &url?).fetch(range).await?.bytes) }
            };
            let located = |error| fault::located(error, "read", &self.url(key), first_of(range));
            self.run(read).await.map_err(located)
        }
        .boxed()
    }

    fn read_parts<'a>(&'a self, key: &'a str, parts: &'a [Range<u64>]) -> BoxFuture<'a, Result<Vec<Bytes>>> {
        async move {
            key::check(key)?;
            let wanted = parts.to_vec();
            let read = |inner: Arc<Inner>, client| {
                let url = inner.object(key, "");
                async move { parts::read_parts(&inner.fetch(&client, &url?), &wanted).await }
            };
            let first = parts.first().map(|part| part.start);
            self.run(read).await.map_err(|error| fault::located(error, "read", &self.url(key), first))
        }
        .boxed()
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<ObjectMeta>> {
        self.pages(prefix, String::new())
    }

    fn list_after<'a>(&'a self, prefix: &'a str, after: &str) -> BoxStream<'a, Result<ObjectMeta>> {
        // The server begins there; what it knows of order may still differ from ours.
        let (begin, after) = (after.to_owned(), after.to_owned());
        let later = move |meta: &Result<ObjectMeta>| {
            std::future::ready(meta.as_ref().map_or(true, |meta| meta.key > after))
        };
        self.pages(prefix, begin).filter(later).boxed()
    }

    fn list_page<'a>(&'a self, prefix: &'a str, place: &'a PagePlace) -> BoxFuture<'a, Result<ListPage>> {
        async move {
            let page = self.page(prefix, place).await?;
            // Whoever begins in the middle relies on an order that not every kind of bucket has.
            let first = page.objects.first().is_none_or(|first| first.key > place.after);
            if !first || !page.objects.is_sorted_by(|a, b| a.key < b.key) {
                let why = "the server lists keys in another order than that of their bytes";
                return Err(Error::unsupported(format!("list `{}`: {why}", self.url(prefix))));
            }
            Ok(page)
        }
        .boxed()
    }

    fn lists_pages(&self) -> bool {
        true
    }

    fn read_many<'a>(&'a self, reads: &'a [ObjectRead]) -> BoxFuture<'a, Vec<Result<Bytes>>> {
        async move {
            let mut answers = Vec::with_capacity(reads.len());
            for batch in batch::batches(reads) {
                answers.extend(self.read_batch(&reads[batch]).await);
            }
            answers
        }
        .boxed()
    }

    fn reads_per_request(&self) -> usize {
        batch::MOST_READS
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn runtime(&self) -> Option<tokio::runtime::Handle> {
        self.0.client.get().ok()?.net().handle()
    }

    fn write<'a>(&'a self, key: &'a str, bytes: Bytes) -> BoxFuture<'a, Result<()>> {
        async move {
            key::check_for_write(key)?;
            let located = |error| fault::located(error, "write", &self.url(key), None);
            if bytes.len() as u64 > MOST_BODY_BYTES {
                return Err(located(Error::exhausted("more bytes than one request may carry")));
            }
            let write = |inner: Arc<Inner>, client: HttpClient| {
                let url = inner.object(key, "");
                async move { inner.put(&client, &url?, bytes).await }
            };
            self.run(write).await.map_err(located)
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(pairs: &[(&str, &str)]) -> StoreOptions {
        pairs.iter().map(|(word, value)| ((*word).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn addresses_hold_bucket_key_and_provider() {
        let store =
            AisStore::open("ais://b", &words(&[("endpoint", "http://host:51080/"), ("token", "t")])).unwrap();
        let url = store.0.object("a b?/c", "&archpath=x").unwrap();
        assert_eq!(url.as_str(), "http://host:51080/v1/objects/b/a%20b%3F/c?provider=ais&archpath=x");
        assert_eq!(store.url("a"), "ais://b/a");
        assert!(AisStore::open("ais://b", &words(&[("endpoint", "http://h"), ("tokens", "t")])).is_err());
    }
}
