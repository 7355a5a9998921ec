//! The dispatcher as a process: the machine of `forebay_core::dispatcher` behind gRPC, with a journal, and its client.
//!
//! [`serve`] runs it, [`Control`] asks it. `message` is what crosses the wire, `journal` where events are kept, `commit`
//! what writes it, `machine` what a call meets, `socket` what a connection may cost. Where several dispatchers share a
//! journal in `etcd`, `seat` is one's part in their election. No decision is taken here.

mod client;
mod commit;
mod etcd;
mod journal;
mod machine;
mod message;
mod metrics;
mod seat;
mod serve;
mod socket;

pub use client::{Control, ControlOptions};
pub use etcd::{EtcdLogin, EtcdOptions, EtcdTls};
#[doc(hidden)]
pub use journal::read_pieces;
pub use message::CONTROL_VERSION;
pub use serve::{DispatcherOptions, Running, serve};
