//! Promises of the decompressing adapter.

use super::*;
use crate::{CountingStore, MemoryStore};
use flate2::Compression;
use flate2::write::GzEncoder;
use forebay_core::ErrorKind;
use futures::future::join_all;
use std::io::Write;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn noise(size: usize) -> Vec<u8> {
    (0..size as u64).map(|number| forebay_core::rng::mix64(number) as u8).collect()
}

fn store(objects: &[(&str, Vec<u8>)], options: GunzipOptions) -> (GunzipStore, Arc<CountingStore>) {
    let memory = MemoryStore::new();
    for (key, bytes) in objects {
        memory.insert(*key, bytes.clone()).unwrap();
    }
    let counting = Arc::new(CountingStore::new(Arc::new(memory)));
    (GunzipStore::new(Arc::clone(&counting) as Arc<dyn Store>, options), counting)
}

#[tokio::test]
async fn many_readers_at_once_expand_an_object_once_also_of_several_members() {
    let (first, second) = (noise(5_000_000), noise(77));
    let members = [gzip(&first), gzip(&second)].concat();
    let plain = [first, second].concat();
    let (store, counting) = store(&[("a.TGZ", members), ("b", vec![1, 2])], GunzipOptions::default());
    let reads = (0..32u64).map(|reader| {
        let (store, plain) = (&store, &plain);
        async move {
            let start = reader * 150_000;
            let bytes = store.read("a.TGZ", (start..start + 200_000).into()).await.unwrap();
            assert!(bytes == plain[start as usize..start as usize + 200_000]);
        }
    });
    join_all(reads).await;
    assert_eq!(store.expansions(), 1);
    assert_eq!(counting.counts().reads, 2, "a stream of two pieces");
    assert_eq!(store.head("a.TGZ").await.unwrap().size, plain.len() as u64);
    assert_eq!(store.read("b", ByteRange::Full).await.unwrap(), [1, 2][..]);
}

#[tokio::test]
async fn a_stream_that_is_cut_or_changed_is_corrupt_and_names_the_object() {
    let good = gzip(&noise(100_000));
    let mut changed = good.clone();
    let checksum = changed.len() - 6;
    changed[checksum] ^= 1;
    let mut rows = vec![("changed", changed), ("text", b"no gzip at all, but long enough".to_vec())];
    for cut in [0, 1, 9, 10, 11, 50_000, good.len() - 8, good.len() - 1] {
        rows.push(("cut", good[..cut].to_vec()));
    }
    for (name, bytes) in rows {
        let size = bytes.len();
        let (store, _) = store(&[("a.gz", bytes)], GunzipOptions::default());
        let error = store.read("a.gz", (0..10).into()).await.expect_err(&format!("{name} {size}"));
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{name} {size}: {error:?}");
        assert_eq!(error.facts().object.as_deref(), Some("memory:a.gz"));
        assert_eq!(store.kept.used(), 0, "{name} {size}: the room is given back");
    }
}

#[tokio::test]
async fn a_bomb_is_stopped_by_ratio_or_by_size() {
    let bomb = gzip(&vec![0; 80 << 20]);
    let rows = [
        (GunzipOptions::default(), "times as many"),
        (GunzipOptions { object_bytes: 1 << 20, ..GunzipOptions::default() }, "more than 1048576 bytes"),
        (GunzipOptions { kept_bytes: 1 << 20, ..GunzipOptions::default() }, "take all of 1048576 bytes"),
    ];
    for (options, why) in rows {
        let (store, _) = store(&[("a.gz", bomb.clone())], options);
        let error = store.head("a.gz").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Exhausted);
        assert!(error.message().contains(why), "{error:?}");
        assert!(error.hint().is_some());
    }
}

#[tokio::test]
async fn expanded_objects_stay_within_their_bound_and_the_oldest_goes_first() {
    let objects = ["a.gz", "b.gz", "c.gz"].map(|key| (key, gzip(&noise(1000))));
    let (store, _) = store(&objects, GunzipOptions { kept_bytes: 2500, ..GunzipOptions::default() });
    for (key, expansions) in [("a.gz", 1), ("b.gz", 2), ("a.gz", 2), ("c.gz", 3), ("a.gz", 3), ("b.gz", 4)] {
        store.read(key, (0..1000).into()).await.unwrap();
        assert_eq!(store.expansions(), expansions, "{key}");
        assert!(store.kept.used() <= 2500);
    }
}

#[tokio::test]
async fn a_replaced_object_is_expanded_again_when_its_size_is_asked_for() {
    let memory = MemoryStore::new();
    memory.insert("a.gz", gzip(b"old")).unwrap();
    let store = GunzipStore::new(Arc::new(memory.clone()), GunzipOptions::default());
    assert_eq!(store.read("a.gz", ByteRange::Full).await.unwrap(), "old");
    memory.insert("a.gz", gzip(b"newer")).unwrap();
    assert_eq!(store.read("a.gz", (0..3).into()).await.unwrap(), "old");
    assert_eq!(store.head("a.gz").await.unwrap().size, 5);
    assert_eq!(store.read("a.gz", (0..3).into()).await.unwrap(), "new");
}
