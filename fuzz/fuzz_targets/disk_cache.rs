//! A cache's directory: any index and any segment are refused or read without a panic, and what is listed lies inside
//! its file.
#![no_main]

use forebay_engine::cache::disk::DiskTier;
use libfuzzer_sys::fuzz_target;
use std::path::PathBuf;
use std::sync::OnceLock;
use xxhash_rust::xxh3::xxh3_64_with_seed;

const SEGMENT: &str = "segment-00000001.fbs";
const INDEX: &str = "index.fbi";
const UNIT: usize = 64;

fuzz_target!(|bytes: &[u8]| {
    // The first byte says how much of the rest is the index; without one, the segment is walked over.
    let Some((share, bytes)) = bytes.split_first() else { return };
    let (index, segment) = bytes.split_at(bytes.len() * usize::from(*share) / 255);
    let dir = directory();
    let length = |bytes: &[u8]| bytes.len() as u64;
    let segment = sealed(segment, |unit| if unit == 0 { 0 } else { 1 << 32 | unit as u64 });
    std::fs::write(dir.join(SEGMENT), &segment).expect("a directory of our own");
    let index = sealed(index, |_| 0x1dec);
    std::fs::write(dir.join(INDEX), &index).expect("a directory of our own");
    let Ok(tier) = DiskTier::look(dir) else { return };
    let view = tier.detail();
    let stored = tier.stored();
    assert_eq!(stored.len() as u64, view.tier.payloads);
    for one in stored {
        assert_eq!(one.file, SEGMENT);
        assert!(one.offset.checked_add(one.length).is_some_and(|end| end <= length(&segment)));
        assert_eq!(tier.has(one.id), Some(one.length));
    }
});

/// A directory with the marker of a cache.
fn directory() -> &'static PathBuf {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let dir = std::env::temp_dir().join(format!("forebay-fuzz-{}", std::process::id()));
        drop(DiskTier::open(&dir, 1 << 20).expect("a directory of our own"));
        dir
    })
}

/// The bytes with right checksums in every unit: a writer who means harm gets those right, chance never would.
fn sealed(bytes: &[u8], seed: impl Fn(usize) -> u64) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for (number, unit) in bytes.chunks_exact_mut(UNIT).enumerate() {
        let sum = xxh3_64_with_seed(&unit[..56], seed(number));
        unit[56..].copy_from_slice(&sum.to_le_bytes());
    }
    bytes
}
