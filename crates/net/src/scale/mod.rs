//! Sets the number of workers where they run: asks how many are wanted, and who runs them for that many.
//!
//! [`start`] does so until its handle is dropped. When to act is decided by [`forebay_core::scale::Actor`]; what is acted
//! on is a [`Replicas`], of which [`Kubernetes`] is the real one. Nothing here measures anything.

mod kubernetes;

pub use kubernetes::{Cluster, Kubernetes};

use crate::metrics::Show;
use crate::threads::Threads;
use forebay_core::metrics::Exposition;
use forebay_core::scale::{Actor, ScaleSettings, Wanted};
use forebay_core::{Error, ErrorKind, Result};
use futures::future::BoxFuture;
use serde_json::{Value, json};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// How often it is asked how many workers are wanted; that changes once a second.
const EVERY: Duration = Duration::from_secs(1);

/// How long reading or setting may take.
const CALL_TIME: Duration = Duration::from_secs(10);

/// How many workers are wanted now; `None` while that is not for this process to say.
pub type Wish = Arc<dyn Fn() -> Option<Wanted> + Send + Sync>;

/// How many workers somebody was asked to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The number.
    pub workers: u64,
    /// Stands for what was read: a number is set only if nobody has set another one since.
    pub version: String,
}

/// Somebody who runs as many workers as are asked for.
pub trait Replicas: fmt::Debug + Send + Sync {
    /// How many are asked for.
    fn read(&self) -> BoxFuture<'_, Result<Asked>>;

    /// Asks for another number, in place of what was read. Refused as `stale` when it is another one by now.
    fn set(&self, read: Asked, workers: u64) -> BoxFuture<'_, Result<()>>;
}

/// What came of it so far.
#[derive(Debug, Default)]
struct Counts {
    sets: AtomicU64,
    failures: AtomicU64,
}

/// Acting goes on until this is dropped.
#[derive(Debug)]
pub struct Acting {
    task: tokio::task::JoinHandle<()>,
    counts: Arc<Counts>,
}

/// Begins to set the number of workers.
pub fn start(replicas: Arc<dyn Replicas>, wish: Wish, settings: ScaleSettings, threads: &Threads) -> Acting {
    let counts = Arc::<Counts>::default();
    let counting = Arc::clone(&counts);
    let task = threads.handle().spawn(async move {
        let (mut actor, began) = (Actor::new(&settings), Instant::now());
        loop {
            tokio::time::sleep(EVERY).await;
            let Some(wanted) = wish() else { continue };
            let now = began.elapsed().as_millis() as u64;
            if !actor.is_due(now, &wanted) {
                continue;
            }
            match act(&*replicas, &mut actor, &wanted, now).await {
                Ok(None) => {}
                Ok(Some((from, to))) => {
                    counting.sets.fetch_add(1, Ordering::Relaxed);
                    tracing::info!(from, to, why = ?wanted.why, "the number of workers was set");
                }
                Err(error) => {
                    counting.failures.fetch_add(1, Ordering::Relaxed);
                    let pause_seconds = actor.failed(now) / 1000;
                    tracing::warn!(error = %error.report(), pause_seconds, "the number of workers could not be set");
                }
            }
        }
    });
    Acting { task, counts }
}

/// One look, and what follows from it: what was set, from and to.
async fn act(
    replicas: &dyn Replicas,
    actor: &mut Actor,
    wanted: &Wanted,
    now: u64,
) -> Result<Option<(u64, u64)>> {
    let asked = within(replicas.read()).await?;
    let Some(workers) = actor.decide(now, wanted, asked.workers) else { return Ok(None) };
    let from = asked.workers;
    within(replicas.set(asked, workers)).await?;
    actor.was_set(now, workers);
    Ok(Some((from, workers)))
}

async fn within<T>(call: impl Future<Output = Result<T>>) -> Result<T> {
    let late = |_| {
        let why = format!("ask who runs the workers: no answer within {} s", CALL_TIME.as_secs());
        Error::new(ErrorKind::Unavailable, why)
    };
    tokio::time::timeout(CALL_TIME, call).await.map_err(late)?
}

impl Acting {
    /// Shows what came of it.
    pub fn metrics(&self) -> Show {
        let counts = Arc::clone(&self.counts);
        Arc::new(move || {
            let mut out = Exposition::default();
            for (name, count) in [
                ("forebay_net_scale_sets_total", &counts.sets),
                ("forebay_net_scale_failures_total", &counts.failures),
            ] {
                out.number(name, &[], count.load(Ordering::Relaxed) as f64);
            }
            out.finish()
        })
    }
}

impl Drop for Acting {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What is wanted and why, for programs.
pub fn object(wanted: &Wanted) -> Value {
    let Wanted { workers, why, seen, worker_rate } = wanted;
    json!({
        "workers": workers, "workers_now": seen.workers, "why": why, "demand_samples_per_second": seen.demand,
        "samples_per_second": seen.supply, "waiting_share": seen.waiting,
        "worker_samples_per_second": worker_rate,
    })
}
