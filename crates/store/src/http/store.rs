//! Objects behind `http://` and `https://` addresses: read by ranges, written by PUT, never listed.

use super::client::{HttpRequest, Method, Redirects};
use super::exchange::Limits;
use super::fetch::Fetch;
use super::options::{self, HttpOptions};
use super::process::ProcessClient;
use super::tag::Tag;
use super::{parts, status, text, tls, uri};
use crate::net::Net;
use crate::{ByteRange, ObjectMeta, Store, StoreOptions, fault, key};
use bytes::{Bytes, BytesMut};
use forebay_core::{Error, Result};
use futures::future::{self, BoxFuture, FutureExt};
use futures::stream::{self, BoxStream, StreamExt};
use std::ops::Range;
use std::sync::Arc;
use url::Url;

/// Option words of this store alone.
pub(crate) const WORDS: &[&str] = &["token"];
/// A body from this size on waits until the server says that it wants it.
pub(crate) const WAITING_BODY_BYTES: usize = 128 << 10;
/// Of the answer to a write, which nobody reads.
const MOST_WRITE_ANSWER_BYTES: u64 = 1 << 20;

/// A web server as a store. Keys are paths below its root.
#[derive(Clone, Debug)]
pub struct HttpStore(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Ends with `/`.
    base: Url,
    /// Put behind every key: the signature of a signed address.
    query: Option<String>,
    headers: Vec<(&'static str, String)>,
    client: ProcessClient,
}

impl HttpStore {
    /// The server at `root`, such as `https://host:8443`. A query in it goes with every request; user and password
    /// are sent as basic credentials.
    pub fn open(root: &str, words: &StoreOptions) -> Result<Self> {
        options::refuse_unknown(words, "http", &[WORDS, options::WORDS, tls::WORDS])?;
        let mut base = uri::parse(root)?;
        let mut headers = Vec::new();
        if let Some(token) = words.get("token") {
            headers.push(("authorization", format!("Bearer {token}")));
        } else if !base.username().is_empty() {
            let (user, password) = (uri::decode(base.username())?, base.password().unwrap_or_default());
            let pair = format!("{user}:{}", uri::decode(password)?);
            headers.push(("authorization", format!("Basic {}", text::base64(pair.as_bytes()))));
        }
        let _ = (base.set_username(""), base.set_password(None));
        let query = base.query().map(str::to_owned);
        base.set_query(None);
        base.set_fragment(None);
        if !base.path().ends_with('/') {
            let path = format!("{}/", base.path());
            base.set_path(&path);
        }
        let client = ProcessClient::new(HttpOptions::from_words(words)?)?;
        Ok(Self(Arc::new(Inner { base, query, headers, client })))
    }

    /// Runs `work` on the network threads; its error names the object.
    async fn run<T: Send + 'static, F: Future<Output = Result<T>> + Send + 'static>(
        &self,
        doing: &str,
        key: &str,
        offset: Option<u64>,
        work: impl FnOnce(Arc<Inner>, super::HttpClient, Url) -> F,
    ) -> Result<T> {
        let located = |error| fault::located(error, doing, &self.url(key), offset);
        let client = self.0.client.get().map_err(located)?;
        let url = self.0.address(key).map_err(located)?;
        let net: Net = client.net().clone();
        net.run(work(self.0.clone(), client, url)).await.map_err(located)
    }
}

impl Inner {
    fn address(&self, key: &str) -> Result<Url> {
        let key = uri::encode_path(key);
        if let Some(query) = &self.query {
            return uri::parse(&format!("{}{key}?{query}", self.base));
        }
        // Reading all of it again, host and all, for every request would show.
        let mut url = self.base.clone();
        url.set_path(&format!("{}{key}", self.base.path()));
        Ok(url)
    }

    fn fetch<'a>(&'a self, client: &'a super::HttpClient, url: &'a Url) -> Fetch<'a> {
        let (headers, redirects) = (&self.headers[..], Redirects::Anyone);
        Fetch { client, url, headers, redirects, refusal: status::error, is_object: true }
    }
}

impl Store for HttpStore {
    fn url(&self, key: &str) -> String {
        format!("{}{}", self.0.base, uri::encode_path(key))
    }

    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta>> {
        async move {
            key::check(key)?;
            let look =
                |inner: Arc<Inner>, client, url| async move { inner.fetch(&client, &url).look().await };
            let (size, tag) = self.run("look at", key, None, look).await?;
            Ok(ObjectMeta { key: key.to_owned(), size, stamp: Tag::stamp(tag.as_ref()) })
        }
        .boxed()
    }

    fn read<'a>(&'a self, key: &'a str, range: ByteRange) -> BoxFuture<'a, Result<Bytes>> {
        async move {
            key::check(key)?;
            let read = move |inner: Arc<Inner>, client, url| async move {
                Ok(inner.fetch(&client, &url).fetch(range).await?.bytes)
            };
            self.run("read", key, first_of(range), read).await
        }
        .boxed()
    }

    fn read_parts<'a>(&'a self, key: &'a str, parts: &'a [Range<u64>]) -> BoxFuture<'a, Result<Vec<Bytes>>> {
        async move {
            key::check(key)?;
            let (first, parts) = (parts.first().map(|part| part.start), parts.to_vec());
            let read = |inner: Arc<Inner>, client, url| async move {
                parts::read_parts(&inner.fetch(&client, &url), &parts).await
            };
            self.run("read", key, first, read).await
        }
        .boxed()
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<ObjectMeta>> {
        let error =
            Error::unsupported(format!("list `{}`: web servers cannot say what they hold", self.url(prefix)))
                .with_hint("name the shards, for example `https://host/train-{000..099}.tar`")
                .with_facts(fault::facts(&self.url(prefix), None));
        stream::once(future::ready(Err(error))).boxed()
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
            let write = |inner: Arc<Inner>, client: super::HttpClient, url: Url| async move {
                let mut headers: Vec<(&str, String)> = inner.headers.clone();
                if bytes.len() >= WAITING_BODY_BYTES {
                    headers.push(("expect", "100-continue".to_owned()));
                }
                let request =
                    HttpRequest { method: Method::Put, url: &url, headers: &headers, body: bytes, expect: 0 };
                let limits = Limits { part: 0, whole: MOST_WRITE_ANSWER_BYTES };
                let done = client.follow(&request, limits, BytesMut::new(), Redirects::Anyone).await?;
                match done.status {
                    200..300 => Ok(()),
                    status => Err(status::error(status, &done.headers, &done.body)),
                }
            };
            self.run("write", key, None, write).await
        }
        .boxed()
    }
}

/// Where a range begins, when that is known without the object.
pub(crate) fn first_of(range: ByteRange) -> Option<u64> {
    match range {
        ByteRange::Bounded { start, .. } | ByteRange::From(start) => Some(start),
        ByteRange::Full | ByteRange::Whole(_) | ByteRange::Last(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_of_an_address_are_sent_and_never_shown() {
        let store =
            HttpStore::open("http://us%20er:pass@host:81/base?sig=abc", &StoreOptions::new()).unwrap();
        assert_eq!(store.url("a b"), "http://host:81/base/a%20b");
        assert_eq!(store.0.headers, [("authorization", format!("Basic {}", text::base64(b"us er:pass")))]);
        assert_eq!(store.0.address("a?b").unwrap().as_str(), "http://host:81/base/a%3Fb?sig=abc");
        let store = HttpStore::open("http://host:81/base", &StoreOptions::new()).unwrap();
        for key in ["a?b#c", "ä/b c.jpg", "a//b", "100%", "a;b&c=d"] {
            let parsed = uri::parse(&store.url(key)).unwrap();
            assert_eq!(store.0.address(key).unwrap(), parsed, "{key}");
        }
    }
}
