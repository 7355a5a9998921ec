//! What metering costs: epochs with it and without it in turn, and how much longer the metered ones take.
//!
//! `cargo run --release -p forebay-engine --example meter_cost -- [PAIRS]`. Two loads: payloads of 1 KB that are handed on
//! as they are, with nothing else to pay for, and arrays of 64 KB that threads copy into batches. Pairs are run back to
//! back, alternating which comes first; the median of their ratios is printed with the quartiles. Build it with
//! `--release`: other figures mean nothing.
#![expect(clippy::print_stdout, reason = "figures are all it is for")]

use forebay_core::Result;
use forebay_core::portion::{Consumer, LastBatch};
use forebay_core::recipe::Recipe;
use forebay_engine::source::{Dataset, SyntheticPayload, SyntheticSpec, synthetic};
use forebay_engine::{Loader, LoaderConfig, Next};
use std::sync::Arc;
use std::time::{Duration, Instant};

const BYTES: &str = r#"[{"field": "bin", "decode": {"kind": "bytes"}}]"#;
const TENSOR: &str =
    r#"[{"field": "bin", "decode": {"kind": "npy"}}, {"field": "cls", "decode": {"kind": "label"}}]"#;

fn main() -> Result<()> {
    let pairs: usize = std::env::args().nth(1).and_then(|arg| arg.parse().ok()).unwrap_or(15);
    let handed = SyntheticPayload::Noise { bytes: 1024 };
    let array = SyntheticPayload::Templates(vec![npy(64 * 1024).into()]);
    for (name, payload, samples, recipe) in
        [("1 KB handed on", handed, 200_000, BYTES), ("arrays of 64 KB", array, 40_000, TENSOR)]
    {
        let dataset = synthetic(SyntheticSpec { samples, payload, ..SyntheticSpec::default() })?;
        let recipe = Recipe::from_json(recipe)?;
        epoch(&dataset, &recipe, true)?;
        let mut ratios = Vec::with_capacity(pairs);
        let mut rate = 0.0f64;
        for pair in 0..pairs {
            let first = pair % 2 == 0;
            let one = epoch(&dataset, &recipe, first)?;
            let other = epoch(&dataset, &recipe, !first)?;
            let (on, off) = if first { (one, other) } else { (other, one) };
            ratios.push(on / off - 1.0);
            rate = rate.max(samples as f64 / on);
        }
        ratios.sort_by(f64::total_cmp);
        let at = |share: f64| 100.0 * ratios[((pairs - 1) as f64 * share) as usize];
        println!(
            "{name}: {rate:.0} samples/s, metering costs {:.2} % (quartiles {:.2} and {:.2}, {pairs} pairs)",
            at(0.5),
            at(0.25),
            at(0.75)
        );
    }
    Ok(())
}

/// Seconds of one epoch.
fn epoch(dataset: &Dataset, recipe: &Recipe, metering: bool) -> Result<f64> {
    let consumer = Consumer { rank: 0, world_size: 1, batch_size: 256, last_batch: LastBatch::Partial };
    let config = LoaderConfig { consumer, threads: 2, epochs: Some(1), metering, ..LoaderConfig::default() };
    let mut loader = Loader::new(dataset.manifest(), Arc::clone(dataset.store()), recipe, config)?;
    loader.begin()?;
    let began = Instant::now();
    while !matches!(loader.next(Duration::from_secs(60))?, Next::End) {}
    Ok(began.elapsed().as_secs_f64())
}

/// An array of so many bytes.
fn npy(bytes: usize) -> Vec<u8> {
    let mut header = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': ({bytes},), }}");
    while (header.len() + 11) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((header.len() as u16).to_le_bytes());
    file.extend(header.as_bytes());
    file.resize(file.len() + bytes, 7);
    file
}
