//! Manifests: any bytes are refused or answer every question without a panic, for ids inside and outside.
#![no_main]

use forebay_core::SampleId;
use forebay_core::manifest::Manifest;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(manifest) = Manifest::open(bytes.to_vec()) else { return };
    let fields = manifest.fields().len();
    for (index, field) in manifest.fields().iter().enumerate() {
        assert!(manifest.field_index(&field.name).is_some_and(|first| first <= index));
    }
    let near_ends = |count: u64| (0..count.min(40)).chain(count.saturating_sub(3)..count.saturating_add(3)).chain([u64::MAX]);
    for id in near_ends(manifest.len()) {
        let sample = SampleId(id);
        let key = manifest.key(sample);
        if id < 4 {
            manifest.find_key(&key);
        }
        assert!(manifest.object_of(sample) < manifest.object_count().max(1));
        manifest.sample_bytes(sample);
        for field in 0..=fields {
            if let Some(location) = manifest.location(sample, field) {
                assert!(location.object < manifest.object_count().max(1));
                assert!(location.offset.checked_add(location.length).is_some());
            }
            manifest.int(sample, field);
        }
    }
    for object in near_ends(u64::from(manifest.object_count())) {
        let object = u32::try_from(object).unwrap_or(u32::MAX);
        let samples = manifest.samples_of(object);
        assert!(samples.start <= samples.end);
        drop(manifest.object(object));
    }
    drop((manifest.is_empty(), manifest.version(), manifest.total_bytes(), manifest.largest_sample_bytes()));
    drop((manifest.meta(), manifest.as_bytes()));
});
