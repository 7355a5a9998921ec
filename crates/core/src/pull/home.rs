//! A worker at hand, in the training process itself: asked first for as long as it keeps up, helped by others when not.
//!
//! It keeps up while the loop rarely waits. When the loop waited for more than half of the last batches, half as many
//! batches are asked of it at once, and what is beyond goes to the others; while the loop waits for none, one more. At
//! least one always stays with it. As long as it has all, nobody else is told of, found or connected to.
//!
//! When the others are near the data and bytes are weighed, it has half at first, then none until they were weighed too.
//! When they send fewer bytes it has none, but for a look now and then, and helps while the loop waits for them. When
//! nobody else is there, nothing is weighed.

use super::WorkerKey;
use super::weighing::{Lighter, Weighing};

/// Batches handed over between two looks at how it does.
const LOOK: u32 = 16;

/// Of so many looks one is for batches that are made at hand only to weigh them.
const PROBE: u32 = 64;

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
    /// Bytes over the link, when they count.
    weighing: Option<Weighing>,
    /// Whether the others were found to send fewer bytes, and whether there are any.
    away: bool,
    alone: bool,
    looks: u32,
}

impl Home {
    /// A worker that is asked for at most so many at once.
    pub(super) fn new(worker: WorkerKey, most: usize) -> Self {
        Self {
            worker,
            quota: most,
            most,
            waited: false,
            handed: 0,
            waits: 0,
            weighing: None,
            away: false,
            alone: false,
            looks: 0,
        }
    }

    /// Bytes over the link count from now on.
    pub(super) fn weigh(&mut self) {
        self.weighing = Some(Weighing::default());
        self.quota = (self.most / 2).max(1);
    }

    /// A batch took so many bytes of the link.
    pub(super) fn weighed(&mut self, worker: WorkerKey, bytes: u64) {
        let here = worker == self.worker;
        self.alone &= here;
        self.weighing.iter_mut().for_each(|weighing| weighing.add(here, bytes));
    }

    /// Nobody else is there.
    pub(super) fn alone(&mut self) {
        self.weighing.iter_mut().for_each(Weighing::forget_away);
        (self.alone, self.away) = (true, false);
        self.quota = self.quota.max(1);
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
        let waits = std::mem::take(&mut self.waits);
        self.handed = 0;
        self.looks = self.looks.wrapping_add(1);
        let weighing = self.weighing.filter(|_| !self.alone);
        let lighter = weighing.map(|weighing| weighing.lighter());
        let was_away = std::mem::replace(&mut self.away, lighter == Some(Lighter::Away));
        self.quota = match lighter {
            Some(Lighter::Unknown) if weighing.is_some_and(|weighing| weighing.knows_here()) => 0,
            Some(Lighter::Unknown) => (self.most / 2).max(1),
            Some(Lighter::Away) if !was_away => 0,
            Some(Lighter::Away) if waits > LOOK / 4 => (self.quota + 1).min(self.most),
            Some(Lighter::Away) if self.looks.is_multiple_of(PROBE) => self.quota.max(1),
            Some(Lighter::Away) if waits == 0 => self.quota.saturating_sub(1),
            Some(Lighter::Away) => self.quota,
            None | Some(Lighter::Here) if waits > LOOK / 2 => (self.quota / 2).max(1),
            None | Some(Lighter::Here) if waits == 0 => (self.quota + 1).min(self.most),
            None | Some(Lighter::Here) => self.quota.max(1),
        };
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

    /// Bytes that a batch made at hand, and one made elsewhere, take of the link.
    struct Bytes(u64, u64);

    /// Batches that each worker gave to a loop with steps of that many milliseconds, the time it took, and whether
    /// anybody was asked for routes. Every worker makes one batch after the other.
    fn run(times: &Times) -> (BTreeMap<WorkerKey, u64>, u64, bool) {
        run_weighed(times, None)
    }

    fn run_weighed(times: &Times, bytes: Option<&Bytes>) -> (BTreeMap<WorkerKey, u64>, u64, bool) {
        let consumer = Consumer { rank: 0, world_size: 1, batch_size: 1, last_batch: LastBatch::Partial };
        let settings = PullSettings {
            consumer,
            sampler: crate::plan::Sampler::stored(BATCHES),
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
        if bytes.is_some() {
            pull.weigh_links();
        }
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
                if let Some(Bytes(here, away)) = bytes {
                    let worker = asked[&request];
                    pull.weighed(worker, if worker == HOME { *here } else { *away });
                }
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

    #[test]
    fn p075_auto_leaves_batches_to_workers_near_the_data_when_that_sends_fewer_bytes() {
        let times = Times { step: 10, home: 5, away: 8 };
        let (given, _, _) = run_weighed(&times, Some(&Bytes(2_000_000, 150_000)));
        assert!(given[&HOME] < BATCHES / 10, "only what is weighed is made here: {given:?}");
        let (given, _, _) = run_weighed(&times, Some(&Bytes(75_000, 150_000)));
        assert!(given[&HOME] > BATCHES * 9 / 10, "pixels are larger than payloads: {given:?}");
    }

    #[test]
    fn p075_the_process_itself_helps_workers_near_the_data_that_are_too_slow() {
        // Two of them give a batch in 20 ms, half of what the loop takes.
        let (given, time, _) = run_weighed(&Times { step: 10, home: 20, away: 40 }, Some(&Bytes(1000, 100)));
        assert!(given[&HOME] > BATCHES / 4, "{given:?}");
        assert!(time < 20 * BATCHES * 8 / 10, "{time}");
    }
}
