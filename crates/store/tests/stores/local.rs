//! Promises of the local store beyond the common suite.
#![expect(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

use bytes::Bytes;
use forebay_core::ErrorKind;
use forebay_store::local::{LocalOptions, ReadMode};
use forebay_store::{ByteRange, LocalStore, Store};
use futures::StreamExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use tempfile::TempDir;

fn noise(size: usize) -> Vec<u8> {
    (0..size as u64).map(|number| forebay_core::rng::mix64(number) as u8).collect()
}

/// In the build's own directory, which is on a disk where `/tmp` may be memory.
fn directory() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn store(root: &Path, read_mode: ReadMode) -> LocalStore {
    LocalStore::with_options(root.to_owned(), &LocalOptions { read_mode, ..LocalOptions::default() })
}

async fn keys(store: &LocalStore, prefix: &str) -> Vec<String> {
    store.list(prefix).map(|meta| meta.unwrap().key).collect().await
}

/// Writes a file and takes it out of the page cache; `false` where the file system does not let go of it.
fn write_cold(path: &Path, bytes: &[u8]) -> bool {
    std::fs::write(path, bytes).unwrap();
    let file = std::fs::File::open(path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).is_ok()
}

#[tokio::test]
async fn listing_follows_links_once_hides_unfinished_writes_and_ends_on_cycles() {
    let dir = directory();
    let root = dir.path().join("root");
    std::fs::create_dir_all(root.join("a/b")).unwrap();
    std::fs::write(root.join("a/b/file"), "x").unwrap();
    std::fs::write(root.join("a/.tmp-17-0"), "half").unwrap();
    std::fs::write(dir.path().join("outside"), "12345").unwrap();
    symlink(dir.path().join("outside"), root.join("link")).unwrap();
    symlink("/nowhere/at/all", root.join("dangling")).unwrap();
    symlink("self", root.join("self")).unwrap();
    symlink(&root, root.join("a/b/up")).unwrap();
    symlink(root.join("a"), root.join("second")).unwrap();
    let store = LocalStore::new(root);
    assert_eq!(keys(&store, "").await, ["a/b/file", "link", "second/b/file"]);
    assert_eq!(store.head("link").await.unwrap().size, 5);
    assert_eq!(keys(&store, "a/b/up").await, Vec::<String>::new());
}

#[tokio::test]
async fn a_long_listing_comes_in_steps_and_in_order() {
    let dir = directory();
    for number in 0..1000 {
        std::fs::write(dir.path().join(format!("{:x}", number * 7919 % 1000)), "").unwrap();
    }
    let found = keys(&LocalStore::new(dir.path().to_owned()), "").await;
    assert_eq!(found.len(), 1000);
    assert!(found.is_sorted());
}

#[tokio::test]
async fn a_missing_root_is_said_when_listing() {
    let error = LocalStore::new("/no/such/root".into()).list("").next().await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(error.facts().object.as_deref(), Some("/no/such/root"));
}

#[tokio::test]
async fn a_file_cut_short_behind_our_back_is_stale_with_its_offset() {
    for mode in [ReadMode::Buffered, ReadMode::Direct] {
        let dir = directory();
        std::fs::write(dir.path().join("a"), noise(300_000)).unwrap();
        let store = store(dir.path(), mode);
        store.read("a", (0..10).into()).await.unwrap();
        std::fs::OpenOptions::new().write(true).open(dir.path().join("a")).unwrap().set_len(150_000).unwrap();
        let error = store.read("a", (100_000..300_000).into()).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.facts().offset),
            (ErrorKind::Stale, Some(150_000)),
            "{mode:?} {error:?}"
        );
        assert_eq!(error.facts().object, Some(store.url("a")));
        // From then on the store knows the new size.
        let error = store.read("a", (100_000..300_000).into()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{mode:?}");
    }
}

#[tokio::test]
async fn a_file_replaced_by_others_is_seen_after_head() {
    let dir = directory();
    std::fs::write(dir.path().join("a"), "old").unwrap();
    let store = LocalStore::new(dir.path().to_owned());
    assert_eq!(store.read("a", (0..3).into()).await.unwrap(), "old");
    std::fs::write(dir.path().join("b"), "new!").unwrap();
    std::fs::rename(dir.path().join("b"), dir.path().join("a")).unwrap();
    assert_eq!(
        store.read("a", (0..3).into()).await.unwrap(),
        "old",
        "one version while it is read in pieces"
    );
    assert_eq!(store.head("a").await.unwrap().size, 4);
    assert_eq!(store.read("a", (0..3).into()).await.unwrap(), "new");
}

#[tokio::test]
async fn p017_a_small_read_of_a_large_file_touches_little_of_it() {
    let dir = directory();
    let file = std::fs::File::create(dir.path().join("large.tar")).unwrap();
    file.set_len(1 << 30).unwrap();
    let store = LocalStore::new(dir.path().to_owned());
    let parts = [500 << 20..(500 << 20) + 512, (500 << 20) + 512..(500 << 20) + 100_000];
    store.read_parts("large.tar", &parts).await.unwrap();
    let stats = store.stats();
    assert!(stats.bytes < 120_000, "{stats:?}");
    assert_eq!((stats.requests, stats.syscalls, stats.opens <= 2), (1, 2, true), "{stats:?}");
}

#[tokio::test]
async fn p022_small_neighbours_share_a_system_call_and_large_parts_an_allocation_each() {
    let dir = directory();
    let bytes = noise(1 << 20);
    std::fs::write(dir.path().join("shard"), &bytes).unwrap();
    let store = store(dir.path(), ReadMode::Buffered);
    let parts: Vec<_> = (0..100u64).map(|number| number * 1000..number * 1000 + 900).collect();
    let found = store.read_parts("shard", &parts).await.unwrap();
    let stats = store.stats();
    assert_eq!((stats.syscalls, stats.bytes, stats.bytes_per_syscall()), (1, 99_900, 99_900));
    assert_eq!(found[1].as_ptr() as usize - found[0].as_ptr() as usize, 1000, "small parts share");
    let mut large = store.read_parts("shard", &[0..100_000, 100_000..300_000]).await.unwrap();
    assert_eq!(store.stats().syscalls, 3);
    assert!(large.iter().all(Bytes::is_unique), "each large part can be freed alone");
    assert!(large.remove(1) == bytes[100_000..300_000]);
}

#[tokio::test]
async fn cold_spans_come_past_the_page_cache_and_warm_ones_through_it() {
    let dir = directory();
    let bytes = noise(4 << 20);
    assert!(write_cold(&dir.path().join("a"), &bytes));
    let store = store(dir.path(), ReadMode::Auto);
    let parts: Vec<_> = (0..30u64).map(|number| number * 131_001..number * 131_001 + 120_000).collect();
    for (part, found) in parts.iter().zip(store.read_parts("a", &parts).await.unwrap()) {
        assert!(found == bytes[part.start as usize..part.end as usize], "{part:?}");
    }
    // Which way is up to the file system that the tests run on; that the bytes are counted once is not.
    let cold = store.stats();
    assert_eq!(cold.direct_reads + cold.buffered_reads, 30, "{cold:?}");
    assert!(cold.bytes >= 30 * 120_000 && cold.bytes <= 30 * (120_000 + 8192), "{cold:?}");
    std::fs::read(dir.path().join("a")).unwrap();
    store.read_parts("a", &parts).await.unwrap();
    let warm = store.stats();
    assert_eq!(warm.direct_reads, cold.direct_reads, "what is in the page cache is not read from the disk");
    assert_eq!(warm.buffered_reads, cold.buffered_reads + 30);
}

#[tokio::test]
async fn direct_reads_equal_slices_at_every_edge_and_a_dropped_request_harms_nobody() {
    let dir = directory();
    let bytes = noise(1_000_003);
    std::fs::write(dir.path().join("a"), &bytes).unwrap();
    let store = store(dir.path(), ReadMode::Direct);
    for start in [0, 1, 4095, 4096, 4097, 999_424, 1_000_002] {
        for end in [start + 1, 4097, 8192, 999_425, 1_000_003] {
            let Some(expected) = bytes.get(start..end) else { continue };
            drop(store.read("a", ByteRange::Full));
            let found = store.read("a", (start as u64..end as u64).into()).await.unwrap();
            assert!(found == expected, "{start}..{end}");
        }
    }
    for _ in 0..50 {
        let slow = store.read("a", ByteRange::Full);
        let _ = tokio::time::timeout(std::time::Duration::from_micros(30), slow).await;
    }
    assert!(store.read("a", ByteRange::Full).await.unwrap() == bytes);
}
