//! The asking side: one connection ([`link`]), and a keeper that keeps one open ([`remote`]).

mod connect;
pub(crate) mod link;
mod remote;

pub(crate) use connect::meet;
pub use connect::{Connect, TcpConnector};
pub(crate) use remote::parts;
pub use remote::{RemoteKeeper, RemoteOptions};
