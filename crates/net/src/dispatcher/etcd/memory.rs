//! A model of etcd for tests: one map with revisions and leases, behind links that are slow, lose answers or are cut.
//!
//! It runs in the time of its runtime, so that a test with paused time takes no time.

use super::{Do, Etcd, Lease, Outcome, Pair, Range, Transaction};
use crate::server::lock;
use forebay_core::rng::Rng;
use forebay_core::{Error, Result};
use futures::future::{BoxFuture, FutureExt};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

/// How often it looks for leases that have lapsed, as etcd does.
const SWEEP: Duration = Duration::from_millis(500);
/// After this a call counts as unanswered.
const PATIENCE: Duration = Duration::from_millis(900);

/// The one etcd that all links lead to.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryEtcd {
    inner: Arc<Mutex<Inner>>,
    /// Nobody is answered: most members are gone.
    away: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct Inner {
    revision: i64,
    leases: i64,
    pairs: BTreeMap<String, Pair>,
    /// Length, and when it lapses. While nobody is answered no lease lapses, as nothing is decided then.
    lapses: BTreeMap<i64, (Duration, Instant)>,
    /// Largest request that was seen, in bytes of values.
    largest: usize,
}

/// One process's way there.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    etcd: MemoryEtcd,
    cut: Arc<AtomicBool>,
    chance: Arc<Mutex<Rng>>,
    delay_ms: u64,
    /// One of so many calls is lost, before or after it was done.
    lost_of: u64,
}

impl MemoryEtcd {
    /// A way there with delays of up to this, which loses one of so many calls (0: none).
    pub(crate) fn link(&self, seed: u64, delay_ms: u64, lost_of: u64) -> Link {
        let chance = Arc::new(Mutex::new(Rng::keyed(seed, 1, 1)));
        Link { etcd: self.clone(), cut: Arc::default(), chance, delay_ms, lost_of }
    }

    /// Most members are gone, or back. Leases begin again then, as with a new leader of etcd.
    pub(crate) fn set_away(&self, away: bool) {
        self.away.store(away, Ordering::SeqCst);
        let mut inner = lock(&self.inner);
        let now = Instant::now();
        for (length, end) in inner.lapses.values_mut() {
            *end = now + *length;
        }
    }

    /// All pairs whose keys begin so.
    pub(crate) fn pairs(&self, prefix: &str) -> Vec<Pair> {
        let inner = lock(&self.inner);
        inner.pairs.values().filter(|pair| pair.key.starts_with(prefix)).cloned().collect()
    }

    pub(crate) fn largest(&self) -> usize {
        lock(&self.inner).largest
    }

    /// Puts a pair as somebody else would.
    pub(crate) fn put(&self, key: &str, value: &[u8]) {
        let mut inner = lock(&self.inner);
        inner.revision += 1;
        inner.perform(&Do::Put { key: key.into(), value: value.into(), lease: 0 });
    }

    /// Takes away leases that lapsed; to be run beside the others.
    pub(crate) async fn sweep(&self) {
        loop {
            tokio::time::sleep(SWEEP).await;
            if self.away.load(Ordering::SeqCst) {
                continue;
            }
            let mut inner = lock(&self.inner);
            let now = Instant::now();
            let lapsed: Vec<i64> =
                inner.lapses.iter().filter(|(_, (_, end))| *end <= now).map(|(id, _)| *id).collect();
            for lease in lapsed {
                inner.revoke(lease);
            }
        }
    }
}

impl Inner {
    fn revoke(&mut self, lease: i64) {
        self.revision += 1;
        self.lapses.remove(&lease);
        self.pairs.retain(|_, pair| pair.lease != lease);
    }

    #[expect(
        clippy::option_option,
        reason = "a request that reads nothing differs from one that finds nothing"
    )]
    fn perform(&mut self, one: &Do) -> Option<Option<Pair>> {
        match one {
            Do::Get(key) => return Some(self.pairs.get(key).cloned()),
            Do::Put { key, value, lease } => {
                let created = self.pairs.get(key).map_or(self.revision, |before| before.created);
                let pair = Pair { key: key.clone(), value: value.clone(), created, lease: *lease };
                self.pairs.insert(key.clone(), pair);
            }
            Do::Delete(Range { from, end }) => {
                self.pairs.retain(|key, _| !(from.as_str()..end.as_str()).contains(&key.as_str()));
            }
        }
        None
    }
}

impl Link {
    /// Nothing gets through any more, or everything again.
    pub(crate) fn set_cut(&self, cut: bool) {
        self.cut.store(cut, Ordering::SeqCst);
    }

    async fn call<T>(&self, work: impl FnOnce(&mut Inner) -> T) -> Result<T> {
        let begun = Instant::now();
        let (there, back, lost) = {
            let mut chance = lock(&self.chance);
            let mut delay = || Duration::from_millis(chance.below(self.delay_ms.max(1)) + 1);
            let (there, back) = (delay(), delay());
            // On its way there, or on its way back.
            let lost = (self.lost_of > 0 && chance.below(self.lost_of) == 0).then(|| chance.below(2));
            (there, back, lost)
        };
        tokio::time::sleep(there).await;
        let is_shut = || self.cut.load(Ordering::SeqCst) || self.etcd.away.load(Ordering::SeqCst);
        let done = (!is_shut() && lost != Some(0)).then(|| work(&mut lock(&self.etcd.inner)));
        let is_answered = done.is_some() && lost.is_none();
        tokio::time::sleep(if is_answered { back } else { PATIENCE.saturating_sub(there) }).await;
        match done {
            Some(done) if is_answered && !is_shut() && begun.elapsed() < PATIENCE => Ok(done),
            _ => Err(Error::unavailable("ask etcd: no answer")),
        }
    }
}

impl Etcd for Link {
    fn range(&self, range: Range, limit: usize) -> BoxFuture<'_, Result<Vec<Pair>>> {
        self.call(move |inner| {
            inner.pairs.range(range.from..range.end).take(limit).map(|(_, pair)| pair.clone()).collect()
        })
        .boxed()
    }

    fn transact(&self, transaction: Transaction) -> BoxFuture<'_, Result<Outcome>> {
        let call = self.call(move |inner| {
            let Transaction { made_at, then, otherwise } = transaction;
            let made = |key: &String| inner.pairs.get(key).map_or(0, |pair| pair.created);
            let held = made_at.iter().all(|(key, revision)| made(key) == *revision);
            let list = if held { then } else { otherwise };
            let size = list.iter().map(|one| if let Do::Put { value, .. } = one { value.len() } else { 0 });
            inner.largest = inner.largest.max(size.sum());
            if list.iter().any(|one| !matches!(one, Do::Get(_))) {
                inner.revision += 1;
            }
            let lapsed = |one: &Do| matches!(one, Do::Put { lease, .. } if *lease != 0 && !inner.lapses.contains_key(lease));
            if list.iter().any(lapsed) {
                return Err(Error::not_found("ask etcd: requested lease not found"));
            }
            let got = list.iter().filter_map(|one| inner.perform(one)).collect();
            Ok(Outcome { held, got })
        });
        async move { call.await? }.boxed()
    }

    fn grant(&self, seconds: u64) -> BoxFuture<'_, Result<Lease>> {
        self.call(move |inner| {
            inner.leases += 1;
            let length = Duration::from_secs(seconds);
            inner.lapses.insert(inner.leases, (length, Instant::now() + length));
            Lease { id: inner.leases, length_ms: length.as_millis() as u64 }
        })
        .boxed()
    }

    fn renew(&self, lease: i64) -> BoxFuture<'_, Result<Option<u64>>> {
        self.call(move |inner| {
            let (length, end) = inner.lapses.get_mut(&lease)?;
            *end = Instant::now() + *length;
            Some(length.as_millis() as u64)
        })
        .boxed()
    }

    fn revoke(&self, lease: i64) -> BoxFuture<'_, Result<()>> {
        self.call(move |inner| inner.revoke(lease)).boxed()
    }
}
