//! Bytes that were cut off, changed or lost: never a wrong byte, and all that is whole is served.

use super::*;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

const SEGMENT: &str = "segment-00000001.fbs";
const INDEX: &str = "index.fbi";
/// Lengths of the payloads of a small cache.
const LENGTHS: [usize; 4] = [50, 0, 200, 100];

/// The files of a small cache, which can be laid out again.
struct Files(Vec<(String, Vec<u8>)>);

impl Files {
    fn small() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tier = DiskTier::open(dir.path(), LIMIT).unwrap();
        for (n, length) in LENGTHS.iter().enumerate() {
            assert!(keep(&tier, n as u64, *length));
        }
        drop(tier);
        let read = |entry: std::fs::DirEntry| {
            (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap())
        };
        Self(std::fs::read_dir(dir.path()).unwrap().map(|entry| read(entry.unwrap())).collect())
    }

    fn lay(&self, dir: &Path) {
        for entry in std::fs::read_dir(dir).unwrap() {
            std::fs::remove_file(entry.unwrap().path()).unwrap();
        }
        for (name, bytes) in &self.0 {
            std::fs::write(dir.join(name), bytes).unwrap();
        }
    }

    fn length(&self, name: &str) -> u64 {
        self.0.iter().find(|(of, _)| of == name).unwrap().1.len() as u64
    }
}

fn cut(path: PathBuf, length: u64) {
    std::fs::File::options().write(true).open(path).unwrap().set_len(length).unwrap();
}

/// Reads all; every payload is right or not there. Says which are there.
fn served(tier: &DiskTier) -> Vec<bool> {
    let check = |(n, length): (usize, &usize)| match read(tier, n as u64) {
        None => false,
        Some(bytes) => {
            assert_eq!(bytes, made(n as u64, *length));
            true
        }
    };
    LENGTHS.iter().enumerate().map(check).collect()
}

#[test]
fn p044_a_last_record_cut_at_any_byte_is_dropped_and_all_others_are_served() {
    let files = Files::small();
    let dir = tempfile::tempdir().unwrap();
    let (segment, index) = (files.length(SEGMENT), files.length(INDEX));
    // Header and two units of payload; one line.
    let cuts = (segment - 192..segment).map(|at| (at, index));
    let cuts = cuts.chain((index - 64..index).map(|at| (segment, at)));
    let cuts = cuts.chain((0..64).map(|at| (segment - 192 + at * 3, index - 64 + at)));
    for (segment, index) in cuts {
        files.lay(dir.path());
        cut(dir.path().join(SEGMENT), segment);
        cut(dir.path().join(INDEX), index);
        let tier = DiskTier::open(dir.path(), LIMIT).unwrap();
        assert_eq!(served(&tier), [true, true, true, false], "cut at {segment} and {index}");
        assert_eq!(tier.view().damaged, 0);
        assert!(keep(&tier, 3, LENGTHS[3]), "it is fetched and kept again");
        drop(tier);
        assert_eq!(served(&DiskTier::open(dir.path(), LIMIT).unwrap()), [true; 4]);
    }
}

#[test]
fn p044_whatever_byte_is_flipped_no_wrong_byte_is_served() {
    let files = Files::small();
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes) in &files.0 {
        for at in 0..bytes.len() {
            files.lay(dir.path());
            let mut broken = bytes.clone();
            broken[at] ^= 1 << (at % 8);
            std::fs::write(dir.path().join(name), broken).unwrap();
            let Ok(tier) = DiskTier::open(dir.path(), LIMIT) else {
                assert_eq!(name, "forebay-cache");
                continue;
            };
            let there = served(&tier).iter().filter(|there| **there).count();
            // With the header of the segment all goes, and a line of the index is made up for by the segment.
            let least = match (name.as_str(), at) {
                (SEGMENT, ..64) => 0,
                (SEGMENT, _) => 3,
                (INDEX, at) if at as u64 >= files.length(INDEX) - 64 => 3,
                _ => 4,
            };
            assert!(there >= least, "{there} payloads after {name} was changed at {at}");
        }
    }
}

#[test]
fn p044_a_corrupted_payload_is_detected_forgotten_and_kept_again() {
    let dir = tempfile::tempdir().unwrap();
    let tier = DiskTier::open(dir.path(), LIMIT).unwrap();
    assert!((0..3).all(|n| keep(&tier, n, 10_000)) && tier.flush());
    let second = tier.stored()[1].clone();
    let file = std::fs::File::options().write(true).open(dir.path().join(&second.file)).unwrap();
    file.write_all_at(b"!", second.offset + 5000).unwrap();
    assert!(read(&tier, 1).is_none() && tier.has(second.id).is_none());
    assert_eq!((tier.view().damaged, tier.view().payloads), (1, 2));
    assert!(read(&tier, 1).is_none());
    assert_eq!(tier.view().damaged, 1);
    drop(tier);
    let tier = DiskTier::open(dir.path(), LIMIT).unwrap();
    assert!(tier.has(second.id).is_none(), "the index says so too");
    assert!(keep(&tier, 1, 10_000));
    drop(tier);
    let tier = DiskTier::open(dir.path(), LIMIT).unwrap();
    assert!((0..3).all(|n| read(&tier, n).unwrap() == made(n, 10_000)));
}

#[test]
fn bytes_that_never_reached_the_disk_are_found_out_when_they_are_read() {
    let files = Files::small();
    let dir = tempfile::tempdir().unwrap();
    files.lay(dir.path());
    // As after a power cut: the file has its length and its index, but holes where the end was.
    cut(dir.path().join(SEGMENT), 400);
    cut(dir.path().join(SEGMENT), files.length(SEGMENT));
    let tier = DiskTier::open(dir.path(), LIMIT).unwrap();
    assert_eq!(served(&tier), [true, true, false, false]);
    assert_eq!(tier.view().damaged, 2);
}

#[test]
fn a_missing_index_is_made_again_from_the_segments() {
    let files = Files::small();
    let dir = tempfile::tempdir().unwrap();
    for lost in [vec![INDEX], vec![INDEX, "forebay-cache"], vec!["forebay-cache.lock"]] {
        files.lay(dir.path());
        for name in lost {
            std::fs::remove_file(dir.path().join(name)).unwrap();
        }
        for _ in 0..2 {
            assert_eq!(served(&DiskTier::open(dir.path(), LIMIT).unwrap()), [true; 4]);
        }
    }
    files.lay(dir.path());
    std::fs::write(dir.path().join("index.fbi.new"), &b"FBCINDX\nhalf"[..]).unwrap();
    assert_eq!(served(&DiskTier::open(dir.path(), LIMIT).unwrap()), [true; 4]);
}

#[test]
fn a_segment_that_is_gone_takes_only_its_own_payloads_along() {
    let dir = tempfile::tempdir().unwrap();
    let options = DiskOptions { segment_bytes: Some(20_000), ..DiskOptions::new(LIMIT) };
    let tier = DiskTier::open_with(dir.path(), &options).unwrap();
    assert!((0..10).all(|n| keep(&tier, n, 9000)) && tier.flush());
    std::fs::remove_file(dir.path().join("segment-00000002.fbs")).unwrap();
    let there: Vec<u64> = (0..10).filter(|n| read(&tier, *n).is_some()).collect();
    assert_eq!(there, [0, 1, 4, 5, 6, 7, 8, 9]);
    // Compaction comes across another one that is gone, and the cache goes on.
    std::fs::remove_file(dir.path().join("segment-00000003.fbs")).unwrap();
    tier.forget(&[payload(4, 0).id]);
    tier.resize(80_000).unwrap();
    tier.resize(LIMIT).unwrap();
    assert!(keep(&tier, 5, 9000) && tier.flush() && !tier.detail().full);
    assert!((0..2).all(|n| read(&tier, n).is_some()));
    drop(tier);
    let tier = DiskTier::open_with(dir.path(), &options).unwrap();
    assert_eq!(read(&tier, 5).unwrap(), made(5, 9000));
    assert_eq!(tier.view().damaged, 0);
}
