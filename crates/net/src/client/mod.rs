//! The asking side: one connection ([`link`]; who waits for what is in `waiting`), and a keeper that keeps one open ([`remote`]).

mod connect;
pub(crate) mod link;
mod remote;
mod waiting;

pub(crate) use connect::meet;
pub use connect::{Connect, TcpConnector};
pub(crate) use remote::parts;
pub use remote::{RemoteKeeper, RemoteOptions};
pub(crate) use waiting::{Asked, Found};
