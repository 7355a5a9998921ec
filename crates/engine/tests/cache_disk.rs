//! The disk tier of the cache: what is held, for how long, and within which bytes.
#![expect(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

use bytes::Bytes;
use forebay_core::cache::{PayloadId, Rank};
use forebay_engine::cache::Payload;
use forebay_engine::cache::disk::{DiskOptions, DiskTier};
use std::path::Path;

const LIMIT: u64 = 1 << 20;

/// The bytes of payload `n`: no two are alike.
fn made(n: u64, length: usize) -> Bytes {
    (0..length).map(|at| (n.wrapping_mul(31).wrapping_add(at as u64 * 7) >> (at % 5)) as u8).collect()
}

fn payload(n: u64, length: usize) -> Payload {
    Payload { id: PayloadId(u128::from(n) << 64 | 5), rank: Rank(n), length: length as u64, group: n % 3 }
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    futures::executor::block_on(future)
}

fn keep(tier: &DiskTier, n: u64, length: usize) -> bool {
    wait(tier.keep(payload(n, length), &made(n, length)))
}

fn read(tier: &DiskTier, n: u64) -> Option<Bytes> {
    wait(tier.read(payload(n, 0).id))
}

/// Bytes of all files in a directory.
fn file_bytes(dir: &Path) -> u64 {
    std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
}

#[test]
fn what_is_kept_is_read_again_at_once_and_after_opening_again() {
    let dir = tempfile::tempdir().unwrap();
    let lengths = [0, 1, 63, 64, 65, 4095, 4096, 5000, 70_000, 131_072];
    let tier = DiskTier::open(dir.path(), LIMIT).unwrap();
    for (n, length) in lengths.iter().enumerate() {
        assert!(keep(&tier, n as u64, *length));
        assert!(keep(&tier, n as u64, *length), "what is held already is held");
        assert_eq!(tier.has(payload(n as u64, 0).id), Some(*length as u64));
    }
    let check = |tier: &DiskTier| {
        for (n, length) in lengths.iter().enumerate() {
            assert_eq!(read(tier, n as u64).unwrap(), made(n as u64, *length), "{length} bytes");
        }
        assert!(read(tier, 99).is_none() && tier.has(PayloadId(1)).is_none());
        assert_eq!(tier.held(0).len(), 4);
        let view = tier.view();
        assert_eq!((view.payloads, view.refused, view.damaged), (10, 0, 0));
        assert_eq!(view.bytes, lengths.iter().sum::<usize>() as u64);
    };
    check(&tier);
    assert!(tier.flush());
    check(&tier);
    drop(tier);
    check(&DiskTier::open(dir.path(), LIMIT).unwrap());
}

#[test]
fn p043_files_never_exceed_the_limit_with_mixed_sizes_and_the_limit_can_change() {
    let dir = tempfile::tempdir().unwrap();
    let tier = DiskTier::open(dir.path(), LIMIT).unwrap();
    let mut kept = 0;
    for n in 0..400 {
        let length = [10, 3000, 20_000, 70_000][n as usize % 4] + n as usize;
        kept += u64::from(keep(&tier, n, length));
        assert!(tier.flush());
        assert!(file_bytes(dir.path()) <= LIMIT);
    }
    let view = tier.view();
    assert!(kept > 40 && kept < 400 && view.payloads == kept && view.refused == 400 - kept);
    for limit in [LIMIT / 2, LIMIT / 3, LIMIT / 10] {
        let before: Vec<u64> = (0..400).filter(|n| tier.has(payload(*n, 0).id).is_some()).collect();
        tier.resize(limit).unwrap();
        assert!(file_bytes(dir.path()) <= limit, "{} at {limit}", file_bytes(dir.path()));
        let after: Vec<u64> = (0..400).filter(|n| tier.has(payload(*n, 0).id).is_some()).collect();
        assert_eq!(after, before[..after.len()], "the highest ranks went");
        assert!(!after.is_empty());
        for n in after {
            let length = [10, 3000, 20_000, 70_000][n as usize % 4] + n as usize;
            assert_eq!(read(&tier, n).unwrap(), made(n, length));
        }
    }
    tier.resize(LIMIT * 2).unwrap();
    assert!(keep(&tier, 1000, 900_000) && tier.flush());
    drop(tier);
    let tier = DiskTier::open(dir.path(), LIMIT / 4).unwrap();
    assert!(file_bytes(dir.path()) <= LIMIT / 4, "a smaller limit holds from the beginning");
    assert!(tier.has(payload(1000, 0).id).is_none() && tier.has(payload(0, 0).id).is_some());
}

#[test]
fn what_is_forgotten_makes_room() {
    let dir = tempfile::tempdir().unwrap();
    let options = DiskOptions { segment_bytes: Some(100_000), ..DiskOptions::new(LIMIT) };
    let tier = DiskTier::open_with(dir.path(), &options).unwrap();
    let mut held: Vec<u64> = (0..200).filter(|n| keep(&tier, *n, 9000)).collect();
    assert!(held.len() < 200);
    // Every third goes: no segment is mostly dead, so room comes back only because it is needed.
    let gone: Vec<u64> = held.iter().copied().filter(|n| n % 3 == 0).collect();
    let ids: Vec<PayloadId> = gone.iter().map(|n| payload(*n, 0).id).collect();
    tier.forget(&ids);
    held.retain(|n| n % 3 != 0);
    assert!(gone.iter().all(|n| read(&tier, *n).is_none()));
    for n in 1000..1000 + gone.len() as u64 {
        assert!(keep(&tier, n, 9000), "{n}");
        held.push(n);
    }
    assert!(!keep(&tier, 5000, 9000));
    assert!(tier.flush() && file_bytes(dir.path()) <= LIMIT);
    drop(tier);
    let tier = DiskTier::open(dir.path(), LIMIT).unwrap();
    assert_eq!(tier.view().payloads, held.len() as u64);
    for n in held {
        assert_eq!(read(&tier, n).unwrap(), made(n, 9000), "{n}");
    }
}
