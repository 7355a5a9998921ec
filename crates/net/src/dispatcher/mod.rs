//! The dispatcher as a process: the machine of `forebay_core::dispatcher` behind gRPC, with a journal, and its client.
//!
//! [`serve`] runs it, [`Control`] asks it. `message` is what crosses the wire, `journal` the file of events, `commit`
//! the thread that writes it, `socket` what a connection may cost. No decision is taken here.

mod client;
mod commit;
mod journal;
mod message;
mod metrics;
mod serve;
mod socket;

pub use client::{Control, ControlOptions};
pub use message::CONTROL_VERSION;
pub use serve::{DispatcherOptions, Running, serve};
