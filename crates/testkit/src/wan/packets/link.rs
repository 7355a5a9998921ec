//! What becomes of a packet: pure decisions in virtual time, no clock and no device.

use crate::wan::schedule::{Nanos, passing};
use forebay_core::rng::Rng;
use std::time::Duration;

/// The line. The default is one that changes nothing.
#[derive(Clone, Debug)]
pub struct CableOptions {
    /// Delay of a round trip, half of it on each way.
    pub round_trip: Duration,
    /// Bytes a second on each way, headers included; 0 for no cap.
    pub bytes_per_second: u64,
    /// Share of packets that are lost on each way.
    pub loss: f64,
    /// Time that packets may wait for the line; what comes on top is dropped, as by a router.
    pub queue: Duration,
    /// Decides which packets are lost: the same for the same number of a packet.
    pub seed: u64,
}

impl Default for CableOptions {
    fn default() -> Self {
        let queue = Duration::from_millis(100);
        Self { round_trip: Duration::ZERO, bytes_per_second: 0, loss: 0.0, queue, seed: 0 }
    }
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It comes out at this moment.
    Out(Nanos),
    /// It is lost by chance.
    Lost,
    /// The queue before the line is full.
    Overflowed,
}

/// One way of the line.
#[derive(Clone, Debug)]
pub struct PacketLink {
    rate: u64,
    delay: Nanos,
    queue: Nanos,
    loss: f64,
    free: Nanos,
    rng: Rng,
}

impl PacketLink {
    /// A free line; `way` tells the two apart.
    pub fn new(options: &CableOptions, way: u64) -> Self {
        Self {
            rate: options.bytes_per_second,
            delay: options.round_trip.as_nanos() as Nanos / 2,
            queue: options.queue.as_nanos() as Nanos,
            loss: options.loss,
            free: 0,
            rng: Rng::keyed(options.seed, way, 0),
        }
    }

    /// A packet comes in at `now`. Packets come out in the order in which they came in.
    pub fn take(&mut self, now: Nanos, bytes: usize) -> Fate {
        // Drawn for each packet, so that which ones are lost does not depend on the queue.
        let lost = self.loss > 0.0 && self.rng.chance(self.loss);
        if self.rate > 0 && self.free > now + self.queue {
            return Fate::Overflowed;
        }
        // A lost packet was sent: it took its time on the line.
        self.free = self.free.max(now) + passing(bytes as u64, self.rate);
        if lost { Fate::Lost } else { Fate::Out(self.free + self.delay) }
    }
}
