//! A long line for packets: two networks of their own, joined by a wire that delays, limits and loses.
//!
//! The kernels' own TCP runs at both ends, with its slow start and its reaction to loss, which the relay does not
//! imitate. Each end is a network namespace with one TUN device; a thread carries packets from one device to the
//! other, by the decisions of [`link`]. Needs root, `/dev/net/tun` and the programs `unshare` and `ip`: where they are
//! missing, [`Cable::start`] says which. Nothing outside of the two namespaces is touched, and they end with the cable.

mod forward;
pub mod link;
mod namespace;
mod tun;

pub use link::CableOptions;

use forebay_core::{Error, Result};
use forward::Meters;
use namespace::Namespace;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;

/// An end of the cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Who asks.
    Client,
    /// Who answers.
    Server,
}

impl Side {
    /// The address of this end, in both networks.
    pub fn address(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, 0, 1 + self as u8)
    }

    fn other(self) -> Self {
        if self == Self::Client { Self::Server } else { Self::Client }
    }
}

/// What went over the cable so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CableCounts {
    /// Bytes delivered to the server, headers included.
    pub up_bytes: u64,
    /// Bytes delivered to the client, headers included.
    pub down_bytes: u64,
    /// Packets delivered.
    pub packets: u64,
    /// Packets lost by chance.
    pub lost: u64,
    /// Packets dropped because the queue before the line was full.
    pub overflowed: u64,
}

/// Two networks and the wire between them; dropping it ends all three.
#[derive(Debug)]
pub struct Cable {
    ends: [Namespace; 2],
    meters: Arc<Meters>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Cable {
    /// Makes both networks and starts the wire. The error says what this machine does not allow.
    pub fn start(options: &CableOptions) -> Result<Self> {
        let ends = [Namespace::new()?, Namespace::new()?];
        let devices = [tun::open(&ends[0], Side::Client)?, tun::open(&ends[1], Side::Server)?];
        let (meters, stop) = (Arc::new(Meters::default()), Arc::new(AtomicBool::new(false)));
        let wire = forward::Wire::new(devices, options, Arc::clone(&meters), Arc::clone(&stop));
        let thread = std::thread::Builder::new()
            .name("forebay-cable".into())
            .spawn(move || wire.run())
            .map_err(|source| Error::io("start the thread of the cable", source))?;
        Ok(Self { ends, meters, stop, thread: Some(thread) })
    }

    /// Moves the calling thread, and all threads and processes that it starts from now on, into one of the networks.
    pub fn enter(&self, side: Side) -> Result<()> {
        self.ends[side as usize].enter()
    }

    /// A process that lives in one of the networks as long as the cable does; `/proc/PID/ns/net` names the network.
    pub fn process(&self, side: Side) -> u32 {
        self.ends[side as usize].process()
    }

    /// What went over it so far.
    pub fn counts(&self) -> CableCounts {
        self.meters.counts()
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed by it; there is nothing to add while dropping.
            drop(thread.join());
        }
    }
}

#[cfg(test)]
mod tests;
