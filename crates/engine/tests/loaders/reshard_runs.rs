//! Runs of `reshard`: what they hold, when they write, and how they go on after an end.
#![expect(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

use crate::reshard::{files, made, options, run};
use bytes::Bytes;
use forebay_core::manifest::{FieldInfo, FieldKind, Manifest, ManifestBuilder, Value};
use forebay_core::rng::Rng;
use forebay_core::{Error, ErrorKind, Result};
use forebay_engine::reshard::{Order, ReshardOptions, Resharded, Rest, reshard};
use forebay_engine::shard::{Cell, ShardWriter, ShardWriterOptions};
use forebay_engine::source::Dataset;
use forebay_store::flaky::{Fault, FlakyStore, When};
use forebay_store::{CountingStore, MemoryStore, Store};
use futures::executor::block_on;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// Names of the whole shards in a folder.
fn shards(folder: &Path) -> Vec<String> {
    files(folder).into_keys().filter(|name| name.starts_with("s-")).collect()
}

/// Runs until `shards` shards are there.
fn run_until(dataset: &Dataset, options: &ReshardOptions, folder: &Path, wanted: usize) -> Result<Resharded> {
    block_on(reshard(dataset, options, &mut |_, _| {
        if shards(folder).len() >= wanted { Err(Error::new(ErrorKind::Cancelled, "enough")) } else { Ok(()) }
    }))
}

#[test]
fn p073_little_memory_spills_and_gives_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = made(folder.path());
    let order = Order::Shuffled(3);
    run(&dataset, &options(folder.path(), "much", order.clone())).unwrap();
    let limit = 16 << 10;
    let little = ReshardOptions { memory_bytes: limit, ..options(folder.path(), "little", order) };
    let done = run(&dataset, &little).unwrap();
    assert!(done.spilled_bytes > 100_000, "{done:?}");
    // One sample more than the limit, the largest of which has 5.9 KB and a key.
    assert!(done.peak_bytes <= limit + 6_200, "{done:?}");
    let read = |name: &str| files(&folder.path().join(name));
    assert_eq!(read("much"), read("little"), "nothing but the shards is left behind, and they are the same");
}

#[test]
fn p073_a_run_that_was_ended_goes_on_and_gives_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = made(folder.path());
    let whole = options(folder.path(), "whole", Order::Shuffled(5));
    let count = run(&dataset, &whole).unwrap().shards.len() as u64;
    let (cut, there) = (options(folder.path(), "cut", Order::Shuffled(5)), folder.path().join("cut"));
    let ended = run_until(&dataset, &cut, &there, 3);
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::Cancelled);
    let other = options(folder.path(), "cut", Order::Shuffled(6));
    assert!(run(&dataset, &other).unwrap_err().to_string().contains("another run"));
    let done = run(&dataset, &cut).unwrap();
    assert_eq!((done.kept, done.shards.len() as u64), (3, count));
    assert_eq!(files(&there), files(&folder.path().join("whole")));
    assert!(run(&dataset, &cut).unwrap_err().to_string().contains("exists already"));
}

/// The fourth new shard ends with sample 34, the sixth old one begins with sample 35.
#[test]
fn p073_in_stored_order_a_shard_is_there_when_its_last_sample_came_and_nothing_is_spilled() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = made(folder.path());
    run(&dataset, &options(folder.path(), "whole", Order::AsStored)).unwrap();
    let (cut, there) = (options(folder.path(), "cut", Order::AsStored), folder.path().join("cut"));
    // Less than a shard has, and not much more than the largest sample.
    let cut = ReshardOptions { memory_bytes: 8 << 10, ..cut };
    let manifest = dataset.manifest();
    let keys: Vec<String> =
        (0..manifest.object_count()).map(|at| manifest.object(at).key.into_owned()).collect();
    assert_eq!(keys.len(), 9);
    let over = |store: Arc<dyn Store>| Dataset::new(manifest.clone(), store, "old").unwrap();

    let late = When::Keys(keys[5..].iter().cloned().collect());
    let failing = FlakyStore::new(Arc::clone(dataset.store()), 0).with(late, Fault::Fail(ErrorKind::Denied));
    let ended = run(&over(Arc::new(failing)), &cut);
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::Denied);
    let left: Vec<String> = files(&there).into_keys().collect();
    assert_eq!(left, [".reshard-s-000.tar.json", "s-000.tar", "s-001.tar", "s-002.tar", "s-003.tar"]);

    let counting = Arc::new(CountingStore::with_log(Arc::clone(dataset.store())));
    let done = run(&over(Arc::clone(&counting) as Arc<dyn Store>), &cut).unwrap();
    assert_eq!((done.kept, done.spilled_bytes), (4, 0));
    assert!(done.peak_bytes <= (8 << 10) + 6_200, "{done:?}");
    let read: BTreeSet<String> = counting.take_log().into_iter().map(|access| access.key).collect();
    assert!(read.iter().eq(&keys[5..]), "samples of shards that are there are not read again: {read:?}");
    assert_eq!(files(&there), files(&folder.path().join("whole")));
}

#[test]
fn p073_what_another_run_left_never_passes_for_a_shard_of_this_one() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = made(folder.path());
    run(&dataset, &options(folder.path(), "whole", Order::Shuffled(6))).unwrap();
    let there = folder.path().join("cut");
    run_until(&dataset, &options(folder.path(), "cut", Order::Shuffled(5)), &there, 2).unwrap_err();
    // Shards come to be in any order, so that numbers may be missing between those that are there.
    fs::rename(there.join(&shards(&there)[0]), there.join("s-077.tar")).unwrap();
    fs::write(there.join(".tmp-s-003.tar-4194305"), "a part").unwrap();
    let mut other = options(folder.path(), "cut", Order::Shuffled(6));
    other.shards.overwrite = true;
    block_on(reshard(&dataset, &other, &mut |_, _| Err(Error::new(ErrorKind::Cancelled, "enough"))))
        .unwrap_err();
    assert_eq!(run(&dataset, &other).unwrap().kept, 0);
    assert_eq!(files(&there), files(&folder.path().join("whole")));
}

/// Samples of these sizes in one object, with a number each.
fn drawn(sizes: &[usize]) -> (Dataset, Vec<(String, Vec<u8>, i64)>) {
    let field = |name: &str, kind| FieldInfo { name: name.into(), kind };
    let fields = vec![field("bin", FieldKind::Payload), field("cls", FieldKind::Int)];
    let mut builder = ManifestBuilder::new(fields, serde_json::json!({"kind": "tar"}));
    builder.add_object("all", sizes.iter().sum::<usize>() as u64, 0).unwrap();
    let (mut object, mut samples) = (Vec::new(), Vec::new());
    for (at, size) in sizes.iter().enumerate() {
        let (key, bytes) = (format!("k{at:02}"), vec![at as u8; *size]);
        let (offset, length) = (object.len() as u64, *size as u64);
        let payload = Value::Payload { object: None, offset, length };
        builder.add_sample(&key, &[(0, payload), (1, Value::Int(at as i64))]).unwrap();
        object.extend_from_slice(&bytes);
        samples.push((key, bytes, at as i64));
    }
    let store = MemoryStore::new();
    store.insert("all", Bytes::from(object)).unwrap();
    let manifest = Manifest::open(builder.finish().unwrap()).unwrap();
    (Dataset::new(manifest, Arc::new(store), "drawn").unwrap(), samples)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn p073_whatever_the_memory_shards_are_those_of_a_naive_writer(
        sizes in proptest::collection::vec(0usize..300, 1..40),
        seed in proptest::option::of(0u64..1000),
        memory_bytes in 0u64..6000,
        max_samples in 1u64..12,
        max_bytes in 1u64..2000,
        stops in 0usize..4,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let (dataset, mut samples) = drawn(&sizes);
        let order = match seed {
            None => Order::AsStored,
            Some(seed) => {
                for last in (1..samples.len()).rev() {
                    samples.swap(last, Rng::keyed(seed, last as u64, 0).below(last as u64 + 1) as usize);
                }
                Order::Listed(samples.iter().map(|(key, ..)| key.clone()).collect(), Rest::Refuse)
            }
        };
        let place = |name: &str| folder.path().join(name).join("s-%03d.tar").display().to_string();
        let shards = ShardWriterOptions { max_samples, max_bytes, ..ShardWriterOptions::new(place("out")) };
        let spill_dir = None;
        let options = ReshardOptions { order, shards, memory_bytes, spill_dir };
        let out = folder.path().join("out");
        for stop in 1..=stops {
            // Ends at the latest when all is done; then the shards that are wanted are there already.
            if run_until(&dataset, &options, &out, stop).is_ok() {
                fs::remove_dir_all(&out).unwrap();
            }
        }
        let done = run(&dataset, &options).unwrap();

        let of_shard = |number| ShardWriter::new(ShardWriterOptions { first: number, ..ShardWriterOptions::new(place("naive")) });
        let (mut writer, mut number, mut count, mut bytes) = (of_shard(0).unwrap(), 0, 0, 0);
        for (key, payload, label) in &samples {
            let more = payload.len() as u64 + 8;
            if count > 0 && (count == max_samples || bytes + more > max_bytes) {
                writer.finish().unwrap();
                (number, count, bytes) = (number + 1, 0, 0);
                writer = of_shard(number).unwrap();
            }
            writer.add_cells(key, &[("bin", Cell::Bytes(payload)), ("cls", Cell::Int(*label))]).unwrap();
            (count, bytes) = (count + 1, bytes + more);
        }
        writer.finish().unwrap();
        prop_assert_eq!(files(&out), files(&folder.path().join("naive")));

        // A sample's key, names and lengths are held with it.
        let largest = sizes.iter().max().unwrap() + 80;
        prop_assert!(done.peak_bytes <= memory_bytes + largest as u64, "{:?}", done);
        if seed.is_none() {
            prop_assert_eq!(done.spilled_bytes, 0);
        }
    }
}
