//! What every [`Store`] promises, as checks over the trait.
//!
//! Run it on an empty store that takes writes: `forebay_store::conformance::run(store).await`. Each store and each
//! adapter of this crate passes it in `tests/stores/conformance.rs`; a store of your own should too. A broken promise is a
//! panic that names it. Objects are written below `conformance/`.
#![expect(clippy::missing_panics_doc, reason = "panics are how this suite reports")]
#![expect(clippy::single_range_in_vec_init, reason = "a list of one part is meant")]
#![expect(clippy::unwrap_used, reason = "an unexpected error is a failed check")]

use crate::{ByteRange, PagePlace, Store};
use bytes::Bytes;
use forebay_core::{ErrorKind, Result};
use futures::future::join_all;
use futures::stream::StreamExt;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

const ROOM: &str = "conformance/";

/// Runs every check.
pub async fn run(store: Arc<dyn Store>) {
    let store = &*store;
    reads_the_whole_object(store).await;
    a_whole_object_of_another_size_is_stale(store).await;
    reads_bounded_open_and_last_ranges(store).await;
    an_empty_range_is_not_an_error(store).await;
    a_range_beyond_the_object_is_an_error(store).await;
    a_missing_key_is_not_found(store).await;
    head_tells_size_and_a_stamp_that_follows_changes(store).await;
    lists_by_prefix_in_the_order_of_keys(store).await;
    pages_begin_behind_any_key(store).await;
    parts_equal_slices_in_order(store).await;
    parts_out_of_order_are_refused(store).await;
    an_overwritten_object_is_old_or_new_never_mixed(store).await;
    keys_may_hold_any_characters(store).await;
    an_empty_object_is_an_object(store).await;
    keys_cannot_leave_the_store(store).await;
    many_readers_at_once_read_the_same(store).await;
}

/// `Full` gives exactly what was written.
pub async fn reads_the_whole_object(store: &dyn Store) {
    let (key, bytes) = put(store, "whole", 100_000).await;
    assert_eq!(store.read(&key, ByteRange::Full).await.unwrap(), bytes, "whole object");
}

/// `Whole` gives the same as `Full`, unless the object does not have the size that was said.
pub async fn a_whole_object_of_another_size_is_stale(store: &dyn Store) {
    for size in [0, 100_000] {
        let (key, bytes) = put(store, "sized", size).await;
        assert_eq!(store.read(&key, ByteRange::Whole(size as u64)).await.unwrap(), bytes, "{size} bytes");
        for other in [size as u64 + 1, (size as u64).saturating_sub(1), 1 << 40] {
            if other != size as u64 {
                refused(store.read(&key, ByteRange::Whole(other)).await, ErrorKind::Stale, &(size, other));
            }
        }
    }
}

/// Ranges with fixed and open ends give the same bytes as slices.
pub async fn reads_bounded_open_and_last_ranges(store: &dyn Store) {
    let (key, bytes) = put(store, "ranges", 200_001).await;
    let ranges = [0..1, 0..4096, 4095..4097, 1..200_001, 199_999..200_001, 65_536..196_608, 0..200_001];
    for range in ranges {
        check_range(store, &key, &bytes, range.clone().into()).await;
        check_range(store, &key, &bytes, ByteRange::From(range.start)).await;
        check_range(store, &key, &bytes, ByteRange::Last(range.end)).await;
    }
}

/// A range of length 0 inside the object or at its end gives no bytes.
pub async fn an_empty_range_is_not_an_error(store: &dyn Store) {
    let (key, bytes) = put(store, "empty-range", 10).await;
    for range in
        [ByteRange::from(0..0), (5..5).into(), (10..10).into(), ByteRange::From(10), ByteRange::Last(0)]
    {
        check_range(store, &key, &bytes, range).await;
    }
}

/// A range that reaches beyond the object is an error that names the object: never a short answer.
pub async fn a_range_beyond_the_object_is_an_error(store: &dyn Store) {
    let (key, _) = put(store, "beyond", 10).await;
    let backwards = ByteRange::Bounded { start: 5, end: 4 };
    let beyond = [ByteRange::from(0..11), (10..11).into(), (11..11).into(), (u64::MAX - 1..u64::MAX).into()];
    for range in beyond.into_iter().chain([ByteRange::From(11), ByteRange::Last(11), backwards]) {
        let error = refused(store.read(&key, range).await, ErrorKind::InvalidConfig, &range);
        assert_eq!(
            error.facts().object.as_deref(),
            Some(store.url(&key).as_str()),
            "the error names the object"
        );
    }
    for parts in [vec![0..11], vec![0..2, 8..11], vec![11..12]] {
        refused(store.read_parts(&key, &parts).await, ErrorKind::InvalidConfig, &parts);
    }
}

/// Every way to ask for an object that is not there says so.
pub async fn a_missing_key_is_not_found(store: &dyn Store) {
    put(store, "present/file", 3).await;
    for name in ["absent", "present", "present/file/below"] {
        let key = format!("{ROOM}{name}");
        refused(store.head(&key).await, ErrorKind::NotFound, &key);
        refused(store.read(&key, ByteRange::Full).await, ErrorKind::NotFound, &key);
        refused(store.read(&key, (0..1).into()).await, ErrorKind::NotFound, &key);
        refused(store.read_parts(&key, &[0..1, 2..3]).await, ErrorKind::NotFound, &key);
    }
}

/// `head` agrees with what was written, and the stamp changes when the object does (0 means that it is unknown).
pub async fn head_tells_size_and_a_stamp_that_follows_changes(store: &dyn Store) {
    let (key, _) = put(store, "head", 12_345).await;
    let first = store.head(&key).await.unwrap();
    assert_eq!((first.key.as_str(), first.size), (key.as_str(), 12_345), "head after a write");
    assert_eq!(store.head(&key).await.unwrap(), first, "head of an unchanged object");
    put(store, "head", 777).await;
    assert_eq!(store.head(&key).await.unwrap().size, 777, "head after a second write");
    // Clocks of file systems may be coarse, so one of many writes in a row has to fall into another tick.
    for _ in 0..2000 {
        let stamp = store.head(&key).await.unwrap().stamp;
        if stamp == 0 || stamp != first.stamp {
            return;
        }
        put(store, "head", 777).await;
    }
    panic!("the stamp does not follow changes");
}

/// Listing gives exactly the keys with the prefix, sorted by their bytes, with sizes and stamps as `head` has them.
pub async fn lists_by_prefix_in_the_order_of_keys(store: &dyn Store) {
    let names = [
        "list/b",
        "list/a/z",
        "list/a.txt",
        "list/a/b/c",
        "list/ab",
        "list/a-b",
        "list/A",
        "list/ü",
        "listen",
    ];
    for (size, name) in names.iter().enumerate() {
        put(store, name, size).await;
    }
    let mut sorted: Vec<String> = names.iter().map(|name| format!("{ROOM}{name}")).collect();
    sorted.sort_unstable();
    for prefix in
        ["list", "list/", "list/a", "list/a/", "list/a/b", "list/ab", "list/nothing", "list/a/b/c/", "list//"]
    {
        let prefix = format!("{ROOM}{prefix}");
        let expected: Vec<&String> = sorted.iter().filter(|key| key.starts_with(&prefix)).collect();
        let found: Vec<_> = store.list(&prefix).map(Result::unwrap).collect().await;
        assert_eq!(
            found.iter().map(|meta| &meta.key).collect::<Vec<_>>(),
            expected,
            "keys that start with {prefix:?}"
        );
        for meta in found {
            assert_eq!(store.head(&meta.key).await.unwrap(), meta, "listing and head agree");
        }
    }
    for outside in ["/", "../", "conformance/../", "./"] {
        assert_eq!(store.list(outside).count().await, 0, "no key starts with {outside:?}");
    }
    let all: Vec<_> = store.list("").map(Result::unwrap).collect().await;
    assert!(all.is_sorted_by(|a, b| a.key < b.key), "all keys, each once, in order");
    assert!(
        sorted.iter().all(|key| all.iter().any(|meta| meta.key == *key)),
        "an empty prefix lists everything"
    );
}

/// Where a store has pages, they begin behind any key, also one that is not there, and all together are the listing.
pub async fn pages_begin_behind_any_key(store: &dyn Store) {
    if !store.lists_pages() {
        return;
    }
    for name in ["pages/a", "pages/b/c", "pages/b/d", "pages/ü", "pagesandmore"] {
        put(store, name, 3).await;
    }
    let prefix = format!("{ROOM}pages/");
    let all: Vec<_> = store.list(&prefix).map(Result::unwrap).collect().await;
    for after in ["", "a", "a0", "b/", "b/c", "b/c0", "zz", "ü", "ü0"] {
        let after = if after.is_empty() { String::new() } else { format!("{prefix}{after}") };
        let (mut found, mut next) =
            (Vec::new(), Some(PagePlace { after: after.clone(), tokens: Vec::new() }));
        while let Some(place) = next {
            let page = store.list_page(&prefix, &place).await.unwrap();
            found.extend(page.objects);
            next = page.next;
        }
        let expected: Vec<_> = all.iter().filter(|meta| meta.key > after).cloned().collect();
        assert_eq!(found, expected, "keys behind {after:?}");
    }
    let found = crate::listing::list_all(store, &prefix, &|_| ()).await.unwrap();
    assert_eq!(found, all, "a listing from several places is the listing");
}

/// `read_parts` gives one answer per part, in their order, equal to slices, whatever their sizes and gaps.
pub async fn parts_equal_slices_in_order(store: &dyn Store) {
    let (key, bytes) = put(store, "parts", 600_000).await;
    let cases: [Vec<Range<u64>>; 6] = [
        vec![],
        vec![0..600_000],
        vec![0..10, 10..20, 20..20, 30..40],
        vec![5..6, 100_000..100_001, 599_999..600_000, 600_000..600_000],
        vec![0..512, 512..131_072, 131_072..131_584, 140_000..300_000, 300_100..300_101],
        (0..300).map(|number| number * 2000..number * 2000 + 1000).collect(),
    ];
    for parts in cases {
        let found = store.read_parts(&key, &parts).await.unwrap();
        assert_eq!(found.len(), parts.len(), "one answer per part");
        for (part, found) in parts.iter().zip(found) {
            assert!(found == bytes.slice(part.start as usize..part.end as usize), "part {part:?} differs");
        }
    }
}

/// Parts that overlap or descend break the contract, and saying so beats guessing.
pub async fn parts_out_of_order_are_refused(store: &dyn Store) {
    let (key, _) = put(store, "disorder", 100).await;
    for parts in [vec![10..20, 0..5], vec![0..10, 9..12]] {
        refused(store.read_parts(&key, &parts).await, ErrorKind::InvalidConfig, &parts);
    }
}

/// Readers beside a writer see the old object or the new one.
pub async fn an_overwritten_object_is_old_or_new_never_mixed(store: &dyn Store) {
    let key = format!("{ROOM}overwrite");
    let version = |fill: u8| Bytes::from(vec![fill; 50_000 + usize::from(fill)]);
    store.write(&key, version(0)).await.unwrap();
    let write = async {
        for fill in 1..20 {
            store.write(&key, version(fill)).await.unwrap();
        }
    };
    let read = async {
        for _ in 0..50 {
            let seen = store.read(&key, ByteRange::Full).await.unwrap();
            assert!(
                seen.first().is_some_and(|fill| seen == version(*fill)),
                "a reader saw a half-written object"
            );
        }
    };
    futures::join!(write, read);
    assert_eq!(store.read(&key, ByteRange::Full).await.unwrap(), version(19), "the last write is seen");
    assert_eq!(store.read(&key, (0..50_019).into()).await.unwrap(), version(19), "by bounded reads too");
}

/// Spaces, quotes, percent signs, controls and other alphabets are plain characters.
pub async fn keys_may_hold_any_characters(store: &dyn Store) {
    let names = [
        "a b",
        "a%20b",
        "a+b",
        "q?x=1&y#z",
        "back\\slash",
        "quo'te\"d",
        "naïve/日本語",
        "...",
        ".hidden",
        "new\nline",
    ];
    for (size, name) in names.iter().enumerate() {
        put(store, &format!("characters/{name}"), size + 1).await;
    }
    for (size, name) in names.iter().enumerate() {
        let key = format!("{ROOM}characters/{name}");
        assert_eq!(store.read(&key, ByteRange::Full).await.unwrap(), pattern(size + 1), "key {key:?}");
    }
    assert_eq!(
        store.list(&format!("{ROOM}characters/")).count().await,
        names.len(),
        "all of them are listed"
    );
}

/// An object of 0 bytes can be written, seen, listed and read.
pub async fn an_empty_object_is_an_object(store: &dyn Store) {
    let (key, bytes) = put(store, "nothing", 0).await;
    assert_eq!(store.head(&key).await.unwrap().size, 0, "size of an empty object");
    for range in [ByteRange::Full, (0..0).into(), ByteRange::From(0), ByteRange::Last(0)] {
        check_range(store, &key, &bytes, range).await;
    }
    assert_eq!(
        store.read_parts(&key, &[0..0, 0..0]).await.unwrap(),
        [Bytes::new(), Bytes::new()],
        "empty parts"
    );
    refused(store.read(&key, (0..1).into()).await, ErrorKind::InvalidConfig, &key);
}

/// Keys that are absolute, climb up, or have empty parts are refused by every request.
pub async fn keys_cannot_leave_the_store(store: &dyn Store) {
    for key in [
        "",
        "/",
        "/etc/hostname",
        "../escape",
        "conformance/../../escape",
        "a//b",
        "a/",
        "./a",
        "a/.",
        "a\0b",
    ] {
        refused(store.head(key).await, ErrorKind::InvalidConfig, &key);
        refused(store.read(key, ByteRange::Full).await, ErrorKind::InvalidConfig, &key);
        refused(store.read_parts(key, &[0..1, 1..2]).await, ErrorKind::InvalidConfig, &key);
        refused(store.write(key, Bytes::new()).await, ErrorKind::InvalidConfig, &key);
    }
}

/// 64 readers of one object at once each get their own bytes.
pub async fn many_readers_at_once_read_the_same(store: &dyn Store) {
    let (key, bytes) = put(store, "crowd", 1_000_000).await;
    let (key, bytes) = (&key, &bytes);
    join_all((0..64u64).map(|reader| async move {
        let start = reader * 15_001;
        check_range(store, key, bytes, (start..start + 15_001 + reader).into()).await;
        check_range(store, key, bytes, ByteRange::From(start)).await;
    }))
    .await;
}

/// Bytes without a short period, so that a read at a wrong offset shows.
fn pattern(size: usize) -> Bytes {
    (0..size as u64).map(|number| forebay_core::rng::mix64(number) as u8).collect()
}

async fn put(store: &dyn Store, name: &str, size: usize) -> (String, Bytes) {
    let (key, bytes) = (format!("{ROOM}{name}"), pattern(size));
    store.write(&key, bytes.clone()).await.unwrap();
    (key, bytes)
}

async fn check_range(store: &dyn Store, key: &str, bytes: &Bytes, range: ByteRange) {
    let slice = range.resolve(bytes.len() as u64).unwrap();
    let expected = bytes.slice(slice.start as usize..slice.end as usize);
    let found = store.read(key, range).await.unwrap();
    assert!(found == expected, "{range:?} of {key:?}: {} bytes, not those of the slice", found.len());
}

fn refused<T>(answer: Result<T>, kind: ErrorKind, what: &dyn Debug) -> forebay_core::Error {
    match answer {
        Ok(_) => panic!("{what:?} was accepted"),
        Err(error) => {
            assert_eq!(error.kind(), kind, "{what:?} gave {error:?}");
            error
        }
    }
}
