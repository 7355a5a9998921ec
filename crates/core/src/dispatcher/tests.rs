//! What the machine promises, command by command. Whole clusters with faults are in `tests/dispatcher_simulation.rs`.

use super::*;
use crate::ErrorKind;
use crate::feed::{FeedId, Span};

/// A machine with its events, which must always give the same state again.
struct Bench {
    machine: Dispatcher,
    events: Vec<Event>,
    now: u64,
}

impl Bench {
    fn new() -> Self {
        let machine = Dispatcher::new(State::default(), Settings::default(), 0);
        Self { machine, events: Vec::new(), now: 0 }
    }

    fn try_it(&mut self, command: Command) -> Result<Reply> {
        let before = self.machine.state().clone();
        let outcome = self.machine.apply(self.now, command);
        match outcome {
            Ok((reply, events)) => {
                self.events.extend(events);
                assert_eq!(State::replay(&self.events), *self.machine.state());
                let shortest = self.machine.state().events();
                assert_eq!(State::replay(&shortest), *self.machine.state(), "{shortest:#?}");
                Ok(reply)
            }
            Err(error) => {
                assert_eq!(before, *self.machine.state(), "a refusal changes nothing");
                Err(error)
            }
        }
    }

    fn ok(&mut self, command: Command) -> Reply {
        self.try_it(command).unwrap()
    }

    fn kind(&mut self, command: Command) -> ErrorKind {
        self.try_it(command).unwrap_err().kind()
    }

    fn worker(&mut self, number: u64) -> u64 {
        let address = format!("host-{number}:1");
        let command = Command::RegisterWorker { worker: WorkerId(number), address, tags: vec![], slots: 2 };
        let Reply::Registered { incarnation, .. } = self.ok(command) else { panic!("not registered") };
        incarnation
    }

    fn attach(&mut self, who: &Who, terms: &Terms) -> bool {
        let command =
            Command::AttachJob { who: who.clone(), terms: terms.clone(), from: Reached::default(), step: 0 };
        let Reply::Attached { fresh, .. } = self.ok(command) else { panic!("not attached") };
        fresh
    }

    fn locate(&mut self, who: &Who, numbers: impl IntoIterator<Item = u64>, avoid: &[u64]) -> Vec<Located> {
        let spans = numbers.into_iter().map(|number| Span { epoch: 0, number }).collect();
        let avoid = avoid.iter().copied().map(WorkerId).collect();
        match self.ok(Command::Locate { who: who.clone(), spans, avoid }) {
            Reply::Located(located) => located,
            Reply::NoWorkers => vec![],
            other => panic!("{other:?}"),
        }
    }

    fn reach(&mut self, who: &Who, epoch: u64, position: u64) {
        let reached = Reached { epoch, position };
        let progress = Progress { reached, step: position, ..Progress::default() };
        self.ok(Command::ReportProgress { who: who.clone(), progress });
    }

    fn take(&mut self, who: &Who, request: u64, epoch: u64, done: &[u64]) -> Reply {
        let done = done.iter().map(|number| Span { epoch, number: *number }).collect();
        self.ok(Command::TakeSpan { who: who.clone(), request, epoch, done })
    }

    fn pass(&mut self, milliseconds: u64) {
        self.now += milliseconds;
        self.ok(Command::Tick);
    }

    fn leases(&self) -> usize {
        self.machine.state().sizes()[3]
    }
}

fn who(job: &str, rank: u64, consumer: u64) -> Who {
    Who { job: JobName::new(job).unwrap(), rank, consumer }
}

fn terms(sharding: Sharding, visitation: Visitation) -> Terms {
    Terms {
        feed: FeedId(7),
        label: "data/train".into(),
        world_size: 2,
        span_positions: 10,
        epoch_positions: 95,
        sharding,
        visitation,
    }
}

fn portions() -> Terms {
    terms(Sharding::Portion, Visitation::ExactlyOnce)
}

fn taken(number: u64) -> Reply {
    Reply::Taken(Span { epoch: 0, number })
}

#[test]
fn all_jobs_of_a_feed_meet_at_the_same_worker_for_a_span() {
    let mut bench = Bench::new();
    let (a, b) = (who("a", 0, 1), who("b", 1, 2));
    assert!(bench.attach(&a, &portions()) && bench.attach(&b, &portions()));
    assert_eq!(bench.locate(&a, 0..4, &[]), []);
    for worker in 1..=4 {
        bench.worker(worker);
    }
    let first = bench.locate(&a, 0..10, &[]);
    assert_eq!(first, bench.locate(&b, 0..10, &[]));
    let loads: Vec<u64> = bench.machine.view(0).workers.iter().map(|worker| worker.leases).collect();
    assert_eq!((loads.iter().min(), loads.iter().max()), (Some(&2), Some(&3)));
    // One who looks elsewhere moves nobody.
    let holder = first[0].worker;
    let elsewhere = bench.locate(&a, 0..1, &[holder.0]);
    assert!(elsewhere[0].worker != holder && elsewhere[0].lease.is_none());
    assert_eq!(bench.locate(&b, 0..10, &[]), first);
}

#[test]
fn a_lease_goes_away_when_every_attached_job_has_passed_it() {
    let mut bench = Bench::new();
    let (a, b) = (who("a", 0, 1), who("b", 0, 2));
    bench.worker(1);
    bench.attach(&a, &portions());
    bench.attach(&b, &portions());
    bench.locate(&a, 0..10, &[]);
    bench.reach(&a, 0, 95);
    assert_eq!(bench.leases(), 10);
    bench.reach(&b, 0, 39);
    assert_eq!(bench.leases(), 7);
    bench.reach(&b, 1, 0);
    assert_eq!(bench.leases(), 1, "a is still at the end of epoch 0, in span 9");
    bench.reach(&a, 1, 0);
    assert_eq!(bench.leases(), 0);
    bench.locate(&a, 3..5, &[]);
    bench.ok(Command::DetachJob { who: a });
    bench.ok(Command::DetachJob { who: b });
    assert_eq!(bench.machine.state().sizes(), [1, 0, 0, 0]);
}

#[test]
fn p056_spans_of_a_worker_that_is_lost_drained_or_not_reached_are_leased_anew() {
    let mut bench = Bench::new();
    let a = who("a", 0, 1);
    bench.attach(&a, &portions());
    let incarnations: Vec<u64> = (1..=3).map(|worker| bench.worker(worker)).collect();
    let first = bench.locate(&a, 0..9, &[]);
    let holder = first[0].worker;
    // Not reached: that span moves at once, the worker's others stay.
    let spans = vec![first[0].span];
    let Reply::Located(moved) = bench.ok(Command::ReportLost { who: a.clone(), worker: holder, spans })
    else {
        panic!("there are others")
    };
    assert!(moved[0].worker != holder && moved[0].lease > first[0].lease);
    let again = bench.locate(&a, 0..9, &[]);
    assert_eq!((again[0].worker, &again[1..]), (moved[0].worker, &first[1..]));
    // Drained: what is asked for moves, and what nobody asks for stays until it is passed.
    bench.ok(Command::DrainWorker { worker: holder });
    let drained = bench.locate(&a, 0..9, &[]);
    assert!(drained.iter().all(|place| place.worker != holder));
    let incarnation = incarnations[holder.0 as usize - 1];
    let load = Load::default();
    let Reply::Heartbeat(told) = bench.ok(Command::Heartbeat { worker: holder, incarnation, load }) else {
        panic!("it is known")
    };
    assert!(told.drain && told.leases == 0 && told.feeds.is_empty());
    // Lost: silent for too long.
    let silent = drained[0].worker;
    bench.now += 8_000;
    for worker in (1..=3).filter(|worker| WorkerId(*worker) != silent) {
        let incarnation = incarnations[worker as usize - 1];
        bench.ok(Command::Heartbeat { worker: WorkerId(worker), incarnation, load });
    }
    bench.pass(3_000);
    let left: Vec<_> = bench.machine.view(0).workers.iter().map(|worker| worker.worker).collect();
    assert!(left.len() == 2 && !left.contains(&silent));
    assert!(bench.locate(&a, 0..9, &[]).iter().all(|place| ![holder, silent].contains(&place.worker)));
    let incarnation = incarnations[silent.0 as usize - 1];
    assert_eq!(bench.kind(Command::Heartbeat { worker: silent, incarnation, load }), ErrorKind::Stale);
}

#[test]
fn a_worker_learns_who_must_still_take_what_it_staged() {
    let mut bench = Bench::new();
    let incarnation = bench.worker(1);
    let (a, b) = (who("a", 0, 1), who("b", 0, 2));
    bench.attach(&a, &portions());
    bench.attach(&b, &portions());
    bench.locate(&a, 0..3, &[]);
    bench.reach(&a, 0, 20);
    let load = Load { made_batches: 5, ..Load::default() };
    let Reply::Heartbeat(told) = bench.ok(Command::Heartbeat { worker: WorkerId(1), incarnation, load })
    else {
        panic!("it is known")
    };
    let jobs = vec![(b.job, Reached { epoch: 0, position: 0 }), (a.job, Reached { epoch: 0, position: 20 })];
    assert_eq!(told.feeds, [FeedJobs { feed: FeedId(7), jobs }]);
}

#[test]
fn a_worker_that_starts_again_at_its_address_replaces_the_one_that_was_there() {
    let mut bench = Bench::new();
    bench.worker(1);
    let command =
        Command::RegisterWorker { worker: WorkerId(2), address: "host-1:1".into(), tags: vec![], slots: 1 };
    bench.ok(command);
    assert_eq!(bench.machine.state().sizes()[0], 1);
    // The same worker again keeps its leases.
    let a = who("a", 0, 1);
    bench.attach(&a, &portions());
    bench.locate(&a, 0..3, &[]);
    let Reply::Registered { incarnation, .. } = bench.ok(Command::RegisterWorker {
        worker: WorkerId(2),
        address: "host-1:2".into(),
        tags: vec!["gpu".into()],
        slots: 1,
    }) else {
        panic!("not registered")
    };
    assert_eq!(bench.leases(), 3);
    let load = Load::default();
    let old = Command::Heartbeat { worker: WorkerId(2), incarnation: incarnation - 1, load };
    assert_eq!(bench.kind(old), ErrorKind::Stale);
    bench.ok(Command::RemoveWorker { worker: WorkerId(2), incarnation });
    assert_eq!((bench.leases(), bench.machine.state().sizes()[0]), (0, 0));
}

#[test]
fn p054_spans_of_an_epoch_go_to_the_ranks_that_ask_each_once() {
    let mut bench = Bench::new();
    let (a, b) = (who("a", 0, 1), who("a", 1, 2));
    let dynamic = terms(Sharding::Dynamic, Visitation::ExactlyOnce);
    assert!(bench.attach(&a, &dynamic));
    assert!(!bench.attach(&b, &dynamic));
    assert_eq!(bench.take(&a, 1, 0, &[]), taken(0));
    assert_eq!(bench.take(&a, 1, 0, &[]), taken(0), "asked again");
    assert_eq!(bench.take(&b, 1, 0, &[]), taken(1));
    for number in 2..10 {
        assert_eq!(bench.take(&a, number, 0, &[]), taken(number));
    }
    assert_eq!(bench.take(&b, 2, 0, &[1]), Reply::Wait);
    let remaining = vec![(0, 1), (2, 10)];
    assert_eq!(
        bench.ok(Command::ListRemaining { job: a.job.clone() }),
        Reply::Remaining { epoch: 0, remaining }
    );
    assert_eq!(bench.take(&b, 3, 1, &[]), Reply::Wait, "the next epoch waits for this one");
    let done: Vec<u64> = (0..10).filter(|number| *number != 1).collect();
    assert_eq!(bench.take(&a, 10, 0, &done), Reply::EpochEnded { dropped: 0 });
    assert_eq!(bench.take(&b, 3, 1, &[]), Reply::Taken(Span { epoch: 1, number: 0 }));
    assert_eq!(bench.take(&a, 11, 0, &[]), Reply::EpochEnded { dropped: 0 });
    let old = Command::TakeSpan { who: a, request: 4, epoch: 1, done: vec![] };
    assert_eq!(bench.kind(old), ErrorKind::Stale);
}

#[test]
fn p056_spans_in_the_hand_of_a_lost_consumer_come_back_or_are_dropped_as_asked() {
    for (visitation, next, dropped) in [
        (Visitation::ExactlyOnce, taken(0), 0),
        (Visitation::AtLeastOnce, taken(0), 0),
        (Visitation::AtMostOnce, taken(3), 2),
    ] {
        let mut bench = Bench::new();
        let (a, b) = (who("a", 0, 1), who("a", 1, 2));
        bench.attach(&a, &terms(Sharding::Dynamic, visitation));
        bench.attach(&b, &terms(Sharding::Dynamic, visitation));
        assert_eq!(bench.take(&a, 1, 0, &[]), taken(0));
        assert_eq!(bench.take(&b, 1, 0, &[]), taken(1));
        assert_eq!(bench.take(&a, 2, 0, &[]), taken(2));
        bench.now += 29_000;
        assert_eq!(bench.take(&b, 1, 0, &[]), taken(1), "b is heard of");
        bench.pass(2_000);
        assert_eq!(bench.take(&b, 2, 0, &[1]), next);
        let taking = bench.machine.view(0).jobs[0].taking.unwrap();
        assert_eq!((taking.dropped, taking.done), (dropped, 1));
        // It comes back too late, and is told.
        let late = Command::TakeSpan { who: a.clone(), request: 3, epoch: 0, done: vec![] };
        assert_eq!(bench.kind(late), ErrorKind::Stale);
        assert!(!bench.attach(&a, &terms(Sharding::Dynamic, visitation)));
    }
}

#[test]
fn a_job_goes_on_from_its_checkpoint_and_all_may_be_away_for_a_while() {
    let mut bench = Bench::new();
    let a = who("a", 0, 1);
    let dynamic = terms(Sharding::Dynamic, Visitation::ExactlyOnce);
    bench.attach(&a, &dynamic);
    let start = |remaining: &[(u64, u64)], start| Command::StartFrom {
        who: who("a", 0, 1),
        start,
        epoch: 0,
        remaining: remaining.to_vec(),
    };
    bench.ok(start(&[(2, 3), (8, 10)], 77));
    assert_eq!(bench.take(&a, 1, 0, &[]), taken(2));
    bench.ok(start(&[(2, 3), (8, 10)], 77));
    assert_eq!(bench.take(&a, 2, 0, &[2]), taken(8), "the same start is obeyed once");
    for bad in [&[(3, 3)][..], &[(5, 6), (1, 2)], &[(9, 11)]] {
        assert_eq!(bench.kind(start(bad, 78)), ErrorKind::InvalidConfig);
    }
    // Everybody is silent, and comes back in time.
    bench.pass(40_000);
    assert_eq!(bench.machine.state().sizes()[2], 0);
    assert!(!bench.attach(&a, &dynamic));
    assert_eq!(bench.take(&a, 1, 0, &[]), taken(8));
    bench.pass(40_000);
    bench.pass(700_000);
    assert_eq!(bench.machine.state().sizes(), [0; 4]);
    assert!(bench.attach(&a, &dynamic), "too late: its job is new");
}

#[test]
fn another_process_for_a_rank_takes_its_place_and_the_first_is_told() {
    let mut bench = Bench::new();
    let (old, new) = (who("a", 0, 1), who("a", 0, 2));
    bench.attach(&old, &portions());
    bench.reach(&old, 1, 30);
    let round = bench.ok(Command::CurrentRound { job: old.job.clone() });
    assert_eq!(round, Reply::Round { step: 30, reached: Reached { epoch: 1, position: 30 } });
    assert!(!bench.attach(&new, &portions()));
    let command = |who: &Who| Command::AttachJob {
        who: who.clone(),
        terms: portions(),
        from: Reached::default(),
        step: 0,
    };
    assert_eq!(bench.kind(command(&old)), ErrorKind::Stale);
    bench.ok(command(&new));
    assert_eq!(bench.machine.state().sizes()[2], 1);
}

#[test]
fn the_first_job_of_a_feed_decides_its_spans() {
    let mut bench = Bench::new();
    let (a, b) = (who("a", 0, 1), who("b", 0, 2));
    bench.attach(&a, &portions());
    let longer = Terms { span_positions: 50, label: "elsewhere".into(), ..portions() };
    let command = Command::AttachJob { who: b.clone(), terms: longer, from: Reached::default(), step: 0 };
    assert!(matches!(bench.ok(command), Reply::Attached { span_positions: 10, .. }));
    bench.ok(Command::DetachJob { who: a });
    assert_eq!(bench.machine.view(0).feeds[0].span_positions, 10);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let mut bench = Bench::new();
    let a = who("a", 0, 1);
    let attach = |who: &Who, terms: Terms| Command::AttachJob {
        who: who.clone(),
        terms,
        from: Reached::default(),
        step: 0,
    };
    let none = Terms { span_positions: 0, ..portions() };
    assert_eq!(bench.kind(attach(&a, none)), ErrorKind::InvalidConfig);
    assert_eq!(bench.kind(attach(&who("a", 2, 1), portions())), ErrorKind::InvalidConfig);
    bench.attach(&a, &portions());
    let more = Terms { world_size: 3, ..portions() };
    assert_eq!(bench.kind(attach(&who("a", 1, 5), more)), ErrorKind::InvalidConfig);
    let longer = Terms { epoch_positions: 96, ..portions() };
    assert_eq!(bench.kind(attach(&who("b", 1, 5), longer)), ErrorKind::InvalidConfig);
    let spans = |numbers: std::ops::Range<u64>| numbers.map(|number| Span { epoch: 0, number }).collect();
    let locate = |spans| Command::Locate { who: who("a", 0, 1), spans, avoid: vec![] };
    assert_eq!(bench.kind(locate(spans(10..11))), ErrorKind::InvalidConfig);
    assert_eq!(bench.kind(locate(vec![Span { epoch: 0, number: 0 }; 1025])), ErrorKind::InvalidConfig);
    let take = Command::TakeSpan { who: a.clone(), request: 1, epoch: 0, done: vec![] };
    assert_eq!(bench.kind(take), ErrorKind::InvalidConfig);
    assert_eq!(bench.kind(Command::DrainWorker { worker: WorkerId(9) }), ErrorKind::NotFound);
    assert_eq!(bench.kind(Command::ListRemaining { job: a.job }), ErrorKind::NotFound);
    assert!(
        JobName::new("").is_err() && JobName::new("a\nb").is_err() && JobName::new("a".repeat(513)).is_err()
    );
}

#[test]
fn commands_replies_and_events_read_back_as_they_were_written() {
    let mut bench = Bench::new();
    let a = who("a", 0, u64::MAX);
    bench.worker(u64::MAX);
    let feed = FeedId(u128::MAX);
    bench.attach(&a, &Terms { feed, ..terms(Sharding::Dynamic, Visitation::AtMostOnce) });
    bench.locate(&a, 0..3, &[]);
    bench.take(&a, 1, 0, &[]);
    for event in &bench.events {
        let text = serde_json::to_string(event).unwrap();
        assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), *event);
    }
    let view = bench.ok(Command::View);
    let text = serde_json::to_value(&view).unwrap();
    assert_eq!(text["view"]["feeds"][0]["feed"], "f".repeat(32));
    assert_eq!(serde_json::from_value::<Reply>(text).unwrap(), view);
    let command = Command::Locate { who: a, spans: vec![], avoid: vec![WorkerId(3)] };
    let text = serde_json::to_string(&command).unwrap();
    assert_eq!(serde_json::from_str::<Command>(&text).unwrap(), command);
}
