//! Many processes and machines: the cache shared by the processes of a host and by peers.
//!
//! [`wire`] is what is said, [`Server`] answers for any `Keeper`, [`RemoteKeeper`] is a `Keeper` that asks one.
//! [`host`] puts the two together for the processes of one user on one machine, with payloads in memory that all of
//! them map; [`peer`] for the nodes of a job. Who fetches a payload that several want at once is decided by
//! [`claims`]; figures are shown by [`MetricsServer`], pages by [`PageServer`]; [`scale`] sets the number of workers where they
//! run; what is kept and who owns it, by `forebay-core`. No decision is taken here that could be taken there.

mod certify;
pub mod claims;
mod client;
mod credentials;
pub mod dispatcher;
mod handshake;
pub mod host;
mod http;
pub mod launcher;
mod metrics;
mod open;
mod open_peers;
#[cfg(feature = "otlp")]
mod otlp;
mod pages;
pub mod peer;
pub mod scale;
mod server;
pub mod service;
mod threads;
pub mod wire;

pub use certify::{MEMBER_NAME, MadeCredentials};
pub use client::{Connect, RemoteKeeper, RemoteOptions, TcpConnector};
pub use credentials::{Credentials, PeerTls, Token};
pub use handshake::Purpose;
pub use metrics::{Check, FigureOptions, MetricsOptions, MetricsServer, Pages, Show, ShownFigures};
pub use open::{Surroundings, cache_settings};
#[cfg(feature = "otlp")]
pub use otlp::{OtlpOptions, OtlpPush};
pub use pages::{Events, Page, PageServer};
pub use server::{Counts, Server, ServerOptions};
pub use threads::Threads;

/// Bytes both ways: a socket, TLS over one, or a pipe in memory.
pub trait Stream: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin {}

impl<S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin> Stream for S {}
