//! What is needed of etcd: keys with revisions, transactions, leases. [`Etcd`] says it in our words.
//!
//! `client` speaks to real members with the messages of `message`, `url` reads where they are. `memory` is a model of
//! etcd for tests, which can be slow, lose answers, be cut off and be away. Who leads and what is kept is decided
//! elsewhere: `seat` and `journal::etcd`.

mod client;
#[cfg(test)]
pub(super) mod memory;
mod message;
mod url;

pub(super) use client::Client;
pub use url::{EtcdLogin, EtcdOptions, EtcdTls};

use forebay_core::Result;
use futures::future::BoxFuture;

/// Keys and leases that several processes see alike. Every call is one try, answered or `unavailable` within some
/// seconds; what became of an unanswered one is not known.
pub(super) trait Etcd: Send + Sync + 'static {
    /// Pairs of the range in the order of keys, at most `limit`.
    fn range(&self, range: Range, limit: usize) -> BoxFuture<'_, Result<Vec<Pair>>>;

    /// Does all of one list, or all of the other.
    fn transact(&self, transaction: Transaction) -> BoxFuture<'_, Result<Outcome>>;

    /// A new lease of about this length.
    fn grant(&self, seconds: u64) -> BoxFuture<'_, Result<Lease>>;

    /// Begins a lease again; its length in milliseconds, or none when it has lapsed.
    fn renew(&self, lease: i64) -> BoxFuture<'_, Result<Option<u64>>>;

    /// Ends a lease, and removes the keys that were put under it.
    fn revoke(&self, lease: i64) -> BoxFuture<'_, Result<()>>;
}

/// Keys from the first up to, not with, the second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) from: String,
    pub(super) end: String,
}

impl Range {
    /// One key.
    pub(super) fn one(key: &str) -> Self {
        Self { from: key.to_owned(), end: format!("{key}\0") }
    }
}

/// A key with its value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) key: String,
    pub(super) value: Vec<u8>,
    /// When it was made: of two that were made one after the other the second has a higher number, whoever made them.
    pub(super) created: i64,
    /// The lease it was put under; 0 is none.
    pub(super) lease: i64,
}

/// A lease as it was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) id: i64,
    pub(super) length_ms: u64,
}

/// If every key was made at that revision (0: is not there), the first list is done, otherwise the second.
#[derive(Clone, Debug, Default)]
pub(super) struct Transaction {
    pub(super) made_at: Vec<(String, i64)>,
    pub(super) then: Vec<Do>,
    pub(super) otherwise: Vec<Do>,
}

/// A part of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Do {
    Put { key: String, value: Vec<u8>, lease: i64 },
    Delete(Range),
    Get(String),
}

/// What came of a transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    /// Whether the first list was done.
    pub(super) held: bool,
    /// What each `Get` found.
    pub(super) got: Vec<Option<Pair>>,
}

/// Whether a call is made again after this: it may have been done or not, or will be possible later.
pub(super) fn is_passing(error: &forebay_core::Error) -> bool {
    use forebay_core::ErrorKind::{Exhausted, Unavailable};
    matches!(error.kind(), Unavailable | Exhausted)
}
