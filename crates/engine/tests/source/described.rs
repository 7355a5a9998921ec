//! Shards with an `index.json` beside them: MDS and LitData, as their own libraries wrote them, damaged, cut and hostile.
#![expect(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

use crate::common::*;
use forebay_core::recipe::Recipe;
use forebay_core::tensor::Dtype;
use forebay_core::{ErrorKind, SampleId};
use forebay_engine::Loader;
use forebay_engine::source::verify::{FindingKind, VerifyOptions, VerifyReport, verify};
use forebay_engine::source::{
    Dataset, FieldValue, OpenOptions, SourceKind, decodable, open, open_with_store,
};
use forebay_store::MemoryStore;
use futures::executor::block_on;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

type Files = BTreeMap<String, Vec<u8>>;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn files(name: &str) -> Files {
    let entries = fs::read_dir(folder(name)).unwrap().map(Result::unwrap);
    entries.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())).collect()
}

fn opened(files: &Files, spec: &str) -> forebay_core::Result<Dataset> {
    let store = MemoryStore::new();
    for (name, bytes) in files {
        store.insert(format!("d/{name}"), bytes.clone()).unwrap();
    }
    block_on(open_with_store(Arc::new(store), &[spec.to_owned()], &OpenOptions::default()))
}

fn sample(dataset: &Dataset, id: u64) -> BTreeMap<String, FieldValue> {
    block_on(dataset.read_sample(SampleId(id))).unwrap().into_iter().collect()
}

fn payload(dataset: &Dataset, id: u64, name: &str) -> Vec<u8> {
    match sample(dataset, id).remove(name) {
        Some(FieldValue::Payload(bytes)) => bytes.to_vec(),
        other => panic!("{name} is {other:?}"),
    }
}

fn array(dataset: &Dataset, id: u64, name: &str) -> (Dtype, Vec<usize>, Vec<u8>) {
    let bytes = payload(dataset, id, name);
    let found = forebay_ops::decode::npy::parse(&bytes).unwrap();
    (found.spec.dtype, found.spec.shape, bytes[found.data].to_vec())
}

fn verified(path: &Path) -> VerifyReport {
    let options = OpenOptions::default();
    let check = VerifyOptions { check: Some(Arc::new(decodable)) };
    block_on(verify(&[path.display().to_string()], &options, &check, &|_| {})).unwrap()
}

#[test]
fn mds_reads_as_its_own_library_wrote_it_also_compressed_and_by_the_name_of_its_index() {
    for (name, spec) in [("mds", "d"), ("mds", "d/index.json"), ("mds_zstd", "d/"), ("mds", "d/shard.*.mds")]
    {
        let dataset = opened(&files(name), spec).unwrap();
        assert_eq!((dataset.kind(), dataset.manifest().len()), (SourceKind::Mds, 5));
        assert_eq!(dataset.manifest().key(SampleId(0)), "d/shard.00000/00000000");
        for at in 0..5u64 {
            let small = at as u8;
            assert_eq!(payload(&dataset, at, "bin"), vec![small; at as usize]);
            assert_eq!(payload(&dataset, at, "caption"), format!("sample {at} é").into_bytes());
            let sample = sample(&dataset, at);
            assert_eq!(sample["cls"], FieldValue::Int(at as i64 * 40 - 5));
            assert_eq!(sample["small"], FieldValue::Int(-(at as i64)));
            assert_eq!(payload(&dataset, at, "half"), (at as f64 / 4.0).to_string().into_bytes());
            assert_eq!(payload(&dataset, at, "meta"), format!("{{\"at\":{at}}}").into_bytes());
            let counted: Vec<u8> = (0..=at as u16).flat_map(u16::to_le_bytes).collect();
            assert_eq!(array(&dataset, at, "array"), (Dtype::U16, vec![at as usize + 1], counted));
            let typed = array(&dataset, at, "array_typed");
            assert_eq!((typed.0, typed.1), (Dtype::F32, vec![2, at as usize + 1]));
            assert_eq!(array(&dataset, at, "array_fixed").1, [2, 3]);
            assert_eq!(array(&dataset, at, "wide").2, ((1u64 << 63) + at).to_le_bytes());
            assert_eq!(array(&dataset, at, "image").2[..3], [small, 20, 30]);
            decodable("jpg", &payload(&dataset, at, "jpg")).unwrap();
            decodable("png", &payload(&dataset, at, "png")).unwrap();
        }
    }
    assert_eq!(verified(&folder("mds")).errors, 0);
    assert_eq!(verified(&folder("mds_zstd")).errors, 0);
}

#[test]
fn litdata_reads_as_its_own_library_wrote_it_also_compressed() {
    for (name, spec) in [("litdata", "d"), ("litdata_zstd", "d/index.json"), ("litdata", "d/chunk-*.bin")] {
        let dataset = opened(&files(name), spec).unwrap();
        assert_eq!((dataset.kind(), dataset.manifest().len()), (SourceKind::Litdata, 5));
        for at in 0..5u64 {
            let small = at as u8;
            let sample = sample(&dataset, at);
            assert_eq!(sample["label"], FieldValue::Int(at as i64 * 40 - 5));
            assert_eq!(sample["inner.good"], FieldValue::Int((at % 2 == 0).into()));
            assert_eq!(payload(&dataset, at, "inner.caption"), format!("sample {at} é").into_bytes());
            assert_eq!(payload(&dataset, at, "inner.score"), (at as f64 / 4.0).to_string().into_bytes());
            assert_eq!(payload(&dataset, at, "bin"), vec![small; at as usize]);
            let counted: Vec<u8> = (0..at as i32).flat_map(i32::to_le_bytes).collect();
            assert_eq!(array(&dataset, at, "tokens"), (Dtype::I32, vec![at as usize], counted));
            let row = array(&dataset, at, "row");
            assert_eq!((row.0, row.1), (Dtype::I16, vec![at as usize]));
            let matrix = array(&dataset, at, "matrix");
            assert_eq!((matrix.0, matrix.1), (Dtype::F32, vec![2, at as usize + 1]));
            let tensor = array(&dataset, at, "tensor");
            assert_eq!((tensor.0, tensor.1), (Dtype::F64, vec![2, 2]));
            assert_eq!(tensor.2, (at as f64).to_le_bytes().repeat(4));
            assert_eq!(array(&dataset, at, "image").2[..3], [small, 20, 30]);
        }
    }
    assert_eq!(verified(&folder("litdata")).errors, 0);
}

#[test]
fn columns_feed_a_recipe_and_bare_pixels_are_images() {
    let recipe = Recipe::from_json(
        r#"[{"field": "image", "decode": {"kind": "image"}, "ops": [{"op": "resize", "size": [3, 4]}]},
            {"field": "cls;label", "decode": {"kind": "label"}}]"#,
    )
    .unwrap();
    for name in ["mds", "litdata_zstd"] {
        let dataset = opened(&files(name), "d").unwrap();
        let batches = epoch(&mut loader(&dataset, &recipe, alone(2)));
        assert_each_once(ids(&batches), 5);
    }
}

#[test]
fn what_is_not_read_is_refused_by_name() {
    let cases = [("mds_bz2", "bz2"), ("litdata_framed", "`batch`")];
    for (name, wanted) in cases {
        let error = opened(&files(name), "d").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains(wanted) && error.hint().is_some(), "{error}");
    }
    let dataset = opened(&files("mds"), "d").unwrap();
    let names: Vec<String> = dataset.fields().unwrap().into_iter().map(|(name, _)| name).collect();
    assert!(!names.contains(&"secret".to_owned()));
    let recipe = Recipe::from_json(r#"[{"field": "secret", "decode": {"kind": "bytes"}}]"#).unwrap();
    let store = Arc::clone(dataset.store());
    let error = Loader::new(dataset.manifest(), store, &recipe, alone(2)).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("pickle"), "{error}");
    let mut litdata = files("litdata");
    let index = String::from_utf8(litdata["index.json"].clone()).unwrap();
    for (from, to, wanted) in [
        ("PyTreeLoader", "TokensLoader", "TokensLoader"),
        ("\"encryption\": null", "\"encryption\": {\"level\": \"chunk\"}", "encrypted"),
        ("\"int\"", "\"pickle\"", ""),
    ] {
        litdata.insert("index.json".into(), index.replace(from, to).into_bytes());
        match opened(&litdata, "d") {
            Err(error) => assert!(error.to_string().contains(wanted) && !wanted.is_empty(), "{error}"),
            Ok(dataset) => {
                assert!(wanted.is_empty());
                assert!(!sample(&dataset, 0).contains_key("label"));
                let left_out: Vec<String> =
                    dataset.left_out().unwrap().iter().map(ToString::to_string).collect();
                assert!(left_out.len() == 1 && left_out[0].contains("`label`"), "{left_out:?}");
            }
        }
    }
    litdata.remove("index.json");
    let error = opened(&litdata, "d").unwrap_err();
    assert!(error.hint().unwrap().contains("index.json"), "{error}");
}

#[test]
fn an_index_settles_which_shards_count_and_in_which_order() {
    let mut mds = files("mds");
    let index = String::from_utf8(mds["index.json"].clone()).unwrap();
    let shard = mds["shard.00000.mds"].clone();
    mds.insert("shard.00009.mds".into(), shard);
    assert_eq!(opened(&mds, "d").unwrap().manifest().len(), 5);
    mds.remove("shard.00001.mds");
    let error = opened(&mds, "d").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("shard.00001.mds"), "{error}");
    // Merged indexes name shards in folders below.
    let mut below = Files::new();
    for (name, bytes) in files("mds") {
        below.insert(if name == "index.json" { name } else { format!("part/{name}") }, bytes);
    }
    below.insert("index.json".into(), index.replace("shard.0", "part/shard.0").into_bytes());
    assert_eq!(opened(&below, "d").unwrap().manifest().len(), 5);
}

#[test]
fn hashes_of_the_index_are_compared_when_every_byte_is_read() {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in files("mds") {
        fs::write(folder.path().join(name), bytes).unwrap();
    }
    let shard = folder.path().join("shard.00001.mds");
    let mut bytes = fs::read(&shard).unwrap();
    // A byte of the column that is never taken: nothing but the hash knows.
    let last = bytes.len() - 12;
    bytes[last] ^= 1;
    fs::write(&shard, bytes).unwrap();
    let report = verified(folder.path());
    assert_eq!(report.errors, 1, "{report:?}");
    assert_eq!(report.findings[0].kind, FindingKind::BadShard);
    assert!(report.findings[0].message.contains("xxh"), "{:?}", report.findings[0]);
}

#[test]
fn a_shard_cut_at_any_byte_is_refused_with_and_without_its_index() {
    for (name, key) in [("mds", "shard.00001.mds"), ("litdata", "chunk-0-1.bin")] {
        let whole = files(name);
        for keep in 0..whole[key].len() {
            let mut cut = whole.clone();
            cut.insert(key.into(), whole[key][..keep].to_vec());
            let error = opened(&cut, "d").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{keep}: {error}");
            if name == "mds" {
                cut.remove("index.json");
                assert!(opened(&cut, "d").is_err(), "{keep} bytes of {key}");
            }
        }
    }
    for (name, key) in [("mds_zstd", "shard.00001.mds.zstd"), ("litdata_zstd", "chunk-0-1.zstd.bin")] {
        let whole = files(name);
        for keep in (0..whole[key].len()).step_by(13) {
            let mut cut = whole.clone();
            cut.insert(key.into(), whole[key][..keep].to_vec());
            assert_eq!(opened(&cut, "d").unwrap_err().kind(), ErrorKind::Corrupt, "{keep}");
        }
    }
    for name in ["mds", "litdata"] {
        let whole = files(name);
        for keep in 0..whole["index.json"].len() {
            let mut cut = whole.clone();
            cut.insert("index.json".into(), whole["index.json"][..keep].to_vec());
            assert_eq!(opened(&cut, "d").unwrap_err().kind(), ErrorKind::Corrupt, "{keep}");
        }
    }
}

#[test]
fn huge_counts_take_no_memory() {
    let mut mds = files("mds");
    mds.remove("index.json");
    for count in [u32::MAX, 1 << 30, 1 << 26, 2000] {
        let mut bad = mds.clone();
        bad.get_mut("shard.00000.mds").unwrap()[..4].copy_from_slice(&count.to_le_bytes());
        let error = opened(&bad, "d").unwrap_err();
        assert_eq!((error.kind(), error.facts().offset), (ErrorKind::Corrupt, Some(0)), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn hostile_shards_and_indexes_are_datasets_or_errors(
        which in 0usize..6, at: prop::sample::Index, value: u8, described: bool,
    ) {
        let (name, key) = [
            ("mds", "shard.00000.mds"), ("mds", "index.json"), ("mds_zstd", "shard.00000.mds.zstd"),
            ("litdata", "chunk-0-0.bin"), ("litdata", "index.json"), ("litdata_zstd", "chunk-0-0.zstd.bin"),
        ][which];
        let mut files = files(name);
        let bytes = files.get_mut(key).unwrap();
        let place = at.index(bytes.len());
        bytes[place] = value;
        if !described {
            files.remove("index.json");
        }
        if let Ok(dataset) = opened(&files, "d") {
            for id in 0..dataset.manifest().len() {
                let _ = block_on(dataset.read_sample(SampleId(id)));
            }
        }
    }
}

#[test]
fn a_folder_on_disk_is_known_by_what_is_in_it_and_stale_when_its_index_changes() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    fs::create_dir(&data).unwrap();
    for (name, bytes) in files("litdata") {
        fs::write(data.join(name), bytes).unwrap();
    }
    let options =
        OpenOptions { manifest_dir: Some(folder.path().join("manifests")), ..OpenOptions::default() };
    for spec in [data.clone(), data.join("index.json"), data.clone()] {
        let dataset = block_on(open(&[spec.display().to_string()], &options)).unwrap();
        assert_eq!((dataset.kind(), dataset.manifest().len()), (SourceKind::Litdata, 5));
    }
    let index = fs::read_to_string(data.join("index.json")).unwrap();
    fs::write(data.join("index.json"), index.replace("label", "class")).unwrap();
    let dataset = block_on(open(&[data.display().to_string()], &options)).unwrap();
    assert!(dataset.notes().iter().any(|note| note.contains("stale")), "{:?}", dataset.notes());
    assert_eq!(sample(&dataset, 1)["class"], FieldValue::Int(35));
}
