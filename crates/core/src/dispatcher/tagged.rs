//! Workers of a kind: a consumer may ask for those with a tag alone, such as the ones beside the store.
//!
//! Jobs with a tag and jobs without one may read the same feed. A lease stays where it is: who may not go there is sent
//! to another worker, which makes the batch too.

use super::Dispatcher;
use super::command::{Event, Reply};
use super::spans::Wish;
use super::words::{Who, WorkerId, check_text};
use crate::Result;
use crate::feed::Span;

impl Dispatcher {
    pub(super) fn locate_tagged(
        &mut self,
        now: u64,
        who: &Who,
        spans: &[Span],
        not: (&[WorkerId], Option<WorkerId>),
        tag: &str,
        events: &mut Vec<Event>,
    ) -> Result<Reply> {
        check_text("tag of a worker", tag)?;
        self.known(who)?;
        let (avoid, lost) = not;
        if let Some(worker) = lost {
            self.suspect(worker);
        }
        self.find(now, who, spans, Wish { avoid, lost, tag: Some(tag) }, events)
    }

    /// Whether a worker is of the kind that is asked for. Any is when none is.
    pub(super) fn has_tag(&self, worker: WorkerId, tag: Option<&str>) -> bool {
        let Some(tag) = tag else { return true };
        self.state.workers.get(&worker).is_some_and(|known| known.tags.iter().any(|one| one == tag))
    }
}

#[cfg(test)]
mod tests {
    use crate::dispatcher::*;
    use crate::feed::{FeedId, Span};

    fn who(job: &str) -> Who {
        Who { job: JobName::new(job).unwrap(), rank: 0, consumer: 1 }
    }

    fn bench() -> Dispatcher {
        let mut dispatcher = Dispatcher::new(State::default(), Settings::default(), 0);
        for worker in 1..=6u64 {
            let tags = if worker <= 2 { vec!["site=eu".to_owned()] } else { vec!["site=us".to_owned()] };
            let address = format!("h:{worker}");
            let command = Command::RegisterWorker { worker: WorkerId(worker), address, tags, slots: 2 };
            dispatcher.apply(0, command).unwrap();
        }
        for job in ["near", "any"] {
            let terms = Terms {
                feed: FeedId(7),
                label: "d".into(),
                world_size: 1,
                span_positions: 10,
                epoch_positions: 1000,
                sharding: Sharding::Portion,
                visitation: Visitation::ExactlyOnce,
            };
            let from = Reached::default();
            dispatcher.apply(0, Command::AttachJob { who: who(job), terms, from, step: 0 }).unwrap();
        }
        dispatcher
    }

    fn tagged(dispatcher: &mut Dispatcher, spans: &[u64], lost: Option<u64>, tag: &str) -> Option<Vec<u64>> {
        let spans = spans.iter().map(|number| Span { epoch: 0, number: *number }).collect();
        let (avoid, lost) = (vec![], lost.map(WorkerId));
        let command = Command::LocateTagged { who: who("near"), spans, avoid, lost, tag: tag.into() };
        match dispatcher.apply(1, command).unwrap().0 {
            Reply::Located(found) => Some(found.iter().map(|one| one.worker.0).collect()),
            Reply::NoWorkers => None,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn p075_spans_go_to_workers_with_the_tag_alone_and_are_spread_over_them() {
        let mut dispatcher = bench();
        let all: Vec<u64> = (0..100).collect();
        let found = tagged(&mut dispatcher, &all, None, "site=eu").unwrap();
        let first = found.iter().filter(|worker| **worker == 1).count();
        assert!(found.iter().all(|worker| *worker <= 2), "{found:?}");
        assert_eq!(first, 50, "both have as much to do");
        assert_eq!(tagged(&mut dispatcher, &[3], None, "site=mars"), None);
        let again = tagged(&mut dispatcher, &all, None, "site=eu").unwrap();
        assert_eq!(found, again, "a lease stays");
    }

    #[test]
    fn p075_a_lease_elsewhere_stays_and_a_worker_that_does_not_answer_is_replaced_by_one_with_the_tag() {
        let mut dispatcher = bench();
        let spans: Vec<Span> = (0..60).map(|number| Span { epoch: 0, number }).collect();
        let any = Command::Locate { who: who("any"), spans: spans.clone(), avoid: vec![] };
        let Reply::Located(before) = dispatcher.apply(0, any.clone()).unwrap().0 else {
            panic!("not located")
        };
        assert!(before.iter().any(|one| one.worker.0 > 2));
        let all: Vec<u64> = (0..60).collect();
        assert!(tagged(&mut dispatcher, &all, None, "site=eu").unwrap().iter().all(|worker| *worker <= 2));
        let Reply::Located(after) = dispatcher.apply(2, any).unwrap().0 else { panic!("not located") };
        assert_eq!(before, after, "others go on meeting where they met");
        let moved = tagged(&mut dispatcher, &all, Some(1), "site=eu").unwrap();
        assert!(moved.iter().all(|worker| *worker == 2), "{moved:?}");
    }
}
