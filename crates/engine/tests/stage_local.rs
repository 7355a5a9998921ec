//! Reading through a copy: the same samples, bytes and order, nothing from the origin that is here, nothing stale.
#![allow(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

mod common;
#[path = "common/remote.rs"]
#[allow(dead_code, reason = "every test file uses its own part")]
mod remote;

use common::*;
use forebay_core::recipe::Recipe;
use forebay_core::{ErrorKind, SampleId};
use forebay_engine::source::{Dataset, FieldValue, OpenOptions, open, open_with_store};
use forebay_engine::stage::{
    Expected, LocalCopyStore, StageOptions, plan_stage, plan_stage_with_store, run_stage,
};
use forebay_engine::{Batch, LoaderConfig};
use forebay_store::conformance;
use forebay_store::{ByteRange, CountingStore, MemoryStore, ObjectRead, Store};
use forebay_testkit::made::Made;
use remote::{Answer, Far};
use std::path::Path;
use std::sync::Arc;

/// Four shards of six samples each.
fn shards() -> (MemoryStore, Arc<CountingStore>) {
    let (folder, memory) = (tempfile::tempdir().unwrap(), MemoryStore::new());
    for path in Made::default().shards(folder.path(), 4) {
        let name = path.file_name().unwrap().to_str().unwrap();
        memory.insert(format!("s/{name}"), std::fs::read(&path).unwrap()).unwrap();
    }
    (memory.clone(), Arc::new(CountingStore::new(Arc::new(memory))))
}

async fn stage(store: Arc<dyn Store>, folder: &Path, spec: &str) {
    let options = StageOptions { piece_bytes: 1000, ..StageOptions::default() };
    let plan = plan_stage_with_store(store, &[spec.into()], folder, &options).await.unwrap();
    run_stage(&plan, &options, &|_| Ok(())).await.unwrap();
}

async fn opened(store: &Arc<CountingStore>, local: Option<&Path>) -> Dataset {
    let options = OpenOptions { local: local.map(Path::to_path_buf), ..OpenOptions::default() };
    open_with_store(Arc::clone(store) as Arc<dyn Store>, &["s".into()], &options).await.unwrap()
}

/// Two epochs, shuffled, with everything that is in the batches.
fn batches(dataset: &Dataset) -> Vec<Batch> {
    let recipe =
        r#"[{"field": "jpg", "decode": {"kind": "bytes"}}, {"field": "cls", "decode": {"kind": "label"}}]"#;
    let config = LoaderConfig { seed: 5, epochs: Some(2), ..alone(5) };
    let mut loader = loader(dataset, &Recipe::from_json(recipe).unwrap(), config);
    let mut all = epoch(&mut loader);
    all.extend(epoch(&mut loader));
    all
}

#[tokio::test]
async fn p049_when_all_is_staged_nothing_is_read_from_the_origin_and_all_is_the_same() {
    let (_, store) = shards();
    let folder = tempfile::tempdir().unwrap();
    let plain = opened(&store, None).await;
    let expected: Vec<_> = batches(&plain).iter().map(bytes).collect();
    stage(Arc::clone(&store) as Arc<dyn Store>, folder.path(), "s").await;
    let before = store.counts();
    let local = opened(&store, Some(folder.path())).await;
    assert!(local.notes()[0].starts_with("4 of 4 objects"), "{:?}", local.notes());
    assert_eq!(
        local.manifest().as_bytes(),
        plain.manifest().as_bytes(),
        "the same manifest, version included"
    );
    let found = batches(&local);
    assert!(found.iter().map(bytes).collect::<Vec<_>>() == expected, "the same bytes in the same order");
    let after = store.counts();
    assert_eq!((after.reads, after.bytes_read, after.heads), (before.reads, before.bytes_read, before.heads));
    assert_eq!(after.lists, before.lists + 1, "the origin is listed, since it says which version is true");
}

#[tokio::test]
async fn p049_what_is_not_staged_is_read_from_the_origin() {
    let (_, store) = shards();
    let folder = tempfile::tempdir().unwrap();
    let plain = opened(&store, None).await;
    let expected: Vec<_> = batches(&plain).iter().map(bytes).collect();
    // Nothing there yet, not even the folder.
    let none = opened(&store, Some(&folder.path().join("none"))).await;
    assert!(none.notes()[0].starts_with("no object is read"), "{:?}", none.notes());
    assert!(batches(&none).iter().map(bytes).eq(expected.iter().cloned()));
    stage(Arc::clone(&store) as Arc<dyn Store>, folder.path(), "s/train-00000{1,3}.tar").await;
    let local = opened(&store, Some(folder.path())).await;
    assert!(local.notes()[0].starts_with("2 of 4 objects"), "{:?}", local.notes());
    assert!(batches(&local).iter().map(bytes).eq(expected.iter().cloned()));
    // A file that is lost while it is in use.
    std::fs::remove_file(folder.path().join("s/train-000001.tar")).unwrap();
    assert!(batches(&local).iter().map(bytes).eq(expected.iter().cloned()));
    // One of another size is seen when opening.
    std::fs::write(folder.path().join("s/train-000003.tar"), b"short").unwrap();
    assert!(opened(&store, Some(folder.path())).await.notes()[0].starts_with("no object"));
}

#[tokio::test]
async fn p049_an_object_that_changed_at_the_origin_is_never_read_from_the_copy() {
    let (memory, store) = shards();
    let folder = tempfile::tempdir().unwrap();
    stage(Arc::clone(&store) as Arc<dyn Store>, folder.path(), "s").await;
    let other = tempfile::tempdir().unwrap();
    let paths = Made { seed: 9, ..Made::default() }.shards(other.path(), 4);
    memory.insert("s/train-000002.tar", std::fs::read(&paths[2]).unwrap()).unwrap();
    let local = opened(&store, Some(folder.path())).await;
    assert!(local.notes()[0].starts_with("3 of 4 objects"), "{:?}", local.notes());
    let plain = opened(&store, None).await;
    assert_eq!(local.manifest().version(), plain.manifest().version());
    assert!(batches(&local).iter().map(bytes).eq(batches(&plain).iter().map(bytes)));
    let image = local.read_sample(SampleId(12)).await.unwrap();
    let image = image.into_iter().find(|(name, _)| name == "jpg").unwrap().1;
    assert_eq!(image, FieldValue::Payload(Made { seed: 9, ..Made::default() }.jpeg(12).into()));
}

#[tokio::test]
async fn p049_compressed_shards_are_read_from_the_copy_too() {
    let (folder, memory) = (tempfile::tempdir().unwrap(), MemoryStore::new());
    let paths = Made::default().shards(folder.path(), 1);
    let store =
        forebay_store::GunzipStore::new(Arc::new(memory.clone()), forebay_store::GunzipOptions::default());
    store.write("s/a.tar.gz", std::fs::read(&paths[0]).unwrap().into()).await.unwrap();
    let store = Arc::new(CountingStore::new(Arc::new(memory)));
    let copy = folder.path().join("copy");
    stage(Arc::clone(&store) as Arc<dyn Store>, &copy, "s").await;
    let plain = opened(&store, None).await;
    let before = store.counts();
    let local = opened(&store, Some(&copy)).await;
    assert_eq!(local.manifest().version(), plain.manifest().version());
    assert!(
        local.read_sample(SampleId(3)).await.unwrap() == {
            let now = store.counts();
            assert_eq!((now.reads, now.heads), (before.reads, before.heads));
            plain.read_sample(SampleId(3)).await.unwrap()
        }
    );
}

#[tokio::test]
async fn p049_a_copy_is_remote_until_everything_is_here_and_reads_many_from_both_in_order() {
    let memory = MemoryStore::new();
    for sample in 0..4u8 {
        memory.insert(format!("{sample}"), vec![sample; 10]).unwrap();
    }
    let far = Far::carrying(8, memory, |_, _| Answer::Now);
    let folder = tempfile::tempdir().unwrap();
    stage(far.clone(), folder.path(), ".").await;
    std::fs::remove_file(folder.path().join("0")).unwrap();
    std::fs::remove_file(folder.path().join("2")).unwrap();
    let expected = |keys: &[u8]| {
        let expected =
            |key: &u8| Expected { key: key.to_string(), size: Some(10), stamp: u64::from(*key) + 1 };
        keys.iter().map(expected).collect::<Vec<_>>().into_iter()
    };
    let all = LocalCopyStore::open(far.clone(), folder.path(), expected(&[1, 3])).unwrap();
    assert!(all.is_everything() && !all.is_remote() && all.reads_per_request() == 1);
    let some = LocalCopyStore::open(far.clone(), folder.path(), expected(&[0, 1, 2, 3])).unwrap();
    assert!(some.is_remote() && some.reads_per_request() == 8 && some.objects() == 2 && some.bytes() == 20);
    let before = far.counts();
    let reads: Vec<_> = [2, 1, 0, 3, 1].map(|key| ObjectRead { key: key.to_string(), range: 3..5 }).into();
    let found: Vec<_> = some.read_many(&reads).await.into_iter().map(|bytes| bytes.unwrap()[0]).collect();
    assert_eq!(found, [2, 1, 0, 3, 1]);
    assert_eq!(far.counts().many[before.many.len()..], [2], "the two that are not here, in one request");
    assert_eq!(some.read_parts("1", &[0..1, 4..6]).await.unwrap()[1], vec![1u8; 2]);
    assert_eq!(some.read("3", ByteRange::Last(1)).await.unwrap(), vec![3u8]);
    assert_eq!(far.counts().requests, before.requests + 2);
    assert_eq!(some.write("1", "x".into()).await.unwrap_err().kind(), ErrorKind::Unsupported);
}

#[tokio::test]
async fn a_copy_of_nothing_is_a_store_like_any_other() {
    let folder = tempfile::tempdir().unwrap();
    let store =
        LocalCopyStore::open(Arc::new(MemoryStore::new()), folder.path(), std::iter::empty()).unwrap();
    conformance::run(Arc::new(store)).await;
}

#[tokio::test]
async fn p049_files_are_found_in_a_copy_of_the_folder_above_them() {
    let (source, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    Made::default().tree(&source.path().join("train"));
    let plan =
        plan_stage(&[source.path().display().to_string()], copy.path(), &StageOptions::default()).await;
    run_stage(&plan.unwrap(), &StageOptions::default(), &|_| Ok(())).await.unwrap();
    let options = OpenOptions {
        local: Some(copy.path().into()),
        manifest_dir: Some(copy.path().join("kept")),
        ..OpenOptions::default()
    };
    let spec = [source.path().join("train").display().to_string()];
    let dataset = open(&spec, &options).await.unwrap();
    assert!(dataset.notes()[0].starts_with("24 of 24 objects"), "{:?}", dataset.notes());
    // The originals are gone; what was opened is read on.
    std::fs::remove_dir_all(source.path().join("train")).unwrap();
    assert_eq!(dataset.read_sample(SampleId(23)).await.unwrap().len(), 2);

    let elsewhere = tempfile::tempdir().unwrap();
    Made::default().tree(elsewhere.path());
    let error = open(&[elsewhere.path().display().to_string()], &options).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    assert!(error.to_string().contains("holds a copy of"), "{error}");
    let made = ["synthetic://?samples=3".into()];
    assert_eq!(open(&made, &options).await.unwrap_err().kind(), ErrorKind::Unsupported);
}
