//! Promises about memory: a limit in bytes that holds, and a clear word when it cannot.
#![allow(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

mod common;

use common::*;
use forebay_core::ErrorKind;
use forebay_core::plan::{BlockShuffle, Shuffle};
use forebay_engine::{Loader, LoaderConfig};
use std::sync::Arc;

const MB: u64 = 1_000_000;

/// Row 2: 64 MB limit, 1 MB samples.
#[test]
fn p002_bytes_in_flight_never_exceed_the_limit_and_one_sample() {
    let dataset = noise(400, MB, 8);
    for shuffle in [
        Shuffle::Sequential,
        Shuffle::Full,
        Shuffle::Block(BlockShuffle { block_bytes: 8 * MB, group_blocks: 16 }),
    ] {
        let config = LoaderConfig { shuffle, memory_bytes: Some(64 * MB), ..alone(8) };
        let mut loader = loader(&dataset, &raw_recipe(), config);
        assert_each_once(ids(&epoch(&mut loader)), 400);
        let stats = loader.stats();
        assert!(stats.memory_limit_bytes <= 64 * MB, "{} bytes planned", stats.memory_limit_bytes);
        // Open batches hold payloads too; their share is set aside, what is left bounds the payloads on their way.
        let batches = stats.open_batches * 8 * MB;
        assert!(
            stats.payload_peak_bytes <= 64 * MB - batches + MB,
            "{} bytes of payloads",
            stats.payload_peak_bytes
        );
        assert!(stats.payload_peak_bytes >= 8 * MB, "the budget is used, not avoided");
    }
}

/// Samples of very different sizes, one of them larger than all that payloads may take.
#[test]
fn a_sample_larger_than_the_budget_passes_alone() {
    let tars = tempfile::tempdir().unwrap();
    let options =
        forebay_engine::shard::ShardWriterOptions::new(format!("{}/a-%06d.tar", tars.path().display()));
    let mut writer = forebay_engine::shard::ShardWriter::new(options).unwrap();
    for number in 0..60usize {
        let bytes = vec![number as u8; if number == 30 { 3_000_000 } else { 1000 * (1 + number % 7) }];
        writer.add(&format!("{number:03}"), &[("bin", &bytes), ("cls", b"1")]).unwrap();
    }
    writer.finish().unwrap();
    let spec = [format!("{}/*.tar", tars.path().display())];
    let options = forebay_engine::source::OpenOptions {
        manifest_dir: Some(tars.path().join("m")),
        ..Default::default()
    };
    let dataset = futures::executor::block_on(forebay_engine::source::open(&spec, &options)).unwrap();
    let recipe = forebay_core::recipe::Recipe::from_json(
        r#"[{"field": "cls", "decode": {"kind": "label"}}, {"field": "bin", "decode": {"kind": "bytes"}}]"#,
    )
    .unwrap();
    let config = LoaderConfig { shuffle: Shuffle::Full, memory_bytes: Some(7_000_000), ..alone(1) };
    let mut loader = loader(&dataset, &recipe, config);
    assert_each_once(ids(&epoch(&mut loader)), 60);
}

#[test]
fn p078_too_little_memory_is_said_with_need_limit_and_advice() {
    let dataset = noise(100, MB, 1);
    let config = LoaderConfig { memory_bytes: Some(4 * MB), ..alone(8) };
    let Err(error) = Loader::new(dataset.manifest(), Arc::clone(dataset.store()), &raw_recipe(), config)
    else {
        panic!("8 MB do not fit in 4 MB");
    };
    assert_eq!(error.kind(), ErrorKind::Exhausted);
    let text = error.report();
    for word in ["4 MB", "8 MB", "hint", "batch_size"] {
        assert!(text.contains(word), "{text} lacks {word}");
    }
}

#[test]
fn tiny_samples_do_not_pile_up_accounts_without_bound() {
    let dataset = noise(50_000, 1, 3);
    let mut loader = loader(&dataset, &label_recipe(), LoaderConfig { shuffle: Shuffle::Full, ..alone(10) });
    let first = steps(&mut loader, 1);
    assert_eq!(first.len(), 1);
    // With the consumer asleep the plane stops after the batches it may announce.
    std::thread::sleep(std::time::Duration::from_millis(50));
    let made = loader.stats().samples + loader.stats().payloads;
    assert!(made < 1000, "{made} samples were made for nobody");
}
