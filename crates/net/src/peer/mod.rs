//! The nodes of a job as one cache: every node keeps what it owns, and reads from its owner what it does not have.
//!
//! Who owns a payload is computed (`forebay_core::cache::Ownership`), so nodes exchange payloads and nothing else. A
//! payload that its owner does not have comes from the store and is then given to the owner, besides the training's
//! way: from a queue with a limit, and dropped when that is full. Others who ask the owner meanwhile wait for it. A node that is lost or slow costs its own payloads
//! only: they come from the store until it answers again ([`Health`]).
//!
//! What a node is given it keeps as it sees fit ([`OwnedKeeper`]): in memory while there is room, else on disk. The
//! sender's opinion (`Place { memory: true, disk: true }`) says only that it is worth keeping. Nodes may join and leave
//! while a job runs ([`Following`]); then only what changes its owner is asked for elsewhere.

mod following;
mod health;
mod keeper;
mod members;
mod owned;
mod peers;

pub(crate) use following::read_file;
pub use following::{Following, Source};
pub use health::Health;
pub use keeper::PeerKeeper;
pub use members::Members;
pub(crate) use members::expand_nodes;
pub use owned::OwnedKeeper;

use crate::client::{RemoteKeeper, RemoteOptions, TcpConnector};
use crate::credentials::Credentials;
use crate::handshake::Purpose;
use crate::threads::Threads;
use forebay_core::Result;
use forebay_engine::cache::KeeperView;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// How to get along with peers.
#[derive(Clone, Debug)]
pub struct PeerOptions {
    /// How to show who we are.
    pub credentials: Credentials,
    /// Bytes that wait to be given to one peer; what is more is dropped.
    pub give_bytes: usize,
    /// How long an answer may take before it is known what is usual.
    pub first_deadline: Duration,
    /// An answer may always take this long.
    pub shortest_deadline: Duration,
}

impl Default for PeerOptions {
    fn default() -> Self {
        Self {
            credentials: Credentials::default(),
            give_bytes: 64 << 20,
            first_deadline: Duration::from_secs(2),
            shortest_deadline: Duration::from_millis(200),
        }
    }
}

/// What a node holds, by its address.
pub async fn show_node(address: &str, credentials: &Credentials, threads: Threads) -> Result<KeeperView> {
    let connector = TcpConnector::new(address, credentials)?;
    let options = RemoteOptions {
        token: credentials.token.clone(),
        purpose: Purpose::Peer,
        ..RemoteOptions::default()
    };
    Ok(RemoteKeeper::connect(connector, options, threads).await?.ask_view().await)
}

/// What became of payloads that others own.
#[derive(Debug, Default)]
struct Tally {
    hits: AtomicU64,
    misses: AtomicU64,
    unanswered: AtomicU64,
    given: AtomicU64,
    dropped: AtomicU64,
}
