//! Batches by name: what others ask for, in the order in which the plan wants it.
//!
//! A loader's own sequence is walked from a cursor; here names come from outside, from several jobs, at any time. Those
//! that wait are sorted, so that neighbours in the plan are still fetched together whoever asked for them.

use super::Fetcher;
use super::pending::{Span, Target};
use crate::sync::{Mutex, MutexGuard};
use forebay_core::feed::BatchName;
use forebay_core::plan::Plan;
use forebay_core::portion::Place;
use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Instant;
use tokio::sync::Notify;

/// Plans kept for epochs that are asked for at the same time; making one may walk all blocks.
const KEPT_PLANS: usize = 4;

/// Names that wait and names whose batches are being made.
#[derive(Default)]
pub(crate) struct Names {
    state: Mutex<State>,
    more: Notify,
}

#[derive(Default)]
struct State {
    waiting: BTreeSet<BatchName>,
    /// In the order in which the board has them.
    under_way: VecDeque<(BatchName, Instant)>,
}

impl Names {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for batches; those that wait or are under way already are not asked for twice.
    pub(crate) fn want(&self, names: &[BatchName]) {
        let mut state = self.lock();
        for name in names {
            if !state.under_way.iter().any(|(known, _)| known == name) {
                state.waiting.insert(name.clone());
            }
        }
        drop(state);
        self.more.notify_one();
    }

    /// The name that is wanted first, which is under way from now on.
    fn begin(&self) -> Option<BatchName> {
        let mut state = self.lock();
        let name = state.waiting.pop_first()?;
        state.under_way.push_back((name.clone(), Instant::now()));
        Some(name)
    }

    /// The name of the batch that the board hands over now, and when its making began.
    pub(crate) fn finish(&self) -> Option<(BatchName, Instant)> {
        self.lock().under_way.pop_front()
    }
}

impl Fetcher {
    /// Feeds the board with batches by name until it is stopped.
    pub(crate) async fn run_named(self: Arc<Self>, names: Arc<Names>) {
        let mut plans: VecDeque<Plan> = VecDeque::new();
        let mut span = Span::default();
        let mut epoch = None;
        let mut batch = 0;
        loop {
            if !self.room_for_batch(&mut span).await {
                return;
            }
            let Some(name) = names.begin() else {
                // Nothing is known to come: what was gathered goes out now.
                self.send(std::mem::take(&mut span)).await;
                let more = names.more.notified();
                if self.board.is_stopped() {
                    return;
                }
                tokio::select! {
                    () = more => {}
                    () = self.board.taken.notified() => {}
                }
                continue;
            };
            if epoch.replace(name.epoch) != Some(name.epoch) {
                // Groups of one plan say nothing about those of another.
                self.send(std::mem::take(&mut span)).await;
            }
            let plan = self.plan_of(&mut plans, name.epoch).await;
            if self.sampler.walks() {
                self.batch_rows.store(name.rows(), Ordering::Relaxed);
            }
            self.board.announce(name.epoch, 0, name.rows() as usize);
            for (row, (position, padding)) in name.positions().enumerate() {
                let place = Place { local: row as u64, position, padding };
                let (sample, attempt) = self.read_for(name.epoch, plan.at(position));
                let bytes = self.inputs.payload_bytes(sample);
                if !span.takes(&place, bytes, self.span_bytes()) {
                    self.send(std::mem::take(&mut span)).await;
                }
                let target = Target { epoch: name.epoch, place, batch, row, attempt, number: 0 };
                span.push(&plan, target, sample, bytes);
            }
            batch += 1;
        }
    }

    async fn plan_of(&self, plans: &mut VecDeque<Plan>, epoch: u64) -> Plan {
        let known = plans.iter().position(|plan| plan.epoch() == epoch);
        let plan = match known.and_then(|index| plans.remove(index)) {
            Some(plan) => plan,
            None => self.plan(epoch).await,
        };
        plans.push_front(plan.clone());
        plans.truncate(KEPT_PLANS);
        plan
    }
}
