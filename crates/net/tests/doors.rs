//! What those cost who connect and say nothing, nonsense, or the right words far too slowly: at the port of a worker,
//! at the socket of a host's process and at the port of a dispatcher. All in one process of its own, whose memory is
//! looked at meanwhile.
#![allow(clippy::unwrap_used, reason = "a test whose surroundings are broken may panic")]

use forebay_core::dispatcher::Command;
use forebay_core::{Error, Result};
use forebay_engine::Make;
use forebay_engine::feed::FeedSpec;
use forebay_net::dispatcher::{Control, ControlOptions, DispatcherOptions};
use forebay_net::service::worker::{WorkerOptions, serve, serve_share};
use forebay_net::service::{Address, connect};
use forebay_net::{Credentials, Threads, Token};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Connections of each kind of attack.
const CONNECTIONS: usize = 200;

/// How long a door waits until somebody has shown who it is.
const BEGIN: Duration = Duration::from_millis(500);

/// Most memory that all of them together may cost at one door. Connections held at once are limited further down: 64
/// at a worker, 1,024 at a dispatcher.
const COST_BYTES: u64 = 48 << 20;

const DEADLINE: Duration = Duration::from_secs(60);

/// The beginning of HTTP/2 with settings of no words, and a question whether the other side lives.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const PING: &[u8] = b"\0\0\x08\x06\0\0\0\0\0\0\0\0\0\0\0\0\0";

/// A request without a body, in headers that were never compressed: `:method: POST`, `:path: /forebay.Control/Call`.
const CALL_HEADERS: &[u8] = b"\0\0\x1c\x01\x04\0\0\0\x01\x83\x86\x04\x15/forebay.Control/Call\x41\x01x";

/// Where to attack.
enum Door {
    Tcp(String),
    Unix(PathBuf),
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

impl Door {
    fn open(&self) -> Box<dyn Stream> {
        match self {
            Self::Tcp(address) => {
                let stream = TcpStream::connect(address).unwrap();
                stream.set_nonblocking(true).unwrap();
                Box::new(stream)
            }
            Self::Unix(path) => {
                let stream = UnixStream::connect(path).unwrap();
                stream.set_nonblocking(true).unwrap();
                Box::new(stream)
            }
        }
    }
}

/// One who attacks: what it says at once, and what it goes on saying byte by byte for as long as it is listened to.
struct Attack {
    at_once: Vec<u8>,
    slowly: Vec<u8>,
}

fn attacks(beginning: &[u8]) -> Vec<Attack> {
    let attack = |at_once: &[u8], slowly: &[u8]| Attack { at_once: at_once.into(), slowly: slowly.into() };
    vec![
        attack(b"", b""),
        attack(b"", beginning),
        attack(&[0xff; 100_000], b""),
        attack(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", b"x"),
        attack(&beginning[..beginning.len() / 2], &beginning[beginning.len() / 2..]),
    ]
}

/// Says as much as the other side takes; none when it has closed.
fn say(stream: &mut dyn Stream, words: &[u8]) -> Option<usize> {
    match stream.write(words) {
        Ok(count) => Some(count),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Some(0),
        Err(_) => None,
    }
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// Attacks a door until everybody was closed, and says what that cost in memory at most. `honest` is somebody who comes
/// with good intentions meanwhile.
fn besiege(door: &Door, attacks: &[Attack], honest: impl FnOnce()) -> u64 {
    let before = resident_bytes();
    let mut peak = before;
    let mut open: Vec<(Box<dyn Stream>, usize, usize)> = Vec::new();
    for (kind, attack) in attacks.iter().enumerate() {
        for _ in 0..CONNECTIONS {
            let mut stream = door.open();
            say(&mut *stream, &attack.at_once);
            open.push((stream, kind, 0));
        }
        peak = peak.max(resident_bytes());
    }
    honest();
    let until = Instant::now() + DEADLINE;
    while !open.is_empty() {
        let left: Vec<usize> =
            (0..attacks.len()).map(|kind| open.iter().filter(|(_, of, _)| *of == kind).count()).collect();
        assert!(Instant::now() < until, "still open, by kind of attack: {left:?}");
        open.retain_mut(|(stream, kind, said)| {
            let slowly = &attacks[*kind].slowly;
            if let Some(next) = slowly.get(*said % slowly.len().max(1)) {
                let Some(count) = say(&mut **stream, &[*next]) else { return false };
                *said += count;
            }
            match stream.read(&mut [0; 4096]) {
                Ok(count) => count > 0,
                Err(error) => error.kind() == ErrorKind::WouldBlock,
            }
        });
        peak = peak.max(resident_bytes());
        std::thread::sleep(Duration::from_millis(5));
    }
    peak - before
}

fn nothing(_: &FeedSpec) -> Result<Arc<dyn Make>> {
    Err(Error::unsupported("make batches: nothing is made here"))
}

fn options(listen: Address) -> WorkerOptions {
    WorkerOptions { begin_time: BEGIN, attach_time: BEGIN, ..WorkerOptions::new(listen) }
}

/// A client whom the siege keeps waiting until one of the few places is free again.
fn get_in(address: &Address) {
    let until = Instant::now() + DEADLINE;
    while let Err(error) = connect(address, &Credentials::default()) {
        assert!(Instant::now() < until, "{}", error.report());
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn a_worker_holds_out() {
    let worker = serve(options(Address::Tcp("127.0.0.1:0".into())), Arc::new(nothing)).unwrap();
    let address = worker.address().clone();
    let cost = besiege(&Door::Tcp(address.to_string()), &attacks(b"FBYB\x01\x01\x04"), || get_in(&address));
    assert!(cost < COST_BYTES, "{cost} bytes for {CONNECTIONS} connections of each kind");
    let until = Instant::now() + DEADLINE;
    while worker.view().connections > 0 {
        assert!(Instant::now() < until, "somebody is still held");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn a_shared_process_holds_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("share.sock");
    let address = Address::Unix(path.clone());
    let share = serve_share(&path, options(address.clone()), Arc::new(nothing)).unwrap().unwrap();
    let cost = besiege(&Door::Unix(path), &attacks(b"FBYB\x01\x01\x04"), || get_in(&address));
    assert!(cost < COST_BYTES, "{cost} bytes for {CONNECTIONS} connections of each kind");
    drop(share);
}

fn a_dispatcher_holds_out(token: Option<&str>) {
    let credentials = Credentials { token: token.map(|text| Token::new(text).unwrap()), tls: None };
    let options = DispatcherOptions {
        listen: "127.0.0.1:0".into(),
        credentials: credentials.clone(),
        begin_time: BEGIN,
        ..DispatcherOptions::default()
    };
    let threads = Threads::shared().unwrap();
    let running = threads.block_on(forebay_net::dispatcher::serve(options, threads.clone())).unwrap();
    let address = running.address().to_string();
    let asking = ControlOptions { address: format!("forebay://{address}"), credentials };
    let control = Control::new(&asking, threads.clone()).unwrap();
    let mut attacks = attacks(PREFACE);
    // Who speaks HTTP/2 and asks whether we live, for ever; and who calls without a token, or without a command.
    attacks.push(Attack { at_once: PREFACE.into(), slowly: PING.into() });
    let calls = [PREFACE, CALL_HEADERS].concat();
    attacks.push(Attack { at_once: calls, slowly: PING.into() });
    let cost = besiege(&Door::Tcp(address), &attacks, || {
        control.call(&Command::View, DEADLINE).unwrap();
    });
    assert!(cost < COST_BYTES, "{cost} bytes for {CONNECTIONS} connections of each kind");
    // Who was answered stays, however long it is silent.
    std::thread::sleep(2 * BEGIN);
    control.call(&Command::View, DEADLINE).unwrap();
    threads.block_on(running.stop());
}

#[test]
fn whoever_connects_and_does_not_belong_here_is_closed_and_costs_bounded_memory() {
    a_worker_holds_out();
    a_shared_process_holds_out();
    a_dispatcher_holds_out(None);
    a_dispatcher_holds_out(Some("a token, long enough"));
}
