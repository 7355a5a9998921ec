//! Payloads for tests of the disk tier, and short ways to keep and read them.
#![allow(dead_code, reason = "every test program uses its own part")]

use bytes::Bytes;
use forebay_core::cache::{PayloadId, Rank};
use forebay_engine::cache::Payload;
use forebay_engine::cache::disk::DiskTier;
use std::path::Path;

/// The bytes of payload `n`: no two are alike.
pub(crate) fn made(n: u64, length: usize) -> Bytes {
    (0..length).map(|at| (n.wrapping_mul(31).wrapping_add(at as u64 * 7) >> (at % 5)) as u8).collect()
}

pub(crate) fn payload(n: u64, length: usize) -> Payload {
    Payload { id: PayloadId(u128::from(n) << 64 | 5), rank: Rank(n), length: length as u64, group: n % 3 }
}

pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    futures::executor::block_on(future)
}

pub(crate) fn keep(tier: &DiskTier, n: u64, length: usize) -> bool {
    wait(tier.keep(payload(n, length), &made(n, length)))
}

pub(crate) fn read(tier: &DiskTier, n: u64) -> Option<Bytes> {
    wait(tier.read(payload(n, 0).id))
}

/// Bytes of all files in a directory.
pub(crate) fn file_bytes(dir: &Path) -> u64 {
    std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
}
