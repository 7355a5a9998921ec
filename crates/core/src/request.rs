//! Which reads bring a run of samples: neighbours in one object are read together.
//!
//! Given where the wanted payloads lie, [`plan_requests`] merges those that are close to each other into requests of
//! bounded size, ordered by the sample that is needed first. Pure; the engine carries the requests out.

use std::ops::Range;

/// One payload that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// When it is needed: lower is earlier.
    pub order: u64,
    /// The object it lies in.
    pub object: u32,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
}

/// Bounds of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLimits {
    /// Bytes between two wanted payloads that are read and thrown away rather than asked for twice.
    pub gap_bytes: u64,
    /// Bytes of one request, gaps included; a single larger payload is a request of its own.
    pub request_bytes: u64,
}

/// One read of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The object to read.
    pub object: u32,
    /// When its first payload is needed.
    pub order: u64,
    /// Indices into the wanted payloads, ascending by offset.
    pub wants: Vec<usize>,
    /// Byte range of each, in the same order. Payloads may overlap, as windows over tokens do: see [`shared_runs`].
    pub parts: Vec<Range<u64>>,
}

impl Request {
    /// Bytes that will be held when the answer is here: the parts without gaps.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.end - part.start).sum()
    }
}

/// Merges neighbours. Every want is in exactly one request; requests ascend by when they are needed.
pub fn plan_requests(wants: &[Want], limits: RequestLimits) -> Vec<Request> {
    let mut sorted: Vec<usize> = (0..wants.len()).collect();
    sorted.sort_unstable_by_key(|index| (wants[*index].object, wants[*index].offset, *index));
    let mut requests: Vec<Request> = Vec::new();
    for index in sorted {
        let want = &wants[index];
        let part = want.offset..want.offset.saturating_add(want.length);
        match requests.last_mut().filter(|request| joins(request, want, &part, limits)) {
            Some(request) => {
                request.order = request.order.min(want.order);
                request.wants.push(index);
                request.parts.push(part);
            }
            None => requests.push(Request {
                object: want.object,
                order: want.order,
                wants: vec![index],
                parts: vec![part],
            }),
        }
    }
    requests.sort_by_key(|request| request.order);
    requests
}

/// A part of a run: the number of the run, and the bytes inside of it.
pub type Inside = (usize, Range<usize>);

/// Parts that overlap, as runs that do not, and where each part lies in them; `None` when none overlap. Parts ascend by
/// where they begin.
pub fn shared_runs(parts: &[Range<u64>]) -> Option<(Vec<Range<u64>>, Vec<Inside>)> {
    if parts.windows(2).all(|pair| pair[0].end <= pair[1].start) {
        return None;
    }
    let (mut runs, mut places) = (Vec::<Range<u64>>::new(), Vec::with_capacity(parts.len()));
    for part in parts {
        match runs.last_mut().filter(|run| run.start <= part.start && part.start < run.end) {
            Some(run) => run.end = run.end.max(part.end),
            None => runs.push(part.clone()),
        }
        let start = runs.last().map_or(part.start, |run| run.start);
        places.push((runs.len() - 1, (part.start - start) as usize..(part.end - start) as usize));
    }
    Some((runs, places))
}

/// Whether a payload may be read by a request that ends before it.
fn joins(request: &Request, want: &Want, part: &Range<u64>, limits: RequestLimits) -> bool {
    let (Some(first), Some(last)) = (request.parts.first(), request.parts.last()) else { return false };
    request.object == want.object
        && part.start.saturating_sub(last.end) <= limits.gap_bytes
        && part.end - first.start <= limits.request_bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_wants() -> impl Strategy<Value = Vec<Want>> {
        proptest::collection::vec(
            (0u64..1000, 0u32..4, 0u64..5000, 0u64..300).prop_map(|(order, object, offset, length)| Want {
                order,
                object,
                offset,
                length,
            }),
            0..120,
        )
    }

    proptest! {
        #[test]
        fn every_want_is_read_once_within_the_limits(wants in any_wants(), gap in 0u64..200, size in 1u64..2000) {
            let limits = RequestLimits { gap_bytes: gap, request_bytes: size };
            let requests = plan_requests(&wants, limits);
            let mut seen = vec![false; wants.len()];
            for request in &requests {
                for (index, part) in request.wants.iter().zip(&request.parts) {
                    prop_assert!(!std::mem::replace(&mut seen[*index], true));
                    let want = &wants[*index];
                    prop_assert_eq!((want.object, want.offset, want.length), (request.object, part.start, part.end - part.start));
                    prop_assert!(request.order <= want.order);
                }
                let near = |pair: &[Range<u64>]| {
                    pair[0].start <= pair[1].start && pair[1].start.saturating_sub(pair[0].end) <= gap
                };
                prop_assert!(request.parts.windows(2).all(near));
                let span = request.parts.iter().map(|part| part.end).max().unwrap() - request.parts[0].start;
                if let Some((runs, places)) = shared_runs(&request.parts) {
                    prop_assert!(runs.windows(2).all(|pair| pair[0].end <= pair[1].start));
                    for (part, (run, inside)) in request.parts.iter().zip(places) {
                        let start = runs[run].start;
                        prop_assert_eq!(part.clone(), start + inside.start as u64..start + inside.end as u64);
                        prop_assert!(part.end <= runs[run].end);
                    }
                }
                // Only a want that is larger by itself exceeds the limit; others may lie within it.
                let largest = request.parts[0].end - request.parts[0].start;
                prop_assert!(span <= size.max(largest));
            }
            prop_assert!(seen.into_iter().all(|was| was));
            prop_assert!(requests.is_sorted_by_key(|request| request.order));
        }
    }

    #[test]
    fn neighbours_are_read_together_and_strangers_apart() {
        let want = |order, object, offset| Want { order, object, offset, length: 10 };
        let wants = [want(5, 0, 10), want(2, 0, 0), want(9, 0, 100), want(0, 1, 20)];
        let requests = plan_requests(&wants, RequestLimits { gap_bytes: 0, request_bytes: 100 });
        let shape = |at: usize| {
            let Request { object, order, parts, .. } = &requests[at];
            (*object, *order, parts.iter().map(|part| (part.start, part.end)).collect::<Vec<_>>())
        };
        assert_eq!(shape(0), (1, 0, vec![(20, 30)]));
        assert_eq!(shape(1), (0, 2, vec![(0, 10), (10, 20)]));
        assert_eq!(shape(2), (0, 9, vec![(100, 110)]));
    }
}
