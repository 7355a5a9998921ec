//! Which requests bring several parts of an object: near ones share a request, and the gaps are thrown away.

use bytes::Bytes;
use forebay_core::{Error, Result};
use std::ops::Range;

/// Parts with less between them are read together: at 1 Gb/s it takes 2 ms, and a request seldom less.
const GAP_BYTES: u64 = 256 << 10;

/// No request for several parts is longer, gaps included.
const SPAN_BYTES: u64 = 16 << 20;

/// The ranges to ask for. Parts without bytes need none.
pub(crate) fn plan(parts: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut spans: Vec<Range<u64>> = Vec::new();
    for part in parts.iter().filter(|part| !part.is_empty()) {
        match spans.last_mut() {
            Some(span) if part.start - span.end <= GAP_BYTES && part.end - span.start <= SPAN_BYTES => {
                span.end = part.end;
            }
            _ => spans.push(part.clone()),
        }
    }
    spans
}

/// Cuts the parts out of the answers to [`plan`]; they share memory with them.
pub(crate) fn cut(parts: &[Range<u64>], spans: &[Range<u64>], answers: &[Bytes]) -> Result<Vec<Bytes>> {
    let mut at = 0;
    let mut cut = Vec::with_capacity(parts.len());
    for part in parts {
        if part.is_empty() {
            cut.push(Bytes::new());
            continue;
        }
        while spans.get(at).is_some_and(|span| span.end < part.end) {
            at += 1;
        }
        let (Some(span), Some(answer)) = (spans.get(at), answers.get(at)) else {
            return Err(Error::internal("cut parts: a part lies in no answer"));
        };
        let (start, end) = (part.start - span.start, part.end - span.start);
        if end > answer.len() as u64 {
            return Err(Error::internal("cut parts: an answer is shorter than asked for"));
        }
        cut.push(answer.slice(start as usize..end as usize));
    }
    Ok(cut)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parts_cut_from_spans_are_the_slices(sizes in proptest::collection::vec((0u64..600_000, 0u64..5_000), 0..30)) {
            let mut parts = Vec::new();
            let mut end = 0;
            for (gap, size) in sizes {
                parts.push(end + gap..end + gap + size);
                end += gap + size;
            }
            let object: Bytes = (0..end).map(|at| (at ^ (at >> 8)) as u8).collect();
            let slice = |range: &Range<u64>| object.slice(range.start as usize..range.end as usize);
            let spans = plan(&parts);
            let answers: Vec<Bytes> = spans.iter().map(slice).collect();
            let cut = cut(&parts, &spans, &answers).unwrap();
            prop_assert_eq!(cut, parts.iter().map(slice).collect::<Vec<_>>());
            prop_assert!(spans.windows(2).all(|pair| pair[1].start - pair[0].end > GAP_BYTES));
        }
    }

    #[test]
    fn a_gap_that_costs_more_than_a_request_is_not_read() {
        assert_eq!(plan(&[0..10, 20..30, 1 << 20..1 << 21]), [0..30, 1 << 20..1 << 21]);
        assert_eq!(plan(&[5..5, 7..7]), []);
        let large = SPAN_BYTES - 5;
        assert_eq!(
            plan(&[0..large, large..large + 5, large + 5..large + 6]),
            [0..SPAN_BYTES, SPAN_BYTES..SPAN_BYTES + 1]
        );
        assert!(cut(&[0..5, 5..10], &[0..5, 5..10], &[Bytes::from_static(b"short")]).is_err());
    }
}
