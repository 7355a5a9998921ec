//! A store far away, without a clock: requests wait until the test lets them go, or are answered as it says.

use bytes::Bytes;
use forebay_core::{Error, Result};
use forebay_store::{ByteRange, MemoryStore, ObjectMeta, ObjectRead, Store};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// What happens to one request for a key; `attempt` counts from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// At once.
    Now,
    /// When [`Far::release`] has come to its sample.
    Held,
    /// Never.
    Never,
    /// With a passing fault.
    Fail,
    /// Refused for too many requests.
    Throttle,
}

type Script = dyn Fn(&str, u32) -> Answer + Send + Sync;

/// A remote store over memory.
pub(crate) struct Far {
    inner: MemoryStore,
    script: Box<Script>,
    released: watch::Sender<u64>,
    counts: Mutex<Counts>,
    per_request: usize,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) requests: u64,
    pub(crate) in_flight: usize,
    pub(crate) most_in_flight: usize,
    pub(crate) attempts: HashMap<String, u32>,
    /// Ranges asked for together, request by request.
    pub(crate) many: Vec<usize>,
}

/// Ends with the request, also when it is abandoned.
struct Flying<'a>(&'a Far);

impl Drop for Flying<'_> {
    fn drop(&mut self) {
        self.0.lock().in_flight -= 1;
    }
}

impl std::fmt::Debug for Far {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Far")
    }
}

impl Far {
    pub(crate) fn new(
        inner: MemoryStore,
        script: impl Fn(&str, u32) -> Answer + Send + Sync + 'static,
    ) -> Arc<Self> {
        Self::carrying(1, inner, script)
    }

    /// As [`Self::new`], with requests that carry several ranges.
    pub(crate) fn carrying(
        per_request: usize,
        inner: MemoryStore,
        script: impl Fn(&str, u32) -> Answer + Send + Sync + 'static,
    ) -> Arc<Self> {
        let (released, counts) = (watch::channel(0).0, Mutex::default());
        Arc::new(Self { inner, script: Box::new(script), released, counts, per_request })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn counts(&self) -> Counts {
        self.lock().clone()
    }

    /// Lets the held requests for the samples before `sample` go, now or later.
    pub(crate) fn release(&self, sample: u64) {
        self.released.send_replace(sample);
    }

    /// Waits, as long as a busy machine may take, until so many requests are in flight.
    pub(crate) fn wait_in_flight(&self, requests: usize) {
        let began = Instant::now();
        while self.lock().in_flight < requests {
            assert!(began.elapsed() < Duration::from_secs(60), "{} of {requests}", self.lock().in_flight);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    async fn pass(&self, key: &str) -> Result<()> {
        let attempt = {
            let mut counts = self.lock();
            counts.requests += 1;
            counts.in_flight += 1;
            counts.most_in_flight = counts.most_in_flight.max(counts.in_flight);
            let attempts = counts.attempts.entry(key.to_owned()).or_default();
            *attempts += 1;
            *attempts
        };
        let _flying = Flying(self);
        match (self.script)(key, attempt) {
            Answer::Now => Ok(()),
            Answer::Held => {
                let sample: u64 = key.parse().expect("keys are numbers");
                self.released
                    .subscribe()
                    .wait_for(|released| sample < *released)
                    .await
                    .expect("never closed");
                Ok(())
            }
            Answer::Never => std::future::pending().await,
            Answer::Fail => Err(Error::unavailable(format!("read `{key}`: the line broke"))),
            Answer::Throttle => Err(Error::unavailable(format!("read `{key}`: too many requests"))
                .with_throttle(Duration::from_millis(1))),
        }
    }
}

impl Store for Far {
    fn url(&self, key: &str) -> String {
        format!("far://{key}")
    }
    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta>> {
        self.inner.head(key)
    }
    fn read<'a>(&'a self, key: &'a str, range: ByteRange) -> BoxFuture<'a, Result<Bytes>> {
        Box::pin(async move {
            self.pass(key).await?;
            self.inner.read(key, range).await
        })
    }
    fn read_parts<'a>(&'a self, key: &'a str, parts: &'a [Range<u64>]) -> BoxFuture<'a, Result<Vec<Bytes>>> {
        Box::pin(async move {
            self.pass(key).await?;
            self.inner.read_parts(key, parts).await
        })
    }
    fn read_many<'a>(&'a self, reads: &'a [ObjectRead]) -> BoxFuture<'a, Vec<Result<Bytes>>> {
        Box::pin(async move {
            self.lock().many.push(reads.len());
            let mut answers = Vec::new();
            for read in reads {
                answers.push(match self.pass(&read.key).await {
                    Ok(()) => self.inner.read(&read.key, read.range.clone().into()).await,
                    Err(error) => Err(error),
                });
            }
            answers
        })
    }
    fn reads_per_request(&self) -> usize {
        self.per_request
    }
    fn is_remote(&self) -> bool {
        true
    }
    fn list<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }
    fn write<'a>(&'a self, key: &'a str, bytes: Bytes) -> BoxFuture<'a, Result<()>> {
        self.inner.write(key, bytes)
    }
}
