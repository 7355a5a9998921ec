//! Promises of the manifest: what was added comes back, one content has one byte form, hostile bytes do no harm.

use super::*;
use crate::ErrorKind;
use proptest::prelude::*;
use serde_json::json;

/// A sample as the tests know it, to compare with what the manifest says.
#[derive(Clone, Debug)]
struct Model {
    key: String,
    values: Vec<Option<Value>>,
}

#[derive(Clone, Debug)]
struct ModelObject {
    key: String,
    size: u64,
    stamp: u64,
    samples: Vec<Model>,
}

const FIELDS: [(&str, FieldKind); 3] =
    [("jpg", FieldKind::Payload), ("json", FieldKind::Payload), ("cls", FieldKind::Int)];

fn fields() -> Vec<FieldInfo> {
    FIELDS.iter().map(|(name, kind)| FieldInfo { name: (*name).into(), kind: *kind }).collect()
}

fn build(objects: &[ModelObject], meta: serde_json::Value) -> Vec<u8> {
    let mut builder = ManifestBuilder::new(fields(), meta);
    for object in objects {
        builder.add_object(&object.key, object.size, object.stamp).unwrap();
        for sample in &object.samples {
            let values = sample.values.iter().enumerate();
            let values: Vec<_> = values.filter_map(|(field, value)| Some((field, (*value)?))).collect();
            builder.add_sample(&sample.key, &values).unwrap();
        }
    }
    builder.finish().unwrap()
}

fn payload(objects: u32) -> impl Strategy<Value = Option<Value>> {
    let numbers =
        prop_oneof![0u64..300, 60_000u64..70_000, any::<u32>().prop_map(u64::from), 0u64..(1 << 62)];
    let object = proptest::option::weighted(0.2, 0..objects);
    proptest::option::weighted(
        0.9,
        (object, numbers.clone(), numbers).prop_map(|(object, offset, length)| Value::Payload {
            object,
            offset,
            length,
        }),
    )
}

fn int() -> impl Strategy<Value = Option<Value>> {
    let number =
        prop_oneof![0i64..1000, Just(i64::MIN + 1), Just(i64::MAX), any::<i32>().prop_map(i64::from)];
    proptest::option::weighted(0.9, number.prop_map(Value::Int))
}

fn any_objects() -> impl Strategy<Value = Vec<ModelObject>> {
    // Payloads may name object 0, which is there whenever a sample is added.
    let sample = ("[a-c]{0,3}/[a-b0-1é]{0,6}", payload(1), payload(1), int())
        .prop_map(|(key, first, second, third)| Model { key, values: vec![first, second, third] });
    let stamp = prop_oneof![Just(0), any::<u64>(), Just(u64::MAX)];
    let object = ("[a-b]{0,2}/[0-9]{1,4}", any::<u64>(), stamp, proptest::collection::vec(sample, 0..24))
        .prop_map(|(key, size, stamp, samples)| ModelObject { key, size, stamp, samples });
    proptest::collection::vec(object, 0..12)
}

/// Calls everything there is, also outside the manifest.
fn touch_everything(manifest: &Manifest) {
    let len = manifest.len();
    let samples = (0..len.min(300)).chain([len.wrapping_sub(1), len, len.saturating_add(1), u64::MAX]);
    for sample in samples.map(SampleId) {
        let key = manifest.key(sample);
        let object = manifest.object_of(sample);
        assert!(object < manifest.object_count().max(1));
        for field in 0..=manifest.fields().len() {
            if let Some(location) = manifest.location(sample, field) {
                assert!(location.object < manifest.object_count());
                assert!(location.offset.checked_add(location.length).is_some());
            }
            let _ = manifest.int(sample, field);
        }
        let _ = (manifest.sample_bytes(sample), key.len());
    }
    for object in (0..manifest.object_count().min(300)).chain([manifest.object_count(), u32::MAX]) {
        let samples = manifest.samples_of(object);
        assert!(samples.start <= samples.end && samples.end <= len);
        let info = manifest.object(object);
        let _ = (info.key.len(), info.size, info.stamp);
    }
    let _ = (manifest.find_key("a/0"), manifest.find_key("\u{0}none"), manifest.field_index("jpg"));
    let _ = (manifest.total_bytes(), manifest.largest_sample_bytes(), manifest.meta(), manifest.version());
    let _ = format!("{manifest:?}");
}

proptest! {
    #[test]
    fn everything_added_comes_back(objects in any_objects()) {
        let manifest = Manifest::open(build(&objects, json!({"kind": "tar"}))).unwrap();
        let total: usize = objects.iter().map(|object| object.samples.len()).sum();
        prop_assert_eq!(manifest.len(), total as u64);
        prop_assert_eq!(manifest.object_count() as usize, objects.len());
        prop_assert_eq!(manifest.fields().to_vec(), fields());
        let mut id = 0;
        let (mut sum, mut largest) = (0u64, 0u64);
        for (number, object) in objects.iter().enumerate() {
            let number = number as u32;
            let info = manifest.object(number);
            prop_assert_eq!((&*info.key, info.size, info.stamp), (&*object.key, object.size, object.stamp));
            prop_assert_eq!(manifest.samples_of(number), id..id + object.samples.len() as u64);
            for sample in &object.samples {
                let name = SampleId(id);
                prop_assert_eq!(&manifest.key(name), &sample.key);
                prop_assert!(manifest.find_key(&sample.key).is_some_and(|found| found <= name));
                prop_assert_eq!(manifest.object_of(name), number);
                let mut bytes = 0;
                for (field, value) in sample.values.iter().enumerate() {
                    let (location, int) = match *value {
                        Some(Value::Payload { object, offset, length }) => {
                            bytes += length;
                            (Some(Location { object: object.unwrap_or(number), offset, length }), None)
                        }
                        Some(Value::Int(int)) => (None, Some(int)),
                        None => (None, None),
                    };
                    prop_assert_eq!(manifest.location(name, field), location);
                    prop_assert_eq!(manifest.int(name, field), int);
                }
                prop_assert_eq!(manifest.sample_bytes(name), bytes);
                sum = sum.saturating_add(bytes);
                largest = largest.max(bytes);
                id += 1;
            }
        }
        prop_assert_eq!((manifest.total_bytes(), manifest.largest_sample_bytes()), (sum, largest));
        touch_everything(&manifest);
    }

    #[test]
    fn the_same_content_gives_the_same_bytes_and_build_facts_do_not_enter_the_version(objects in any_objects()) {
        let bytes = build(&objects, json!({"seconds": 1}));
        prop_assert_eq!(&bytes, &build(&objects, json!({"seconds": 1})));
        let other = build(&objects, json!({"seconds": 2, "host": "b"}));
        prop_assert_ne!(&bytes, &other);
        let (bytes, other) = (Manifest::open(bytes).unwrap(), Manifest::open(other).unwrap());
        prop_assert_eq!(bytes.version(), other.version());
    }

    #[test]
    fn a_changed_byte_is_detected(objects in any_objects(), at: prop::sample::Index, flip in 1u8..) {
        let mut bytes = build(&objects, json!(null));
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        let error = Manifest::open(bytes).unwrap_err();
        prop_assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported), "{error:?}");
    }

    #[test]
    fn a_cut_or_lengthened_manifest_is_detected(objects in any_objects(), at: prop::sample::Index, more in 1usize..64) {
        let bytes = build(&objects, json!(null));
        let cut = bytes[..at.index(bytes.len())].to_vec();
        prop_assert_eq!(Manifest::open(cut).unwrap_err().kind(), ErrorKind::Corrupt);
        let longer = [bytes, vec![0; more]].concat();
        prop_assert_eq!(Manifest::open(longer).unwrap_err().kind(), ErrorKind::Corrupt);
    }

    /// The checksum is no defence against a writer who means harm: these bytes have a right one.
    #[test]
    fn wrong_numbers_under_a_valid_checksum_do_no_harm(
        objects in any_objects(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        in_table: bool,
    ) {
        let mut bytes = build(&objects, json!({"kind": "tar"}));
        // The numbers in the header and the table are the dangerous ones, so half of the cases stay there.
        let end = if in_table { bytes.len().min(88 + 14 * 32) } else { bytes.len() };
        for (at, value) in changes {
            bytes[32 + at.index(end - 32)] = value;
        }
        format::seal(&mut bytes);
        if let Ok(manifest) = Manifest::open(bytes) {
            touch_everything(&manifest);
        }
    }

    #[test]
    fn random_bytes_are_refused(bytes: Vec<u8>) {
        prop_assert!(Manifest::open(bytes.clone()).is_err());
        let started = [format::MAGIC.to_vec(), 1u32.to_le_bytes().to_vec(), bytes].concat();
        prop_assert!(Manifest::open(started).is_err());
    }
}

/// Header fields that promise more than the file holds, each under a valid checksum.
#[test]
fn counts_beyond_the_file_are_refused_without_allocating_for_them() {
    let objects = tree(40);
    let sound = build(&objects, json!(null));
    for (at, width, what) in
        [(12, 4, "sections"), (48, 8, "length"), (56, 8, "samples"), (64, 4, "objects"), (68, 4, "fields")]
    {
        for fill in [0xFF, 0x7F, 0x01] {
            let mut bytes = sound.clone();
            bytes[at..at + width].fill(fill);
            format::seal(&mut bytes);
            let error = Manifest::open(bytes).expect_err(what);
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}");
        }
    }
}

fn tree(count: u32) -> Vec<ModelObject> {
    (0..count)
        .map(|index| {
            let key = format!("n{:08}/image_{index:06}.jpg", index / 10);
            let value = Value::Payload { object: None, offset: 0, length: 1000 + u64::from(index) };
            let sample = Model { key: key.clone(), values: vec![Some(value), None, Some(Value::Int(7))] };
            ModelObject { key, size: 1000 + u64::from(index), stamp: 0, samples: vec![sample] }
        })
        .collect()
}

#[test]
fn keys_of_a_tree_are_stored_once() {
    let mirrored = tree(500);
    let mut changed = mirrored.clone();
    changed[499].samples[0].key.push('x');
    let (once, twice) = (build(&mirrored, json!(null)), build(&changed, json!(null)));
    let text: usize = mirrored.iter().map(|object| object.key.len()).sum();
    assert!(once.len() + text / 5 < twice.len(), "{} and {} bytes", once.len(), twice.len());
    let manifest = Manifest::open(once).unwrap();
    for (index, object) in mirrored.iter().enumerate() {
        assert_eq!(manifest.key(SampleId(index as u64)), object.key);
        assert_eq!(manifest.find_key(&object.key), Some(SampleId(index as u64)));
    }
}

#[test]
fn the_version_follows_every_part_of_the_content() {
    let version =
        |objects: &[ModelObject]| Manifest::open(build(objects, json!(null))).unwrap().version().to_owned();
    let sound = tree(20);
    let mut versions = vec![version(&sound)];
    let changes: [fn(&mut ModelObject); 6] = [
        |object| object.key.push('x'),
        |object| object.size += 1,
        |object| object.stamp += 1,
        |object| object.samples[0].key.push('x'),
        |object| object.samples[0].values[0] = Some(Value::Payload { object: None, offset: 1, length: 1003 }),
        |object| object.samples[0].values[2] = Some(Value::Int(8)),
    ];
    for change in changes {
        let mut objects = sound.clone();
        change(&mut objects[3]);
        versions.push(version(&objects));
    }
    let distinct: std::collections::HashSet<_> = versions.iter().collect();
    assert_eq!(distinct.len(), versions.len());
    assert!(versions.iter().all(|version| version.len() == 32));
}

#[test]
fn a_field_found_late_is_missing_from_earlier_samples() {
    let mut builder = ManifestBuilder::new(Vec::new(), json!(null));
    builder.add_object("a.tar", 4096, 1).unwrap();
    let jpg = builder.field("jpg", FieldKind::Payload).unwrap();
    let value = Value::Payload { object: None, offset: 512, length: 3 };
    builder.add_sample("a", &[(jpg, value)]).unwrap();
    let cls = builder.field("cls", FieldKind::Int).unwrap();
    assert_eq!(builder.field("jpg", FieldKind::Payload).unwrap(), jpg);
    builder.add_sample("b", &[(cls, Value::Int(-5))]).unwrap();
    builder.add_sample("c", &[]).unwrap();
    let manifest = Manifest::open(builder.finish().unwrap()).unwrap();
    let ints: Vec<_> = (0..3).map(|sample| manifest.int(SampleId(sample), cls)).collect();
    assert_eq!(ints, [None, Some(-5), None]);
    let present: Vec<_> = (0..3).map(|sample| manifest.location(SampleId(sample), jpg).is_some()).collect();
    assert_eq!(present, [true, false, false]);
    assert_eq!(manifest.field_index("cls"), Some(cls));
}

#[test]
fn what_cannot_be_stored_is_refused_and_leaves_the_builder_as_it_was() {
    let mut builder = ManifestBuilder::new(fields(), json!(null));
    assert_eq!(builder.add_sample("early", &[]).unwrap_err().kind(), ErrorKind::Internal);
    builder.add_object("a", 1, 1).unwrap();
    let value = |object, offset, length| Value::Payload { object, offset, length };
    for (values, kind) in [
        (vec![(0, value(Some(1), 0, 0))], ErrorKind::Internal),
        (vec![(0, value(None, u64::MAX, 1))], ErrorKind::Internal),
        (vec![(0, value(None, u64::MAX, 0))], ErrorKind::Internal),
        (vec![(0, value(None, 0, 1)), (0, value(None, 0, 1))], ErrorKind::Internal),
        (vec![(0, Value::Int(1))], ErrorKind::Internal),
        (vec![(9, Value::Int(1))], ErrorKind::Internal),
        (vec![(2, Value::Int(i64::MIN))], ErrorKind::Unsupported),
    ] {
        assert_eq!(builder.add_sample("k", &values).unwrap_err().kind(), kind, "{values:?}");
    }
    let long = "k".repeat(keys::MAX_KEY_BYTES + 1);
    assert_eq!(builder.add_sample(&long, &[]).unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(builder.field("cls", FieldKind::Payload).unwrap_err().kind(), ErrorKind::InvalidConfig);
    assert!(builder.is_empty());
    assert_eq!(builder.add_sample("k", &[]).unwrap(), SampleId(0));
    assert_eq!(Manifest::open(builder.finish().unwrap()).unwrap().len(), 1);
}

#[test]
fn an_empty_manifest_opens() {
    let manifest =
        Manifest::open(ManifestBuilder::new(Vec::new(), json!({"a": 1})).finish().unwrap()).unwrap();
    assert!(manifest.is_empty());
    assert_eq!(manifest.meta()["a"], 1);
    touch_everything(&manifest);
}

#[test]
fn a_later_format_is_refused_by_name() {
    let mut bytes = ManifestBuilder::new(Vec::new(), json!(null)).finish().unwrap();
    bytes[8] = 2;
    let error = Manifest::open(bytes).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.message().contains("format version is 2"), "{error}");
}

/// The byte form is a promise to files on disk: this one was written by the first release.
#[test]
fn the_byte_form_never_changes_between_releases() {
    let bytes = build(&tree(20), json!({"kind": "tree"}));
    let manifest = Manifest::open(bytes.clone()).unwrap();
    assert_eq!((bytes.len(), manifest.version()), (GOLDEN_LENGTH, GOLDEN_VERSION));
    assert_eq!(format!("{:032x}", xxhash_rust::xxh3::xxh3_128(&bytes)), GOLDEN_FILE);
}

const GOLDEN_LENGTH: usize = 840;
const GOLDEN_VERSION: &str = "6df51a4ac6aa6e0a9f973aaa93212730";
const GOLDEN_FILE: &str = "4f8657bc58f453fb5a97231368ec9022";
