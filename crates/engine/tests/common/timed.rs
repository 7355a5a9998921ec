//! A store far away on a clock of its own: a promise about time is measured without the noise of this machine.
//!
//! Store, fetching and the loop that takes batches run on one thread whose clock stands still while anything can be
//! done, and then jumps to the next moment at which something happens. Only preparing threads live outside of it: the
//! loop gives them [`BRAKE`] of real time for each millisecond, so that the clock cannot run away from a busy machine.
#![allow(dead_code, reason = "every user takes its own part")]

use bytes::Bytes;
use forebay_core::{Error, Result};
use forebay_engine::{Batch, Loader, Next};
use forebay_store::{ByteRange, ObjectMeta, Store};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, sleep_until};

const TICK: Duration = Duration::from_millis(1);
const BRAKE: Duration = Duration::from_micros(200);

/// How the server answers one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reply {
    /// Time until the first byte, or until it fails.
    pub(crate) after: Duration,
    pub(crate) fails: bool,
    /// Nobody is there: it fails in another way.
    pub(crate) away: bool,
}

impl Reply {
    pub(crate) fn after(after: Duration) -> Self {
        Self { after, fails: false, away: false }
    }

    pub(crate) fn away() -> Self {
        Self { away: true, ..Self::after(Duration::from_millis(1)) }
    }
}

type Script = dyn Fn(&str, u32) -> Reply + Send + Sync;

/// Objects of one length behind a link that all requests share.
pub(crate) struct TimedStore {
    object: Bytes,
    bytes_per_second: f64,
    script: Box<Script>,
    runtime: Handle,
    state: Mutex<State>,
}

struct State {
    free: Instant,
    attempts: HashMap<String, u32>,
}

impl std::fmt::Debug for TimedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TimedStore")
    }
}

impl TimedStore {
    /// For use inside [`in_virtual_time`]. `script` is asked for each key and how often it was asked for, from 1.
    pub(crate) fn new(
        object_bytes: u64,
        bytes_per_second: f64,
        script: impl Fn(&str, u32) -> Reply + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            object: Bytes::from(vec![7; object_bytes as usize]),
            bytes_per_second,
            script: Box::new(script),
            runtime: Handle::current(),
            state: Mutex::new(State { free: Instant::now(), attempts: HashMap::new() }),
        })
    }

    /// How often each object was asked for.
    pub(crate) fn attempts(&self) -> impl Iterator<Item = u32> {
        self.lock().attempts.values().copied().collect::<Vec<_>>().into_iter()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One after the other, in the order in which they come to the link.
    fn carried_at(&self, bytes: usize) -> Instant {
        let time = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second);
        let mut state = self.lock();
        state.free = state.free.max(Instant::now()) + time;
        state.free
    }
}

impl Store for TimedStore {
    fn url(&self, key: &str) -> String {
        format!("timed://{key}")
    }
    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta>> {
        Box::pin(async move { Err(Error::unsupported(format!("look at `{key}`"))) })
    }
    fn read<'a>(&'a self, key: &'a str, range: ByteRange) -> BoxFuture<'a, Result<Bytes>> {
        Box::pin(async move {
            let attempt = {
                let mut state = self.lock();
                let attempts = state.attempts.entry(key.to_owned()).or_default();
                *attempts += 1;
                *attempts
            };
            let reply = (self.script)(key, attempt);
            sleep(reply.after).await;
            if reply.away {
                return Err(Error::unavailable(format!("read `{key}`: connection refused")).with_away());
            }
            if reply.fails {
                return Err(Error::unavailable(format!("read `{key}`: the line broke")));
            }
            let range = range.resolve(self.object.len() as u64)?;
            let answer = self.object.slice(range.start as usize..range.end as usize);
            sleep_until(self.carried_at(answer.len())).await;
            Ok(answer)
        })
    }
    fn read_parts<'a>(&'a self, key: &'a str, parts: &'a [Range<u64>]) -> BoxFuture<'a, Result<Vec<Bytes>>> {
        Box::pin(async move {
            let mut answers = Vec::new();
            for part in parts {
                answers.push(self.read(key, part.clone().into()).await?);
            }
            Ok(answers)
        })
    }
    fn is_remote(&self) -> bool {
        true
    }
    fn runtime(&self) -> Option<Handle> {
        Some(self.runtime.clone())
    }
    fn list<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<ObjectMeta>> {
        let fault = Error::unsupported(format!("list `{prefix}`"));
        Box::pin(futures::stream::once(async { Err(fault) }))
    }
    fn write<'a>(&'a self, key: &'a str, _: Bytes) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { Err(Error::unsupported(format!("write `{key}`"))) })
    }
}

/// Runs `work` on a clock that jumps from one event to the next.
pub(crate) fn in_virtual_time<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(work)
}

/// The next batch, or `None` at the end of the epoch. Taking one takes no time.
pub(crate) async fn next_timed(loader: &mut Loader) -> Result<Option<Batch>> {
    loop {
        match loader.next(BRAKE)? {
            Next::Batch(batch) => return Ok(Some(*batch)),
            Next::End => return Ok(None),
            Next::Waiting => sleep(TICK).await,
        }
    }
}

/// All batches of the next iteration and the seconds they took.
pub(crate) async fn epoch_timed(loader: &mut Loader) -> (Vec<Batch>, f64) {
    let began = Instant::now();
    let mut batches = Vec::new();
    loader.begin().unwrap();
    while let Some(batch) = next_timed(loader).await.unwrap() {
        batches.push(batch);
    }
    (batches, began.elapsed().as_secs_f64())
}

/// How a loader without a knob fills 25 Gb/s at 100 ms with samples of 115 KB in batches of 512.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Filled {
    /// Of the link, during batches 57 to 64.
    pub(crate) link_share: f64,
    /// Most payload bytes held until then, in units of bandwidth x delay.
    pub(crate) held_delays: f64,
    /// Until batch 64 was there.
    pub(crate) seconds: f64,
}

/// Runs it, as fast as this machine can.
pub(crate) fn fill_link() -> Filled {
    const BATCH: u64 = 512;
    const SAMPLE_BYTES: u64 = 115_000;
    let (rate, delay) = (25e9 / 8.0, Duration::from_millis(100));
    // Twice as many as are taken: the end of the dataset is not what is looked at.
    let manifest = super::common::manifest_of_objects(128 * BATCH, SAMPLE_BYTES);
    in_virtual_time(async move {
        let store = TimedStore::new(SAMPLE_BYTES, rate, move |_, _| Reply::after(delay));
        let config = super::common::alone(BATCH);
        let recipe = super::common::bytes_recipe();
        let mut loader = super::common::loader_on(&manifest, store, &recipe, config);
        let began = Instant::now();
        loader.begin().unwrap();
        let mut at = Vec::new();
        while at.len() < 64 {
            next_timed(&mut loader).await.unwrap().expect("the epoch is longer");
            at.push(began.elapsed().as_secs_f64());
        }
        let bytes = (8 * BATCH * SAMPLE_BYTES) as f64;
        Filled {
            link_share: bytes / (at[63] - at[55]) / rate,
            held_delays: loader.stats().payload_peak_bytes as f64 / (rate * delay.as_secs_f64()),
            seconds: at[63],
        }
    })
}
