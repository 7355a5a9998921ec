//! The relay over real sockets: every byte, in order, and what it counts. When they come is the schedule's matter.

use super::*;
use crate::server::{Objects, SlowServer, generated};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

fn anywhere() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// A server that sends back what it gets, one thread a connection, until the test's process ends.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind(anywhere()).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || std::io::copy(&mut &stream, &mut &stream));
        }
    });
    address
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn every_byte_comes_through_in_order_on_many_connections() {
    let options = WanOptions {
        round_trip: Duration::from_millis(4),
        bytes_per_second: 200_000_000,
        jitter: Duration::from_millis(1),
        queue_bytes: 1 << 20,
        ..WanOptions::default()
    };
    let relay = Relay::start(anywhere(), echo(), options).unwrap();
    let bytes = generated("echo", 0, 300_000);
    std::thread::scope(|scope| {
        for _ in 0..32 {
            scope.spawn(|| {
                let stream = TcpStream::connect(relay.address()).unwrap();
                let (mut reader, mut writer) = (&stream, &stream);
                std::thread::scope(|both| {
                    both.spawn(|| {
                        writer.write_all(&bytes).unwrap();
                        stream.shutdown(Shutdown::Write).unwrap();
                    });
                    let mut back = Vec::new();
                    reader.read_to_end(&mut back).unwrap();
                    assert!(back == bytes, "the end of the sender's bytes comes through too");
                });
            });
        }
    });
    until("all connections are closed", || relay.counts().open == 0);
    let counts = relay.counts();
    assert_eq!((counts.connections, counts.up_bytes, counts.down_bytes), (32, 32 * 300_000, 32 * 300_000));
    assert_eq!((counts.refused, counts.stalls, counts.cuts), (0, 0, 0));
}

#[test]
fn a_client_that_does_not_read_holds_up_the_sender_and_nobody_else() {
    let options =
        WanOptions { bytes_per_second: 1_000_000_000, queue_bytes: 1 << 20, ..WanOptions::default() };
    let server =
        SlowServer::start(Objects::new().generated("big", 1 << 30).generated("small", 1000)).unwrap();
    let relay = Relay::start(anywhere(), server.address(), options).unwrap();
    let mut idle = TcpStream::connect(relay.address()).unwrap();
    idle.write_all(b"GET /big HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    until("the relay has written what the kernel takes", || relay.counts().down_bytes > 0);
    let mut other = TcpStream::connect(relay.address()).unwrap();
    other.write_all(b"GET /small HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    other.read_to_end(&mut answer).unwrap();
    assert!(answer.ends_with(&generated("small", 0, 1000)));
    assert!(server.counts().bytes < 1 << 29, "most of the large object was never sent");
}

#[test]
fn cuts_reset_the_connection_in_the_middle_and_stalls_are_counted() {
    let options = WanOptions {
        cut_share: 1.0,
        stall_share: 1.0,
        stall: Duration::from_millis(1),
        ..WanOptions::default()
    };
    let server = SlowServer::start(Objects::new().generated("a", 10_000)).unwrap();
    let relay = Relay::start(anywhere(), server.address(), options).unwrap();
    let mut stream = TcpStream::connect(relay.address()).unwrap();
    stream.write_all(b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let mut got = Vec::new();
    let outcome = stream.read_to_end(&mut got);
    assert!(outcome.is_err() || got.len() < 10_000, "less than the whole answer came");
    until("the cut is counted", || relay.counts().cuts == 1);
    assert!(relay.counts().stalls >= 1);
}

#[test]
fn a_target_that_is_not_there_closes_the_connection_and_dropping_the_relay_closes_all() {
    // Bound, so that nobody else gets the port, but not listening.
    let gone = tokio::net::TcpSocket::new_v4().unwrap();
    gone.bind(anywhere()).unwrap();
    let relay = Relay::start(anywhere(), gone.local_addr().unwrap(), WanOptions::default()).unwrap();
    let mut stream = TcpStream::connect(relay.address()).unwrap();
    assert!(matches!(stream.read(&mut [0; 1]), Ok(0) | Err(_)));
    assert_eq!(relay.counts().refused, 1);

    let relay = Relay::start(anywhere(), echo(), WanOptions::default()).unwrap();
    let mut stream = TcpStream::connect(relay.address()).unwrap();
    stream.write_all(b"x").unwrap();
    stream.read_exact(&mut [0; 1]).unwrap();
    drop(relay);
    assert!(matches!(stream.read(&mut [0; 1]), Ok(0) | Err(_)));
}

#[test]
fn a_frozen_relay_passes_nothing_on_and_loses_nothing() {
    let relay = Relay::start(anywhere(), echo(), WanOptions::default()).unwrap();
    let mut stream = TcpStream::connect(relay.address()).unwrap();
    let mut answer = [0; 4];
    stream.write_all(b"here").unwrap();
    stream.read_exact(&mut answer).unwrap();
    let frozen = relay.freeze();
    stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    // Until the thread has come to it a word may pass.
    until("it is frozen", || {
        stream.write_all(b"gone").unwrap();
        stream.read_exact(&mut answer).is_err()
    });
    let mut other = TcpStream::connect(relay.address()).unwrap();
    other.write_all(b"late").unwrap();
    drop(frozen);
    for stream in [&mut stream, &mut other] {
        stream.set_read_timeout(None).unwrap();
        stream.read_exact(&mut answer).unwrap();
    }
    assert_eq!(&answer, b"late");
}
