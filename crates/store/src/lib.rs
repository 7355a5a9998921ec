//! Bytes in: a [`Store`] holds objects by key.
//!
//! The trait is small on purpose: describe, read ranges, list, write whole objects. Real stores ([`memory`],
//! [`local`]) and adapters that wrap any store ([`retry`], [`limit`], [`throttle`], [`flaky`], [`counting`],
//! [`gunzip`]) pass one public suite, [`conformance`]. Stores know keys, ranges and bytes; what a sample is, they
//! never learn. Why it is so is in `docs/design/store.md` and `docs/design/local-reads.md`.

pub mod conformance;
pub mod counting;
mod fault;
pub mod flaky;
pub mod gunzip;
pub mod key;
pub mod limit;
pub mod local;
pub mod memory;
pub mod range;
pub mod retry;
pub mod throttle;

pub use counting::CountingStore;
pub use flaky::FlakyStore;
pub use gunzip::{GunzipOptions, GunzipStore};
pub use limit::LimitStore;
pub use local::LocalStore;
pub use memory::MemoryStore;
pub use range::ByteRange;
pub use retry::{RetryOptions, RetryStore};
pub use throttle::{Throttle, ThrottleStore};

use bytes::Bytes;
use forebay_core::Result;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
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

    /// Writes a whole object: afterwards readers see all of it, before that nothing.
    fn write<'a>(&'a self, key: &'a str, bytes: Bytes) -> BoxFuture<'a, Result<()>>;
}
