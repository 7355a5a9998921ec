//! Files that pyarrow wrote, in every encoding and compression; cut, damaged, and read by the store that others share.
#![expect(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

use crate::common::{alone, assert_each_once, epoch, ids, loader};
use forebay_core::manifest::FieldKind;
use forebay_core::recipe::Recipe;
use forebay_core::{Result, SampleId};
use forebay_engine::Loader;
use forebay_engine::source::verify::{FindingKind, VerifyOptions, verify};
use forebay_engine::source::{Dataset, FieldValue, OpenOptions, SourceKind, decodable, open_with_store};
use forebay_store::{ByteRange, CountingStore, MemoryStore, Store};
use futures::executor::block_on;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const ROWS: u64 = 50;

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/parquet").join(name)
}

fn file(name: &str) -> Vec<u8> {
    std::fs::read(path(name)).unwrap()
}

fn opened(files: &[(&str, Vec<u8>)]) -> Result<Dataset> {
    let store = MemoryStore::new();
    for (name, bytes) in files {
        store.insert(format!("d/{name}"), bytes.clone()).unwrap();
    }
    block_on(open_with_store(Arc::new(store), &["d".to_owned()], &OpenOptions::default()))
}

fn text(value: &str) -> FieldValue {
    FieldValue::Payload(value.to_owned().into())
}

fn array<const N: usize>(descr: &str, elements: &[[u8; N]], shape: &str) -> FieldValue {
    let mut head = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}");
    while (head.len() + 11) % 64 != 0 {
        head.push(' ');
    }
    head.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((head.len() as u16).to_le_bytes());
    bytes.extend(head.into_bytes());
    bytes.extend(elements.concat());
    FieldValue::Payload(bytes.into())
}

/// What row `n` of every fixture holds. Arrays and JSON are compared by what they say.
fn expected(n: u64) -> BTreeMap<String, FieldValue> {
    let int = |value: i64| FieldValue::Int(value);
    let signed = n as i64;
    let mut row = BTreeMap::from([
        ("image".to_owned(), FieldValue::Payload(vec![n as u8; (n * 7 % 40) as usize].into())),
        ("image.path".to_owned(), text(&format!("{n}.jpg"))),
        ("label".to_owned(), int(signed % 3)),
        ("flag".to_owned(), int(i64::from(n.is_multiple_of(2)))),
        ("score".to_owned(), text(&(n as f64 / 4.0).to_string())),
        ("half".to_owned(), text(&(n as f64 / 2.0).to_string())),
        ("wide".to_owned(), array("<u8", &[(u64::MAX - n).to_le_bytes()], "")),
        ("holes".to_owned(), text(&format!("[{n},null]"))),
        ("tags".to_owned(), text(&format!("[\"a{n}\",\"\\\"\"]"))),
        ("price".to_owned(), text(&format!("{}.25", signed - 3))),
    ]);
    if !n.is_multiple_of(5) {
        row.insert("small".to_owned(), int(signed - 10));
    }
    if n % 7 != 3 {
        row.insert("text".to_owned(), text(&format!("line {} é", n % 4)));
    }
    if n % 6 != 5 {
        let elements: Vec<[u8; 4]> = (0..(n % 4) as i32).map(i32::to_le_bytes).collect();
        row.insert("tokens".to_owned(), array("<i4", &elements, &format!("{},", elements.len())));
    }
    let nested = if n % 2 == 1 { format!("[[{n}],[],[{n},{}]]", n + 1) } else { "[]".to_owned() };
    row.insert("nested".to_owned(), text(&nested));
    row
}

fn shown(value: &FieldValue) -> String {
    match value {
        FieldValue::Payload(bytes) | FieldValue::Record(bytes) => {
            match forebay_ops::decode::npy::parse(bytes) {
                Ok(found) => {
                    format!("{:?} {:?} {:?}", found.spec.dtype, found.spec.shape, &bytes[found.data])
                }
                Err(_) => String::from_utf8_lossy(bytes).into_owned(),
            }
        }
        FieldValue::Int(value) => value.to_string(),
    }
}

fn check_rows(dataset: &Dataset, first: u64) {
    for n in 0..ROWS {
        let row: BTreeMap<_, _> =
            block_on(dataset.read_sample(SampleId(first + n))).unwrap().into_iter().collect();
        let expected = expected(n);
        assert_eq!(row.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "row {n}");
        for (name, value) in &expected {
            assert_eq!(shown(&row[name]), shown(value), "`{name}` of row {n}");
        }
    }
}

#[test]
fn every_compression_and_encoding_reads_as_pyarrow_wrote_it() {
    for name in ["none", "snappy", "gzip", "zstd", "lz4", "plain", "second"] {
        let dataset = opened(&[("x.parquet", file(&format!("{name}.parquet")))]).unwrap();
        assert_eq!((dataset.kind(), dataset.manifest().len()), (SourceKind::Parquet, ROWS), "{name}");
        check_rows(&dataset, 0);
    }
}

#[test]
fn names_of_classes_that_datasets_noted_are_known() {
    let dataset = opened(&[("x.parquet", file("zstd.parquet"))]).unwrap();
    assert_eq!(dataset.class_names().unwrap(), ["a", "b", "c"]);
}

#[test]
fn files_in_different_encodings_are_one_dataset_and_groups_are_objects() {
    let dataset =
        opened(&[("a.parquet", file("zstd.parquet")), ("b.parquet", file("second.parquet"))]).unwrap();
    let manifest = dataset.manifest();
    assert_eq!(manifest.len(), 2 * ROWS);
    check_rows(&dataset, ROWS);
    assert_eq!(manifest.key(SampleId(ROWS + 3)), "d/b/00000003");
    let groups: Vec<_> = (0..manifest.object_count())
        .map(|at| manifest.samples_of(at))
        .filter(|rows| !rows.is_empty())
        .collect();
    assert_eq!(groups, [0..20, 20..40, 40..50, 50..70, 70..90, 90..100]);
    let label = manifest.field_index("label").unwrap();
    assert_eq!(manifest.fields()[label].kind, FieldKind::Int);
}

#[test]
fn a_loader_delivers_every_row_once_in_a_shuffle_of_blocks() {
    let dataset =
        opened(&[("a.parquet", file("zstd.parquet")), ("b.parquet", file("plain.parquet"))]).unwrap();
    let recipe = Recipe::from_json(
        r#"[{"field": "image", "decode": {"kind": "bytes"}}, {"field": "label", "decode": {"kind": "label"}},
            {"field": "half", "decode": {"kind": "npy"}, "dtype": "f32"}]"#,
    )
    .unwrap();
    let batches = epoch(&mut loader(&dataset, &recipe, alone(7)));
    assert_each_once(ids(&batches), 2 * ROWS);
}

#[test]
fn columns_that_cannot_be_given_are_left_out_by_name() {
    let dataset = opened(&[("x.parquet", file("none.parquet"))]).unwrap();
    assert!(dataset.notes().iter().any(|note| note.contains("`blobs`") && note.contains("lists of bytes")));
    assert!(dataset.fields().unwrap().iter().all(|(name, _)| name != "blobs"));
    let recipe = Recipe::from_json(r#"[{"field": "blobs", "decode": {"kind": "bytes"}}]"#).unwrap();
    let store = Arc::clone(dataset.store());
    let error = Loader::new(dataset.manifest(), store, &recipe, alone(2)).err().unwrap();
    assert!(error.to_string().contains("lists of bytes"), "{error}");
    let dataset = opened(&[("x.parquet", file("brotli.parquet"))]).unwrap();
    assert!(dataset.notes().iter().any(|note| note.contains("Brotli")), "{:?}", dataset.notes());
}

#[test]
fn one_row_reads_its_run_and_neighbours_read_it_once() {
    let memory = MemoryStore::new();
    memory.insert("x.parquet", file("plain.parquet")).unwrap();
    let counting = Arc::new(CountingStore::new(Arc::new(memory)));
    let store: Arc<dyn Store> = Arc::clone(&counting) as _;
    let dataset =
        block_on(open_with_store(store, &["x.parquet".to_owned()], &OpenOptions::default())).unwrap();
    let image = dataset.manifest().field_index("image").unwrap();
    let before = counting.counts().reads;
    for row in 1..20 {
        block_on(dataset.read_field(SampleId(row), image, ByteRange::Full)).unwrap();
    }
    assert_eq!(counting.counts().reads - before, 1);
}

#[test]
fn verify_finds_a_changed_byte_by_the_checksum_of_its_page() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("x.parquet");
    let run = || {
        let check = VerifyOptions { check: Some(Arc::new(decodable)) };
        block_on(verify(&[place.display().to_string()], &OpenOptions::default(), &check, &|_| {})).unwrap()
    };
    let mut bytes = file("plain.parquet");
    std::fs::write(&place, &bytes).unwrap();
    let sound = run();
    assert_eq!((sound.samples, sound.errors), (ROWS, 0));
    let at = bytes.windows(5).position(|window| window == b"7.jpg").unwrap();
    bytes[at] ^= 1;
    std::fs::write(&place, &bytes).unwrap();
    let damaged = run();
    assert_eq!(damaged.findings.len(), 1);
    assert_eq!(damaged.findings[0].kind, FindingKind::BadShard);
    assert!(damaged.findings[0].message.contains("CRC-32"), "{}", damaged.findings[0].message);
}

#[test]
fn statistics_that_contradict_the_values_are_damage() {
    let mut bytes = file("none.parquet");
    // The largest `label` of the first group stands in its statistics as eight bytes.
    let two = [&[0x28, 8][..], &2u64.to_le_bytes()].concat();
    let places: Vec<usize> =
        (0..bytes.len() - two.len()).filter(|at| bytes[*at..].starts_with(&two)).collect();
    assert!(!places.is_empty());
    for at in places {
        bytes[at + 2] = 1;
    }
    let error = opened(&[("x.parquet", bytes)]).unwrap_err();
    assert!(error.to_string().contains("statistics"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn cut_and_changed_files_are_datasets_or_errors(
        which in 0usize..3, cut: prop::sample::Index, changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        truncate: bool,
    ) {
        let mut bytes = file(["plain.parquet", "second.parquet", "zstd.parquet"][which]);
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if truncate {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(dataset) = opened(&[("x.parquet", bytes)]) {
            for row in [0, 19, dataset.manifest().len() - 1] {
                let _ = block_on(dataset.read_sample(SampleId(row)));
            }
        }
    }
}
