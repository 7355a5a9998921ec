//! Folders as datasets: class trees, tables of labels, plain folders, synthetic data.
#![expect(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

use forebay_core::{ErrorKind, SampleId};
use forebay_engine::source::{
    Dataset, FieldValue, OpenOptions, SourceKind, SyntheticPayload, SyntheticSpec, open, open_with_store,
    synthetic,
};
use forebay_store::{ByteRange, MemoryStore};
use forebay_testkit::made::Made;
use futures::executor::block_on;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

fn options(folder: &TempDir) -> OpenOptions {
    OpenOptions { manifest_dir: Some(folder.path().join(".manifests")), ..OpenOptions::default() }
}

fn spec(path: &Path) -> Vec<String> {
    vec![path.display().to_string()]
}

fn put(folder: &TempDir, files: &[(&str, &[u8])]) {
    for (name, bytes) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

fn int(dataset: &Dataset, key: &str, field: &str) -> Option<i64> {
    let manifest = dataset.manifest();
    manifest.int(manifest.find_key(key).unwrap(), manifest.field_index(field).unwrap())
}

#[test]
fn a_tree_numbers_classes_by_sorted_name_and_reads_every_file() {
    let folder = tempfile::tempdir().unwrap();
    // `a b` sorts before `a/` as a key and after `a` as a name: the name decides.
    put(
        &folder,
        &[
            ("a/2.JPEG", b"two"),
            ("a b/1.jpg", b"one"),
            ("Z/deep/er/0.png", b"zero"),
            ("a/.hidden.jpg", b"no"),
            ("readme.txt", b"no"),
            ("stray.jpg", b"no"),
        ],
    );
    let dataset = block_on(open(&spec(folder.path()), &options(&folder))).unwrap();
    assert_eq!(dataset.kind(), SourceKind::Tree);
    assert_eq!(dataset.class_names().unwrap(), ["Z", "a", "a b"]);
    assert_eq!(dataset.manifest().len(), 3);
    assert_eq!(int(&dataset, "Z/deep/er/0.png", "cls"), Some(0));
    assert_eq!(int(&dataset, "a/2.JPEG", "cls"), Some(1));
    assert_eq!(int(&dataset, "a b/1.jpg", "cls"), Some(2));
    let sample = dataset.manifest().find_key("a/2.JPEG").unwrap();
    let fields = block_on(dataset.read_sample(sample)).unwrap();
    assert!(fields.contains(&("jpg".into(), FieldValue::Payload("two".into()))), "{fields:?}");
    assert!(fields.contains(&("cls".into(), FieldValue::Int(1))));
    assert!(dataset.notes()[0].contains("1 files lie beside"), "{:?}", dataset.notes());
}

#[test]
fn a_class_folder_without_samples_is_refused_because_it_would_shift_the_numbers() {
    let folder = tempfile::tempdir().unwrap();
    put(&folder, &[("cat/1.jpg", b"x"), ("bird/1.bmp", b"x")]);
    let error = block_on(open(&spec(folder.path()), &options(&folder))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    assert!(error.to_string().contains("`bird`"), "{error}");
}

#[test]
fn a_tree_that_gained_lost_or_rewrote_a_file_is_indexed_again() {
    let folder = tempfile::tempdir().unwrap();
    put(&folder, &[("a/1.jpg", b"one"), ("b/1.jpg", b"one")]);
    let open = || block_on(open(&spec(folder.path()), &options(&folder))).unwrap();
    let version = open().manifest().version().to_string();
    assert!(open().notes().is_empty());
    put(&folder, &[("b/2.jpg", b"two")]);
    let grown = open();
    assert_eq!((grown.manifest().len(), grown.notes().len()), (3, 1));
    fs::remove_file(folder.path().join("b/2.jpg")).unwrap();
    assert!(open().notes()[0].contains("gone"));
    put(&folder, &[("a/1.jpg", b"longer")]);
    assert!(open().notes()[0].contains("bytes"));
    assert_ne!(open().manifest().version(), version);
    let rebuilt = OpenOptions { rebuild: true, ..options(&folder) };
    assert!(
        block_on(forebay_engine::source::open(&spec(folder.path()), &rebuilt)).unwrap().notes().is_empty()
    );
}

#[test]
fn labels_from_csv_become_integers_and_class_names() {
    let folder = tempfile::tempdir().unwrap();
    put(
        &folder,
        &[
            ("1.jpg", b"one"),
            ("sub/2.jpg", b"two"),
            ("3.png", b"three"),
            ("4.jpg", b"unlisted"),
            (
                "labels.csv",
                b"filename,label,age,note\n1.jpg,dog,3,\"a, b\"\nsub/2,cat,-4,x\n./3.png,dog,,y\n",
            ),
        ],
    );
    let dataset = block_on(open(&spec(folder.path()), &options(&folder))).unwrap();
    assert_eq!(dataset.kind(), SourceKind::Table);
    assert_eq!(dataset.class_names().unwrap(), ["cat", "dog"]);
    assert_eq!(dataset.manifest().len(), 3);
    let row = |key| (int(&dataset, key, "label"), int(&dataset, key, "age"));
    assert_eq!(row("1.jpg"), (Some(1), Some(3)));
    assert_eq!(row("sub/2.jpg"), (Some(0), Some(-4)));
    assert_eq!(row("3.png"), (Some(1), None));
    let notes = dataset.notes().join("\n");
    assert!(
        notes.contains("column `note`") && notes.contains("1 files have no row") && notes.contains("4.jpg"),
        "{notes}"
    );
}

#[test]
fn labels_from_jsonl_elsewhere_and_their_change_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    put(&folder, &[("data/1.jpg", b"one"), ("y.jsonl", b"{\"file\": \"1.jpg\", \"cls\": 5}\n")]);
    let data = folder.path().join("data");
    let options = OpenOptions { labels: Some(folder.path().join("y.jsonl")), ..options(&folder) };
    let dataset = block_on(open(&spec(&data), &options)).unwrap();
    assert_eq!(int(&dataset, "1.jpg", "cls"), Some(5));
    assert!(dataset.class_names().is_none());
    put(&folder, &[("y.jsonl", b"{\"file\": \"1.jpg\", \"cls\": 66}\n")]);
    let dataset = block_on(open(&spec(&data), &options)).unwrap();
    assert_eq!(int(&dataset, "1.jpg", "cls"), Some(66));
    assert!(dataset.notes()[0].contains("stale"));
}

#[test]
fn every_bad_row_is_reported_at_once_up_to_twenty() {
    let folder = tempfile::tempdir().unwrap();
    let missing: Vec<String> = (0..30).map(|row| format!("missing-{row}.jpg,0\n")).collect();
    let csv = format!("file,label\na.jpg,1\na.jpg,2\n,3\n{}", missing.concat());
    put(&folder, &[("a.jpg", b"x"), ("labels.csv", csv.as_bytes())]);
    let error = block_on(open(&spec(folder.path()), &options(&folder))).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("32 rows fit no file"), "{text}");
    assert!(
        text.contains("line 3: `a.jpg` is on line 2 already") && text.contains("line 4 names no file"),
        "{text}"
    );
    assert!(
        text.contains("missing-17.jpg") && !text.contains("missing-18.jpg") && text.contains("12 more"),
        "{text}"
    );
}

#[test]
fn a_plain_folder_is_a_dataset_without_labels() {
    let folder = tempfile::tempdir().unwrap();
    put(&folder, &[("b.jpg", b"b"), ("a.jpg", b"a")]);
    let dataset = block_on(open(&spec(folder.path()), &options(&folder))).unwrap();
    assert_eq!((dataset.kind(), dataset.manifest().len()), (SourceKind::Table, 2));
    assert_eq!(dataset.manifest().key(SampleId(0)), "a.jpg");
    assert!(dataset.manifest().field_index("cls").is_none());
}

#[test]
fn nothing_found_says_what_was_looked_for_and_what_is_there() {
    let folder = tempfile::tempdir().unwrap();
    put(&folder, &[("a/1.bmp", b"x"), ("a/2.bmp", b"x"), ("a/x.gif", b"x")]);
    let error = block_on(open(&spec(folder.path()), &options(&folder))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("`.jpg`"), "{error}");
    assert!(error.hint().unwrap().contains("2 with `.bmp`"), "{error:?}");
    let missing = block_on(open(&spec(&folder.path().join("nowhere")), &options(&folder))).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    assert!(missing.to_string().contains("nowhere"), "{missing}");
    let mixed = tempfile::tempdir().unwrap();
    put(&mixed, &[("1.jpg", b"x"), ("1.tar", b"x")]);
    let error = block_on(open(&spec(mixed.path()), &options(&mixed))).unwrap_err();
    assert!(error.hint().unwrap().contains("set kind"), "{error:?}");
}

#[test]
fn any_store_can_hold_a_tree() {
    let store = MemoryStore::new();
    store.insert("root/b/1.jpg", "x").unwrap();
    store.insert("root/a/1.jpg", "y").unwrap();
    store.insert("other/c/1.jpg", "z").unwrap();
    let dataset =
        block_on(open_with_store(Arc::new(store), &["root".into()], &OpenOptions::default())).unwrap();
    assert_eq!(dataset.class_names().unwrap(), ["a", "b"]);
    assert_eq!(int(&dataset, "root/b/1.jpg", "cls"), Some(1));
}

#[test]
fn a_synthetic_dataset_gives_the_same_bytes_for_the_same_seed() {
    let spec = SyntheticSpec { samples: 100, shards: 7, classes: 5, seed: 3, ..SyntheticSpec::default() };
    let (one, two) = (synthetic(spec.clone()).unwrap(), synthetic(spec.clone()).unwrap());
    let other = synthetic(SyntheticSpec { seed: 4, ..spec }).unwrap();
    assert_eq!((one.manifest().len(), one.manifest().object_count()), (100, 7));
    let mut classes = std::collections::BTreeSet::new();
    for sample in (0..100).map(SampleId) {
        let bytes = block_on(one.read_field(sample, 0, ByteRange::Full)).unwrap();
        assert_eq!(bytes.len(), 4096);
        assert_eq!(bytes, block_on(two.read_field(sample, 0, ByteRange::Full)).unwrap());
        assert_ne!(bytes, block_on(other.read_field(sample, 0, ByteRange::Full)).unwrap());
        assert_eq!(bytes[100..200], block_on(one.read_field(sample, 0, (100..200).into())).unwrap());
        classes.insert(one.manifest().int(sample, 1).unwrap());
    }
    assert_eq!(classes.into_iter().collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    let opened = block_on(open(
        &["synthetic://?samples=100&shards=7&classes=5&seed=3".into()],
        &OpenOptions::default(),
    ));
    assert_eq!(opened.unwrap().manifest().version(), one.manifest().version());
}

#[test]
fn synthetic_templates_are_drawn_from_the_given_payloads() {
    let made = Made::default();
    let templates: Vec<bytes::Bytes> = (0..4).map(|sample| made.jpeg(sample).into()).collect();
    let payload = SyntheticPayload::Templates(templates.clone());
    let dataset =
        synthetic(SyntheticSpec { samples: 50, field: "jpg".into(), payload, ..SyntheticSpec::default() });
    let dataset = dataset.unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for sample in (0..50).map(SampleId) {
        let bytes = block_on(dataset.read_field(sample, 0, ByteRange::Full)).unwrap();
        seen.insert(templates.iter().position(|template| *template == bytes).unwrap());
    }
    assert_eq!(seen.len(), 4);
}
