//! One copy for all processes of a user on a machine: a small process holds payloads in memory that others map.
//!
//! [`Slabs`] are pieces of anonymous memory (`memfd`, so no `/dev/shm` is needed) that are only ever appended to.
//! [`HostKeeper`] puts them before any other keeper, [`serve_host`] is the process around it, and [`HostClient`] its
//! users' side: it starts the process when nobody answers and does without when that is of no use. Descriptors cross
//! a connection of their own (`passing`); who may connect is in `place`.

mod client;
mod keeper;
mod passing;
pub(crate) mod place;
mod serve;
mod slabs;

pub use client::{HostClient, HostConnector, show_host};
pub use keeper::HostKeeper;
pub use place::{default_socket, running_hosts};
pub use serve::{HostOptions, serve_host};
pub use slabs::Slabs;

pub(crate) use client::SlabMaps;
pub(crate) use passing::hand_out;
pub(crate) use place::check_peer;
