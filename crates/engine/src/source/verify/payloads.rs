//! Payloads: each is read and tried, many at a time.

use super::{Check, FindingKind, Run};
use crate::shard::Member;
use crate::source::blocking;
use bytes::Bytes;
use forebay_core::{Error, Result};
use forebay_store::{ByteRange, Store};
use futures::{StreamExt, stream};
use std::sync::Arc;

/// Payloads larger than this are not tried.
const MAX_CHECKED_BYTES: u64 = 1 << 30;

/// Bytes of payloads that are tried together on one thread.
const BATCH_BYTES: u64 = 8 << 20;

/// A payload that waits to be tried.
pub(super) struct Waiting {
    pub(super) object: String,
    pub(super) key: String,
    pub(super) member: Option<Member>,
    pub(super) field: String,
    pub(super) range: std::ops::Range<u64>,
    /// Whether it is all of its object.
    pub(super) whole: bool,
}

impl Run<'_> {
    /// Reads payloads, many at a time, and tries them away from the async threads.
    pub(super) async fn try_all(&mut self, waiting: Vec<Waiting>, parallel: usize) -> Result<()> {
        let Some(check) = self.verify.check.clone() else { return Ok(()) };
        self.try_with(waiting, parallel, check).await
    }

    /// As [`Self::try_all`], tried by another check.
    pub(super) async fn try_with(
        &mut self,
        waiting: Vec<Waiting>,
        parallel: usize,
        check: Check,
    ) -> Result<()> {
        let store = Arc::clone(&self.store);
        let read = stream::iter(waiting).map(|waiting| {
            let store = Arc::clone(&store);
            async move {
                let bytes = read_payload(store.as_ref(), &waiting).await;
                (waiting, bytes)
            }
        });
        let mut read = read.buffered(parallel.max(1));
        let (mut batch, mut batch_bytes) = (Vec::new(), 0);
        loop {
            let next = read.next().await;
            let last = next.is_none();
            if let Some((waiting, bytes)) = next {
                batch_bytes += bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
                batch.push((waiting, bytes));
            }
            if last || batch_bytes >= BATCH_BYTES {
                batch_bytes = 0;
                let (tried, check) = (std::mem::take(&mut batch), Arc::clone(&check));
                for (waiting, outcome) in blocking(move || try_batch(tried, &check)).await? {
                    self.note(&waiting, outcome);
                }
            }
            if last {
                return Ok(());
            }
        }
    }

    fn note(&mut self, waiting: &Waiting, outcome: Result<(), (FindingKind, Error)>) {
        self.report.checked += 1;
        if let Err((kind, error)) = outcome {
            let (name, offset) = waiting
                .member
                .as_ref()
                .map_or((None, Some(waiting.range.start)), |m| (Some(m.name.as_str()), Some(m.header)));
            self.add(kind, &waiting.object, name, offset, error.report());
        }
    }
}

async fn read_payload(store: &dyn Store, waiting: &Waiting) -> Result<Bytes> {
    let length = waiting.range.end - waiting.range.start;
    if length > MAX_CHECKED_BYTES {
        return Err(Error::exhausted(format!(
            "payload of {length} bytes, at most {MAX_CHECKED_BYTES} are tried"
        )));
    }
    // All of the file, so that a checksum of it is compared where the store has one.
    let range = if waiting.whole { ByteRange::Whole(length) } else { waiting.range.clone().into() };
    store.read(&waiting.key, range).await
}

type Tried = (Waiting, Result<(), (FindingKind, Error)>);

fn try_batch(batch: Vec<(Waiting, Result<Bytes>)>, check: &Check) -> Vec<Tried> {
    let attempt = |(waiting, bytes): (Waiting, Result<Bytes>)| {
        let outcome = match bytes {
            Err(error) => Err((FindingKind::Unreadable, error)),
            Ok(bytes) => check(&waiting.field, &bytes).map_err(|error| (FindingKind::BadPayload, error)),
        };
        (waiting, outcome)
    };
    batch.into_iter().map(attempt).collect()
}
