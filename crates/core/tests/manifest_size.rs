//! The manifest at the size of ImageNet: what a file of 1.28 million samples weighs, in both of its common forms.

use forebay_core::SampleId;
use forebay_core::manifest::{FieldInfo, FieldKind, Manifest, ManifestBuilder, Value};
use forebay_core::rng::mix64;

const SAMPLES: u64 = 1_281_167;
const CLASSES: u64 = 1000;

fn fields() -> Vec<FieldInfo> {
    let field = |name: &str, kind| FieldInfo { name: name.into(), kind };
    vec![field("jpg", FieldKind::Payload), field("cls", FieldKind::Payload), field("label", FieldKind::Int)]
}

/// Keys as ImageNet has them: a synset of eight digits and a number that skips.
fn key(sample: u64) -> String {
    let class = sample * CLASSES / SAMPLES;
    format!(
        "n{:08}/n{:08}_{}.JPEG",
        1_440_764 + class * 13_577,
        1_440_764 + class * 13_577,
        2 + sample * 7 % 30_000
    )
}

fn length(sample: u64) -> u64 {
    20_000 + mix64(sample) % 180_000
}

#[test]
fn manifest_of_1_28_million_samples_fits_in_64_mb() {
    let mut builder = ManifestBuilder::new(fields(), serde_json::json!({"kind": "tar"}));
    let mut offset = 0;
    for sample in 0..SAMPLES {
        if sample % 1252 == 0 {
            builder
                .add_object(&format!("train-{:06}.tar", sample / 1252), 150_000_000, mix64(sample))
                .unwrap();
            offset = 0;
        }
        let label = sample * CLASSES / SAMPLES;
        let jpg = Value::Payload { object: None, offset: offset + 512, length: length(sample) };
        offset += 512 + length(sample).next_multiple_of(512);
        let cls = Value::Payload { object: None, offset: offset + 512, length: 1 + u64::from(label > 9) };
        offset += 1024;
        builder.add_sample(&key(sample), &[(0, jpg), (1, cls), (2, Value::Int(label as i64))]).unwrap();
    }
    let bytes = builder.finish().unwrap();
    assert!(bytes.len() <= 64_000_000, "{} bytes", bytes.len());

    let manifest = Manifest::open(bytes).unwrap();
    assert_eq!(manifest.len(), SAMPLES);
    for sample in (0..SAMPLES).step_by(9973).chain([SAMPLES - 1]) {
        assert_eq!(manifest.key(SampleId(sample)), key(sample));
        assert_eq!(manifest.location(SampleId(sample), 0).unwrap().length, length(sample));
        assert_eq!(manifest.object_of(SampleId(sample)), (sample / 1252) as u32);
        assert_eq!(manifest.int(SampleId(sample), 2), Some((sample * CLASSES / SAMPLES) as i64));
    }
    assert_eq!(manifest.find_key(&key(SAMPLES - 1)), Some(SampleId(SAMPLES - 1)));
}

#[test]
fn a_tree_of_1_28_million_files_fits_in_64_mb() {
    let mut builder = ManifestBuilder::new(fields(), serde_json::json!({"kind": "tree"}));
    for sample in 0..SAMPLES {
        let (key, label) = (key(sample), (sample * CLASSES / SAMPLES) as i64);
        builder
            .add_object(&key, length(sample), 1_500_000_000_000_000_000 + mix64(sample) % (1 << 56))
            .unwrap();
        let jpg = Value::Payload { object: None, offset: 0, length: length(sample) };
        builder.add_sample(&key, &[(0, jpg), (2, Value::Int(label))]).unwrap();
    }
    let bytes = builder.finish().unwrap();
    assert!(bytes.len() <= 64_000_000, "{} bytes", bytes.len());

    let manifest = Manifest::open(bytes).unwrap();
    for sample in (0..SAMPLES).step_by(9973) {
        assert_eq!(manifest.object(manifest.object_of(SampleId(sample))).key, manifest.key(SampleId(sample)));
        assert_eq!(manifest.location(SampleId(sample), 1), None);
    }
}
