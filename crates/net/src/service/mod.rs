//! Batches from other processes: one of this host, or workers anywhere.
//!
//! [`message`] is what a client and a worker say to each other; the same words over a unix socket, where batches are
//! handed over as shared memory, and over TCP, where their bytes follow. [`connect`] and [`Listener`] give the two
//! halves of a connection, [`Sending`] and [`Receiving`], one for each of two threads. Below them, `begin` is how a
//! connection begins, `frame` how messages, `codec` and `packing` how batches become bytes, `socket` and `tls` where
//! bytes go; `shown` is shared memory that the other side may look at, `near` the way to a worker of the same machine.
//! `docs/design/wire.md` draws it. [`worker`] makes batches and holds them until all have taken them.

mod accept;
mod address;
mod begin;
mod client;
mod codec;
mod connect;
mod frame;
mod link;
pub mod message;
mod near;
mod packing;
mod shown;
mod socket;
mod tls;
mod via;
pub mod worker;

pub use accept::{Arriving, ListenOptions, Listener, ListenerCloser};
pub use address::Address;
pub use client::{Own, supplier};
pub use codec::{Limits, Times};
pub use connect::connect;
pub use frame::Message;
pub use link::{Closer, Receiving, Sending, Sent};
pub use via::{DEFAULT_PORT, Target, ViaConfig, ViaUrl, late_named};
