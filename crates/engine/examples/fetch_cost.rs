//! What a loader's reading costs this side: processor seconds for a gigabyte of objects of 115 KB over plain HTTP.
//!
//! `cargo build --release -p forebay-testkit --bin forebay-objects`, then
//! `cargo run --release -p forebay-engine --example fetch_cost -- [SAMPLES] [ROUNDS]`. The server is a process of its
//! own and is looked for beside this program; `FOREBAY_OBJECTS` names another. Batches of 256 raw payloads are taken
//! and let go. Build it with `--release`: other figures mean nothing.
#![expect(clippy::print_stdout, reason = "figures are all it is for")]

use forebay_core::manifest::{FieldInfo, FieldKind, Manifest, ManifestBuilder, Value};
use forebay_core::portion::{Consumer, LastBatch};
use forebay_core::recipe::Recipe;
use forebay_core::{Error, Result};
use forebay_engine::{Loader, LoaderConfig, Next};
use forebay_store::{StoreOptions, remote};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const OBJECT_BYTES: u64 = 115_000;
const BATCH: u64 = 256;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1).filter_map(|arg| arg.parse::<u64>().ok());
    let samples = args.next().unwrap_or(20_000).max(BATCH);
    let rounds = args.next().unwrap_or(3);
    let (mut server, root) = serve(samples)?;
    let done = measure(&root, samples, rounds);
    // Its standard input ends, and so does the server.
    drop(server.stdin.take());
    server.wait().map_err(|error| Error::io("wait for the server", error))?;
    done
}

fn measure(root: &str, samples: u64, rounds: u64) -> Result<()> {
    let store = remote::open(root, &StoreOptions::new())?;
    let recipe = Recipe::from_json(r#"[{"field": "bin", "decode": {"kind": "bytes"}}]"#)?;
    let consumer = Consumer { rank: 0, world_size: 1, batch_size: BATCH, last_batch: LastBatch::Partial };
    let config = LoaderConfig { consumer, epochs: Some(rounds + 1), ..LoaderConfig::default() };
    let mut loader = Loader::new(&manifest(samples)?, store, &recipe, config)?;
    // The first epoch warms connections and the window up.
    for round in 0..=rounds {
        let (began, before, asked) = (Instant::now(), cpu_seconds(), loader.stats().requests);
        let mut bytes = 0;
        loader.begin()?;
        loop {
            match loader.next(Duration::from_secs(60))? {
                Next::Batch(batch) => bytes += batch.len() as u64 * OBJECT_BYTES,
                Next::Waiting => {}
                Next::End => break,
            }
        }
        let (wall, cpu) = (began.elapsed().as_secs_f64(), cpu_seconds() - before);
        let (gigabytes, stats) = (bytes as f64 / 1e9, loader.stats());
        println!(
            "{} {:.2} GB in {wall:.2} s: {:.2} GB/s, {:.3} CPU s/GB, {:.0} us a payload; {} requests, window {}, \
             delay {:.2} ms",
            if round == 0 { "warm-up:" } else { "round:  " },
            gigabytes,
            gigabytes / wall,
            cpu / gigabytes,
            cpu * 1e6 / samples as f64,
            stats.requests - asked,
            stats.window_requests,
            stats.link_delay_seconds * 1e3,
        );
    }
    Ok(())
}

/// One object a sample, as the server names them.
fn manifest(samples: u64) -> Result<Manifest> {
    let fields = vec![FieldInfo { name: "bin".into(), kind: FieldKind::Payload }];
    let mut builder = ManifestBuilder::new(fields, serde_json::json!({}));
    let digits = samples.to_string().len().max(6);
    for sample in 0..samples {
        let key = format!("o/{sample:0digits$}.bin");
        builder.add_object(&key, OBJECT_BYTES, 0)?;
        builder.add_sample(&key, &[(0, Value::Payload { object: None, offset: 0, length: OBJECT_BYTES })])?;
    }
    Manifest::open(builder.finish()?)
}

/// Starts the server and waits until it says where it listens.
fn serve(samples: u64) -> Result<(Child, String)> {
    let doing = |error| Error::io("start `forebay-objects`", error);
    let beside = std::env::current_exe().map_err(doing)?;
    let beside = beside.ancestors().nth(2).map(|folder| folder.join("forebay-objects"));
    let program = std::env::var_os("FOREBAY_OBJECTS").map(PathBuf::from).or(beside).unwrap_or_default();
    let mut server = Command::new(program)
        .args(["--objects", &samples.to_string(), "--bytes", &OBJECT_BYTES.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(doing)?;
    let mut line = String::new();
    if let Some(out) = server.stdout.take() {
        BufReader::new(out).read_line(&mut line).map_err(doing)?;
    }
    let said: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
    let root = said["url"].as_str().map(str::to_owned);
    Ok((server, root.ok_or_else(|| Error::internal(format!("`forebay-objects` said `{line}`")))?))
}

/// User and system time of this process, from the two fields behind its name.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|ticks| ticks.parse::<f64>().ok()).unwrap_or_default();
    // Linux counts hundredths for programs, whatever its own tick is.
    (ticks(11) + ticks(12)) / 100.0
}
