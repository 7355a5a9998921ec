//! Jobs and feeds that come and go, clients that misbehave, workers that drain and end.

use crate::made::*;
use forebay_core::feed::{BatchName, Run};
use forebay_core::staging::Late;
use forebay_core::{Error, ErrorKind, Result};
use forebay_engine::Make;
use forebay_engine::feed::FeedSpec;
use forebay_net::service::Address;
use forebay_net::service::message::{ToClient, ToWorker};
use forebay_net::service::worker::{Load, Orders, Reports, WorkerOptions, serve, serve_share};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The error that ends a connection.
fn refusal(client: &mut Client) -> Error {
    match client.receive() {
        ToClient::Refused { fault } => fault.into(),
        other => panic!("{other:?} is no refusal"),
    }
}

#[test]
fn p052_a_job_that_dies_is_noticed_by_its_socket_and_holds_nobody_up() {
    let maker = FakeMaker::new();
    let worker = worker(&maker, Late::Wait, 4, |_| {});
    let (mut one, other) = (Client::join(worker.address(), "one"), Client::join(worker.address(), "other"));
    for number in 0..4 {
        assert_eq!(one.take(number), Came::Batch(name(number)));
    }
    one.ask(4);
    drop(other);
    assert_eq!(one.answer(), (4, Came::Batch(name(4))), "the dead job needs nothing any more");
    assert!(one.read(5..20).is_empty());
    assert_eq!(worker.view().feeds[0].jobs.len(), 1);
    // Batches that were planned ahead are still being made: the maker counts one before staging has it.
    wait_until("every batch that was made is staged", || {
        maker.made() == worker.view().sum(|staging| staging.made)
    });
}

#[test]
fn p052_a_job_that_joins_late_gets_what_is_staged_and_the_rest_made_again() {
    let maker = FakeMaker::new();
    let worker = worker(&maker, Late::Remake, 50, |_| {});
    let mut first = Client::join(worker.address(), "first");
    let mut second = Client::join(worker.address(), "second");
    assert!(first.read(0..10).is_empty() && second.read(0..5).is_empty());
    let mut third = Client::join(worker.address(), "third");
    assert!(third.read(0..10).is_empty());
    let makes = maker.makes();
    assert!((0..5).all(|number| makes[&name(number)] == 2), "both had taken these: {makes:?}");
    assert!((5..10).all(|number| makes[&name(number)] == 1), "these waited for the second: {makes:?}");
}

#[test]
fn a_batch_that_cannot_be_made_is_told_and_others_go_on() {
    let maker = FakeMaker::new();
    maker.break_batch(1);
    let worker = worker(&maker, Late::Remake, 4, |_| {});
    let mut client = Client::join(worker.address(), "job");
    assert_eq!(client.take(0), Came::Batch(name(0)));
    assert_eq!(client.take(1), Came::Fault("prepare sample 5: it is damaged".into()));
    assert_eq!(client.take(2), Came::Batch(name(2)));
    let beyond = BatchName { epoch: 0, runs: vec![Run { first: SAMPLES, len: 1, padding: false }] };
    client.say(&ToWorker::Plan { names: vec![beyond.clone()] });
    client.say(&ToWorker::Take { request: 9, name: beyond });
    let (request, came) = client.answer();
    assert!(request == 9 && matches!(&came, Came::Fault(why) if why.contains("beyond the end")), "{came:?}");
    let large = BatchName { epoch: 0, runs: vec![Run { first: 0, len: 40, padding: false }] };
    client.say(&ToWorker::Take { request: 10, name: large });
    assert!(matches!(client.answer(), (10, Came::Fault(why)) if why.contains("staging has")));
}

#[test]
fn a_feed_that_cannot_be_opened_or_ends_is_told_with_the_reason() {
    let stale = |_: &FeedSpec| -> Result<Arc<dyn Make>> {
        Err(Error::stale("make batches: version v1 is wanted, version v2 is here"))
    };
    let running = serve(WorkerOptions::new(Address::Tcp("127.0.0.1:0".into())), Arc::new(stale)).unwrap();
    let mut client = Client::connect(running.address());
    client.attach("job", 0, 1, 7, true);
    let error = refusal(&mut client);
    assert_eq!(error.kind(), ErrorKind::Stale);
    assert!(error.message().contains("v1") && error.message().contains("v2"), "{error}");
    assert!(client.receiving.receive::<ToClient>().ok().flatten().is_none(), "it is closed after that");

    let maker = FakeMaker::new();
    let worker = worker(&maker, Late::Remake, 4, |_| {});
    let mut client = Client::join(worker.address(), "job");
    maker.end();
    assert_eq!(refusal(&mut client).kind(), ErrorKind::Unavailable);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let maker = FakeMaker::new();
    let worker = worker(&maker, Late::Remake, 4, |_| {});
    let refused = |say: &dyn Fn(&mut Client)| {
        let mut client = Client::connect(worker.address());
        say(&mut client);
        refusal(&mut client).message().to_owned()
    };
    assert!(refused(&|client| client.ask(0)).contains("not said which"));
    assert!(refused(&|client| client.attach("", 0, 1, 7, true)).contains("job's name"));
    assert!(refused(&|client| client.attach("job", 3, 2, 7, true)).contains("rank 3 of 2"));
    let wrong = |client: &mut Client| {
        let attach = forebay_net::service::message::Attach {
            job: "job".into(),
            rank: 0,
            world_size: 1,
            feed: spec(8).id(),
            spec: spec(9).to_json().unwrap(),
            packings: Vec::new(),
            late: Late::Remake,
        };
        client.say(&ToWorker::Attach(attach));
    };
    assert!(refused(&wrong).contains("the spec that came is that of feed"));
    assert_eq!(worker.view().feeds.len(), 0);
}

#[test]
fn a_client_that_does_not_read_is_closed_and_holds_nobody_up() {
    let maker = FakeMaker::new();
    let worker = worker(&maker, Late::Remake, 8, |options| options.send_time = Duration::from_millis(300));
    let mut stuck = Client::join(worker.address(), "stuck");
    // More than fits into the buffers of a socket.
    for number in 0..1000 {
        stuck.ask(number % (SAMPLES / ROWS));
    }
    let mut other = Client::join(worker.address(), "other");
    assert!(other.read(0..SAMPLES / ROWS).is_empty());
    wait_until("it is closed", || worker.view().connections == 1);
    let view = worker.view();
    assert!(view.sum(|staging| staging.peak_bytes) <= 8 * BATCH_BYTES);
    assert_eq!(view.feeds[0].jobs.len(), 1);
}

#[test]
fn a_client_that_says_nothing_is_closed() {
    let maker = FakeMaker::new();
    let worker = worker(&maker, Late::Remake, 8, |options| options.attach_time = Duration::from_millis(50));
    let mut silent = Client::connect(worker.address());
    assert!(silent.receiving.receive::<ToClient>().ok().flatten().is_none());
    wait_until("it is gone", || worker.view().connections == 0);
}

/// Passes bytes on to a worker, and holds back all of the client's but so many more once it is told.
struct Dribble {
    address: Address,
    left: Arc<AtomicUsize>,
}

impl Dribble {
    fn before(worker: &Address) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::Tcp(listener.local_addr().unwrap().to_string());
        let (left, worker) = (Arc::new(AtomicUsize::new(usize::MAX)), worker.to_string());
        let allowed = Arc::clone(&left);
        std::thread::spawn(move || {
            let (client, _) = listener.accept().unwrap();
            let server = TcpStream::connect(worker).unwrap();
            let (mut answers, mut to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut answers, &mut to_client);
                let _ = to_client.shutdown(Shutdown::Both);
            });
            let (mut client, mut server) = (client, server);
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = client.read(&mut bytes) {
                let passed = allowed.fetch_update(Relaxed, Relaxed, |left| Some(left.saturating_sub(count)));
                let passed = count.min(passed.unwrap());
                if server.write_all(&bytes[..passed]).is_err() {
                    return;
                }
            }
        });
        Self { address, left }
    }
}

#[test]
fn a_message_that_was_begun_and_is_not_finished_ends_its_connection_and_no_other() {
    let maker = FakeMaker::new();
    let worker = worker(&maker, Late::Remake, 8, |options| options.message_time = Duration::from_millis(100));
    let dribble = Dribble::before(worker.address());
    let mut slow = Client::join(&dribble.address, "slow");
    let mut other = Client::join(worker.address(), "other");
    assert_eq!(slow.take(0), Came::Batch(name(0)));
    // Silence between messages is no fault, however long.
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!((slow.take(1), worker.view().connections), (Came::Batch(name(1)), 2));
    // The length of the next one, and a byte of it.
    dribble.left.store(5, Relaxed);
    slow.ask(2);
    wait_until("it is closed", || worker.view().connections == 1);
    assert!(slow.receiving.receive::<ToClient>().ok().flatten().is_none());
    assert!(other.read(0..10).is_empty(), "nobody else notices");
}

#[test]
fn feeds_close_some_time_after_their_last_job_and_share_the_room() {
    // Each feed has a maker of its own: one that is being closed must not take what is made for another.
    let makers = |_: &FeedSpec| -> Result<Arc<dyn Make>> { Ok(FakeMaker::new()) };
    let options = WorkerOptions {
        staging_bytes: 8 * BATCH_BYTES,
        grace: Duration::from_millis(20),
        ..WorkerOptions::new(Address::Tcp("127.0.0.1:0".into()))
    };
    let worker = serve(options, Arc::new(makers)).unwrap();
    let one = Client::join_as(worker.address(), "one", 0, 1, 1);
    let two = Client::join_as(worker.address(), "two", 0, 1, 2);
    let view = worker.view();
    assert_eq!(view.feeds.iter().map(|feed| feed.limit_bytes).collect::<Vec<_>>(), [4 * BATCH_BYTES; 2]);
    drop(one);
    wait_until("the feed of the first is closed", || worker.view().feeds.len() == 1);
    wait_until("the other has all room", || worker.view().feeds[0].limit_bytes == 8 * BATCH_BYTES);
    drop(two);
    wait_until("nothing is open", || worker.view().feeds.is_empty());
    let mut again = Client::join_as(worker.address(), "one", 0, 1, 1);
    assert_eq!(again.take(3), Came::Batch(name(3)));
}

#[test]
fn a_worker_that_drains_answers_what_it_has_and_takes_nobody_in() {
    let maker = FakeMaker::new();
    maker.allow(0);
    let worker = worker(&maker, Late::Remake, 8, |_| {});
    let mut client = Client::join(worker.address(), "job");
    client.ask(0);
    wait_until("the request is there", || worker.view().sum(|staging| staging.making) == 1);
    assert!(!worker.drain(Duration::ZERO), "there is something to be answered");
    assert_eq!(client.receive(), ToClient::Draining);
    let mut late = Client::connect(worker.address());
    late.attach("late", 0, 1, 7, true);
    assert_eq!(late.receive(), ToClient::Draining);
    assert!(late.receiving.receive::<ToClient>().ok().flatten().is_none(), "and nothing more");
    maker.allow(1);
    assert_eq!(client.answer(), (0, Came::Batch(name(0))));
    assert!(worker.drain(Duration::from_secs(30)) && worker.view().draining);
}

#[test]
fn a_worker_that_stops_lets_go_of_everything() {
    for _ in 0..20 {
        let maker = FakeMaker::new();
        let mut worker = worker(&maker, Late::Remake, 8, |_| {});
        let mut client = Client::join(worker.address(), "job");
        assert_eq!(client.take(0), Came::Batch(name(0)));
        client.ask(1);
        worker.stop();
        while let Ok(Some(ToClient::Batch { header, .. })) = client.receiving.receive::<ToClient>() {
            let limits = forebay_net::service::Limits::expecting(BATCH_BYTES, ROWS);
            let _ = client.receiving.read_batch(&header, &forebay_ops::BufferPool::new(0), limits);
        }
        drop(worker);
        wait_until("all threads have let go of it", || Arc::strong_count(&maker) == 1);
    }
}

#[test]
fn a_host_has_one_shared_process_which_leaves_when_it_is_unused() {
    let temp = tempfile::tempdir().unwrap();
    let socket = temp.path().join("share.sock");
    let maker = FakeMaker::new();
    let options = || WorkerOptions::new(Address::Unix(socket.clone()));
    let mut share = serve_share(&socket, options(), makers(&maker)).unwrap().unwrap();
    assert!(serve_share(&socket, options(), makers(&maker)).unwrap().is_none(), "there is one already");
    assert!(!share.is_unused(Duration::ZERO), "the first client may take a while");
    let mut client = Client::join(&Address::Unix(socket.clone()), "job");
    assert_eq!(client.take(0), Came::Batch(name(0)));
    assert!(!share.is_unused(Duration::ZERO));
    drop(client);
    wait_until("it is unused", || share.is_unused(Duration::from_millis(1)));
    share.stop();
    assert!(!socket.exists());
    drop(serve_share(&socket, options(), makers(&maker)).unwrap().unwrap());
}

/// A dispatcher that writes down what it is told.
#[derive(Default)]
struct FakeReports(Mutex<Told>);

#[derive(Default)]
struct Told {
    registered: u64,
    beats: Vec<Load>,
    left: u64,
    forget: bool,
    orders: Orders,
}

impl Reports for FakeReports {
    fn register(&self, _: &Address) -> Result<()> {
        self.0.lock().unwrap().registered += 1;
        Ok(())
    }

    fn heartbeat(&self, load: &Load) -> Result<Orders> {
        let mut told = self.0.lock().unwrap();
        if std::mem::take(&mut told.forget) {
            return Err(Error::stale("renew worker 1: it lapsed"));
        }
        told.beats.push(*load);
        Ok(told.orders.clone())
    }

    fn leave(&self) {
        self.0.lock().unwrap().left += 1;
    }
}

#[test]
fn a_worker_reports_registers_again_when_it_is_forgotten_and_obeys() {
    let reports = Arc::new(FakeReports::default());
    let maker = FakeMaker::new();
    let shared = Arc::clone(&reports);
    let mut running = worker(&maker, Late::Wait, 2, |options| {
        options.reports = Some((shared, Duration::from_millis(2)));
    });
    let told = |what: &dyn Fn(&mut Told) -> bool| what(&mut reports.0.lock().unwrap());
    let mut client = Client::join(running.address(), "job");
    told(&|told| {
        told.orders.jobs.insert(spec(7).id(), vec!["job".into(), "elsewhere".into()]);
        true
    });
    let beats = reports.0.lock().unwrap().beats.len();
    wait_until("it was told", || told(&|told| told.beats.len() > beats + 2));
    assert_eq!(client.take(0), Came::Batch(name(0)));
    client.pass(1);
    wait_until("its load is told", || {
        told(&|told| told.beats.last().is_some_and(|load| load.batches_made == 1))
    });
    assert_eq!(running.view().sum(|staging| staging.staged), 1, "the other job may come for it");
    assert!(client.read(1..8).is_empty(), "and holds nobody up");
    told(&|told| std::mem::replace(&mut told.forget, true));
    wait_until("it registers again", || told(&|told| told.registered == 2));
    told(&|told| std::mem::replace(&mut told.orders.drain, true));
    wait_until("it drains", || running.is_draining());
    running.stop();
    assert!(told(&|told| told.left == 1));
}
