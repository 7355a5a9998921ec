//! Makes a store fail in chosen ways at chosen moments, the same way in every run.
//!
//! Rules are looked at in the order in which they were added and the first that applies acts. Faults of bytes
//! ([`Fault::Truncate`], [`Fault::Corrupt`]) break the contract of [`Store`] on purpose: they show whether callers check.

use crate::{ByteRange, ListPage, ObjectMeta, PagePlace, Store, fault};
use bytes::{Bytes, BytesMut};
use forebay_core::rng::{Rng, fold};
use forebay_core::{Error, ErrorKind, Result};
use futures::future::{self, BoxFuture, FutureExt};
use futures::stream::{self, BoxStream, StreamExt};
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// When a rule applies. Requests are counted from 1, over all methods; a listing is one request.
#[derive(Clone, Debug)]
pub enum When {
    /// At every request.
    Always,
    /// At the request of this number.
    Request(u64),
    /// At the first requests that name a key, for every key. Keys are remembered, so this is for bounded runs.
    FirstOfKey(u32),
    /// Whenever one of these keys is named.
    Keys(BTreeSet<String>),
    /// With this probability, drawn from the seed and the request's number.
    Chance(f64),
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An error of this kind.
    Fail(ErrorKind),
    /// Nobody is there to answer.
    Away,
    /// No answer, ever.
    Hang,
    /// The last byte or more of what was read is missing, and nobody says so.
    Truncate,
    /// One byte of what was read is another one.
    Corrupt,
}

/// A store that fails by rules.
#[derive(Debug)]
pub struct FlakyStore {
    inner: Arc<dyn Store>,
    seed: u64,
    rules: Vec<(When, Fault)>,
    requests: AtomicU64,
    faults: AtomicU64,
    /// For each rule by its number: how often each key was named.
    named: Mutex<HashMap<(usize, String), u32>>,
}

impl FlakyStore {
    /// A store without rules yet. Equal seeds and equal orders of requests give equal faults.
    pub fn new(inner: Arc<dyn Store>, seed: u64) -> Self {
        let (requests, faults) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { inner, seed, rules: Vec::new(), requests, faults, named: Mutex::default() }
    }

    /// Adds a rule after those that are there.
    #[must_use]
    pub fn with(mut self, when: When, fault: Fault) -> Self {
        self.rules.push((when, fault));
        self
    }

    /// How many requests came.
    pub fn requests(&self) -> u64 {
        self.requests.load(Relaxed)
    }

    /// How many of them met a fault.
    pub fn faults(&self) -> u64 {
        self.faults.load(Relaxed)
    }

    /// Counts a request and finds its fault. The second value seeds what the fault draws.
    fn draw(&self, key: &str) -> (Option<Fault>, Rng) {
        let number = self.requests.fetch_add(1, Relaxed) + 1;
        let applies = |(rule, when): (usize, &When)| match when {
            When::Always => true,
            When::Request(wanted) => number == *wanted,
            When::Keys(keys) => keys.contains(key),
            When::Chance(chance) => Rng::keyed(fold(&[self.seed, number]), rule as u64, 0).chance(*chance),
            When::FirstOfKey(times) => {
                let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
                let count = named.entry((rule, key.to_owned())).or_default();
                *count = count.saturating_add(1);
                *count <= *times
            }
        };
        let found = self.rules.iter().enumerate().find(|(rule, (when, _))| applies((*rule, when)));
        let fault = found.map(|(_, (_, fault))| *fault);
        self.faults.fetch_add(u64::from(fault.is_some()), Relaxed);
        (fault, Rng::keyed(fold(&[self.seed, number]), u64::MAX, 1))
    }

    /// Fails or hangs when the rules say so, and makes the request otherwise. `spoil` applies faults of bytes.
    async fn pass<'a, T>(
        &'a self,
        doing: &str,
        key: &str,
        request: impl FnOnce() -> BoxFuture<'a, Result<T>> + Send,
        spoil: impl FnOnce(T, Fault, Rng) -> T + Send,
    ) -> Result<T> {
        let (fault, rng) = self.draw(key);
        match fault {
            Some(Fault::Fail(kind)) => Err(self.failure(kind, doing, key)),
            Some(Fault::Away) => Err(self.failure(ErrorKind::Unavailable, doing, key).with_away()),
            Some(Fault::Hang) => future::pending().await,
            Some(fault) => Ok(spoil(request().await?, fault, rng)),
            None => request().await,
        }
    }

    fn failure(&self, kind: ErrorKind, doing: &str, key: &str) -> Error {
        let url = self.inner.url(key);
        Error::new(kind, format!("{doing} `{url}`: made to fail")).with_facts(fault::facts(&url, None))
    }
}

/// Cuts a piece off, or changes one byte. Nothing can be done to no bytes.
fn spoil(bytes: Bytes, fault: Fault, rng: &mut Rng) -> Bytes {
    if bytes.is_empty() {
        return bytes;
    }
    let place = rng.below(bytes.len() as u64) as usize;
    match fault {
        Fault::Truncate => bytes.slice(..place),
        Fault::Corrupt => {
            let mut changed = BytesMut::from(&bytes[..]);
            changed[place] ^= 1 << rng.below(8);
            changed.freeze()
        }
        Fault::Fail(_) | Fault::Away | Fault::Hang => bytes,
    }
}

impl Store for FlakyStore {
    fn url(&self, key: &str) -> String {
        self.inner.url(key)
    }

    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta>> {
        self.pass("look at", key, || self.inner.head(key), |meta, _, _| meta).boxed()
    }

    fn read<'a>(&'a self, key: &'a str, range: ByteRange) -> BoxFuture<'a, Result<Bytes>> {
        let spoil = |bytes, fault, mut rng: Rng| spoil(bytes, fault, &mut rng);
        self.pass("read", key, move || self.inner.read(key, range), spoil).boxed()
    }

    fn read_parts<'a>(&'a self, key: &'a str, parts: &'a [Range<u64>]) -> BoxFuture<'a, Result<Vec<Bytes>>> {
        let spoil_one = |mut answers: Vec<Bytes>, fault, mut rng: Rng| {
            // One part that has bytes, so that the fault shows.
            let filled: Vec<usize> =
                (0..answers.len()).filter(|number| !answers[*number].is_empty()).collect();
            if !filled.is_empty() {
                let answer = &mut answers[filled[rng.below(filled.len() as u64) as usize]];
                *answer = spoil(std::mem::take(answer), fault, &mut rng);
            }
            answers
        };
        self.pass("read", key, || self.inner.read_parts(key, parts), spoil_one).boxed()
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<ObjectMeta>> {
        match self.draw(prefix).0 {
            Some(Fault::Fail(kind)) => stream::iter([Err(self.failure(kind, "list", prefix))]).boxed(),
            Some(Fault::Away) => {
                let error = self.failure(ErrorKind::Unavailable, "list", prefix).with_away();
                stream::iter([Err(error)]).boxed()
            }
            Some(Fault::Hang) => stream::pending().boxed(),
            _ => self.inner.list(prefix),
        }
    }

    fn list_page<'a>(&'a self, prefix: &'a str, place: &'a PagePlace) -> BoxFuture<'a, Result<ListPage>> {
        self.pass("list", prefix, move || self.inner.list_page(prefix, place), |page, _, _| page).boxed()
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
        self.pass("write", key, move || self.inner.write(key, bytes), |(), _, _| ()).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryStore;

    fn store(rules: &[(When, Fault)]) -> FlakyStore {
        let memory = MemoryStore::new();
        for key in ["a", "b"] {
            memory.insert(key, &b"0123456789"[..]).unwrap();
        }
        rules
            .iter()
            .cloned()
            .fold(FlakyStore::new(Arc::new(memory), 7), |store, (when, fault)| store.with(when, fault))
    }

    const FAIL: Fault = Fault::Fail(ErrorKind::Unavailable);

    /// Which of some reads of `a` and `b` in turn work.
    async fn outcomes(store: &FlakyStore, count: usize) -> Vec<bool> {
        let mut found = Vec::new();
        for number in 0..count {
            found.push(store.read(["a", "b"][number % 2], ByteRange::Full).await.is_ok());
        }
        found
    }

    #[tokio::test]
    async fn rules_choose_the_moment() {
        let rows = [
            (When::Always, [false; 6]),
            (When::Request(3), [true, true, false, true, true, true]),
            (When::FirstOfKey(2), [false, false, false, false, true, true]),
            (When::Keys(BTreeSet::from(["b".into()])), [true, false, true, false, true, false]),
            (When::Chance(0.0), [true; 6]),
        ];
        for (when, expected) in rows {
            let store = store(&[(when.clone(), FAIL)]);
            assert_eq!(outcomes(&store, 6).await, expected, "{when:?}");
            assert_eq!(store.faults(), expected.iter().filter(|worked| !**worked).count() as u64);
        }
    }

    #[tokio::test]
    async fn chance_is_drawn_from_the_seed() {
        let rule = [(When::Chance(0.5), FAIL)];
        let first = outcomes(&store(&rule), 200).await;
        assert_eq!(first, outcomes(&store(&rule), 200).await);
        assert!((60..140).contains(&first.iter().filter(|worked| **worked).count()));
    }

    #[tokio::test]
    async fn bytes_are_cut_or_changed_without_a_word() {
        let cut = store(&[(When::Always, Fault::Truncate)]);
        assert!(cut.read("a", ByteRange::Full).await.unwrap().len() < 10);
        let changed = store(&[(When::Always, Fault::Corrupt)]);
        let parts = changed.read_parts("a", &[0..0, 0..10]).await.unwrap();
        let different = parts[1].iter().zip(b"0123456789").filter(|(a, b)| a != b).count();
        assert_eq!((parts[1].len(), different), (10, 1));
    }

    #[tokio::test]
    async fn a_hanging_request_gives_no_answer() {
        let store = store(&[(When::Always, Fault::Hang)]);
        assert!(store.head("a").now_or_never().is_none());
        assert!(store.list("").next().now_or_never().is_none());
    }
}
