//! The wire: one thread that reads packets from each device and writes them to the other when their time has come.

use super::CableCounts;
use super::link::{CableOptions, Fate, PacketLink};
use crate::wan::schedule::Nanos;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// While packets are under way the thread looks so often: late by that much, and never woken for each packet.
const STEP: Duration = Duration::from_micros(250);
/// And while there are none, so often.
const IDLE: Duration = Duration::from_millis(1);
/// Packets taken from one device before the other has its turn.
const BURST: usize = 256;
/// More than the devices' 1500 bytes.
const PACKET_BYTES: usize = 2048;

#[derive(Debug, Default)]
pub(super) struct Meters {
    bytes: [AtomicU64; 2],
    packets: AtomicU64,
    lost: AtomicU64,
    overflowed: AtomicU64,
}

impl Meters {
    pub(super) fn counts(&self) -> CableCounts {
        CableCounts {
            up_bytes: self.bytes[0].load(Relaxed),
            down_bytes: self.bytes[1].load(Relaxed),
            packets: self.packets.load(Relaxed),
            lost: self.lost.load(Relaxed),
            overflowed: self.overflowed.load(Relaxed),
        }
    }
}

/// Both ways of the cable. Way 0 begins at the client's device.
pub(super) struct Wire {
    devices: [File; 2],
    ways: [Way; 2],
    spare: Vec<Vec<u8>>,
    meters: Arc<Meters>,
    stop: Arc<AtomicBool>,
}

struct Way {
    link: PacketLink,
    under_way: VecDeque<(Nanos, Vec<u8>)>,
}

impl Wire {
    pub(super) fn new(
        devices: [File; 2],
        options: &CableOptions,
        meters: Arc<Meters>,
        stop: Arc<AtomicBool>,
    ) -> Self {
        let ways = [0, 1].map(|way| Way { link: PacketLink::new(options, way), under_way: VecDeque::new() });
        Self { devices, ways, spare: Vec::new(), meters, stop }
    }

    /// Carries packets until it shall stop or a device is gone.
    pub(super) fn run(mut self) {
        let began = Instant::now();
        while !self.stop.load(Relaxed) {
            let now = began.elapsed().as_nanos() as Nanos;
            for way in [0, 1] {
                if !self.bring_in(way, now) {
                    return;
                }
                self.let_out(way, now);
            }
            let idle = self.ways.iter().all(|way| way.under_way.is_empty());
            std::thread::sleep(if idle { IDLE } else { STEP });
        }
    }

    /// Takes what a device has; false when it is gone.
    fn bring_in(&mut self, way: usize, now: Nanos) -> bool {
        for _ in 0..BURST {
            let mut packet = self.spare.pop().unwrap_or_default();
            packet.resize(PACKET_BYTES, 0);
            let bytes = match self.devices[way].read(&mut packet) {
                Ok(bytes) => bytes,
                Err(fault) => {
                    self.spare.push(packet);
                    return matches!(
                        fault.kind(),
                        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted
                    );
                }
            };
            packet.truncate(bytes);
            match self.ways[way].link.take(now, bytes) {
                Fate::Out(at) => self.ways[way].under_way.push_back((at, packet)),
                dropped => {
                    let count =
                        if dropped == Fate::Lost { &self.meters.lost } else { &self.meters.overflowed };
                    count.fetch_add(1, Relaxed);
                    self.spare.push(packet);
                }
            }
        }
        true
    }

    fn let_out(&mut self, way: usize, now: Nanos) {
        while self.ways[way].under_way.front().is_some_and(|(at, _)| *at <= now) {
            let Some((_, packet)) = self.ways[way].under_way.pop_front() else { return };
            // A device that takes no more drops the packet, as a full queue at the other end would.
            if self.devices[1 - way].write(&packet).is_ok() {
                self.meters.bytes[way].fetch_add(packet.len() as u64, Relaxed);
                self.meters.packets.fetch_add(1, Relaxed);
            }
            self.spare.push(packet);
        }
    }
}
