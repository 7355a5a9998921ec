//! The ways that are taken when the fast one is refused.

use super::*;
use crate::Store;
use crate::local::LocalOptions;

const SIZE: u64 = 1 << 20;

/// A store over one file `a` that is on the disk and, where the file system obeys, not in the page cache.
fn store(read_mode: ReadMode) -> (LocalStore, Vec<u8>, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let bytes: Vec<u8> = (0..SIZE).map(|number| forebay_core::rng::mix64(number) as u8).collect();
    std::fs::write(dir.path().join("a"), &bytes).unwrap();
    let file = std::fs::File::open(dir.path().join("a")).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let options = LocalOptions { read_mode, ..LocalOptions::default() };
    (LocalStore::with_options(dir.path().to_owned(), &options), bytes, dir)
}

fn open(store: &LocalStore) -> Arc<OpenFile> {
    store.inner.files.kept("a", &store.inner.path("a"), &store.inner.counters).unwrap()
}

#[tokio::test]
async fn without_a_ring_everything_comes_through_the_page_cache() {
    let (store, bytes, _dir) = store(ReadMode::Direct);
    store.inner.direct.ring.set(None).unwrap();
    assert!(store.read("a", ByteRange::Full).await.unwrap() == bytes);
    assert_eq!((store.stats().direct_reads, store.stats().buffered_reads), (0, 1));
}

#[tokio::test]
async fn a_device_that_refused_once_is_not_asked_again() {
    let (store, bytes, _dir) = store(ReadMode::Direct);
    store.inner.direct.refuse(open(&store).version.device);
    assert!(store.read("a", (5..SIZE).into()).await.unwrap() == bytes[5..]);
    let stats = store.stats();
    assert_eq!((stats.direct_reads, stats.buffered_reads, stats.opens), (0, 1, 1));
}

#[tokio::test]
async fn a_read_that_the_ring_cannot_serve_is_missed_and_not_hung() {
    let (store, _, _dir) = store(ReadMode::Direct);
    let Some(ring) = store.inner.ring() else { return };
    // Its direct descriptor was never opened.
    let answer = ring.read(vec![(open(&store), 0..SIZE)]).await;
    assert!(matches!(answer[..], [Err(Failure::Missed)]), "{answer:?}");
}

#[tokio::test]
async fn what_is_asked_for_together_is_answered_in_order_whatever_becomes_of_each() {
    let (store, bytes, _dir) = store(ReadMode::Direct);
    let read = |key: &str, range| ObjectRead { key: key.to_owned(), range };
    // The second time the file is open, so that no thread of the pool has to be asked.
    for _ in 0..2 {
        let mut reads: Vec<_> = (0..100u64).map(|n| read("a", n * 9001..n * 9001 + n * 97)).collect();
        reads.push(read("a", SIZE - 5..SIZE + 5));
        reads.push(read("b", 0..1));
        reads.push(read("a", 0..SIZE));
        let answers = store.read_many(&reads).await;
        assert_eq!(answers.len(), reads.len());
        for (answer, read) in answers.iter().zip(&reads) {
            match answer {
                Ok(got) => assert!(got == &bytes[read.range.start as usize..read.range.end as usize]),
                Err(error) => assert!(read.key == "b" || read.range.end > SIZE, "{error}"),
            }
        }
        assert_eq!(answers.iter().filter(|answer| answer.is_err()).count(), 2);
    }
    let stats = store.stats();
    assert!(stats.direct_reads == 0 || stats.direct_reads >= 200, "{stats:?}");
    assert!(stats.opens <= 4, "{stats:?}");
}

#[tokio::test]
async fn what_lies_in_the_page_cache_never_seems_cold() {
    let (store, _, _dir) = store(ReadMode::Auto);
    let (file, direct) = (open(&store), &store.inner.direct);
    std::fs::read(&file.path).unwrap();
    if let Ok(cached) = cached_bytes(&file.file, &(0..SIZE)) {
        assert_eq!(cached, SIZE);
    }
    assert!((0..8).all(|_| !direct.seems_cold(&file, &(0..SIZE))));
}

#[test]
fn every_probe_looks_at_another_page_within_the_span() {
    let direct = Direct::new(ReadMode::Auto);
    let span = 4096..4096 + SIZE;
    let pages: std::collections::HashSet<_> =
        (0..8).map(|_| direct.probe(&span)).map(|at| at / 4096).collect();
    assert_eq!(pages.len(), 8);
    assert!(pages.iter().all(|page| span.contains(&(page * 4096))));
}
