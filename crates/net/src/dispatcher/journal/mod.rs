//! Where the events of a dispatcher are kept, so that it or another one can go on from there.
//!
//! [`Journal`] is what every such place does: `file` in a folder, `etcd` in a cluster that several dispatchers share.
//! `memory` and `failing` are for tests, and `conformance` is the suite that all of them pass. Which answer waits for
//! what is decided in `commit`, who may write in `seat`.

#[cfg(test)]
mod conformance;
mod etcd;
mod file;
#[cfg(test)]
mod memory;

#[doc(hidden)]
pub use etcd::read_pieces;
pub(super) use etcd::{EtcdJournal, Keys};
pub(super) use file::FileJournal;

use forebay_core::Result;
use forebay_core::dispatcher::Event;
use futures::future::BoxFuture;

/// An open journal. Whoever opens it is the only one who can write, from then on until another one opens it.
pub(super) trait Journal: Send {
    /// Appends events; they are kept for good when this returns. After an error the journal must not be used any more:
    /// none, some first or all of them may be kept.
    fn append<'a>(&'a mut self, events: &'a [Event]) -> BoxFuture<'a, Result<()>>;

    /// Whether it has grown long enough to be written anew.
    fn is_long(&self) -> bool;

    /// Writes it anew with these events, which must give the state it has told of so far. Whoever opens it finds the one
    /// or the other. After an error it must not be used any more.
    fn compact<'a>(&'a mut self, events: &'a [Event]) -> BoxFuture<'a, Result<()>>;
}
