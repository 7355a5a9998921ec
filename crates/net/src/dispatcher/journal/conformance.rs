//! What every journal does, whatever it is kept in.

use super::memory::MemoryPlace;
use super::{EtcdJournal, FileJournal, Journal, Keys};
use crate::dispatcher::etcd::memory::MemoryEtcd;
use crate::dispatcher::etcd::{Client, Do, Etcd, EtcdOptions, Range, Transaction};
use crate::threads::Threads;
use forebay_core::dispatcher::{
    Command, Dispatcher, Event, JobName, Reached, Settings, Sharding, State, Terms, Visitation, Who, WorkerId,
};
use forebay_core::feed::{FeedId, Span};
use forebay_core::{ErrorKind, Result};
use futures::future::{BoxFuture, FutureExt};
use std::sync::Arc;

/// Somewhere a journal can be kept. Opening it again is what a dispatcher does that comes after another.
trait Place: Sync {
    fn open(&self) -> BoxFuture<'_, Result<(Box<dyn Journal>, State)>>;
}

impl Place for MemoryPlace {
    fn open(&self) -> BoxFuture<'_, Result<(Box<dyn Journal>, State)>> {
        let (journal, state) = MemoryPlace::open(self);
        std::future::ready(Ok((Box::new(journal) as Box<dyn Journal>, state))).boxed()
    }
}

impl Place for tempfile::TempDir {
    fn open(&self) -> BoxFuture<'_, Result<(Box<dyn Journal>, State)>> {
        let opened = FileJournal::open(self.path());
        std::future::ready(opened.map(|(journal, state)| (Box::new(journal) as Box<dyn Journal>, state)))
            .boxed()
    }
}

/// Keys of a model of etcd that loses one call of so many.
struct EtcdPlace {
    etcd: MemoryEtcd,
    lost_of: u64,
}

impl Place for EtcdPlace {
    fn open(&self) -> BoxFuture<'_, Result<(Box<dyn Journal>, State)>> {
        open_in(Arc::new(self.etcd.link(1, 1, 0)), Arc::new(self.etcd.link(7, 20, self.lost_of)), "p").boxed()
    }
}

/// A real etcd.
struct RealPlace(Arc<Client>, String);

impl Place for RealPlace {
    fn open(&self) -> BoxFuture<'_, Result<(Box<dyn Journal>, State)>> {
        open_in(self.0.clone(), self.0.clone(), &self.1).boxed()
    }
}

/// Opens it as somebody who has just begun to lead.
async fn open_in(
    steady: Arc<dyn Etcd>,
    etcd: Arc<dyn Etcd>,
    prefix: &str,
) -> Result<(Box<dyn Journal>, State)> {
    let keys = Keys::new(prefix);
    let leader = keys.leader();
    let put = Do::Put { key: leader.clone(), value: Vec::new(), lease: 0 };
    let gone = Do::Delete(Range::one(&leader));
    for work in [gone, put] {
        steady.transact(Transaction { then: vec![work], ..Transaction::default() }).await?;
    }
    let term = steady.range(Range::one(&leader), 1).await?[0].created;
    let (journal, state) = EtcdJournal::open(etcd, keys, term).await?;
    Ok((Box::new(journal) as Box<dyn Journal>, state))
}

fn who(rank: u64) -> Who {
    Who { job: JobName::new("a").unwrap(), rank, consumer: rank + 1 }
}

fn machine(spans: u64) -> (Dispatcher, Vec<Event>) {
    let mut machine = Dispatcher::new(State::default(), Settings::default(), 0);
    let terms = Terms {
        feed: FeedId(5),
        label: "data".into(),
        world_size: 2,
        span_positions: 1,
        epoch_positions: spans,
        sharding: Sharding::Dynamic,
        visitation: Visitation::ExactlyOnce,
    };
    let register =
        Command::RegisterWorker { worker: WorkerId(1), address: "h:1".into(), tags: vec![], slots: 1 };
    let attach =
        |rank| Command::AttachJob { who: who(rank), terms: terms.clone(), from: Reached::default(), step: 0 };
    let commands = [register, attach(0), attach(1)];
    let events = commands.into_iter().flat_map(|command| machine.apply(0, command).unwrap().1).collect();
    (machine, events)
}

/// Two ranks in turn, each done with what it had before: the request before the one before.
fn take(machine: &mut Dispatcher, rank: u64, request: u64) -> Vec<Event> {
    let done = (4..10_000).contains(&request).then(|| Span { epoch: 0, number: request - 3 });
    let done = done.into_iter().collect();
    let take = Command::TakeSpan { who: who(rank), request, epoch: 0, done };
    machine.apply(0, take).unwrap().1
}

/// Spans of an epoch: numbers so long that a list of them is, too.
const SPANS: u64 = 1_000_000_000_000;

/// Remaining spans that make one event larger than a request to etcd may be.
fn start_from_much() -> Command {
    let first = |number: u64| SPANS / 10 + number * (SPANS / 100_000);
    let remaining = (0..60_000).map(|number| (first(number), first(number) + 1)).collect();
    Command::StartFrom { who: who(0), start: 9, epoch: 0, remaining }
}

/// With so many records before it is looked at.
async fn check(place: &dyn Place, records: u64) {
    let (mut journal, state) = place.open().await.unwrap();
    assert_eq!(state, State::default(), "a new place is empty");
    let (mut machine, events) = machine(SPANS);
    journal.append(&events).await.unwrap();
    journal.append(&take(&mut machine, 0, 1)).await.unwrap();
    drop(journal);
    let (mut journal, state) = place.open().await.unwrap();
    assert_eq!(state, *machine.state(), "what was appended is found");

    let mut anew = 0;
    for request in 2..records {
        journal.append(&take(&mut machine, request % 2, request)).await.unwrap();
        if journal.is_long() {
            journal.compact(&machine.state().events()).await.unwrap();
            assert!(!journal.is_long(), "it is short then");
            anew += 1;
        }
        if request == records / 3 {
            drop(journal);
            let (again, state) = place.open().await.unwrap();
            assert_eq!(state, *machine.state());
            journal = again;
            machine = Dispatcher::new(state, Settings::default(), 0);
        }
    }
    journal.compact(&machine.state().events()).await.unwrap();
    journal.append(&take(&mut machine, 1, 90_000)).await.unwrap();
    drop(journal);
    let (mut journal, state) = place.open().await.unwrap();
    assert_eq!(state, *machine.state(), "written anew {anew} times, it tells of the same");

    let (_, events) = machine.apply(0, start_from_much()).unwrap();
    journal.append(&events).await.unwrap();
    journal.compact(&machine.state().events()).await.unwrap();
    journal.append(&take(&mut machine, 1, 90_001)).await.unwrap();
    drop(journal);
    let (mut first, state) = place.open().await.unwrap();
    assert_eq!(state, *machine.state(), "a large event is kept too");

    // Of two who opened it one at most writes.
    let before = machine.state().clone();
    match place.open().await {
        Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", error.report()),
        Ok((mut second, state)) => {
            assert_eq!(state, before);
            let mut other = machine.clone();
            let late = first.append(&take(&mut other, 0, 95_000)).await.unwrap_err();
            assert_eq!(late.kind(), ErrorKind::Stale, "{}", late.report());
            let late = first.compact(&other.state().events()).await.unwrap_err();
            assert_eq!(late.kind(), ErrorKind::Stale, "{}", late.report());
            second.append(&take(&mut machine, 1, 95_001)).await.unwrap();
        }
    }
    drop(first);
    assert_eq!(place.open().await.unwrap().1, *machine.state(), "and what the other wrote is not there");
}

#[tokio::test(start_paused = true)]
async fn every_journal_gives_back_what_was_kept_and_has_one_writer() {
    check(&MemoryPlace::default(), 3000).await;
    check(&tempfile::tempdir().unwrap(), 300).await;
    for lost_of in [0, 5] {
        let place = EtcdPlace { etcd: MemoryEtcd::default(), lost_of };
        check(&place, 3000).await;
        assert!(place.etcd.largest() < 1 << 20, "etcd takes 1.5 MiB, {} were sent", place.etcd.largest());
    }
}

#[tokio::test]
async fn a_journal_in_a_real_etcd_gives_back_what_was_kept_and_has_one_writer() {
    let Ok(url) = std::env::var("FOREBAY_TEST_ETCD_THREE") else {
        return println!("skipped: FOREBAY_TEST_ETCD_THREE names no etcd");
    };
    let mut options = EtcdOptions::from_url(&url).unwrap();
    options.prefix = format!("conformance/{}", std::process::id());
    let client = Client::new(&options, &Threads::current()).unwrap();
    let lease = client.grant(3).await.unwrap();
    assert!(lease.length_ms >= 3000 && client.renew(lease.id).await.unwrap().is_some());
    client.revoke(lease.id).await.unwrap();
    assert_eq!(client.renew(lease.id).await.unwrap(), None, "it is gone");
    check(&RealPlace(Arc::new(client), options.prefix), 300).await;
}

#[tokio::test(start_paused = true)]
async fn what_was_kept_before_a_failure_is_there_after_it() {
    for (writes, keeps) in [(0, 0), (1, 0), (1, 1), (2, 0), (2, usize::MAX)] {
        let place = MemoryPlace::default();
        let (mut machine, events) = machine(100);
        let (mut journal, _) = place.open();
        place.fail_after(writes, keeps);
        let mut kept = vec![State::default()];
        let mut lists = vec![events];
        lists.extend((1..5).map(|request| take(&mut machine, 0, request)));
        let mut state = State::default();
        for events in &lists {
            let outcome = journal.append(events).await;
            for event in events {
                state.apply(event);
            }
            if outcome.is_err() {
                break;
            }
            kept.push(state.clone());
        }
        assert_eq!(kept.len() as u64, writes + 1);
        let (_, found) = place.open();
        assert!(keeps == 1 || found == *kept.last().unwrap() || found == state, "{writes} {keeps}");
    }
}

#[tokio::test(start_paused = true)]
async fn damage_in_etcd_is_told_and_never_half_believed() {
    let place = EtcdPlace { etcd: MemoryEtcd::default(), lost_of: 0 };
    let (mut machine, events) = machine(100);
    let (mut journal, _) = place.open().await.unwrap();
    journal.append(&events).await.unwrap();
    journal.append(&take(&mut machine, 0, 1)).await.unwrap();
    let second = place.etcd.pairs("p/record/")[1].clone();
    let kind = async || place.open().await.map(drop).unwrap_err().kind();
    for wrong in [&b"\0[{\"no\":"[..], b"", b"\x07[]"] {
        place.etcd.put(&second.key, wrong);
        assert_eq!(kind().await, ErrorKind::Unsupported, "{wrong:?}");
    }
    place.etcd.put(&second.key, &second.value);
    // The beginning of a record that nobody finished is dropped, and its place used again.
    place.etcd.put(&second.key.replace("0001", "0002"), b"\x01[");
    let (mut journal, state) = place.open().await.unwrap();
    assert_eq!(state, *machine.state());
    journal.append(&take(&mut machine, 0, 2)).await.unwrap();
    assert_eq!(place.open().await.unwrap().1, *machine.state());
    place.etcd.put(&second.key.replace("0001", "0009"), b"\0[]");
    assert_eq!(kind().await, ErrorKind::Corrupt);
    place.etcd.put("p/generation", b"first");
    assert_eq!(kind().await, ErrorKind::Unsupported);
}
