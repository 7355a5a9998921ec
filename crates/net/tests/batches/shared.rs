//! Batches handed over as shared memory: nothing is copied, nothing leaks back, and nothing is used again too early.

use crate::make::{batch, pair, receive, shape, tensor};
use forebay_core::ErrorKind;
use forebay_engine::Batch;
use forebay_net::Credentials;
use forebay_net::service::message::{Packing, ToClient, ToWorker};
use forebay_net::service::{Address, ListenOptions, Listener, Receiving, Sending, Sent, Times, connect};
use forebay_ops::{BufferPool, Column};
use std::process::{Command, Stdio};

const ROW: usize = 100_000;
const BYTES: usize = 4 * ROW;
/// As many pages as that takes.
const KEPT: usize = 401_408;
const SOCKET: &str = "FOREBAY_TEST_BATCHES_SOCKET";

type Halves = (Sending, Receiving);

fn unix() -> (Halves, Halves, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let (worker, client) = pair(&Address::Unix(folder.path().join("a.sock")), &Credentials::default());
    (worker, client, folder)
}

fn bytes_of(column: &mut Column) -> &mut [u8] {
    let Column::Tensor { data, .. } = column else { panic!("not a tensor") };
    data.as_mut_slice()
}

/// Waits until the worker has read what the client says before `Passed`.
fn settle(client: &mut Sending, worker: &mut Receiving) {
    let said = ToWorker::Passed { epoch: 0, position: 1 };
    client.send(&said).unwrap();
    assert_eq!(worker.receive().unwrap(), Some(said));
}

#[test]
fn tensors_cross_as_memory_and_come_back_when_the_client_lets_go() {
    let ((mut to_client, mut from_client), (mut to_worker, mut from_worker), _folder) = unix();
    let (pool, clients) = (BufferPool::shared(64 << 20), BufferPool::new(64 << 20));
    assert!(to_client.shares_memory() && !to_worker.shares_memory());
    let made = batch(4, vec![tensor(&pool, 4, ROW, 1), tensor(&pool, 4, 8, 2), tensor(&pool, 4, ROW, 3)]);
    let sent = to_client.send_batch(1, &made, Times::default(), Packing::Zstd).unwrap();
    assert_eq!((sent.shared_bytes, sent.bytes), (2 * BYTES as u64, 32), "small ones are in the body");
    let (_, mut seen) = receive(&mut from_worker, &clients).unwrap();
    let before = shape(&made);
    assert_eq!(shape(&seen), before);
    bytes_of(&mut seen.columns[0].1).fill(9);
    assert_eq!(shape(&made), before, "what a client writes is its own");
    drop(made);
    assert_eq!(pool.idle_bytes(), 4096, "the client still looks at the large ones");
    settle(&mut to_worker, &mut from_client);
    assert_eq!(pool.idle_bytes(), 4096);
    drop(seen);
    settle(&mut to_worker, &mut from_client);
    assert_eq!(pool.idle_bytes(), 4096 + 2 * KEPT, "it said so with its next message");
    assert_eq!(clients.idle_bytes(), 4096);
}

#[test]
fn a_batch_is_shown_to_several_and_comes_back_when_the_last_lets_go() {
    let (mut one, mut one_client, _one) = unix();
    let (mut other, mut other_client, _other) = unix();
    let pool = BufferPool::shared(64 << 20);
    let made = batch(4, vec![tensor(&pool, 4, ROW, 1)]);
    let show = |to_client: &mut Sending, from_worker: &mut Receiving| {
        to_client.send_batch(1, &made, Times::default(), Packing::None).unwrap();
        assert_eq!(shape(&receive(from_worker, &pool).unwrap().1), shape(&made));
    };
    show(&mut one.0, &mut one_client.1);
    show(&mut one.0, &mut one_client.1);
    show(&mut other.0, &mut other_client.1);
    drop(made);
    settle(&mut one_client.0, &mut one.1);
    assert_eq!(pool.idle_bytes(), 0);
    other_client.0.send_releases().unwrap();
    settle(&mut other_client.0, &mut other.1);
    assert_eq!(pool.idle_bytes(), KEPT);
}

#[test]
fn a_connection_that_ends_leaves_memory_to_whoever_still_looks_at_it() {
    let ((mut to_client, from_client), (to_worker, mut from_worker), _folder) = unix();
    let pool = BufferPool::shared(64 << 20);
    let made = batch(4, vec![tensor(&pool, 4, ROW, 1)]);
    let expected = shape(&made);
    to_client.send_batch(1, &made, Times::default(), Packing::None).unwrap();
    let (_, seen) = receive(&mut from_worker, &pool).unwrap();
    drop((to_worker, from_worker));
    drop((to_client, from_client));
    drop(made);
    assert_eq!(pool.idle_bytes(), 0, "the worker no longer holds it, and will not write to it");
    drop(tensor(&pool, 4, ROW, 5));
    assert_eq!(shape(&seen), expected);
}

#[test]
fn descriptors_of_batches_that_follow_each_other_are_not_mixed_up() {
    let ((mut to_client, _from_client), (_to_worker, mut from_worker), _folder) = unix();
    let pool = BufferPool::shared(64 << 20);
    let many: Vec<_> = (0..12u64)
        .map(|salt| {
            // Ids make the headers long, so that they are read in several pieces.
            let rows = 1000 + 7 * salt as usize;
            batch(rows, (0..=salt % 3).map(|column| tensor(&pool, rows, 100, salt * 10 + column)).collect())
        })
        .collect();
    for made in &many {
        to_client.send_batch(1, made, Times::default(), Packing::None).unwrap();
    }
    for made in &many {
        assert_eq!(shape(&receive(&mut from_worker, &pool).unwrap().1), shape(made));
    }
}

#[test]
fn p050_what_one_job_writes_is_seen_by_no_other_job_and_in_no_later_batch() {
    let (mut one, mut one_client, _one) = unix();
    let (mut other, mut other_client, _other) = unix();
    // Room for one idle piece, so that every batch is made in the memory of the one before.
    let (pool, clients) = (BufferPool::shared(KEPT), BufferPool::new(0));
    for salt in 0..8 {
        let made = batch(4, vec![tensor(&pool, 4, ROW, salt)]);
        let expected = shape(&batch(4, vec![tensor(&clients, 4, ROW, salt)]));
        one.0.send_batch(salt, &made, Times::default(), Packing::None).unwrap();
        other.0.send_batch(salt, &made, Times::default(), Packing::None).unwrap();
        let (_, mut seen) = receive(&mut one_client.1, &clients).unwrap();
        assert_eq!(shape(&seen), expected);
        // The first job writes to every other batch: everywhere, or to one byte.
        match salt % 4 {
            0 => bytes_of(&mut seen.columns[0].1).fill(0xee),
            2 => bytes_of(&mut seen.columns[0].1)[BYTES - 1] ^= 0xff,
            _ => {}
        }
        let (_, unwritten) = receive(&mut other_client.1, &clients).unwrap();
        assert_eq!(shape(&unwritten), expected);
        assert_eq!(shape(&made), expected);
        drop((made, seen, unwritten));
        settle(&mut one_client.0, &mut one.1);
        settle(&mut other_client.0, &mut other.1);
        assert_eq!(pool.idle_bytes(), KEPT, "both have let go, and it is used again");
    }
}

#[test]
fn p051_memory_is_not_used_again_while_a_slow_job_looks_at_it_however_many_batches_pass() {
    let (mut one, mut one_client, _one) = unix();
    let (mut other, mut other_client, _other) = unix();
    let (pool, clients) = (BufferPool::shared(2 * KEPT), BufferPool::new(0));
    let first = batch(4, vec![tensor(&pool, 4, ROW, 77)]);
    let expected = shape(&first);
    other.0.send_batch(0, &first, Times::default(), Packing::None).unwrap();
    drop(first);
    let (_, held) = receive(&mut other_client.1, &clients).unwrap();
    for salt in 0..100 {
        let made = batch(4, vec![tensor(&pool, 4, ROW, salt)]);
        one.0.send_batch(salt, &made, Times::default(), Packing::None).unwrap();
        assert_eq!(shape(&receive(&mut one_client.1, &clients).unwrap().1), shape(&made));
        drop(made);
        settle(&mut one_client.0, &mut one.1);
        // Its unix socket says nothing of memory: a job that works for long is not one that let go.
        settle(&mut other_client.0, &mut other.1);
        assert!(pool.idle_bytes() <= KEPT, "what one job holds is not idle");
    }
    assert_eq!(shape(&held), expected);
    drop(held);
    settle(&mut other_client.0, &mut other.1);
    assert_eq!(pool.idle_bytes(), 2 * KEPT);
}

/// Sends while the other side receives: a body is more than a socket holds.
fn cross(to_client: &mut Sending, from_worker: &mut Receiving, made: &Batch) -> Sent {
    std::thread::scope(|scope| {
        let receiving = scope.spawn(|| receive(from_worker, &BufferPool::new(0)).unwrap().1);
        let sent = to_client.send_batch(1, made, Times::default(), Packing::None).unwrap();
        assert_eq!(shape(&receiving.join().unwrap()), shape(made));
        sent
    })
}

#[test]
fn memory_is_bytes_on_tcp_and_where_nothing_can_be_shared() {
    let ((mut to_client, _keep), (_to_worker, mut from_worker)) =
        pair(&crate::make::loopback(), &Credentials::default());
    assert!(!to_client.shares_memory());
    let made = batch(4, vec![tensor(&BufferPool::shared(64 << 20), 4, ROW, 1)]);
    let sent = cross(&mut to_client, &mut from_worker, &made);
    assert_eq!((sent.shared_bytes, sent.bytes), (0, BYTES as u64));
    let ((mut to_client, _keep), (_to_worker, mut from_worker), _folder) = unix();
    let ordinary = batch(4, vec![tensor(&BufferPool::new(0), 4, ROW, 1)]);
    let sent = cross(&mut to_client, &mut from_worker, &ordinary);
    assert_eq!((sent.shared_bytes, sent.bytes), (0, BYTES as u64));
}

/// Does nothing unless it is run by the test below, as another process.
#[test]
fn as_another_process() {
    let Some(path) = std::env::var_os(SOCKET) else { return };
    let (mut to_worker, mut from_worker) =
        connect(&Address::Unix(path.into()), &Credentials::default()).unwrap();
    let (_, mut seen) = receive(&mut from_worker, &BufferPool::new(0)).unwrap();
    let expected = batch(4, vec![tensor(&BufferPool::new(0), 4, ROW, 77)]);
    assert_eq!(shape(&seen), shape(&expected));
    bytes_of(&mut seen.columns[0].1).fill(3);
    drop(seen);
    to_worker.send_releases().unwrap();
    let (_, _held) = receive(&mut from_worker, &BufferPool::new(0)).unwrap();
    to_worker.send(&ToWorker::Passed { epoch: 0, position: 1 }).unwrap();
    // Holds the second one until it is killed.
    let _ = from_worker.receive::<ToClient>();
}

#[test]
fn another_process_looks_at_a_batch_gives_it_back_and_is_killed_while_it_looks_at_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let address = Address::Unix(folder.path().join("a.sock"));
    let listener = Listener::bind(&address, &Credentials::default(), ListenOptions::default()).unwrap();
    let mut other = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "shared::as_another_process", "--nocapture"])
        .env(SOCKET, folder.path().join("a.sock"))
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let (mut to_client, mut from_client) = listener.accept().unwrap().unwrap().meet().unwrap();
    let pool = BufferPool::shared(64 << 20);
    let made = batch(4, vec![tensor(&pool, 4, ROW, 77)]);
    let before = shape(&made);
    to_client.send_batch(1, &made, Times::default(), Packing::None).unwrap();
    to_client.send_batch(2, &made, Times::default(), Packing::None).unwrap();
    let said: Option<ToWorker> = from_client.receive().unwrap();
    assert_eq!(said, Some(ToWorker::Passed { epoch: 0, position: 1 }));
    assert_eq!(shape(&made), before, "it wrote to the first one, and to the second's memory with it");
    other.kill().unwrap();
    other.wait().unwrap();
    match from_client.receive::<ToWorker>() {
        Ok(said) => assert_eq!(said, None),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable),
    }
    drop((to_client, from_client));
    assert_eq!(listener.connections(), 0);
    assert_eq!(shape(&made), before);
}
