//! A worker at hand, in the training process itself: asked first for as long as it keeps up, helped by others when not.
//!
//! It keeps up while the loop rarely waits. When the loop waited for more than half of the last batches, half as many
//! batches are asked of it at once, and what is beyond goes to the others; while the loop waits for none, one more. At
//! least one always stays with it. As long as it has all, nobody else is told of, found or connected to.

use super::WorkerKey;

/// Batches handed over between two looks at how it does.
const LOOK: u32 = 16;

/// The worker at hand, and how much is asked of it at once.
#[derive(Clone, Debug)]
pub(super) struct Home {
    pub(super) worker: WorkerKey,
    /// Batches that may be asked of it and not answered.
    quota: usize,
    most: usize,
    /// Whether the loop came for the next batch and found none.
    waited: bool,
    /// Of the batches handed over since the last look: how many, and how many were waited for.
    handed: u32,
    waits: u32,
}

impl Home {
    /// A worker that is asked for at most so many at once.
    pub(super) fn new(worker: WorkerKey, most: usize) -> Self {
        Self { worker, quota: most, most, waited: false, handed: 0, waits: 0 }
    }

    /// The loop came and found nothing.
    pub(super) fn waited(&mut self) {
        self.waited = true;
    }

    /// A batch was handed over.
    pub(super) fn handed(&mut self) {
        self.handed += 1;
        self.waits += u32::from(std::mem::take(&mut self.waited));
        if self.handed < LOOK {
            return;
        }
        if self.waits > LOOK / 2 {
            self.quota = (self.quota / 2).max(1);
        } else if self.waits == 0 {
            self.quota = (self.quota + 1).min(self.most);
        }
        (self.handed, self.waits) = (0, 0);
    }

    /// Whether one more may be asked of it when it has so many.
    pub(super) fn takes(&self, outstanding: usize) -> bool {
        outstanding < self.quota
    }

    /// Whether it has all.
    pub(super) fn suffices(&self) -> bool {
        self.quota == self.most
    }
}

#[cfg(test)]
mod tests {
    use crate::cursor::Cursor;
    use crate::feed::Span;
    use crate::portion::{Consumer, LastBatch};
    use crate::pull::{Action, Arrival, Pull, PullSettings, Routing, WorkerKey};
    use std::collections::{BTreeMap, BTreeSet};

    const HOME: WorkerKey = 0;
    const BATCHES: u64 = 1000;

    struct Times {
        step: u64,
        home: u64,
        away: u64,
    }

    /// Batches that each worker gave to a loop with steps of that many milliseconds, the time it took, and whether
    /// anybody was asked for routes. Every worker makes one batch after the other.
    fn run(times: &Times) -> (BTreeMap<WorkerKey, u64>, u64, bool) {
        let consumer = Consumer { rank: 0, world_size: 1, batch_size: 1, last_batch: LastBatch::Partial };
        let settings = PullSettings {
            consumer,
            epoch_samples: BATCHES,
            epochs: Some(1),
            window_batches: 0,
            ready_batches: 8,
            plan_ahead: 24,
            routing: Routing::Spans(4),
            home: Some(HOME),
            skip_lost: false,
            late_ms: 1000,
        };
        let mut pull = Pull::new(settings, &Cursor::start_of(0)).unwrap();
        let (mut given, mut asked, mut located) = (BTreeMap::new(), BTreeMap::new(), false);
        let mut free: BTreeMap<WorkerKey, u64> = BTreeMap::new();
        let mut coming: BTreeSet<(u64, u64)> = BTreeSet::new();
        let (mut now, mut busy_until, mut taken) = (0, 0, 0);
        while taken < BATCHES {
            for action in pull.drive(now) {
                match action {
                    Action::Take { worker, request, .. } => {
                        pull.attached(now, worker);
                        let takes = if worker == HOME { times.home } else { times.away };
                        let at = free.get(&worker).map_or(now, |free| now.max(*free)) + takes;
                        free.insert(worker, at);
                        asked.insert(request, worker);
                        coming.insert((at, request));
                    }
                    Action::Locate { spans, .. } => {
                        located = true;
                        let found: Vec<(Span, WorkerKey)> =
                            spans.into_iter().map(|span| (span, 1 + span.number % 2)).collect();
                        pull.located(now, &found);
                    }
                    Action::Plan { .. } => panic!("nobody is told ahead"),
                    _ => {}
                }
            }
            if now >= busy_until && pull.deliver().is_some() {
                taken += 1;
                busy_until = now + times.step;
            }
            now += 1;
            while let Some((at, request)) = coming.first().copied().filter(|(at, _)| *at <= now) {
                coming.remove(&(at, request));
                if let Arrival::Keep(_) = pull.arrived(now, request) {
                    *given.entry(asked[&request]).or_default() += 1;
                }
            }
        }
        (given, now, located)
    }

    #[test]
    fn p063_a_worker_in_this_process_that_keeps_up_makes_all_and_nobody_else_is_looked_for() {
        for home in [1, 5, 9] {
            let (given, _, located) = run(&Times { step: 10, home, away: 1 });
            assert_eq!(given, BTreeMap::from([(HOME, BATCHES)]));
            assert!(!located, "nobody was needed");
        }
    }

    #[test]
    fn p063_a_worker_in_this_process_that_falls_behind_is_helped_and_still_does_its_part() {
        // Three times too slow alone; with two more of its kind just fast enough.
        let (given, time, _) = run(&Times { step: 10, home: 30, away: 25 });
        assert!(given[&HOME] > BATCHES / 5, "{given:?}");
        assert!(given[&1] > 0 && given[&2] > 0, "{given:?}");
        let alone = 30 * BATCHES;
        assert!(time < alone / 2, "{time} ms, alone it would take {alone}");
    }
}
