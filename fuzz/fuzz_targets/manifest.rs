//! Manifests: any bytes are refused or answer every question without a panic, for ids inside and outside.
#![no_main]

use forebay_core::SampleId;
use forebay_core::manifest::Manifest;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(manifest) = Manifest::open(sealed(bytes)) else { return };
    let fields = manifest.fields().len();
    for (index, field) in manifest.fields().iter().enumerate() {
        assert!(manifest.field_index(&field.name).is_some_and(|first| first <= index));
    }
    let near_ends = |count: u64| {
        (0..count.min(40)).chain(count.saturating_sub(3)..count.saturating_add(3)).chain([u64::MAX])
    };
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
    assert!(manifest.is_empty() == (manifest.len() == 0) && !manifest.version().is_empty());
    std::hint::black_box((
        manifest.total_bytes(),
        manifest.largest_sample_bytes(),
        manifest.meta(),
        manifest.as_bytes(),
    ));
});

/// The bytes with a right length and checksum: a writer who means harm gets those right, chance never would.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let length = bytes.len() as u64;
    if let Some(stated) = bytes.get_mut(48..56) {
        stated.copy_from_slice(&length.to_le_bytes());
        let checksum = xxhash_rust::xxh3::xxh3_128(&bytes[32..]);
        bytes[16..32].copy_from_slice(&checksum.to_le_bytes());
    }
    bytes
}
