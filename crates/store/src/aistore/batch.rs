//! Many reads by one request: GetBatch.
//!
//! The answer is an archive with one entry per read, in order. What is missing is marked, but a read that the server
//! cannot do for another reason ends the archive early and silently, so entries are matched by place, name and length
//! and everything that did not come is left to single reads, which tell why.

use super::tar::Entries;
use super::{Inner, MOST_LIST_BYTES};
use crate::ObjectRead;
use crate::http::client::{HttpRequest, Method, Redirects};
use crate::http::exchange::Limits;
use crate::http::{HttpClient, uri};
use bytes::{Bytes, BytesMut};
use forebay_core::{Error, Result};
use serde_json::json;
use std::ops::Range;

/// Reads of one request.
pub(super) const MOST_READS: usize = 256;
/// Bytes of one request; a larger read goes alone.
const MOST_BATCH_BYTES: u64 = 64 << 20;
/// Room for the headers of one entry, its name not counted.
const ENTRY_BYTES: u64 = 4 << 10;

/// Which neighbours go together: at most [`MOST_READS`] and [`MOST_BATCH_BYTES`].
pub(super) fn batches(reads: &[ObjectRead]) -> Vec<Range<usize>> {
    let mut batches: Vec<(Range<usize>, u64)> = Vec::new();
    for (number, read) in reads.iter().enumerate() {
        let length = read.range.end.saturating_sub(read.range.start);
        match batches.last_mut() {
            Some((batch, bytes))
                if batch.len() < MOST_READS && bytes.saturating_add(length) <= MOST_BATCH_BYTES =>
            {
                batch.end = number + 1;
                *bytes += length;
            }
            _ => batches.push((number..number + 1, length)),
        }
    }
    batches.into_iter().map(|(batch, _)| batch).collect()
}

/// The bytes of the reads that came; `None` for those that have to be asked for singly.
pub(super) async fn read(
    inner: &Inner,
    client: &HttpClient,
    reads: &[ObjectRead],
) -> Result<Vec<Option<Bytes>>> {
    let entry = |read: &ObjectRead| json!({"objname": read.key, "start": read.range.start, "length": read.range.end - read.range.start});
    let entries: Vec<_> = reads.iter().map(entry).collect();
    let asked = json!({"mime": ".tar", "in": entries, "coer": true, "onob": false, "strm": true});
    let url = inner.address(&format!("/v1/ml/moss/{}", uri::encode_value(&inner.bucket)))?;
    let mut headers = inner.headers.clone();
    headers.push(("content-type", "application/json".to_owned()));
    let body = Bytes::from(asked.to_string());
    let request = HttpRequest { method: Method::Get, url: &url, headers: &headers, body, expect: 0 };
    let room =
        |read: &ObjectRead| (read.range.end - read.range.start) + ENTRY_BYTES + 2 * read.key.len() as u64;
    let whole = reads.iter().map(room).sum::<u64>() + MOST_LIST_BYTES;
    let answer =
        client.follow(&request, Limits { part: 0, whole }, BytesMut::new(), Redirects::Cluster).await?;
    if answer.status != 200 {
        return Err(super::refusal(answer.status, &answer.headers, &answer.body));
    }
    // A stream that breaks is a short archive: what came of it is whole and counts.
    if let Some(cut) = answer.cut {
        tracing::debug!(%cut, "batched answer is short");
    }
    Ok(matched(&inner.bucket, reads, crate::spare::share(answer.body)))
}

fn matched(bucket: &str, reads: &[ObjectRead], archive: Bytes) -> Vec<Option<Bytes>> {
    let mut found = Vec::with_capacity(reads.len());
    for (read, entry) in reads.iter().zip(Entries::new(archive)) {
        let Ok(entry) = entry else { break };
        let name = |prefix: &str| entry.name.strip_prefix(prefix)?.strip_prefix(bucket)?.strip_prefix('/');
        let length = read.range.end - read.range.start;
        if name("") == Some(&read.key) && entry.bytes.len() as u64 == length {
            found.push(Some(entry.bytes));
        } else if name("__404__/") == Some(&read.key) {
            found.push(None);
        } else {
            // Out of step: from here on no entry can be trusted to be the one that was asked for.
            break;
        }
    }
    found.resize(reads.len(), None);
    found
}

/// Whether a read may be part of a batch: a length of 0 would mean all of the object.
pub(super) fn fits(read: &ObjectRead) -> bool {
    read.range.start < read.range.end
        && i64::try_from(read.range.end).is_ok()
        && read.range.end - read.range.start <= MOST_BATCH_BYTES
        && crate::key::check(&read.key).is_ok()
}

/// The error of a batch, once for each of its reads.
pub(super) fn each(error: &Error, reads: usize) -> Vec<Result<Bytes>> {
    (0..reads).map(|_| Err(error.duplicate())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_bounded_in_reads_and_bytes() {
        let read = |length| ObjectRead { key: "a".to_owned(), range: 0..length };
        let small = vec![read(10); MOST_READS + 1];
        assert_eq!(batches(&small), [0..MOST_READS, MOST_READS..MOST_READS + 1]);
        assert_eq!(
            batches(&[read(MOST_BATCH_BYTES), read(1), read(u64::MAX), read(2)]),
            [0..1, 1..2, 2..3, 3..4]
        );
        assert!(fits(&read(1)) && !fits(&read(0)) && !fits(&read(MOST_BATCH_BYTES + 1)));
    }
}
