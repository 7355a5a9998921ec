//! What a GET costs this process in CPU, signed and not:
//! `scripts/servers/with minio -- cargo run -p forebay-store --example s3_cost`
//!
//! Reads 115 KB ranges of one object from the bucket that everyone may read, 32 at a time.
#![expect(clippy::print_stdout, reason = "an example shows what it found")]

use bytes::Bytes;
use forebay_core::{Error, Result};
use forebay_store::{Store, StoreOptions, remote};
use futures::stream::{self, StreamExt, TryStreamExt};
use std::time::Instant;

const BYTES: u64 = 115_000;
const READS: u64 = 4_000;

fn main() -> Result<()> {
    let endpoint = std::env::var("FOREBAY_TEST_S3")
        .map_err(|_| Error::invalid_config("read `FOREBAY_TEST_S3`: it is not set"))?;
    let store = |more: &[(&str, &str)]| {
        let words = [("endpoint", endpoint.as_str())].into_iter().chain(more.iter().copied());
        let words: StoreOptions = words.map(|(word, value)| (word.to_owned(), value.to_owned())).collect();
        remote::open("s3://forebay-public", &words)
    };
    let (signed, anonymous) = (store(&[])?, store(&[("anonymous", "true")])?);
    futures::executor::block_on(signed.write("cost/object", Bytes::from(vec![7; 64 * BYTES as usize])))?;
    for round in ["warm-up", "measured"] {
        for (name, store) in [("signed", &signed), ("anonymous", &anonymous)] {
            let (cpu, began) = (cpu_seconds(), Instant::now());
            futures::executor::block_on(read(&**store))?;
            let (cpu, wall) = (cpu_seconds() - cpu, began.elapsed().as_secs_f64());
            let gigabytes = (READS * BYTES) as f64 / 1e9;
            println!(
                "{round}, {name}: {:.0} us of CPU a GET, {:.2} CPU-seconds a GB, {:.2} GB/s",
                cpu * 1e6 / READS as f64,
                cpu / gigabytes,
                gigabytes / wall
            );
        }
    }
    Ok(())
}

async fn read(store: &dyn Store) -> Result<()> {
    let reads = stream::iter(0..READS).map(|number| {
        let start = number % 64 * BYTES;
        async move { store.read("cost/object", (start..start + BYTES).into()).await.map(drop) }
    });
    reads.buffer_unordered(32).try_collect::<()>().await
}

/// User and system time of this process, from the two fields behind its name.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|ticks| ticks.parse::<f64>().ok()).unwrap_or_default();
    // Linux counts hundredths for user space, whatever its own tick is.
    (ticks(11) + ticks(12)) / 100.0
}
