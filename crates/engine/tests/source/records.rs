//! Records of other formats as datasets: TFRecord, JSONL, zip and RecordIO, sound, damaged and cut.
#![expect(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

use crate::common::*;
use forebay_core::recipe::Recipe;
use forebay_core::{ErrorKind, SampleId};
use forebay_engine::shard::{Cell, ShardWriter, ShardWriterOptions};
use forebay_engine::source::verify::{FindingKind, VerifyOptions, verify};
use forebay_engine::source::{
    Dataset, FieldValue, OpenOptions, SourceKind, decodable, open, open_with_store,
};
use forebay_store::{CountingStore, MemoryStore, Store};
use futures::executor::block_on;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

fn options(folder: &TempDir) -> OpenOptions {
    OpenOptions { manifest_dir: Some(folder.path().join("manifests")), ..OpenOptions::default() }
}

fn opened(folder: &TempDir, name: &str) -> forebay_core::Result<Dataset> {
    block_on(open(&[folder.path().join(name).display().to_string()], &options(folder)))
}

/// A dataset in memory: one object, read without a file.
fn in_memory(key: &str, bytes: Vec<u8>) -> forebay_core::Result<Dataset> {
    let store = MemoryStore::new();
    store.insert(key, bytes).unwrap();
    block_on(open_with_store(Arc::new(store), &[key.to_owned()], &OpenOptions::default()))
}

fn fixture(name: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)).unwrap()
}

fn sample(dataset: &Dataset, id: u64) -> Vec<(String, FieldValue)> {
    block_on(dataset.read_sample(SampleId(id))).unwrap()
}

fn payload(dataset: &Dataset, id: u64, name: &str) -> Vec<u8> {
    match sample(dataset, id).into_iter().find(|(known, _)| known == name) {
        Some((_, FieldValue::Payload(bytes))) => bytes.to_vec(),
        other => panic!("{name} is {other:?}"),
    }
}

/// The samples of `written.tfrecord`.
fn written(at: i64) -> (String, Vec<u8>, i64) {
    (format!("s/{at:03}"), vec![at as u8; at as usize * 100], at * 40 - 5)
}

fn write(folder: &Path, name: &str, max_samples: u64) -> Vec<std::path::PathBuf> {
    let pattern = folder.join(name).display().to_string();
    let mut writer =
        ShardWriter::new(ShardWriterOptions { max_samples, ..ShardWriterOptions::new(pattern) }).unwrap();
    for at in 0..8 {
        let (key, bin, cls) = written(at);
        writer.add_cells(&key, &[("cls", Cell::Int(cls)), ("bin", Cell::Bytes(&bin))]).unwrap();
    }
    writer.finish().unwrap().into_iter().map(|shard| shard.path).collect()
}

#[test]
fn p021_a_file_written_by_us_has_the_bytes_of_the_reference_writer() {
    let folder = tempfile::tempdir().unwrap();
    let shards = write(folder.path(), "t-%02d.tfrecord", 100);
    assert_eq!(fs::read(&shards[0]).unwrap(), fixture("written.tfrecord"));
}

#[test]
fn p021_a_file_of_the_reference_writer_reads_as_it_was_written_also_compressed() {
    for name in ["kinds.tfrecord", "kinds.tfrecord.gz"] {
        let dataset = in_memory(name, fixture(name)).unwrap();
        assert_eq!((dataset.kind(), dataset.manifest().len()), (SourceKind::Tfrecord, 5));
        let names: Vec<String> = dataset.fields().unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["box", "caption", "image/class/label", "image/encoded", "record", "tokens"]);
        assert_eq!(dataset.manifest().key(SampleId(3)), "kinds/00000003");
        assert_eq!(payload(&dataset, 2, "image/encoded"), b"\xff\xd8 not decoded here \x02");
        assert_eq!(payload(&dataset, 2, "caption"), "sample 2 é".as_bytes());
        let label = sample(&dataset, 4).into_iter().find(|(name, _)| name == "image/class/label").unwrap().1;
        assert_eq!(label, FieldValue::Int(4));
        let tokens = payload(&dataset, 4, "tokens");
        assert_eq!(forebay_ops::decode::npy::parse(&tokens).unwrap().spec.shape, [5]);
    }
}

#[test]
fn p021_features_feed_a_recipe_and_the_order_is_exact_over_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "t-%02d.tfrecord", 3);
    let dataset = opened(&folder, "t-*.tfrecord").unwrap();
    assert_eq!((dataset.manifest().len(), dataset.manifest().object_count()), (8, 3));
    let recipe = Recipe::from_json(
        r#"[{"field": "jpg;bin", "decode": {"kind": "bytes"}}, {"field": "cls", "decode": {"kind": "label"}},
            {"field": "cls", "name": "both", "decode": {"kind": "npy", "shape": [1]}, "dtype": "f32"}]"#,
    )
    .unwrap();
    let mut whole = loader(&dataset, &recipe, alone(2));
    let batches = epoch(&mut whole);
    assert_each_once(ids(&batches), 8);
    for batch in &batches {
        let (_, forebay_ops::Column::Bytes(payloads)) = &batch.columns[0] else { panic!("no bytes") };
        for (id, payload) in batch.ids.iter().zip(payloads) {
            assert_eq!(payload.len() as u64, id.0 * 100);
        }
    }
    let mut first = loader(&dataset, &recipe, alone(2));
    let taken = steps(&mut first, 2);
    let cursor = first.cursor();
    let mut rest = loader(&dataset, &recipe, alone(2));
    rest.seek(cursor).unwrap();
    assert_eq!([ids(&taken), ids(&epoch(&mut rest))].concat(), ids(&batches));
}

#[test]
fn p021_one_flipped_bit_is_reported_with_its_offset() {
    let folder = tempfile::tempdir().unwrap();
    let shards = write(folder.path(), "t-%02d.tfrecord", 100);
    let sound = fs::read(&shards[0]).unwrap();
    let dataset = opened(&folder, "t-00.tfrecord").unwrap();
    let places: Vec<u64> =
        (0..8).map(|id| dataset.manifest().location(SampleId(id), 0).unwrap().offset).collect();
    // A bit of a payload, of a payload's checksum, of a length: the record is named in each case.
    for (id, at) in [(5u64, places[5] + 40), (5, places[6] - 2), (5, places[5] + 3), (5, places[5] + 9)] {
        let mut bad = sound.clone();
        bad[at as usize] ^= 4;
        let is_head = at < places[5] + 12;
        fs::write(&shards[0], &bad).unwrap();
        let spec = [shards[0].display().to_string()];
        let report = block_on(verify(
            &spec,
            &options(&folder),
            &VerifyOptions { check: Some(Arc::new(decodable)) },
            &|_| {},
        ))
        .unwrap();
        assert_eq!(report.errors, 1, "{report:?}");
        let finding = &report.findings[0];
        assert_eq!(finding.offset, Some(places[id as usize]), "{finding:?}");
        assert!(finding.message.contains("checksum"), "{finding:?}");
        let wanted = if is_head { FindingKind::BadShard } else { FindingKind::BadPayload };
        assert_eq!(finding.kind, wanted);
        match opened(&folder, "t-00.tfrecord") {
            Err(error) => {
                assert!(is_head);
                assert_eq!((error.kind(), error.facts().offset), (ErrorKind::Corrupt, Some(places[5])));
            }
            Ok(dataset) => {
                assert!(!is_head);
                let error = block_on(dataset.read_sample(SampleId(id))).unwrap_err();
                assert_eq!((error.kind(), error.facts().offset), (ErrorKind::Corrupt, Some(places[5])));
                let recipe = Recipe::from_json(r#"[{"field": "bin", "decode": {"kind": "bytes"}}]"#).unwrap();
                let mut loader = loader(&dataset, &recipe, alone(8));
                loader.begin().unwrap();
                let error = next(&mut loader).unwrap_err();
                assert_eq!(error.facts().offset, Some(places[5]), "{error}");
                assert!(error.report().contains("checksum"), "{}", error.report());
            }
        }
    }
}

#[test]
fn p021_compressed_files_written_by_us_are_the_same_bytes_on_every_run_and_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let first = write(&folder.path().join("a"), "t-%02d.tfrecord.gz", 100);
    let second = write(&folder.path().join("b"), "t-%02d.tfrecord.gz", 100);
    assert_eq!(fs::read(&first[0]).unwrap(), fs::read(&second[0]).unwrap());
    let dataset = opened(&folder, "a/t-00.tfrecord.gz").unwrap();
    assert_eq!(payload(&dataset, 7, "bin"), vec![7; 700]);
    assert_eq!(payload(&dataset, 7, "__key__"), b"s/007");
}

#[test]
fn p021_a_cut_file_is_refused_with_the_offset_of_the_cut_record() {
    let whole = fixture("written.tfrecord");
    let dataset = in_memory("t.tfrecord", whole.clone()).unwrap();
    let starts: Vec<u64> =
        (0..8).map(|id| dataset.manifest().location(SampleId(id), 0).unwrap().offset).collect();
    for keep in 1..whole.len() {
        if starts.contains(&(keep as u64)) {
            continue;
        }
        let begin = starts.iter().rfind(|start| **start < keep as u64).copied();
        let error = in_memory("t.tfrecord", whole[..keep].to_vec()).unwrap_err();
        assert_eq!((error.kind(), error.facts().offset), (ErrorKind::Corrupt, begin), "{keep}: {error}");
    }
}

#[test]
fn indexing_tfrecord_reads_heads_and_a_few_records_not_the_file() {
    let mut file = Vec::new();
    for at in 0..200u8 {
        forebay_ops::record::tfrecord::frame(&mut file, &vec![at; 100_000]);
    }
    let (size, store) = (file.len() as u64, Arc::new(MemoryStore::new()));
    store.insert("t.tfrecord", file).unwrap();
    let counting = Arc::new(CountingStore::new(store as Arc<dyn Store>));
    let dataset =
        block_on(open_with_store(counting.clone(), &["t.tfrecord".into()], &OpenOptions::default())).unwrap();
    assert_eq!(dataset.manifest().len(), 200);
    assert!(counting.counts().bytes_read < size / 2, "{} of {size} bytes", counting.counts().bytes_read);
    assert_eq!(payload(&dataset, 199, "record"), vec![199; 100_000]);
}

#[test]
fn lines_of_json_are_samples_with_fields_by_name() {
    let text =
        "\u{feff}{\"text\": \"one\", \"y\": 1}\r\n\n  \n{\"text\": \"zwei\", \"v\": [1, 2.5]}\n{\"y\": 3}";
    let dataset = in_memory("d/x.jsonl", text.as_bytes().to_vec()).unwrap();
    assert_eq!((dataset.kind(), dataset.manifest().len()), (SourceKind::Jsonl, 3));
    let names: Vec<String> = dataset.fields().unwrap().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["text", "v", "y"]);
    assert_eq!(payload(&dataset, 1, "text"), b"zwei");
    assert_eq!(payload(&dataset, 1, "v"), b"[1,2.5]");
    assert_eq!(sample(&dataset, 2), [("y".to_owned(), FieldValue::Int(3))]);
    let bad = in_memory("x.jsonl", b"{\"a\": 1}\n{\"a\": \n".to_vec()).unwrap();
    let error = block_on(bad.read_sample(SampleId(1))).unwrap_err();
    assert_eq!((error.kind(), error.facts().offset), (ErrorKind::Corrupt, Some(9)), "{error}");
}

#[test]
fn members_of_a_zip_are_grouped_like_those_of_a_tar() {
    let zip = fixture("members.zip");
    let dataset = in_memory("m.zip", zip.clone()).unwrap();
    assert_eq!((dataset.kind(), dataset.manifest().len()), (SourceKind::Zip, 2));
    assert_eq!(dataset.manifest().key(SampleId(1)), "a/0002");
    assert_eq!(payload(&dataset, 0, "bin"), (0..200).collect::<Vec<u8>>());
    assert_eq!(payload(&dataset, 0, "txt"), b"hello ".repeat(50));
    assert_eq!(payload(&dataset, 1, "txt"), b"x".repeat(1000));
    for keep in 0..zip.len() {
        assert!(in_memory("m.zip", zip[..keep].to_vec()).is_err(), "{keep} of {} bytes", zip.len());
    }
    let mut flipped = zip;
    flipped[100] ^= 1;
    let dataset = in_memory("m.zip", flipped).unwrap();
    let error = block_on(dataset.read_sample(SampleId(0))).unwrap_err();
    assert!(error.report().contains("checksum"), "{}", error.report());
}

#[test]
fn records_of_recordio_are_images_with_labels() {
    let mut file = Vec::new();
    for at in 0..4u32 {
        let mut body = [0u32.to_le_bytes(), (at as f32).to_le_bytes()].concat();
        body.extend([0; 16]);
        body.extend(vec![at as u8; at as usize + 1]);
        file.extend(0xced7_230a_u32.to_le_bytes());
        file.extend((body.len() as u32).to_le_bytes());
        file.extend(&body);
        file.resize(file.len().next_multiple_of(4), 0);
    }
    let dataset = in_memory("x.rec", file.clone()).unwrap();
    assert_eq!((dataset.kind(), dataset.manifest().len()), (SourceKind::Recordio, 4));
    assert_eq!(payload(&dataset, 3, "image"), [3; 4]);
    let recipe = Recipe::from_json(r#"[{"field": "label", "decode": {"kind": "label"}}]"#).unwrap();
    let batches = epoch(&mut loader(&dataset, &recipe, alone(4)));
    assert_each_once(ids(&batches), 4);
    assert!(in_memory("x.rec", file[..file.len() - 6].to_vec()).is_err());
}

#[test]
fn a_folder_of_one_kind_is_that_kind_and_of_two_is_refused_and_hdf5_says_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("d")).unwrap();
    fs::write(folder.path().join("d/a.jsonl"), "{\"a\": 1}\n").unwrap();
    assert_eq!(opened(&folder, "d").unwrap().kind(), SourceKind::Jsonl);
    fs::write(folder.path().join("d/b.tfrecord"), fixture("written.tfrecord")).unwrap();
    let error = opened(&folder, "d").unwrap_err();
    assert!(error.hint().unwrap().contains("kind"), "{error}");
    let spec = [folder.path().join("d").display().to_string()];
    let options = OpenOptions { kind: Some(SourceKind::Tfrecord), ..options(&folder) };
    assert_eq!(block_on(open(&spec, &options)).unwrap().manifest().len(), 8);
    fs::write(folder.path().join("x.h5"), b"\x89HDF").unwrap();
    let error = opened(&folder, "x.h5").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("HDF5") && error.hint().unwrap().contains("h5py"), "{error}");
}

#[test]
fn files_of_any_name_are_read_as_the_kind_that_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("train-00000-of-00001"), fixture("written.tfrecord")).unwrap();
    let spec = [folder.path().join("train-*").display().to_string()];
    let options = OpenOptions { kind: Some(SourceKind::Tfrecord), ..options(&folder) };
    assert_eq!(block_on(open(&spec, &options)).unwrap().manifest().len(), 8);
}
