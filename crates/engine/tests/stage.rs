//! Staging: what is copied, what is left after a cut, what is found wrong, what is refused. Reading from a copy is in
//! `stage_local.rs`, the command in the CLI's tests.
#![allow(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

#[path = "common/remote.rs"]
#[allow(dead_code, reason = "every test file uses its own part")]
mod remote;

use bytes::Bytes;
use forebay_core::{Error, ErrorKind, Result};
use forebay_engine::stage::{StageOptions, StagePlan, Staged, plan_stage, plan_stage_with_store, run_stage};
use forebay_store::{ByteRange, CountingStore, MemoryStore, ObjectMeta, Store};
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, StreamExt};
use remote::{Answer, Far};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

const PIECE: u64 = 100;

fn content(key: &str, bytes: usize) -> Vec<u8> {
    let seed: usize = key.bytes().map(usize::from).sum();
    (0..bytes).map(|at| (seed * 31 + at * 7 + at / 251) as u8).collect()
}

/// `train/0.tar` to `train/4.tar` of 1000 to 1004 bytes, and two others.
fn objects() -> (MemoryStore, Arc<CountingStore>) {
    let memory = MemoryStore::new();
    for n in 0..5 {
        let key = format!("train/{n}.tar");
        memory.insert(&key, content(&key, 1000 + n)).unwrap();
    }
    memory.insert("val/0.tar", content("val/0.tar", 50)).unwrap();
    memory.insert("train/labels.csv", content("train/labels.csv", 0)).unwrap();
    (memory.clone(), Arc::new(CountingStore::with_log(Arc::new(memory))))
}

const TRAIN_BYTES: u64 = 1000 + 1001 + 1002 + 1003 + 1004;

fn options() -> StageOptions {
    StageOptions { piece_bytes: PIECE, in_flight: 1, ..StageOptions::default() }
}

async fn plan(
    store: &Arc<CountingStore>,
    spec: &str,
    folder: &Path,
    options: &StageOptions,
) -> Result<StagePlan> {
    plan_stage_with_store(Arc::clone(store) as Arc<dyn Store>, &[spec.into()], folder, options).await
}

async fn stage(store: &Arc<CountingStore>, folder: &Path, options: &StageOptions) -> Result<Staged> {
    run_stage(&plan(store, ".", folder, options).await?, options, &|_| Ok(())).await
}

fn keys(plan: &StagePlan) -> Vec<&str> {
    plan.to_copy.iter().map(|copy| copy.object.key.as_str()).collect()
}

async fn assert_same(store: &Arc<CountingStore>, folder: &Path) {
    let found: Vec<_> = store.list("").map(|meta| meta.unwrap()).collect().await;
    for meta in found {
        let bytes = store.read(&meta.key, ByteRange::Full).await.unwrap();
        assert!(std::fs::read(folder.join(&meta.key)).unwrap() == bytes, "{} differs", meta.key);
    }
}

#[tokio::test]
async fn p049_a_list_a_prefix_and_a_template_say_what_is_copied() {
    let (_, store) = objects();
    let folder = tempfile::tempdir().unwrap();
    let tar = |n: u32| format!("train/{n}.tar");
    let list = StageOptions { keys: Some(vec!["3.tar".into(), "1.tar".into(), "3.tar".into()]), ..options() };
    let found = plan(&store, "train", folder.path(), &list).await.unwrap();
    assert_eq!((keys(&found), found.bytes), (vec![tar(1).as_str(), &tar(3)], 2004));
    let prefix = StageOptions { prefix: Some("la".into()), ..options() };
    assert_eq!(keys(&plan(&store, "train/", folder.path(), &prefix).await.unwrap()), ["train/labels.csv"]);
    let braces = StageOptions { template: Some("{0..2}.tar".into()), ..options() };
    assert_eq!(keys(&plan(&store, "train", folder.path(), &braces).await.unwrap()), [tar(0), tar(1), tar(2)]);
    let glob = StageOptions { template: Some("*/0.tar".into()), ..options() };
    assert_eq!(keys(&plan(&store, ".", folder.path(), &glob).await.unwrap()), ["train/0.tar", "val/0.tar"]);
    assert_eq!(
        keys(&plan(&store, "train/{4..3}.tar::val", folder.path(), &options()).await.unwrap()).len(),
        3
    );
    let staged = run_stage(&plan(&store, "train", folder.path(), &list).await.unwrap(), &list, &|_| Ok(()))
        .await
        .unwrap();
    assert_eq!((staged.copied, staged.read_bytes), (2, 2004));
    assert!(folder.path().join("train/1.tar").exists() && !folder.path().join("train/0.tar").exists());

    let several = StageOptions { prefix: Some("a".into()), ..list };
    assert_eq!(
        plan(&store, ".", folder.path(), &several).await.unwrap_err().kind(),
        ErrorKind::InvalidConfig
    );
    for (spec, options) in [
        ("train", StageOptions { keys: Some(vec!["9.tar".into()]), ..options() }),
        ("train", StageOptions { prefix: Some("x".into()), ..options() }),
        ("train", StageOptions { template: Some("x*".into()), ..options() }),
        ("nothing", options()),
    ] {
        let error = plan(&store, spec, folder.path(), &options).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    }
}

#[tokio::test]
async fn p049_a_plan_counts_bytes_and_touches_nothing() {
    let (_, store) = objects();
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("not/yet");
    let found = plan(&store, ".", &place, &options()).await.unwrap();
    assert_eq!((found.objects, found.bytes, found.here), (7, TRAIN_BYTES + 50, 0));
    assert_eq!((found.missing_bytes(), store.counts().reads), (TRAIN_BYTES + 50, 0));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn p049_after_a_cut_exactly_what_was_missing_is_read() {
    for (in_flight, cut_at) in [(1, 1), (1, 10), (1, 11), (1, 25), (4, 17), (64, 30)] {
        let (_, store) = objects();
        let folder = tempfile::tempdir().unwrap();
        let options = StageOptions { in_flight, ..options() };
        let first = plan(&store, ".", folder.path(), &options).await.unwrap();
        let cut = |staged: &Staged| {
            if staged.read_bytes >= cut_at * PIECE { Err(Error::cancelled("cut")) } else { Ok(()) }
        };
        assert_eq!(run_stage(&first, &options, &cut).await.unwrap_err().kind(), ErrorKind::Cancelled);

        let again = plan(&store, ".", folder.path(), &options).await.unwrap();
        let (before, missing) = (store.counts().bytes_read, again.missing_bytes());
        if in_flight == 1 {
            assert_eq!(missing, TRAIN_BYTES + 50 - before, "nothing that was fetched is lost");
        }
        let staged = run_stage(&again, &options, &|_| Ok(())).await.unwrap();
        assert_eq!((staged.read_bytes, store.counts().bytes_read - before), (missing, missing));
        assert_eq!(staged.here + staged.copied, 7);
        assert_eq!(staged.done_bytes(), TRAIN_BYTES + 50);
        let before = store.counts().reads;
        assert_eq!(stage(&store, folder.path(), &options).await.unwrap().here, 7);
        assert_eq!(store.counts().reads, before, "a third run reads nothing");
        assert_same(&store, folder.path()).await;
    }
}

#[tokio::test]
async fn p049_a_changed_byte_is_found_and_only_that_object_is_copied_again() {
    let (_, store) = objects();
    let folder = tempfile::tempdir().unwrap();
    stage(&store, folder.path(), &options()).await.unwrap();
    let path = folder.path().join("train/2.tar");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[501] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let trusting = plan(&store, ".", folder.path(), &options()).await.unwrap();
    assert_eq!((trusting.here, trusting.wrong()), (7, 0), "size and stamp are as they were");
    let verify = StageOptions { verify: true, ..options() };
    let found = plan(&store, ".", folder.path(), &verify).await.unwrap();
    assert_eq!((keys(&found), found.wrong(), found.here), (vec!["train/2.tar"], 1, 6));
    let before = store.counts().bytes_read;
    run_stage(&found, &verify, &|_| Ok(())).await.unwrap();
    assert_eq!(store.counts().bytes_read - before, 1002);
    assert_same(&store, folder.path()).await;
    assert_eq!(plan(&store, ".", folder.path(), &verify).await.unwrap().wrong(), 0);
    // One that is cut short or gone is seen without reading.
    std::fs::write(&path, b"short").unwrap();
    std::fs::remove_file(folder.path().join("val/0.tar")).unwrap();
    let found = plan(&store, ".", folder.path(), &options()).await.unwrap();
    assert_eq!(keys(&found), ["train/2.tar", "val/0.tar"]);
}

#[tokio::test]
async fn p049_a_changed_source_object_is_copied_again_also_while_it_is_copied() {
    let (memory, store) = objects();
    let folder = tempfile::tempdir().unwrap();
    stage(&store, folder.path(), &options()).await.unwrap();
    memory.insert("train/1.tar", content("other", 1001)).unwrap();
    let found = plan(&store, ".", folder.path(), &options()).await.unwrap();
    assert_eq!(keys(&found), ["train/1.tar"]);
    // It changes again, in size too, when its third piece was read.
    let change = |staged: &Staged| {
        if staged.read_bytes == 3 * PIECE {
            memory.insert("train/1.tar", content("third", 777)).unwrap();
        }
        Ok(())
    };
    let staged = run_stage(&found, &options(), &change).await.unwrap();
    assert_eq!((staged.copied, staged.bytes), (1, TRAIN_BYTES + 50 - 1001 + 777));
    assert_same(&store, folder.path()).await;
    assert_eq!(plan(&store, ".", folder.path(), &options()).await.unwrap().here, 7);

    // Half of a version that is gone is not gone on with.
    memory.insert("train/1.tar", content("fourth", 1001)).unwrap();
    let found = plan(&store, ".", folder.path(), &options()).await.unwrap();
    let cut = |staged: &Staged| if staged.read_bytes >= 500 { Err(Error::cancelled("cut")) } else { Ok(()) };
    run_stage(&found, &options(), &cut).await.unwrap_err();
    assert_eq!(plan(&store, ".", folder.path(), &options()).await.unwrap().missing_bytes(), 501);
    memory.insert("train/1.tar", content("fifth", 1001)).unwrap();
    assert_eq!(plan(&store, ".", folder.path(), &options()).await.unwrap().missing_bytes(), 1001);
    stage(&store, folder.path(), &options()).await.unwrap();
    assert_same(&store, folder.path()).await;
}

#[tokio::test]
async fn p049_a_piece_that_the_disk_changed_is_fetched_again_before_the_object_gets_its_name() {
    let (_, store) = objects();
    let folder = tempfile::tempdir().unwrap();
    let list = StageOptions { keys: Some(vec!["train/0.tar".into()]), ..options() };
    let found = plan(&store, ".", folder.path(), &list).await.unwrap();
    let cut = |staged: &Staged| if staged.read_bytes >= 500 { Err(Error::cancelled("cut")) } else { Ok(()) };
    run_stage(&found, &list, &cut).await.unwrap_err();
    let parts = std::fs::read_dir(folder.path().join(".forebay-stage")).unwrap();
    let part =
        parts.map(|entry| entry.unwrap().path()).find(|path| path.extension() == Some("part".as_ref()));
    let part = part.unwrap();
    let mut bytes = std::fs::read(&part).unwrap();
    bytes[250] ^= 1;
    std::fs::write(&part, bytes).unwrap();
    let before = store.counts().bytes_read;
    run_stage(&plan(&store, ".", folder.path(), &list).await.unwrap(), &list, &|_| Ok(())).await.unwrap();
    assert_eq!(store.counts().bytes_read - before, 500 + PIECE);
    assert!(std::fs::read(folder.path().join("train/0.tar")).unwrap() == content("train/0.tar", 1000));
}

#[test]
fn p049_pieces_of_one_object_and_several_objects_are_fetched_side_by_side() {
    for (objects, bytes) in [(1u64, 1000), (12, 100)] {
        let memory = MemoryStore::new();
        for key in 0..objects {
            memory.insert(key.to_string(), content("x", bytes)).unwrap();
        }
        let far = Far::new(memory, |_, _| Answer::Held);
        let folder = tempfile::tempdir().unwrap();
        let (store, place) = (far.clone(), folder.path().to_path_buf());
        let staging = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let options = StageOptions { in_flight: 6, ..options() };
                let plan = plan_stage_with_store(store, &[".".into()], &place, &options).await.unwrap();
                run_stage(&plan, &options, &|_| Ok(())).await.unwrap()
            })
        });
        far.wait_in_flight(6);
        assert_eq!(far.counts().requests, 6, "no more than that before one is answered");
        far.release(objects);
        assert_eq!(staging.join().unwrap().copied, objects);
        assert_eq!(far.counts().most_in_flight, 6);
        assert_eq!(std::fs::read(folder.path().join("0")).unwrap(), content("x", bytes));
    }
}

#[tokio::test]
async fn p049_with_a_limit_pieces_are_no_more_than_a_quarter_of_a_second() {
    let memory = MemoryStore::new();
    memory.insert("a", content("a", 1 << 20)).unwrap();
    let store = Arc::new(CountingStore::with_log(Arc::new(memory)));
    let folder = tempfile::tempdir().unwrap();
    // High enough that nobody waits here; how long a wait is, is arithmetic that has its own tests.
    for (rate, pieces) in [(1 << 40, 1), (1 << 21, 2)] {
        let options = StageOptions { rate_bytes_per_second: Some(rate), ..StageOptions::default() };
        let folder = folder.path().join(rate.to_string());
        assert_eq!(stage(&store, &folder, &options).await.unwrap().read_bytes, 1 << 20);
        assert_eq!(store.take_log().len(), pieces);
        assert_same(&store, &folder).await;
        store.take_log();
    }
}

/// Lists whatever keys it was told to.
#[derive(Debug)]
struct Hostile(Vec<&'static str>);

impl Store for Hostile {
    fn url(&self, key: &str) -> String {
        format!("hostile://{key}")
    }
    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta>> {
        Box::pin(async move { Ok(ObjectMeta { key: key.into(), size: 1, stamp: 1 }) })
    }
    fn read<'a>(&'a self, _: &'a str, _: ByteRange) -> BoxFuture<'a, Result<Bytes>> {
        Box::pin(async { Ok(Bytes::from_static(b"x")) })
    }
    fn read_parts<'a>(&'a self, _: &'a str, _: &'a [Range<u64>]) -> BoxFuture<'a, Result<Vec<Bytes>>> {
        unreachable!("staging reads single ranges")
    }
    fn list<'a>(&'a self, _: &'a str) -> BoxStream<'a, Result<ObjectMeta>> {
        stream::iter(&self.0).map(|key| Ok(ObjectMeta { key: (*key).into(), size: 1, stamp: 1 })).boxed()
    }
    fn write<'a>(&'a self, _: &'a str, _: Bytes) -> BoxFuture<'a, Result<()>> {
        unreachable!("staging writes nothing")
    }
}

#[tokio::test]
async fn p049_hostile_keys_are_refused_before_anything_is_written() {
    let above = tempfile::tempdir().unwrap();
    let folder = above.path().join("copy");
    for bad in
        ["../evil", "/evil", "a/../../evil", "a\0", "a/", "b//c", "b/./c", ".forebay-stage/x", "good/more"]
    {
        let store = Arc::new(Hostile(vec!["good", bad, "other"]));
        let error = plan_stage_with_store(store, &[".".into()], &folder, &options()).await.err();
        // What begins with a dot is hidden, and left out as when a dataset is opened.
        if let Some(error) = error {
            assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{bad:?}: {error}");
        } else {
            assert_eq!(bad, ".forebay-stage/x");
        }
        assert_eq!(std::fs::read_dir(above.path()).unwrap().count(), 0);
    }
    for bad in ["../evil", "/evil", "a\0", ".forebay-stage.jsonl"] {
        let options = StageOptions { keys: Some(vec![bad.into()]), ..options() };
        let store = Arc::new(Hostile(Vec::new()));
        let error = plan_stage_with_store(store, &[".".into()], &folder, &options).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{bad:?}: {error}");
    }
    // A link that leads elsewhere.
    std::fs::create_dir(&folder).unwrap();
    std::os::unix::fs::symlink(above.path(), folder.join("good")).unwrap();
    let store = Arc::new(Hostile(vec!["good/a", "other"]));
    let error = plan_stage_with_store(store, &[".".into()], &folder, &options()).await.unwrap_err();
    assert!(error.to_string().contains("symlink"), "{error}");
    assert_eq!(std::fs::read_dir(above.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn p049_a_folder_holds_a_copy_of_one_store_and_one_run_writes_to_it() {
    let (_, store) = objects();
    let folder = tempfile::tempdir().unwrap();
    let found = plan(&store, ".", folder.path(), &options()).await.unwrap();
    let inner = |_: &Staged| {
        // Asked in the middle of a run.
        let lock = std::fs::File::open(folder.path().join(".forebay-stage/lock")).unwrap();
        assert!(lock.try_lock().is_err());
        Ok(())
    };
    run_stage(&found, &options(), &inner).await.unwrap();
    let held = std::fs::File::open(folder.path().join(".forebay-stage/lock")).unwrap();
    held.lock().unwrap();
    assert_eq!(run_stage(&found, &options(), &|_| Ok(())).await.unwrap_err().kind(), ErrorKind::Unavailable);
    let other = Arc::new(Hostile(vec!["a"]));
    let error = plan_stage_with_store(other, &[".".into()], folder.path(), &options()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    assert!(error.to_string().contains("copy of `memory:`"), "{error}");
}

#[tokio::test]
async fn p049_files_of_another_disk_are_staged_and_made_samples_are_not() {
    let (source, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::create_dir(source.path().join("a")).unwrap();
    std::fs::write(source.path().join("a/x.jpg"), b"abc").unwrap();
    std::fs::write(source.path().join(".hidden"), b"abc").unwrap();
    let spec = [source.path().display().to_string()];
    let found = plan_stage(&spec, folder.path(), &options()).await.unwrap();
    run_stage(&found, &options(), &|_| Ok(())).await.unwrap();
    assert_eq!(std::fs::read(folder.path().join("a/x.jpg")).unwrap(), b"abc");
    assert!(!folder.path().join(".hidden").exists());
    let made = ["synthetic://?samples=3".into()];
    let error = plan_stage(&made, folder.path(), &options()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    for inside in [source.path().to_path_buf(), source.path().join("a")] {
        let error = plan_stage(&spec, &inside, &options()).await.unwrap_err();
        assert!(error.to_string().contains("the objects lie there"), "{error}");
    }
    let file = source.path().join("a/x.jpg");
    assert_eq!(plan_stage(&spec, &file, &options()).await.unwrap_err().kind(), ErrorKind::InvalidConfig);
}
