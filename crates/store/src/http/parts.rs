//! Several ranges of one object by few requests: near ones come in one, and its answer is cut without a copy.

use super::fetch::{Fetch, Fetched};
use crate::{ByteRange, range};
use bytes::Bytes;
use forebay_core::{Error, Result};
use futures::stream::{self, StreamExt, TryStreamExt};
use std::ops::Range;

/// A gap up to this size is read through: its bytes cost less than another request.
const READ_THROUGH_BYTES: u64 = 256 << 10;
/// No request for several parts is larger; what would be is several requests.
const MOST_SPAN_BYTES: u64 = 16 << 20;
/// Requests for one object at once.
const AT_ONCE: usize = 8;

/// The bytes of each part, in order.
pub(crate) async fn read_parts(fetch: &Fetch<'_>, parts: &[Range<u64>]) -> Result<Vec<Bytes>> {
    if parts.is_empty() {
        return Ok(Vec::new());
    }
    range::check_parts(parts, u64::MAX)?;
    let spans = spans(parts);
    let asked: Vec<Range<u64>> =
        spans.iter().map(|span| parts[span.start].start..end_of(&parts[span.clone()])).collect();
    let reads = asked.into_iter().map(|span| fetch.fetch(ByteRange::from(span)));
    let answers: Vec<Fetched> = stream::iter(reads).buffered(AT_ONCE).try_collect().await?;
    let tag = answers.first().and_then(|answer| answer.tag.as_ref()).cloned();
    if answers.iter().any(|answer| answer.tag.is_some() && tag.is_some() && answer.tag != tag) {
        return Err(Error::stale("the object changed between the reads of its parts"));
    }
    if let Some(total) = answers.iter().find_map(|answer| answer.total) {
        range::check_parts(parts, total)?;
    }
    let mut found = Vec::with_capacity(parts.len());
    for (span, answer) in spans.into_iter().zip(answers) {
        let start = parts[span.start].start;
        let cut = |part: &Range<u64>| {
            answer.bytes.slice((part.start - start) as usize..(part.end - start) as usize)
        };
        found.extend(parts[span].iter().map(cut));
    }
    Ok(found)
}

/// Which neighbours are read together, as ranges of their numbers.
fn spans(parts: &[Range<u64>]) -> Vec<Range<usize>> {
    let mut spans: Vec<Range<usize>> = Vec::new();
    for (number, part) in parts.iter().enumerate() {
        let joined = spans.last_mut().filter(|span| {
            let (start, end) = (parts[span.start].start, parts[span.end - 1].end);
            part.start - end <= READ_THROUGH_BYTES && part.end - start <= MOST_SPAN_BYTES
        });
        match joined {
            Some(span) => span.end = number + 1,
            None => spans.push(number..number + 1),
        }
    }
    spans
}

fn end_of(parts: &[Range<u64>]) -> u64 {
    parts.last().map_or(0, |part| part.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_parts_share_a_request_and_far_or_large_ones_do_not() {
        assert_eq!(spans(&[0..10, 10..20, 100_000..100_001, 900_000..900_001]), [0..3, 3..4]);
        let large = MOST_SPAN_BYTES - 5;
        assert_eq!(spans(&[0..large, large..large + 5, large + 5..large + 6]), [0..2, 2..3]);
    }
}
