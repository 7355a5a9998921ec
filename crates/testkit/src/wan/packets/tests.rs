//! Decisions about packets in virtual time, and a real cable where the machine allows one.

use super::link::{Fate, PacketLink};
use super::*;
use crate::skip::skipped;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

const PACKET: usize = 1500;

#[test]
fn packets_are_lost_at_their_share_and_the_same_ones_each_time() {
    let options = CableOptions { loss: 0.01, seed: 7, ..CableOptions::default() };
    let fates = || {
        let mut link = PacketLink::new(&options, 0);
        (0..100_000).map(|now| link.take(now, PACKET) == Fate::Lost).collect::<Vec<_>>()
    };
    let lost = fates().iter().filter(|lost| **lost).count();
    assert!((850..1150).contains(&lost), "{lost} of 100000 packets");
    assert_eq!(fates(), fates());
    let other = PacketLink::new(&options, 1).take(0, PACKET);
    assert!(matches!(other, Fate::Out(_) | Fate::Lost));
}

#[test]
fn packets_pass_at_the_rate_after_the_delay_and_a_full_queue_drops() {
    let options = CableOptions {
        round_trip: Duration::from_millis(100),
        bytes_per_second: 1_500_000,
        queue: Duration::from_millis(10),
        ..CableOptions::default()
    };
    let mut link = PacketLink::new(&options, 0);
    // A packet takes a millisecond on the line, then 50.
    let fates: Vec<_> = (0..13).map(|_| link.take(0, PACKET)).collect();
    let out = |ms: u64| Fate::Out(ms * 1_000_000);
    assert_eq!(fates[..11], (51..62).map(out).collect::<Vec<_>>());
    assert_eq!(fates[11..], [Fate::Overflowed; 2]);
    assert_eq!(link.take(20_000_000, PACKET), out(71), "and is free again later");
}

#[test]
fn a_cable_carries_tcp_over_delay_and_loss() {
    let options =
        CableOptions { round_trip: Duration::from_millis(40), loss: 0.02, ..CableOptions::default() };
    let cable = match Cable::start(&options) {
        Ok(cable) => cable,
        Err(fault) => return skipped(&fault.report()),
    };
    let sent: Vec<u8> = (0..1_000_000u32).map(|at| (at / 7) as u8).collect();
    std::thread::scope(|scope| {
        let (listening, address) = std::sync::mpsc::channel();
        let (cable, sent) = (&cable, &sent);
        scope.spawn(move || {
            cable.enter(Side::Server).unwrap();
            let listener = TcpListener::bind((Side::Server.address(), 0)).unwrap();
            listening.send(listener.local_addr().unwrap()).unwrap();
            listener.accept().unwrap().0.write_all(sent).unwrap();
        });
        let address = address.recv().unwrap();
        let came = scope.spawn(move || {
            cable.enter(Side::Client).unwrap();
            let began = Instant::now();
            let mut stream = TcpStream::connect(address).unwrap();
            let connected = began.elapsed();
            let mut came = Vec::new();
            stream.read_to_end(&mut came).unwrap();
            assert!(connected >= Duration::from_millis(40), "{connected:?}");
            came
        });
        assert!(came.join().unwrap() == *sent, "every byte, in order");
    });
    let counts = cable.counts();
    assert!(counts.lost > 0 && counts.down_bytes > 1_000_000, "{counts:?}");
}
