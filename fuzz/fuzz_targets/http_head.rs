//! Heads of HTTP answers: found wherever reads were cut, bounded, and what they say about the body makes sense.
#![no_main]

use bytes::Bytes;
use forebay_store::http::head::{MOST_HEADERS, end, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let found = end(bytes, 0);
    for from in [1, bytes.len() / 2, bytes.len()] {
        // A search that went on from a place before the end finds the same.
        if found.is_some_and(|found| from <= found) {
            assert_eq!(end(bytes, from), found);
        }
    }
    let head = Bytes::copy_from_slice(&bytes[..found.unwrap_or(bytes.len())]);
    let Ok(head) = parse(&head) else { return };
    assert!((100..1000).contains(&head.status) && head.headers.len() <= MOST_HEADERS);
    if let Some(place) = head.headers.content_range()
        && let Some(range) = place.range
    {
        assert!(range.start < range.end && place.total.is_none_or(|total| range.end <= total));
    }
    let _ = (head.headers.content_length(), format!("{head:?}"));
});
