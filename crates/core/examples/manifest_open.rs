//! Prints how large a manifest of 1.28 million samples in two payload fields is and how long opening it takes.
//!
//! `cargo run --release -p forebay-core --example manifest_open`

#![expect(clippy::print_stdout, reason = "an example speaks to a person")]
#![expect(clippy::disallowed_methods, reason = "the clock measures the library from outside")]

use forebay_core::manifest::{FieldInfo, FieldKind, Manifest, ManifestBuilder, Value};
use forebay_core::rng::mix64;
use forebay_core::size::{format_bytes, format_seconds};
use forebay_core::{Result, SampleId};
use std::hint::black_box;
use std::time::Instant;

const SAMPLES: u64 = 1_281_167;

fn main() -> Result<()> {
    let started = Instant::now();
    let bytes = build()?;
    println!("built   {SAMPLES} samples in {}", format_seconds(started.elapsed().as_secs_f64()));
    println!("size    {}", format_bytes(bytes.len() as u64));

    let tries = 10;
    let mut best = f64::INFINITY;
    for _ in 0..tries {
        let copy = bytes.clone();
        let started = Instant::now();
        black_box(Manifest::open(copy)?);
        best = best.min(started.elapsed().as_secs_f64());
    }
    println!("open    {} (best of {tries})", format_seconds(best));

    let manifest = Manifest::open(bytes)?;
    let each = |what: &str, read: &dyn Fn(SampleId)| {
        let started = Instant::now();
        (0..SAMPLES).for_each(|sample| read(SampleId(mix64(sample) % SAMPLES)));
        println!(
            "{what} {}",
            format_seconds(started.elapsed().as_secs_f64() / SAMPLES as f64 * 1e3) + " per 1000"
        );
    };
    each("locate ", &|sample| _ = black_box(manifest.location(sample, 0)));
    each("key    ", &|sample| _ = black_box(manifest.key(sample)));
    Ok(())
}

fn build() -> Result<Vec<u8>> {
    let field = |name: &str| FieldInfo { name: name.into(), kind: FieldKind::Payload };
    let mut builder =
        ManifestBuilder::new(vec![field("jpg"), field("cls")], serde_json::json!({"kind": "tar"}));
    let mut offset = 0;
    for sample in 0..SAMPLES {
        if sample % 1252 == 0 {
            builder.add_object(&format!("train-{:06}.tar", sample / 1252), 150_000_000, mix64(sample))?;
            offset = 0;
        }
        let length = 20_000 + mix64(sample) % 180_000;
        let jpg = Value::Payload { object: None, offset: offset + 512, length };
        offset += 512 + length.next_multiple_of(512);
        let cls = Value::Payload { object: None, offset: offset + 512, length: 3 };
        offset += 1024;
        let class = 1_440_764 + sample / 1281 * 13_577;
        let key = format!("n{class:08}/n{class:08}_{}", 2 + sample * 7 % 30_000);
        builder.add_sample(&key, &[(0, jpg), (1, cls)])?;
    }
    builder.finish()
}
