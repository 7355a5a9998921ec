//! Bytes in: a [`Store`] holds objects by key.
//!
//! The trait is small on purpose: describe, read ranges, list, write whole objects. Real stores ([`memory`],
//! [`local`], [`http`], [`aistore`]) and adapters that wrap any store ([`retry`], [`limit`], [`throttle`], [`flaky`], [`counting`],
//! [`gunzip`]) pass one public suite, [`conformance`]. Stores know keys, ranges and bytes; what a sample is, they
//! never learn. Why it is so is in `docs/design/store.md` and `docs/design/local-reads.md`.

pub mod aistore;
#[cfg(feature = "cassandra")]
pub mod cassandra;
#[cfg(feature = "cloud")]
pub mod cloud;
pub mod conformance;
pub mod counting;
mod fault;
pub mod flaky;
#[doc(hidden)]
pub mod fuzzing;
pub mod gunzip;
#[cfg(feature = "hdfs")]
pub mod hdfs;
pub mod http;
pub mod key;
pub mod large;
pub mod limit;
pub mod listing;
pub mod local;
pub mod memory;
pub mod net;
pub mod range;
pub mod remote;
pub mod retry;
mod spans;
pub mod spare;
pub mod throttle;
pub mod wake;

pub use aistore::AisStore;
#[cfg(feature = "cassandra")]
pub use cassandra::CassandraStore;
pub use counting::CountingStore;
pub use flaky::FlakyStore;
pub use gunzip::{GunzipOptions, GunzipStore};
#[cfg(feature = "hdfs")]
pub use hdfs::HdfsStore;
pub use http::HttpStore;
pub use limit::LimitStore;
pub use local::LocalStore;
pub use memory::MemoryStore;
pub use net::Net;
pub use range::ByteRange;
pub use remote::StoreOptions;
pub use retry::{RetryOptions, RetryStore};
pub use throttle::{Throttle, ThrottleStore};

use bytes::Bytes;
use forebay_core::{Error, Result};
use futures::future::{self, BoxFuture, FutureExt};
use futures::stream::{BoxStream, StreamExt};
use std::ops::Range;

/// What a store knows about an object without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectMeta {
    /// Key relative to the store's root, parts separated by `/`.
    pub key: String,
    /// Size in bytes.
    pub size: u64,
    /// Changes when the object changes: modification time in nanoseconds, or a hash of the etag. 0 when unknown.
    pub stamp: u64,
}

/// One range of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectRead {
    /// Key relative to the store's root.
    pub key: String,
    /// Bytes wanted.
    pub range: Range<u64>,
}

/// Where a page of a listing begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PagePlace {
    /// Keys behind this one; all when it is empty.
    pub after: String,
    /// What the server wants to hear again for the next page of a listing; empty for the first one.
    pub tokens: Vec<String>,
}

/// A page of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListPage {
    /// Objects in the order of their keys.
    pub objects: Vec<ObjectMeta>,
    /// The last key that the server named, also when it is none that this crate allows.
    pub last: Option<String>,
    /// Where the next page begins, when there may be one.
    pub next: Option<PagePlace>,
}

/// A system that holds bytes by key.
///
/// Errors carry the object's URL and, where it is known, the offset. A read either gives exactly the bytes asked
/// for or an error: never a short answer.
pub trait Store: Send + Sync + std::fmt::Debug {
    /// How the object is named in messages; secrets are left out.
    fn url(&self, key: &str) -> String;

    /// Size and stamp of one object.
    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta>>;

    /// The bytes of one range. A range that reaches beyond the object is an error, an empty one is not.
    fn read<'a>(&'a self, key: &'a str, range: ByteRange) -> BoxFuture<'a, Result<Bytes>>;

    /// Several ranges of one object by as few requests as the store can: `parts` ascend and do not overlap.
    /// Gaps between them may be read and thrown away, so callers keep them small.
    fn read_parts<'a>(&'a self, key: &'a str, parts: &'a [Range<u64>]) -> BoxFuture<'a, Result<Vec<Bytes>>>;

    /// Every object whose key starts with `prefix`, in the order of their keys.
    fn list<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<ObjectMeta>>;

    /// As [`Self::list`], from the first key behind `after` on. Stores that can begin there do.
    fn list_after<'a>(&'a self, prefix: &'a str, after: &str) -> BoxStream<'a, Result<ObjectMeta>> {
        let after = after.to_owned();
        let seen =
            move |meta: &Result<ObjectMeta>| future::ready(meta.as_ref().is_ok_and(|meta| meta.key <= after));
        self.list(prefix).skip_while(seen).boxed()
    }

    /// One page of [`Self::list`]. Only for stores that say so with [`Self::lists_pages`]: whoever lists goes through
    /// [`listing::list_all`], which knows both ways.
    fn list_page<'a>(&'a self, prefix: &'a str, _place: &'a PagePlace) -> BoxFuture<'a, Result<ListPage>> {
        let why = format!("list a page of `{}`: the store has no pages", self.url(prefix));
        future::ready(Err(Error::unsupported(why))).boxed()
    }

    /// Whether listings come in pages that can begin behind any key, so that several can be asked for at once.
    fn lists_pages(&self) -> bool {
        false
    }

    /// Ranges of many objects, each with an answer of its own, in order. Stores that can carry several in one request
    /// say so with [`Self::reads_per_request`]; for others this is one request each.
    fn read_many<'a>(&'a self, reads: &'a [ObjectRead]) -> BoxFuture<'a, Vec<Result<Bytes>>> {
        future::join_all(reads.iter().map(|read| self.read(&read.key, read.range.clone().into()))).boxed()
    }

    /// Most ranges that one request of [`Self::read_many`] carries. 1 means that there is nothing to gain.
    fn reads_per_request(&self) -> usize {
        1
    }

    /// The same objects, read past what this machine keeps of them in memory by itself: for measuring how fast they are
    /// when nothing is kept. `None` when there is no such way, or nothing such is kept.
    fn cold(&self) -> Option<std::sync::Arc<dyn Store>> {
        None
    }

    /// Whether bytes cross a network, so that how much is in flight has to follow the link.
    fn is_remote(&self) -> bool {
        false
    }

    /// The runtime whose threads drive this store's sockets: requests made from there save a change of threads.
    fn runtime(&self) -> Option<tokio::runtime::Handle> {
        None
    }

    /// What the system was asked for, when objects are files of this machine; `None` for other stores.
    fn local_stats(&self) -> Option<local::LocalStats> {
        None
    }

    /// Writes a whole object: afterwards readers see all of it, before that nothing.
    fn write<'a>(&'a self, key: &'a str, bytes: Bytes) -> BoxFuture<'a, Result<()>>;
}
