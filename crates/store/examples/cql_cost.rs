//! What reading rows costs this side: processor seconds for a gigabyte of rows of 115 KB, 128 in flight.
//!
//! `cargo run --release -p forebay-store --example cql_cost -- 127.0.0.1:9042 [ROWS]` writes the rows once, into keyspace
//! `forebay_cost`, and reads them three times. Build it with `--release`: other figures mean nothing.
#![expect(clippy::print_stdout, reason = "figures are all it is for")]

use bytes::Bytes;
use forebay_core::rng::mix64;
use forebay_core::{Error, Result};
use forebay_store::cassandra::{CreateTables, LabelType, NewRow};
use forebay_store::large::LargeBlocks;
use forebay_store::{ByteRange, CassandraStore, Store, StoreOptions};
use futures::stream::{self, StreamExt, TryStreamExt};
use std::time::Instant;

/// As in the command and the Python module.
#[global_allocator]
static ALLOCATOR: LargeBlocks = LargeBlocks::new();

const ROW_BYTES: usize = 115_000;
const IN_FLIGHT: usize = 128;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let server = args.next().unwrap_or_else(|| "127.0.0.1:9042".into());
    let rows: u64 = args.next().and_then(|rows| rows.parse().ok()).unwrap_or(2000);
    let store =
        CassandraStore::open(&format!("cassandra://{server}/forebay_cost/rows"), &StoreOptions::new())?;
    store.create(CreateTables { replication: 1, label: LabelType::None }).await?;
    let there = store.scan().await?.len() as u64;
    let store = &store;
    stream::iter(there.min(rows)..rows)
        .map(|row| store.write_row(NewRow { id: id(row), data: payload(row), ..NewRow::default() }))
        .buffer_unordered(16)
        .try_collect::<()>()
        .await?;
    for _ in 0..3 {
        let (begun, before) = (Instant::now(), cpu_seconds()?);
        let read = stream::iter(0..rows).map(|row| async move {
            store.read(&id(row), ByteRange::Full).await.map(|bytes| bytes.len() as u64)
        });
        let bytes =
            read.buffer_unordered(IN_FLIGHT).try_fold(0, |sum, bytes| async move { Ok(sum + bytes) }).await?;
        let (wall, cpu) = (begun.elapsed().as_secs_f64(), cpu_seconds()? - before);
        let gigabytes = bytes as f64 / 1e9;
        println!(
            "{rows} rows, {gigabytes:.3} GB in {wall:.2} s: {:.0} MB/s, {:.2} CPU s/GB, {:.0} us a row",
            gigabytes * 1e3 / wall,
            cpu / gigabytes,
            cpu * 1e6 / rows as f64
        );
    }
    Ok(())
}

fn id(row: u64) -> String {
    let hex = format!("{:016x}{:016x}", mix64(row), mix64(row + (1 << 40)));
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// Bytes that do not compress, like those of a JPEG.
fn payload(row: u64) -> Bytes {
    (0..=ROW_BYTES as u64 / 8)
        .flat_map(|word| mix64(row << 20 | word).to_le_bytes())
        .take(ROW_BYTES)
        .collect()
}

/// User and system time of every thread of this process, in seconds.
fn cpu_seconds() -> Result<f64> {
    let doing = |error| Error::io("read the times of threads", error);
    let mut ticks = 0u64;
    for thread in std::fs::read_dir("/proc/self/task").map_err(doing)? {
        let stat = std::fs::read_to_string(thread.map_err(doing)?.path().join("stat")).map_err(doing)?;
        // Behind the name, which may hold anything, the times are the 12th and 13th words.
        let words = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
        ticks += words.skip(11).take(2).filter_map(|word| word.parse::<u64>().ok()).sum::<u64>();
    }
    // The kernel counts hundredths of a second for programs, whatever it uses itself.
    Ok(ticks as f64 / 100.0)
}
