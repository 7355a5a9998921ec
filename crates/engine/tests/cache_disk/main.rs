//! The disk tier of the cache: what is held, for how long, and within which bytes.
#![expect(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

mod crash;
mod keep;
mod model;
mod process;

use bytes::Bytes;
use forebay_core::ErrorKind;
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
