//! Any store of the `object_store` crate behind our trait: Google Cloud Storage and Azure.
//!
//! Reads are one GET each, listings go page by page. Its own retries are off but for one, because the adapter around a
//! store decides. Keys with control characters are refused: its paths cannot hold them.

use crate::http::{options as http, tls};
use crate::{ByteRange, ListPage, Net, ObjectMeta, PagePlace, Store, StoreOptions, fault, key, range, spans};
use bytes::Bytes;
use forebay_core::{Error, ErrorKind, Result};
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use object_store::client::{HttpError, HttpErrorKind};
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectStore, ObjectStoreExt, RetryConfig, WriteMultipart};
use std::ops::Range;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Larger objects are written in parts.
const WHOLE_BYTES: usize = 64 << 20;
/// Bytes of a part.
const PART_BYTES: usize = 16 << 20;
/// Parts under way together, and requests of one [`Store::read_parts`].
const IN_FLIGHT: usize = 8;

/// What `object_store` has to offer: objects, and listings that begin where we want.
pub trait Bucket: ObjectStore + PaginatedListStore {}

impl<T: ObjectStore + PaginatedListStore> Bucket for T {}

/// Makes the client; called again after a fork, because connections do not cross one.
type Make = Box<dyn Fn() -> Result<Arc<dyn Bucket>> + Send + Sync>;

/// A bucket of a cloud.
pub struct CloudStore {
    root: String,
    make: Make,
    live: Mutex<Option<Live>>,
    begins_anywhere: bool,
}

#[derive(Clone)]
struct Live {
    net: Net,
    bucket: Arc<dyn Bucket>,
}

/// The words that `object_store` knows for a store, and others of ours by the name that they have there.
pub fn configured<K: FromStr + Copy>(
    scheme: &str,
    words: &StoreOptions,
    ours: &[(&str, &str)],
) -> Result<Vec<(K, String)>> {
    let mut found = Vec::new();
    let of_connections = |word: &str| http::WORDS.contains(&word) || tls::WORDS.contains(&word);
    for (word, value) in words.iter().filter(|(word, _)| !of_connections(word)) {
        let theirs = ours.iter().find(|(name, _)| name == word).map_or(word.as_str(), |(_, theirs)| theirs);
        let Ok(key) = theirs.parse() else {
            let why =
                format!("read the options of a `{scheme}://` store: there is no `{}`", word.escape_debug());
            let hint = "known are the settings of the `object_store` crate for it, `anonymous`, and the words about connections and TLS that all stores over HTTP have";
            return Err(Error::invalid_config(why).with_hint(hint));
        };
        found.push((key, value.clone()));
    }
    Ok(found)
}

/// Retries of `object_store`: none.
pub fn no_retries() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

impl CloudStore {
    /// The bucket that `make` connects to, called `root` in messages. The options are checked now.
    pub fn new(
        root: impl Into<String>,
        make: impl Fn() -> Result<Arc<dyn Bucket>> + Send + Sync + 'static,
    ) -> Result<Self> {
        let store =
            Self { root: root.into(), make: Box::new(make), live: Mutex::default(), begins_anywhere: false };
        (store.make)()?;
        Ok(store)
    }

    fn live(&self) -> Result<Live> {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(live) = live.as_ref().filter(|live| live.net.is_alive()) {
            return Ok(live.clone());
        }
        let fresh = Live { net: Net::shared()?, bucket: (self.make)()? };
        // Connections of the parent process: closing them here would reach into its event queue.
        std::mem::forget(live.replace(fresh.clone()));
        Ok(fresh)
    }

    fn path(key: &str) -> Result<Path> {
        key::check(key)?;
        Path::parse(key).ok().filter(|path| path.as_ref() == key).ok_or_else(|| {
            let why = "it has characters that keys of this store cannot have";
            Error::invalid_config(format!("use key `{}`: {why}", key.escape_debug()))
        })
    }

    /// Says whether listings can begin behind any key, so that several pages can be asked for at once.
    #[must_use]
    pub fn beginning_anywhere(mut self, begins_anywhere: bool) -> Self {
        self.begins_anywhere = begins_anywhere;
        self
    }

    fn pages<'a>(&'a self, prefix: &'a str, after: String) -> BoxStream<'a, Result<ObjectMeta>> {
        stream::try_unfold(Some(PagePlace { after, tokens: Vec::new() }), move |place| async move {
            let Some(place) = place else { return Ok(None) };
            let page = self.page(prefix, &place).await?;
            Ok::<_, Error>(Some((stream::iter(page.objects.into_iter().map(Ok)), page.next)))
        })
        .try_flatten()
        .boxed()
    }

    async fn page(&self, prefix: &str, place: &PagePlace) -> Result<ListPage> {
        if !super::begins_a_key(prefix) {
            return Ok(ListPage::default());
        }
        let Live { net, bucket } = self.live()?;
        let (prefix, name, place) = (prefix.to_owned(), self.url(prefix), place.clone());
        net.run(async move {
            let PagePlace { after, tokens } = place;
            let page_token = tokens.into_iter().next();
            let offset = Some(after.clone()).filter(|after| page_token.is_none() && !after.is_empty());
            let options = PaginatedListOptions { offset, page_token, ..PaginatedListOptions::default() };
            let prefix = Some(prefix).filter(|prefix| !prefix.is_empty());
            let page = bucket.list_paginated(prefix.as_deref(), options).await;
            let page = page.map_err(|error| refusal(error, "list", &name))?;
            let mut objects: Vec<_> = page.result.objects.iter().map(meta_of).collect();
            let last = objects.last().map(|meta| meta.key.clone());
            // Folders that consoles make, and what begins before `after` on stores that cannot begin there.
            objects.retain(|meta| key::check_for_write(&meta.key).is_ok() && meta.key > after);
            let next = page.page_token.map(|token| PagePlace {
                after: last.clone().filter(|last| *last > after).unwrap_or(after),
                tokens: vec![token],
            });
            Ok(ListPage { objects, last, next })
        })
        .await
    }
}

fn meta_of(meta: &object_store::ObjectMeta) -> ObjectMeta {
    let stamp = match &meta.e_tag {
        Some(etag) => super::stamp_of(Some(etag)),
        // Headers tell whole seconds, listings sometimes more.
        None => meta.last_modified.timestamp().unsigned_abs(),
    };
    ObjectMeta { key: meta.location.to_string(), size: meta.size, stamp }
}

/// The bytes of a range, the size of the object and its stamp.
async fn get(bucket: &dyn Bucket, path: &Path, range: ByteRange, name: &str) -> Result<(Bytes, ObjectMeta)> {
    let located = |error| fault::located(error, "read", name, None);
    let asked = match range {
        ByteRange::Full | ByteRange::Whole(_) => None,
        ByteRange::Bounded { start, end } if start < end => Some(GetRange::Bounded(start..end)),
        ByteRange::Last(length) if length > 0 => Some(GetRange::Suffix(length)),
        // What begins at the end has no bytes, and servers answer that as a fault: so the size is asked for first.
        _ => {
            let head = bucket.head(path).await.map_err(|error| refusal(error, "read", name))?;
            let wanted = range.resolve(head.size).map_err(located)?;
            if wanted.is_empty() {
                return Ok((Bytes::new(), meta_of(&head)));
            }
            Some(GetRange::Bounded(wanted))
        }
    };
    let ask = |range| bucket.get_opts(path, GetOptions { range, ..GetOptions::default() });
    let mut answer = ask(asked).await;
    // Azure knows no ranges that are counted from the end, so its end is asked for first.
    if let (ByteRange::Last(_), Err(object_store::Error::NotSupported { .. })) = (range, &answer) {
        let head = bucket.head(path).await.map_err(|error| refusal(error, "read", name))?;
        answer = ask(Some(GetRange::Bounded(range.resolve(head.size).map_err(located)?))).await;
    }
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => {
            let error = refusal(error, "read", name);
            // A range beyond the end has no kind of its own there.
            if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::InvalidConfig)
                && range != ByteRange::Full
            {
                let head = bucket.head(path).await.map_err(|error| refusal(error, "read", name))?;
                range.resolve(head.size).map_err(located)?;
            }
            return Err(error);
        }
    };
    let meta = meta_of(&answer.meta);
    let wanted = range.resolve(meta.size).map_err(located)?;
    let given = answer.range.clone();
    let bytes = answer.bytes().await.map_err(|error| refusal(error, "read", name))?;
    if given != wanted || bytes.len() as u64 != wanted.end - wanted.start {
        let why = format!("read `{name}`: the answer holds other bytes than were asked for");
        return Err(Error::unavailable(why).with_facts(fault::facts(name, None)));
    }
    Ok((bytes, meta))
}

async fn get_parts(bucket: &dyn Bucket, path: &Path, parts: &[Range<u64>], name: &str) -> Result<Vec<Bytes>> {
    let located = |error| fault::located(error, "read", name, parts.first().map(|part| part.start));
    range::check_parts(parts, u64::MAX).map_err(located)?;
    let Some(end) = parts.last().map(|part| part.end) else { return Ok(Vec::new()) };
    let spans = spans::plan(parts);
    if spans.is_empty() {
        get(bucket, path, (end..end).into(), name).await?;
        return Ok(vec![Bytes::new(); parts.len()]);
    }
    let mut reads = Vec::with_capacity(spans.len());
    for span in &spans {
        reads.push(get(bucket, path, span.clone().into(), name));
    }
    let answers: Vec<_> = stream::iter(reads).buffered(IN_FLIGHT).try_collect().await?;
    let first = &answers[0].1;
    range::check_parts(parts, first.size).map_err(located)?;
    if answers.iter().any(|(_, meta)| meta != first) {
        let why = format!("read `{name}`: it was changed between two requests of one read");
        return Err(Error::stale(why).with_facts(fault::facts(name, None)));
    }
    let bytes: Vec<Bytes> = answers.into_iter().map(|(bytes, _)| bytes).collect();
    spans::cut(parts, &spans, &bytes)
}

async fn put(bucket: &dyn Bucket, path: &Path, bytes: Bytes, name: &str) -> Result<()> {
    let refused = |error| refusal(error, "write", name);
    if bytes.len() <= WHOLE_BYTES {
        bucket.put(path, bytes.into()).await.map_err(refused)?;
        return Ok(());
    }
    let upload = bucket.put_multipart(path).await.map_err(refused)?;
    let mut write = WriteMultipart::new_with_chunk_size(upload, PART_BYTES);
    for start in (0..bytes.len()).step_by(PART_BYTES) {
        write.wait_for_capacity(IN_FLIGHT).await.map_err(refused)?;
        write.put(bytes.slice(start..bytes.len().min(start + PART_BYTES)));
    }
    write.finish().await.map_err(refused)?;
    Ok(())
}

/// What an error of `object_store` means and what can be done about it.
fn refusal(error: object_store::Error, doing: &str, name: &str) -> Error {
    use object_store::Error as Theirs;
    let kind = match &error {
        Theirs::NotFound { .. } => return fault::missing(doing, name),
        Theirs::PermissionDenied { .. } | Theirs::Unauthenticated { .. } => ErrorKind::Denied,
        Theirs::Precondition { .. } | Theirs::NotModified { .. } => ErrorKind::Stale,
        Theirs::NotSupported { .. } | Theirs::NotImplemented { .. } => ErrorKind::Unsupported,
        Theirs::InvalidPath { .. } => ErrorKind::InvalidConfig,
        _ => ErrorKind::Unavailable,
    };
    // The status is in the text only.
    let text = error.to_string();
    let away = is_away(&error);
    let throttled = ["429 Too Many", "503 Service Un", "SlowDown"].iter().any(|words| text.contains(words));
    let mut ours =
        Error::new(kind, format!("{doing} `{name}`")).with_source(error).with_facts(fault::facts(name, None));
    if kind == ErrorKind::Denied {
        ours = ours.with_hint(
            "check the credentials in the storage options or the environment, and their rights there",
        );
    }
    match kind {
        ErrorKind::Unavailable if away => ours.with_away(),
        ErrorKind::Unavailable if throttled => ours.with_throttle(Duration::ZERO),
        _ => ours,
    }
}

/// Whether no connection could be made, which is told somewhere among the causes.
fn is_away(error: &object_store::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(http) = error.downcast_ref::<HttpError>() {
            return http.kind() == HttpErrorKind::Connect;
        }
        cause = error.source();
    }
    false
}

impl std::fmt::Debug for CloudStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CloudStore").field("root", &self.root).finish_non_exhaustive()
    }
}

impl Store for CloudStore {
    fn url(&self, key: &str) -> String {
        if key.is_empty() { self.root.clone() } else { format!("{}/{key}", self.root) }
    }

    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta>> {
        async move {
            let (path, name, Live { net, bucket }) = (Self::path(key)?, self.url(key), self.live()?);
            let head =
                async move { bucket.head(&path).await.map_err(|error| refusal(error, "look at", &name)) };
            Ok(meta_of(&net.run(head).await?))
        }
        .boxed()
    }

    fn read<'a>(&'a self, key: &'a str, range: ByteRange) -> BoxFuture<'a, Result<Bytes>> {
        async move {
            let (path, name, Live { net, bucket }) = (Self::path(key)?, self.url(key), self.live()?);
            net.run(async move { Ok(get(&*bucket, &path, range, &name).await?.0) }).await
        }
        .boxed()
    }

    fn read_parts<'a>(&'a self, key: &'a str, parts: &'a [Range<u64>]) -> BoxFuture<'a, Result<Vec<Bytes>>> {
        async move {
            let (path, name, Live { net, bucket }) = (Self::path(key)?, self.url(key), self.live()?);
            let parts = parts.to_vec();
            net.run(async move { get_parts(&*bucket, &path, &parts, &name).await }).await
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
        self.page(prefix, place).boxed()
    }

    fn lists_pages(&self) -> bool {
        self.begins_anywhere
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn runtime(&self) -> Option<tokio::runtime::Handle> {
        self.live().ok()?.net.handle()
    }

    fn write<'a>(&'a self, key: &'a str, bytes: Bytes) -> BoxFuture<'a, Result<()>> {
        async move {
            key::check_for_write(key)?;
            let (path, name, Live { net, bucket }) = (Self::path(key)?, self.url(key), self.live()?);
            net.run(async move { put(&*bucket, &path, bytes, &name).await }).await
        }
        .boxed()
    }
}
