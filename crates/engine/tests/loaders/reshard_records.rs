//! Records into shards: a copy as TFRecord is the same records, a copy as tar holds every value of every feature.
#![expect(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

use crate::reshard::{files, opened, options, run, samples};
use bytes::Bytes;
use forebay_core::ErrorKind;
use forebay_engine::reshard::{Order, ReshardOptions};
use forebay_engine::shard::{Cell, ShardWriter, ShardWriterOptions};
use forebay_engine::source::verify::{VerifyOptions, verify};
use forebay_engine::source::{Dataset, JoinOptions, OpenOptions, decodable, join};
use forebay_ops::record::example::{self, Feature};
use forebay_ops::record::proto::{put_bytes, put_varint};
use forebay_ops::record::{Taken, features, tfrecord};
use futures::executor::block_on;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// A feature as the format's own words say it.
#[derive(Clone, Debug)]
enum Kind {
    Bytes(Vec<Vec<u8>>),
    Floats(Vec<u32>),
    Ints(Vec<i64>),
    /// Integers as old writers put them, one by one.
    Unpacked(Vec<i64>),
    Empty,
}

impl Kind {
    fn message(&self) -> Vec<u8> {
        let (mut list, mut message) = (Vec::new(), Vec::new());
        let number = match self {
            Self::Bytes(values) => {
                for value in values {
                    put_bytes(&mut list, 1, value);
                }
                1
            }
            Self::Floats(bits) => {
                let packed: Vec<u8> = bits.iter().flat_map(|bits| bits.to_le_bytes()).collect();
                put_bytes(&mut list, 1, &packed);
                2
            }
            Self::Ints(values) => {
                let mut packed = Vec::new();
                for value in values {
                    put_varint(&mut packed, *value as u64);
                }
                put_bytes(&mut list, 1, &packed);
                3
            }
            Self::Unpacked(values) => {
                for value in values {
                    put_varint(&mut list, 1 << 3);
                    put_varint(&mut list, *value as u64);
                }
                3
            }
            Self::Empty => return message,
        };
        put_bytes(&mut message, number, &list);
        message
    }

    /// What a tar should hold of it.
    fn members(&self, name: &str) -> Vec<(String, Vec<u8>)> {
        let array = |dtype, count: usize, data: Vec<u8>| {
            let mut array = Vec::new();
            forebay_ops::npy::write(&mut array, dtype, &[count], &data).unwrap();
            vec![(name.to_owned(), array)]
        };
        match self {
            Self::Empty => Vec::new(),
            Self::Bytes(values) if values.len() == 1 => vec![(name.to_owned(), values[0].clone())],
            Self::Bytes(values) => {
                values.iter().enumerate().map(|(at, value)| (format!("{name}.{at}"), value.clone())).collect()
            }
            Self::Floats(bits) => {
                let data = bits.iter().flat_map(|bits| bits.to_le_bytes()).collect();
                array(forebay_core::tensor::Dtype::F32, bits.len(), data)
            }
            Self::Ints(values) | Self::Unpacked(values) if values.len() == 1 => {
                vec![(name.to_owned(), values[0].to_string().into_bytes())]
            }
            Self::Ints(values) | Self::Unpacked(values) => {
                let data = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                array(forebay_core::tensor::Dtype::I64, values.len(), data)
            }
        }
    }
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..20), 0..4).prop_map(Kind::Bytes),
        proptest::collection::vec(any::<u32>(), 0..4).prop_map(Kind::Floats),
        proptest::collection::vec(any::<i64>(), 0..4).prop_map(Kind::Ints),
        proptest::collection::vec(any::<i64>(), 0..3).prop_map(Kind::Unpacked),
        Just(Kind::Empty),
    ]
}

fn encoded(features: &BTreeMap<&str, Kind>) -> Vec<u8> {
    let messages: Vec<(&str, Vec<u8>)> =
        features.iter().map(|(name, kind)| (*name, kind.message())).collect();
    let stored: Vec<_> = messages.iter().map(|(name, message)| (*name, Feature::Stored(message))).collect();
    example::encode(&stored)
}

fn write(path: &Path, payloads: &[Vec<u8>]) {
    let mut file = Vec::new();
    for payload in payloads {
        tfrecord::frame(&mut file, payload);
    }
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, file).unwrap();
}

/// The payloads of a folder's shards in their order, read without an index.
fn payloads(folder: &Path) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    for (_, bytes) in files(folder) {
        let (bytes, mut at) = (Bytes::from(bytes), 0);
        while at < bytes.len() {
            let length = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
            found.push(tfrecord::payload(&bytes.slice(at..at + length + 16)).unwrap().to_vec());
            at += length + 16;
        }
    }
    found
}

fn to(folder: &Path, name: &str, ending: &str, order: Order) -> ReshardOptions {
    let mut made = options(folder, name, order);
    made.shards.pattern = folder.join(name).join(format!("s-%03d.{ending}")).display().to_string();
    made
}

/// Fields of every sample without what tells the key, which has a place of its own in each format.
fn fields(dataset: &Dataset) -> Vec<BTreeMap<String, Vec<u8>>> {
    let keyless = |(_, mut fields): (String, BTreeMap<String, Vec<u8>>)| {
        fields.remove("__key__");
        fields
    };
    samples(dataset).into_iter().map(keyless).collect()
}

#[test]
fn p073_a_field_that_only_a_late_sample_has_survives_every_conversion() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let shards = |name: &str| ShardWriterOptions::new(at(name).display().to_string());
    let mut writers = ["tar/t-%02d.tar", "tfrecord/t-%02d.tfrecord"]
        .map(|pattern| ShardWriter::new(shards(pattern)).unwrap());
    let mut lines = Vec::new();
    for number in 0..120i64 {
        let rare = if number == 100 { ", \"rare\": \"found\"" } else { "" };
        lines.push(format!("{{\"n\": {number}{rare}}}"));
        let cells = [("n", Cell::Int(number)), ("rare", Cell::Bytes(b"found"))];
        let many = if number == 100 { 2 } else { 1 };
        for writer in &mut writers {
            writer.add_cells(&format!("k{number:03}"), &cells[..many]).unwrap();
        }
    }
    for writer in writers {
        writer.finish().unwrap();
    }
    fs::create_dir(at("jsonl")).unwrap();
    fs::write(at("jsonl/t.jsonl"), lines.join("\n")).unwrap();
    for source in ["tar", "tfrecord", "jsonl"] {
        let dataset = opened(folder.path(), source);
        let before = fields(&dataset);
        assert_eq!(before.iter().filter(|fields| fields.contains_key("rare")).count(), 1, "{source}");
        for target in ["tar", "tfrecord", "tfrecord.gz"] {
            let name = format!("{source}-{target}");
            run(&dataset, &to(folder.path(), &name, target, Order::AsStored)).unwrap();
            let after = fields(&opened(folder.path(), &name));
            assert_eq!(after, before, "{name}");
            assert_eq!(after[100]["rare"], b"found", "{name}");
        }
    }
}

#[test]
fn p073_a_file_of_the_reference_writer_is_copied_byte_for_byte() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let folder = tempfile::tempdir().unwrap();
    for name in ["kinds.tfrecord", "kinds.tfrecord.gz", "written.tfrecord"] {
        fs::copy(fixtures.join(name), folder.path().join(name)).unwrap();
        let out = format!("out-{name}");
        run(&opened(folder.path(), name), &to(folder.path(), &out, "tfrecord", Order::AsStored)).unwrap();
        let copy = &files(&folder.path().join(out))["s-000.tfrecord"];
        assert_eq!(*copy, fs::read(fixtures.join(name.trim_end_matches(".gz"))).unwrap(), "{name}");
    }
}

#[test]
fn p073_payloads_that_are_no_examples_stay_what_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let opaque: Vec<Vec<u8>> = (0..20u8).map(|at| vec![0xff; at.into()]).collect();
    // A context that reads as features, and lists beside it.
    let sequence = |at: i64| {
        let mut payload = example::encode(&[("id", Feature::Ints(&[at]))]);
        put_bytes(&mut payload, 2, b"\x0a\x00");
        payload
    };
    let sequences: Vec<Vec<u8>> = (0..20).map(sequence).collect();
    for (name, written) in [("opaque", &opaque), ("sequence", &sequences)] {
        write(&folder.path().join(format!("{name}.tfrecord")), written);
        let dataset = opened(folder.path(), &format!("{name}.tfrecord"));
        let out = format!("{name}-records");
        run(&dataset, &to(folder.path(), &out, "tfrecord", Order::AsStored)).unwrap();
        assert_eq!(payloads(&folder.path().join(out)), *written);
        let made = run(&dataset, &to(folder.path(), &format!("{name}-tar"), "tar", Order::AsStored));
        if name == "opaque" {
            made.unwrap();
            let members = fields(&opened(folder.path(), "opaque-tar"));
            assert!(members.iter().zip(&opaque).all(|(fields, payload)| fields["record"] == *payload));
        } else {
            let error = made.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains("`sequence/00000000`"), "{error}");
            assert!(error.hint().unwrap().contains("TFRecord"), "{error}");
        }
        let spec = [folder.path().join(format!("{name}.tfrecord")).display().to_string()];
        let check = VerifyOptions { check: Some(Arc::new(decodable)) };
        let found = block_on(verify(&spec, &OpenOptions::default(), &check, &|_| {})).unwrap();
        assert_eq!(found.errors, 0, "{found:?}");
    }
}

#[test]
fn p073_joined_records_keep_their_features_among_the_fields_of_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let made = |at: i64| {
        let texts = Kind::Bytes(vec![b"a".to_vec(), vec![at as u8]]);
        BTreeMap::from([("box", Kind::Floats(vec![1.5f32.to_bits(), at as u32])), ("texts", texts)])
    };
    let records: Vec<_> = (0..30).map(made).collect();
    write(&folder.path().join("r/x.tfrecord"), &records.iter().map(encoded).collect::<Vec<_>>());
    fs::create_dir(folder.path().join("j")).unwrap();
    let lines: Vec<String> = (0..30).map(|at| format!("{{\"caption\": \"c{at}\", \"n\": {at}}}")).collect();
    fs::write(folder.path().join("j/x.jsonl"), lines.join("\n")).unwrap();
    let parts = [opened(folder.path(), "r/x.tfrecord"), opened(folder.path(), "j/x.jsonl")];
    let joined = join(&parts, JoinOptions::default()).unwrap();
    for (name, memory_bytes) in [("much", 1 << 20), ("none", 0)] {
        let made = to(folder.path(), name, "tfrecord", Order::Shuffled(1));
        run(&joined, &ReshardOptions { memory_bytes, ..made }).unwrap();
    }
    let found = payloads(&folder.path().join("much"));
    assert_eq!(found, payloads(&folder.path().join("none")));
    let mut seen = BTreeSet::new();
    for payload in found.into_iter().map(Bytes::from) {
        let Taken::Int(at) = example::take(&payload, &["n"]).unwrap()[0] else { panic!("no number") };
        let stored = features::stored(&payload).unwrap();
        assert!(stored.keys().eq(&["__key__", "box", "caption", "n", "texts"]));
        for (name, kind) in &records[at as usize] {
            assert_eq!(stored[name], kind.message());
        }
        let key = Taken::Bytes(format!("x/{at:08}").into());
        assert_eq!(example::take(&payload, &["__key__"]).unwrap(), [key]);
        seen.insert(at);
    }
    assert_eq!(seen.len(), 30);
}

const NAMES: [&str; 6] = ["__key__", "image/encoded", "image/object/bbox", "record", "texts", "weights"];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn p073_examples_of_every_kind_are_the_same_before_and_after(
        drawn in proptest::collection::vec(proptest::collection::btree_map(0..NAMES.len(), kind(), 0..5), 1..90),
        seed: u64,
        memory_bytes in prop_oneof![Just(0u64), Just(1 << 20)],
    ) {
        let folder = tempfile::tempdir().unwrap();
        let mut made: Vec<BTreeMap<&str, Kind>> = drawn
            .into_iter()
            .map(|features| features.into_iter().map(|(name, kind)| (NAMES[name], kind)).collect())
            .collect();
        // A dataset of nothing but empty records would be one of opaque payloads; a tar has no sample without members.
        for (features, at) in made.iter_mut().zip(0..) {
            features.insert("id", Kind::Ints(vec![at]));
        }
        let before: Vec<Vec<u8>> = made.iter().map(encoded).collect();
        write(&folder.path().join("in.tfrecord"), &before);
        let dataset = opened(folder.path(), "in.tfrecord");
        for (name, order) in [("stored", Order::AsStored), ("shuffled", Order::Shuffled(seed))] {
            let little = ReshardOptions { memory_bytes, ..to(folder.path(), name, "tfrecord", order.clone()) };
            run(&dataset, &little).unwrap();
            let again = format!("{name}-again");
            run(&dataset, &to(folder.path(), &again, "tfrecord", order)).unwrap();
            let read = |name: &str| files(&folder.path().join(name));
            prop_assert_eq!(read(name), read(&again), "the same bytes on every run");
            let mut after = payloads(&folder.path().join(name));
            if name == "shuffled" {
                let mut sorted = before.clone();
                sorted.sort();
                after.sort();
                prop_assert_eq!(after, sorted);
            } else {
                prop_assert_eq!(&after, &before);
            }
        }
        // A key is any text; what a tar can say as one is another promise.
        for features in &mut made {
            features.remove("__key__");
        }
        write(&folder.path().join("in.tfrecord"), &made.iter().map(encoded).collect::<Vec<_>>());
        let keyless = opened(folder.path(), "in.tfrecord");
        run(&keyless, &to(folder.path(), "tar", "tar", Order::AsStored)).unwrap();
        let wanted: Vec<BTreeMap<String, Vec<u8>>> = made
            .iter()
            .map(|features| features.iter().flat_map(|(name, kind)| kind.members(&name.replace('/', "."))).collect())
            .collect();
        prop_assert_eq!(fields(&opened(folder.path(), "tar")), wanted);
    }
}
