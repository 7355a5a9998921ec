//! Several ranges of one object by few requests: near ones come in one, and its answer is cut without a copy.

use super::fetch::{Fetch, Fetched};
use crate::{range, spans};
use bytes::Bytes;
use forebay_core::{Error, Result};
use futures::stream::{self, StreamExt, TryStreamExt};
use std::ops::Range;

/// Requests for one object at once.
const AT_ONCE: usize = 8;

/// The bytes of each part, in order.
pub(crate) async fn read_parts(fetch: &Fetch<'_>, parts: &[Range<u64>]) -> Result<Vec<Bytes>> {
    range::check_parts(parts, u64::MAX)?;
    let Some(end) = parts.last().map(|part| part.end) else { return Ok(Vec::new()) };
    let spans = spans::plan(parts);
    if spans.is_empty() {
        // Only empty parts, and where the object ends decides whether they lie in it.
        fetch.fetch((end..end).into()).await?;
        return Ok(vec![Bytes::new(); parts.len()]);
    }
    let mut reads = Vec::with_capacity(spans.len());
    for span in &spans {
        reads.push(fetch.fetch(span.clone().into()));
    }
    let answers: Vec<Fetched> = stream::iter(reads).buffered(AT_ONCE).try_collect().await?;
    let tag = answers.first().and_then(|answer| answer.tag.as_ref()).cloned();
    if answers.iter().any(|answer| answer.tag.is_some() && tag.is_some() && answer.tag != tag) {
        return Err(Error::stale("the object changed between the reads of its parts"));
    }
    if let Some(total) = answers.iter().find_map(|answer| answer.total) {
        range::check_parts(parts, total)?;
    }
    let bytes: Vec<Bytes> = answers.into_iter().map(|answer| answer.bytes).collect();
    spans::cut(parts, &spans, &bytes)
}
