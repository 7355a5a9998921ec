//! Makes requests again that may work the next time, with growing pauses, and gives up honestly.
//!
//! Only errors of transient kinds and requests without an answer are tried again. Pauses double from the first to
//! the longest and are cut by a seeded draw, so that many clients do not come back at the same moment. Every method
//! of [`Store`] may be repeated: reads have no effect and a write puts the whole object in place.
//!
//! Failures are of two sorts. A wrong answer may be wrong for ever, so tries are counted. A store that is not there, or
//! says that it has no time now, comes back: once it was seen at work, it is asked until the deadline ([`Patience`]).

mod away;

pub use away::AwayNotice;

use crate::{ByteRange, ListPage, ObjectMeta, ObjectRead, PagePlace, Store, fault};
use bytes::Bytes;
use forebay_core::rng::{Rng, fold};
use forebay_core::{Error, Result};
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{self, BoxStream, StreamExt};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// How often, how long, and with what pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryOptions {
    /// Tries of one request, the first one included; 0 counts as 1. Those that found nobody there, or were refused for
    /// load, do not count when a store is waited for: see [`Patience`].
    pub tries: u32,
    /// Pause after the first try; every further one is twice as long.
    pub first_pause: Duration,
    /// No pause is longer.
    pub longest_pause: Duration,
    /// A try without an answer after this time counts as failed. Raise it for large objects on slow links.
    pub request_timeout: Duration,
    /// A request is given up after this time, pauses included. For a listing it runs from one object to the next.
    pub deadline: Duration,
    /// Of the draws that shorten pauses.
    pub seed: u64,
}

impl Default for RetryOptions {
    fn default() -> Self {
        Self {
            tries: 5,
            first_pause: Duration::from_millis(100),
            longest_pause: Duration::from_secs(10),
            request_timeout: Duration::from_secs(60),
            deadline: Duration::from_secs(180),
            seed: 0,
        }
    }
}

/// What counts as a try, when nobody was there to answer or the store said that it has no time now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// That too: nothing has shown yet that the address is right and that somebody is behind it.
    Counted,
    /// Nothing but the deadline ends it, with growing pauses.
    UntilDeadline,
    /// The same, and somebody else says when to ask again: after the first pause the request comes back.
    Gated,
}

/// A store whose passing faults are not seen.
#[derive(Debug)]
pub struct RetryStore {
    inner: Arc<dyn Store>,
    options: RetryOptions,
    requests: AtomicU64,
    retries: AtomicU64,
    /// It was seen at work: from then on it is waited for when it is away.
    answered: AtomicBool,
    notice: AwayNotice,
}

/// The tries of one request, for those who repeat requests themselves.
#[derive(Debug)]
pub struct Tries {
    options: RetryOptions,
    /// Told apart from other requests, so that their pauses differ.
    number: u64,
    made: u32,
    /// Those of them that count.
    counted: u32,
    patience: Patience,
    began: Instant,
}

impl RetryStore {
    /// Repeats requests to `inner`.
    pub fn new(inner: Arc<dyn Store>, options: RetryOptions) -> Self {
        let (requests, retries) = (AtomicU64::new(0), AtomicU64::new(0));
        let (answered, notice) = (AtomicBool::new(false), AwayNotice::default());
        Self { inner, options, requests, retries, answered, notice }
    }

    /// How many tries were made beyond the first ones.
    pub fn retries(&self) -> u64 {
        self.retries.load(Relaxed)
    }

    fn tries(&self) -> Tries {
        let patience = if self.answered.load(Relaxed) { Patience::UntilDeadline } else { Patience::Counted };
        Tries::new(self.options, self.requests.fetch_add(1, Relaxed), patience)
    }

    /// Waits before the next try of a request, or gives up.
    async fn pause(&self, tries: &mut Tries, error: Error, doing: &str, key: &str) -> Result<()> {
        if error.is_away() {
            self.notice.tell(&error, tries.began.elapsed());
        }
        tries.pause(error, doing, || self.inner.url(key)).await?;
        self.retries.fetch_add(1, Relaxed);
        Ok(())
    }

    async fn repeat<'a, T>(
        &'a self,
        doing: &str,
        key: &str,
        request: impl Fn() -> BoxFuture<'a, Result<T>> + Send + Sync,
    ) -> Result<T> {
        let mut tries = self.tries();
        loop {
            match tries.attempt(doing, || self.inner.url(key), request()).await {
                Ok(answer) => {
                    self.answered.store(true, Relaxed);
                    return Ok(answer);
                }
                Err(error) => self.pause(&mut tries, error, doing, key).await?,
            }
        }
    }
}

impl RetryStore {
    /// A listing that breaks off is begun again and goes on after the last object seen: keys come in order.
    fn listing<'a>(&'a self, prefix: &'a str, last: Option<String>) -> BoxStream<'a, Result<ObjectMeta>> {
        let listing = Listing { items: self.begin(prefix, last.as_deref()), last, tries: self.tries() };
        stream::unfold(Some(listing), move |listing| async move {
            let mut listing = listing?;
            // How long the caller thought about the last object does not count.
            listing.tries.began = Instant::now();
            loop {
                let Listing { items, last, tries } = &mut listing;
                let next = async { items.next().await.transpose() };
                match tries.attempt("list", || self.inner.url(prefix), next).await {
                    Ok(None) => return None,
                    Ok(Some(meta)) if last.as_ref().is_some_and(|last| meta.key <= *last) => {
                        // Seen before the break. Passing it costs no try, since it is no progress either.
                        tries.made -= 1;
                        tries.counted -= 1;
                    }
                    Ok(Some(meta)) => {
                        *last = Some(meta.key.clone());
                        self.answered.store(true, Relaxed);
                        *tries = self.tries();
                        return Some((Ok(meta), Some(listing)));
                    }
                    Err(error) => match self.pause(tries, error, "list", prefix).await {
                        Ok(()) => *items = self.begin(prefix, last.as_deref()),
                        Err(error) => return Some((Err(error), None)),
                    },
                }
            }
        })
        .boxed()
    }

    fn begin<'a>(&'a self, prefix: &'a str, last: Option<&str>) -> BoxStream<'a, Result<ObjectMeta>> {
        match last {
            Some(last) => self.inner.list_after(prefix, last),
            None => self.inner.list(prefix),
        }
    }
}

impl Tries {
    /// None made yet. `number` tells this request apart from others.
    pub fn new(options: RetryOptions, number: u64, patience: Patience) -> Self {
        Self { options, number, made: 0, counted: 0, patience, began: Instant::now() }
    }

    /// One more was made, by the caller itself.
    pub fn count(&mut self) {
        self.made += 1;
        self.counted += 1;
    }

    /// Time until the deadline.
    pub fn left(&self) -> Duration {
        self.options.deadline.saturating_sub(self.began.elapsed())
    }

    /// One try, bounded by its own time and what is left until the deadline.
    pub async fn attempt<T>(
        &mut self,
        doing: &str,
        url: impl Fn() -> String,
        request: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        self.count();
        let limit = self.options.request_timeout.min(self.left());
        timeout(limit, request).await.unwrap_or_else(|_| {
            let url = url();
            let why = format!("{doing} `{url}`: no answer in {:.1} s", limit.as_secs_f64());
            Err(Error::unavailable(why).with_facts(fault::facts(&url, None)))
        })
    }

    /// Waits before the next try, or gives the error back with tries and time when there is to be none.
    pub async fn pause(&mut self, error: Error, doing: &str, url: impl Fn() -> String) -> Result<()> {
        if !error.kind().is_transient() {
            return Err(error);
        }
        let waited_for =
            (error.is_away() || error.throttled().is_some()) && self.patience != Patience::Counted;
        self.counted -= u32::from(waited_for);
        let gated = error.is_away() && self.patience == Patience::Gated;
        let options = &self.options;
        let doublings = if gated { 0 } else { self.made - 1 };
        let doubled = options.first_pause.saturating_mul(1u32.checked_shl(doublings).unwrap_or(u32::MAX));
        let draw = Rng::keyed(fold(&[options.seed, self.number]), u64::from(self.made), 0).uniform(0.5, 1.0);
        // The other side may have said how long it wants to be left alone.
        let asked = error.throttled().unwrap_or_default().min(options.longest_pause);
        let pause = doubled.min(options.longest_pause).mul_f64(draw).max(asked);
        if self.counted >= options.tries.max(1) || pause >= self.left() {
            return Err(self.given_up(error, doing, &url()));
        }
        tracing::debug!(%error, tries = self.made, "request is tried again");
        sleep(pause).await;
        Ok(())
    }

    /// The error of a request that is not tried any more, with tries and time.
    pub fn given_up(&self, error: Error, doing: &str, url: &str) -> Error {
        let facts = error.facts().clone();
        let (tries, seconds) = (self.made, self.began.elapsed().as_secs_f64());
        let plural = if tries == 1 { "try" } else { "tries" };
        let (hint, throttled, away) = (error.hint().map(str::to_owned), error.throttled(), error.is_away());
        let message = format!("{doing} `{url}`: gave up after {tries} {plural} in {seconds:.1} s");
        let mut given_up = Error::new(error.kind(), message).with_source(error).with_facts(facts);
        if let Some(hint) = hint {
            given_up = given_up.with_hint(hint);
        }
        if let Some(pause) = throttled {
            given_up = given_up.with_throttle(pause);
        }
        if away {
            given_up = given_up.with_away();
        }
        given_up.with_facts(fault::facts(url, None))
    }
}

impl Store for RetryStore {
    fn url(&self, key: &str) -> String {
        self.inner.url(key)
    }

    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta>> {
        self.repeat("look at", key, || self.inner.head(key)).boxed()
    }

    fn read<'a>(&'a self, key: &'a str, range: ByteRange) -> BoxFuture<'a, Result<Bytes>> {
        self.repeat("read", key, move || self.inner.read(key, range)).boxed()
    }

    fn read_parts<'a>(&'a self, key: &'a str, parts: &'a [Range<u64>]) -> BoxFuture<'a, Result<Vec<Bytes>>> {
        self.repeat("read", key, || self.inner.read_parts(key, parts)).boxed()
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<ObjectMeta>> {
        self.listing(prefix, None)
    }

    fn list_after<'a>(&'a self, prefix: &'a str, after: &str) -> BoxStream<'a, Result<ObjectMeta>> {
        self.listing(prefix, Some(after.to_owned()))
    }

    fn read_many<'a>(&'a self, reads: &'a [ObjectRead]) -> BoxFuture<'a, Vec<Result<Bytes>>> {
        async move {
            let mut answers = self.inner.read_many(reads).await;
            for (answer, read) in answers.iter_mut().zip(reads) {
                if answer.as_ref().is_err_and(|error| error.kind().is_transient()) {
                    *answer = self.read(&read.key, read.range.clone().into()).await;
                }
            }
            answers
        }
        .boxed()
    }

    fn reads_per_request(&self) -> usize {
        self.inner.reads_per_request()
    }

    fn list_page<'a>(&'a self, prefix: &'a str, place: &'a PagePlace) -> BoxFuture<'a, Result<ListPage>> {
        self.repeat("list", prefix, || self.inner.list_page(prefix, place)).boxed()
    }

    fn lists_pages(&self) -> bool {
        self.inner.lists_pages()
    }

    fn is_remote(&self) -> bool {
        self.inner.is_remote()
    }

    fn runtime(&self) -> Option<tokio::runtime::Handle> {
        self.inner.runtime()
    }

    fn write<'a>(&'a self, key: &'a str, bytes: Bytes) -> BoxFuture<'a, Result<()>> {
        self.repeat("write", key, move || self.inner.write(key, bytes.clone())).boxed()
    }
}

/// A listing under way.
struct Listing<'a> {
    items: BoxStream<'a, Result<ObjectMeta>>,
    last: Option<String>,
    tries: Tries,
}

#[cfg(test)]
mod tests;
