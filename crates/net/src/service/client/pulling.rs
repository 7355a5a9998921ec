//! A running supply: what the loader takes batches from. Dropping it closes every link and waits for its threads.

use super::directory::{Directory, Report};
use super::home::HOME_ADDRESS;
use super::link::Dial;
use super::shared::{Made, Shared, Standing, State};
use super::{How, keeper};
use crate::service::message::Attach;
use forebay_core::Result;
use forebay_core::cursor::Cursor;
use forebay_core::pull::{Counts, Outcome, Pull, PullSettings, Routing, WorkerKey};
use forebay_core::stall::Making;
use forebay_engine::{Asked, DeliveryOrder, Meter, Supply, SupplyView, Taken};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Batches that workers are told of beyond those asked for.
const TOLD_AHEAD: usize = 16;

/// Batches in a span, as the first job of a feed wants it: few, so that one rank keeps several workers busy.
const SPAN_BATCHES: u64 = 4;

/// The one worker of a host, or the one in this process. Others draw their numbers, and zero is not drawn.
pub(super) const HOME: WorkerKey = 0;

/// How long closing waits for threads.
const CLOSE_WAIT: Duration = Duration::from_millis(1800);

/// Who makes the batches.
pub(super) enum Makers {
    /// One worker at this address.
    Home(String),
    /// Those that a directory names, after one in this process where there is one.
    Directory { directory: Box<dyn Directory>, home: bool },
}

/// The supply.
pub(super) struct Pulling(Arc<Shared>);

impl Pulling {
    /// Starts pulling from `cursor` on; returns before anything is connected.
    pub(super) fn start(
        asked: Asked,
        cursor: &Cursor,
        meter: &Arc<Meter>,
        how: &How,
        job: String,
        dial: Box<dyn Dial>,
        makers: Makers,
    ) -> Result<Self> {
        let (consumer, ready_batches) = (asked.consumer, asked.ready_batches.max(1));
        let routing = match makers {
            Makers::Home(_) => Routing::One(HOME),
            Makers::Directory { .. } => Routing::Spans(span_positions(asked.feed.batch_size)),
        };
        let has_home = matches!(makers, Makers::Directory { home: true, .. });
        let settings = PullSettings {
            consumer,
            sampler: asked.sampler.clone(),
            epochs: asked.epochs,
            window_batches: match asked.order {
                DeliveryOrder::Plan => 0,
                DeliveryOrder::Arrival { window } => window / consumer.batch_size,
            },
            ready_batches,
            plan_ahead: ready_batches.saturating_add(TOLD_AHEAD),
            routing,
            home: has_home.then_some(HOME),
            skip_lost: how.skip_lost,
            late_ms: how.late_ms,
        };
        let home = matches!(makers, Makers::Home(_));
        let addresses = match &makers {
            Makers::Home(address) => BTreeMap::from([(HOME, address.clone())]),
            Makers::Directory { home: true, .. } => BTreeMap::from([(HOME, HOME_ADDRESS.to_owned())]),
            Makers::Directory { .. } => BTreeMap::new(),
        };
        let mut pull = Pull::new(settings, cursor)?;
        if matches!(&makers, Makers::Directory { directory, .. } if directory.is_near_the_data()) {
            pull.weigh_links();
        }
        let state = State {
            pull,
            kept: BTreeMap::new(),
            links: BTreeMap::new(),
            addresses,
            errands: VecDeque::new(),
            standing: if home { Standing::Joined } else { Standing::Unmet },
            served: false,
            failed: None,
            trouble: None,
            stopped: false,
            threads: 0,
            opened: 0,
            counted: Counts::default(),
            waiting_since: None,
            report: Report::default(),
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
            dial,
            attach: Attach {
                job,
                rank: consumer.rank,
                world_size: consumer.world_size,
                feed: asked.feed.id(),
                spec: String::new(),
                packings: how.packings.clone(),
                late: how.late,
            },
            spec: asked.feed.to_json()?,
            epoch_samples: asked.sampler.samples(),
            batch_bytes: asked.batch_bytes,
            batch_rows: consumer.batch_size,
            pool: asked.pool,
            meter: Arc::clone(meter),
            clock: Arc::clone(&how.clock),
            home,
            has_home,
        });
        let pulling = Self(shared);
        let shared = Arc::clone(&pulling.0);
        let directory = match makers {
            Makers::Home(_) => None,
            Makers::Directory { directory, .. } => Some(directory),
        };
        pulling.0.spawn("forebay-keeper", move || keeper::run(&shared, directory.as_deref()))?;
        let mut state = pulling.0.lock();
        pulling.0.drive(&mut state);
        drop(state);
        Ok(pulling)
    }
}

/// Positions of a span that a job with batches of this size proposes.
pub(super) fn span_positions(batch_size: u64) -> u64 {
    batch_size.saturating_mul(SPAN_BATCHES)
}

impl Supply for Pulling {
    fn take(&self, wait: Duration) -> Result<Option<Taken>> {
        let shared = &self.0;
        let began = Instant::now();
        let mut state = shared.lock();
        let waiting_since = *state.waiting_since.get_or_insert(began);
        loop {
            if let Some(delivery) = state.pull.deliver() {
                let made = state.kept.remove(&delivery.number).transpose()?;
                state.waiting_since = None;
                let waited = waiting_since.elapsed();
                state.report.note(&delivery, waited);
                shared.drive(&mut state);
                let Some(Made { mut batch, fetch_nanos, prep_nanos, arrived }) = made else {
                    if delivery.outcome == Outcome::Skipped {
                        // The loop goes on waiting for the next one.
                        state.waiting_since = Some(waiting_since);
                    }
                    let (places, ready) = (delivery.places, delivery.ready);
                    return Ok(Some(Taken::left_out(places, ready)));
                };
                batch.step = delivery.step;
                // Each worker prepares one batch after the other, in the time that it measured.
                let prep = Duration::from_nanos(prep_nanos);
                let making = Making {
                    work: prep,
                    longest: prep,
                    servers: u32::try_from(state.pull.live_workers()).unwrap_or(u32::MAX),
                    fetch_limit: Duration::from_nanos(fetch_nanos),
                };
                let (places, ready) = (delivery.places, delivery.ready);
                return Ok(Some(Taken {
                    batch: Some(batch),
                    places,
                    making,
                    done_at: Some(arrived),
                    prep_since: None,
                    ready,
                }));
            }
            if let Some(error) = &state.failed {
                return Err(error.duplicate());
            }
            shared.drive(&mut state);
            let Some(left) = wait.checked_sub(began.elapsed()).filter(|left| !left.is_zero()) else {
                return Ok(None);
            };
            state = shared.sleep(state, left);
        }
    }

    fn describe_wait(&self) -> String {
        let state = self.0.lock();
        let trouble = state.trouble.as_ref().map_or_else(String::new, |why| format!("; before that: {why}"));
        let Some((name, workers)) = state.pull.waits_for() else {
            return format!("nothing more is wanted{trouble}");
        };
        let address = |worker: &WorkerKey| format!("`{}`", state.addresses.get(worker).map_or("", |a| a));
        let asked: Vec<String> = workers.iter().map(address).collect();
        if asked.is_empty() {
            return format!("no worker was asked for the batch of {name} yet{trouble}");
        }
        format!("the batch of {name} was asked of {}{trouble}", asked.join(" and "))
    }

    fn view(&self) -> SupplyView {
        let state = self.0.lock();
        SupplyView { workers: state.pull.live_workers() as u64, ..SupplyView::default() }
    }
}

impl Drop for Pulling {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.stopped = true;
        state.links.clear();
        state.kept.clear();
        self.0.changed.notify_all();
        let until = Instant::now() + CLOSE_WAIT;
        while state.threads > 0 {
            let Some(left) = until.checked_duration_since(Instant::now()) else {
                tracing::warn!("a thread that talks to a worker is still waiting for it; it ends by itself");
                return;
            };
            state = self.0.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
