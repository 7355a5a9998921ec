//! A long line on this machine: a TCP relay with delay, rate, jitter, stalls and cuts, where the kernel offers none.
//!
//! One thread serves all connections; [`schedule`] decides when bytes come out. What is not imitated: TCP's own slow
//! start and its reaction to loss, because both ends speak over loopback. A new connection does cost a round trip.
//! [`packets`] is the variant for packets, which does have both, where the machine allows it.

mod counts;
pub mod packets;
mod pump;
mod relay;
pub mod schedule;

pub use counts::Counts;
pub use relay::{Frozen, Relay};
pub use schedule::{DelayOn, StallOn, WanOptions};

#[cfg(test)]
mod tests;
