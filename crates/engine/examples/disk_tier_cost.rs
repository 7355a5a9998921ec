//! What the disk tier costs beside plain direct reads of the same size from a plain file, and beside reads of that file
//! through the store that the tier reads through: five rounds of each, in turn. Plain reads go into fresh memory each,
//! into one buffer a thread, and into one buffer a thread that lies in large pages.
//! `cargo run --release -p forebay-engine --example disk_tier_cost [DIR] [PAYLOADS] [BYTES]` prints JSON.
#![expect(clippy::unwrap_used, reason = "an example ends where it cannot go on")]
#![expect(clippy::print_stdout, reason = "printing is what it is for")]

use bytes::Bytes;
use forebay_core::cache::{PayloadId, Rank};
use forebay_engine::cache::Payload;
use forebay_engine::cache::disk::DiskTier;
use forebay_store::local::map::prefer_huge_pages;
use forebay_store::local::{LocalOptions, ReadMode};
use forebay_store::{LocalStore, Store};
use futures::stream::{self, StreamExt};
use rustix::fs::OFlags;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

const IN_FLIGHT: usize = 32;
const ROUNDS: usize = 5;
const BLOCK: usize = 4096;
const LARGE_PAGE: usize = 2 << 20;

/// What plain reads read into.
#[derive(Clone, Copy)]
enum Into {
    Fresh,
    Reused,
    LargePages,
}

fn main() {
    let mut args = std::env::args().skip(1);
    let dir = args.next().map_or_else(std::env::temp_dir, PathBuf::from).join("forebay-disk-tier-cost");
    let payloads: u64 = args.next().map_or(8000, |count| count.parse().unwrap());
    let length: usize = args.next().map_or(115 << 10, |bytes| bytes.parse().unwrap());
    std::fs::create_dir_all(&dir).unwrap();
    let plain = dir.join("plain");
    let tier = Arc::new(fill(&dir, &plain, payloads, length));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let gigabytes = payloads as f64 * length as f64 / 1e9;
    let local = LocalOptions { read_mode: ReadMode::Direct, ..LocalOptions::default() };
    let store = LocalStore::with_options(dir.clone(), &local);
    let padded = length.next_multiple_of(BLOCK) as u64;
    let (mut through_tier, mut through_store, mut through_file) = (Vec::new(), Vec::new(), Vec::new());
    let (mut reused, mut large) = (Vec::new(), Vec::new());
    let (mut cpu_tier, mut cpu_store, mut cpu_file) = (0.0, 0.0, 0.0);
    for round in 0..ROUNDS as u64 {
        let order = move |at: u64| (at + round * 7919).wrapping_mul(0x9E37_79B9_7F4A_7C15) % payloads;
        let (began, cpu) = (Instant::now(), cpu_seconds());
        let reading = Arc::clone(&tier);
        runtime.block_on(async move {
            let reads = stream::iter(0..payloads).map(|at| {
                let tier = Arc::clone(&reading);
                tokio::spawn(async move { tier.read(id(order(at))).await.unwrap().len() })
            });
            reads
                .buffer_unordered(IN_FLIGHT)
                .for_each(|read| async move { assert_eq!(read.unwrap(), length) })
                .await;
        });
        through_tier.push(gigabytes / began.elapsed().as_secs_f64());
        cpu_tier += (cpu_seconds() - cpu) / gigabytes / ROUNDS as f64;
        let (began, cpu) = (Instant::now(), cpu_seconds());
        let store = store.clone();
        runtime.block_on(async move {
            let reads = stream::iter(0..payloads).map(|at| {
                let store = store.clone();
                let start = order(at) * padded;
                tokio::spawn(async move {
                    store.read("plain", (start..start + length as u64).into()).await.unwrap().len()
                })
            });
            reads
                .buffer_unordered(IN_FLIGHT)
                .for_each(|read| async move { assert_eq!(read.unwrap(), length) })
                .await;
        });
        through_store.push(gigabytes / began.elapsed().as_secs_f64());
        cpu_store += (cpu_seconds() - cpu) / gigabytes / ROUNDS as f64;
        let (began, cpu) = (Instant::now(), cpu_seconds());
        read_plain(&plain, payloads, length, order, Into::Fresh);
        through_file.push(gigabytes / began.elapsed().as_secs_f64());
        cpu_file += (cpu_seconds() - cpu) / gigabytes / ROUNDS as f64;
        for (into, rates) in [(Into::Reused, &mut reused), (Into::LargePages, &mut large)] {
            let began = Instant::now();
            read_plain(&plain, payloads, length, order, into);
            rates.push(gigabytes / began.elapsed().as_secs_f64());
        }
    }
    assert_eq!(tier.view().damaged, 0);
    let ratios: Vec<f64> = through_tier.iter().zip(&through_file).map(|(tier, file)| tier / file).collect();
    println!(
        "{{\"payloads\": {payloads}, \"payload_bytes\": {length}, \"in_flight\": {IN_FLIGHT}, \
         \"tier_gb_per_second\": {through_tier:.2?}, \"store_gb_per_second\": {through_store:.2?}, \
         \"plain_direct_gb_per_second\": {through_file:.2?}, \
         \"plain_reused_gb_per_second\": {reused:.2?}, \"plain_large_pages_gb_per_second\": {large:.2?}, \
         \"cpu_seconds_per_gb\": {{\"tier\": {cpu_tier:.3}, \"store\": {cpu_store:.3}, \"plain\": {cpu_file:.3}}}, \
         \"ratio\": {ratios:.3?}, \"median_ratio\": {:.3}}}",
        median(&ratios)
    );
    drop((runtime, tier));
    DiskTier::clear(&dir).unwrap();
    std::fs::remove_file(plain).unwrap();
    std::fs::remove_dir(dir).unwrap();
}

/// The same payloads in a cache and, padded to blocks, in a plain file.
fn fill(dir: &Path, plain: &Path, payloads: u64, length: usize) -> DiskTier {
    let limit = DiskTier::fixed_cost() + payloads * DiskTier::cost(length as u64);
    let tier = DiskTier::open(dir, limit).unwrap();
    let mut file = File::create(plain).unwrap();
    for n in 0..payloads {
        let bytes: Bytes =
            (0..length as u64).map(|at| ((at ^ n).wrapping_mul(0x9E37_79B9) >> 7) as u8).collect();
        let payload = Payload { id: id(n), rank: Rank(n), length: length as u64, group: 1 };
        assert!(futures::executor::block_on(tier.keep(payload, &bytes)));
        file.write_all(&bytes).unwrap();
        file.write_all(&vec![0; length.next_multiple_of(BLOCK) - length]).unwrap();
    }
    assert!(tier.flush());
    file.sync_all().unwrap();
    tier
}

/// Blocking direct reads at block edges into aligned memory, as many at once as the tier has in flight.
fn read_plain(path: &Path, payloads: u64, length: usize, order: impl Fn(u64) -> u64 + Sync, into: Into) {
    let next = AtomicU64::new(0);
    let padded = length.next_multiple_of(BLOCK);
    std::thread::scope(|scope| {
        for _ in 0..IN_FLIGHT {
            scope.spawn(|| {
                let flags = OFlags::DIRECT.bits() as i32;
                let file = File::options().read(true).custom_flags(flags).open(path).unwrap();
                let mut memory: Vec<u8> = Vec::with_capacity(padded + 2 * LARGE_PAGE);
                if matches!(into, Into::LargePages) {
                    prefer_huge_pages(memory.spare_capacity_mut());
                }
                memory.resize(padded + 2 * LARGE_PAGE, 0);
                loop {
                    let at = next.fetch_add(1, Relaxed);
                    if at >= payloads {
                        return;
                    }
                    if matches!(into, Into::Fresh) {
                        memory = vec![0; padded + BLOCK];
                    }
                    let edge = if matches!(into, Into::LargePages) { LARGE_PAGE } else { BLOCK };
                    let skip = memory.as_ptr().align_offset(edge);
                    file.read_exact_at(&mut memory[skip..skip + padded], order(at) * padded as u64).unwrap();
                    std::hint::black_box(&memory);
                }
            });
        }
    });
}

/// Processor time of this process so far, in ticks of 10 ms.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}

fn id(n: u64) -> PayloadId {
    PayloadId(u128::from(n) + 1)
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
