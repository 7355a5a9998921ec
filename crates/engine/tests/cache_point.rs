//! Promises about what a cache keeps of a sample: values made once instead of payloads, where that pays, and never what
//! chance had a part in.
#![allow(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

mod common;

use common::*;
use forebay_core::ErrorKind;
use forebay_core::plan::Shuffle;
use forebay_core::recipe::Recipe;
use forebay_engine::cache::CacheConfig;
use forebay_engine::shard::{ShardWriter, ShardWriterOptions};
use forebay_engine::source::{Dataset, OpenOptions, open};
use forebay_engine::{CacheSettings, DeliveryOrder, Loader, LoaderConfig, OnError, Stats};
use forebay_ops::encode::{self, Subsampling};
use forebay_ops::{Image, Program};
use serde_json::json;

const HEADER: u64 = Program::PIXELS_HEADER_BYTES;

fn photo(seed: u32, width: u32, height: u32) -> Vec<u8> {
    let mut image = Image::new(width, height, 3);
    for (at, value) in image.pixels_mut().iter_mut().enumerate() {
        let (x, y) = ((at / 3) as u32 % width, (at / 3) as u32 / width);
        *value = ((x * (3 + seed) + y * 5) ^ (at as u32 % 3 * 40)) as u8;
    }
    encode::jpeg(&image, 90, Subsampling::S420).unwrap()
}

/// A dataset in a folder of its own.
struct Made {
    dataset: Dataset,
    _folder: tempfile::TempDir,
}

/// Samples of an image, these in turn, and a text.
fn images(samples: usize, templates: &[Vec<u8>]) -> Made {
    let folder = tempfile::tempdir().unwrap();
    let options = ShardWriterOptions::new(folder.path().join("t-%04d.tar").display().to_string());
    let mut writer = ShardWriter::new(options).unwrap();
    for sample in 0..samples {
        let text = format!("sample {sample}");
        let fields: [(&str, &[u8]); 2] =
            [("jpg", &templates[sample % templates.len()]), ("txt", text.as_bytes())];
        writer.add(&format!("{sample:05}"), &fields).unwrap();
    }
    writer.finish().unwrap();
    let url = folder.path().join("t-0000.tar").display().to_string();
    let dataset = futures::executor::block_on(open(&[url], &OpenOptions::default())).unwrap();
    Made { dataset, _folder: folder }
}

fn alike(samples: usize) -> Made {
    images(samples, &[0, 1, 2, 3, 4].map(|seed| photo(seed, 70, 50)))
}

fn unlike(samples: usize) -> Made {
    images(samples, &[0, 1, 2, 3, 4, 5, 6, 7, 8].map(|seed| photo(seed, 20 + seed * 13, 90 - seed * 7)))
}

/// An image column with these ops.
fn recipe(ops: &str) -> Recipe {
    Recipe::from_json(&format!(r#"[{{"field": "jpg", "decode": "image", "ops": [{ops}]}}]"#)).unwrap()
}

const TRAIN: &str = r#"{"op": "random_resized_crop", "size": 24}, {"op": "flip"},
    {"op": "normalize", "mean": [0.5, 0.5, 0.5], "std": [0.2, 0.2, 0.2]}"#;
const FIXED: &str = r#"{"op": "resize", "size": 40}, {"op": "center_crop", "size": 32}, {"op": "flip"},
    {"op": "color_jitter", "brightness": 0.4, "contrast": 0.4}, {"op": "random_erasing", "p": 0.5}"#;
const PADDED: &str = r#"{"op": "center_crop", "size": 48}, {"op": "pad", "border": [2, 2, 2, 2]},
    {"op": "random_crop", "size": 40}"#;

fn config(epochs: u64) -> LoaderConfig {
    LoaderConfig { shuffle: Shuffle::Full, threads: 2, seed: 3, epochs: Some(epochs), ..alone(16) }
}

fn cached(dataset: &Dataset, recipe: &Recipe, memory: u64, at: &str, config: LoaderConfig) -> Loader {
    let setting = CacheConfig::from_json(&json!({"memory": memory, "at": at})).unwrap();
    loader(dataset, recipe, config).with_cache(CacheSettings::local(setting))
}

/// Hits of ready-made values, payloads fetched, values made, after one more epoch.
fn counted(loader: &mut Loader, samples: u64) -> (u64, u64, u64) {
    let before = loader.stats();
    assert_each_once(ids(&epoch(loader)), samples);
    let after = loader.stats();
    assert!(after.cache_memory_bytes <= after.cache_memory_limit_bytes, "{after:?}");
    let more = |count: fn(&Stats) -> u64| count(&after) - count(&before);
    (more(|s| s.cache_value_hits), more(|s| s.payloads), more(|s| s.cache_values_made))
}

#[test]
fn p067_what_is_kept_ready_made_is_neither_fetched_nor_decoded_again() {
    let (samples, epochs) = (90, 4);
    let Made { dataset, _folder } = alike(samples as usize);
    let mut loader = cached(&dataset, &recipe(TRAIN), 1 << 30, "decode", config(epochs));
    for _ in 0..epochs {
        assert_each_once(ids(&epoch(&mut loader)), samples);
    }
    let stats = loader.stats();
    // A sample without a payload cannot be decoded: every one was fetched and decoded once in all epochs.
    assert_eq!((stats.payloads, stats.cache_values_made), (samples, samples));
    assert_eq!(
        (stats.cache_value_hits, stats.cache_memory_hits),
        ((epochs - 1) * samples, (epochs - 1) * samples)
    );
    assert_eq!(stats.cache_memory_bytes, samples * (70 * 50 * 3 + HEADER));
    assert_eq!(stats.cache_at, "decode");
}

#[test]
fn p067_hits_are_exact_from_the_second_epoch_when_values_are_of_one_size() {
    let (samples, epochs, resident) = (100, 5, 37);
    let Made { dataset, _folder } = unlike(samples as usize);
    let value_bytes = 32 * 32 * 3 + HEADER;
    let memory = resident * value_bytes + value_bytes - 1;
    let mut loader = cached(&dataset, &recipe(FIXED), memory, "center_crop", config(epochs));
    for _ in 0..epochs {
        assert_each_once(ids(&epoch(&mut loader)), samples);
    }
    let stats = loader.stats();
    let fetched = samples + (epochs - 1) * (samples - resident);
    assert_eq!(stats.payloads, fetched, "{stats:?}");
    assert_eq!((stats.cache_value_hits, stats.cache_values_made), ((epochs - 1) * resident, resident));
    assert_eq!((stats.cache_memory_bytes, stats.cache_memory_limit_bytes), (resident * value_bytes, memory));
}

#[test]
fn p067_values_of_many_sizes_stay_below_the_limit_and_hits_stay_the_same() {
    let samples = 120;
    let Made { dataset, _folder } = unlike(samples as usize);
    // About a third of what all would take.
    let mut loader = cached(&dataset, &recipe(TRAIN), 400_000, "decode", config(5));
    let (_, _, made) = counted(&mut loader, samples);
    assert!(made > samples / 6, "{made}");
    // The next epoch is fetched ahead while this one ends: only the sum over all epochs is settled.
    for _ in 0..4 {
        counted(&mut loader, samples);
    }
    let stats = loader.stats();
    assert_eq!(stats.cache_value_hits, 4 * stats.cache_values_made, "{stats:?}");
    assert_eq!(stats.payloads, 5 * samples - stats.cache_value_hits);
    assert!(stats.cache_memory_bytes <= 400_000);
}

#[test]
fn p067_batches_are_the_same_to_the_bit_with_and_without_and_crops_differ_between_epochs() {
    let samples = 60;
    let Made { dataset, _folder } = unlike(samples as usize);
    for (ops, at, memory) in [
        (TRAIN, "decode", 1 << 30),
        (TRAIN, "decode", 300_000),
        (TRAIN, "auto", 1 << 30),
        (FIXED, "center_crop", 1 << 30),
        (FIXED, "center_crop", 90_000),
        (FIXED, "decode", 1 << 30),
        (PADDED, "pad", 1 << 30),
        (PADDED, "center_crop", 200_000),
        (PADDED, "auto", 300_000),
    ] {
        let recipe = recipe(ops);
        let mut plain = loader(&dataset, &recipe, config(3));
        let mut kept = cached(&dataset, &recipe, memory, at, config(3));
        let mut first: Option<Vec<Vec<u8>>> = None;
        for _ in 0..3 {
            let expected: Vec<Vec<u8>> = epoch(&mut plain).iter().map(bytes).collect();
            let made: Vec<Vec<u8>> = epoch(&mut kept).iter().map(bytes).collect();
            assert!(expected == made, "{at} with {memory} bytes: {ops}");
            assert!(first.as_ref() != Some(&made), "epochs differ");
            first.get_or_insert(made);
        }
        if at != "auto" {
            assert!(kept.stats().cache_value_hits > 0, "{at}: {ops}");
        }
    }
}

const CROP: &str = r#"{"op": "random_crop", "size": 32}"#;

/// What two epochs under `auto` tell.
fn chosen(dataset: &Dataset, ops: &str, memory: u64) -> Stats {
    let mut loader = cached(dataset, &recipe(ops), memory, "auto", config(2));
    for _ in 0..2 {
        assert_each_once(ids(&epoch(&mut loader)), dataset.manifest().len());
    }
    loader.stats()
}

#[test]
fn p067_an_expensive_step_is_cached_after_it_by_measurement() {
    let Made { dataset, _folder } = alike(8);
    // So long that no busy machine makes up for it.
    let stats = chosen(&dataset, &format!(r#"{{"op": "delay", "seconds": 0.2}}, {CROP}"#), 1 << 30);
    assert_eq!(
        (stats.cache_at.as_str(), stats.cache_value_hits, stats.payloads),
        ("delay", 8, 8),
        "{stats:?}"
    );
    assert!(stats.cache_at_why.contains("bytes: 100 % in memory"), "{}", stats.cache_at_why);
}

#[test]
fn p067_payloads_are_kept_when_hardly_a_value_would_fit() {
    let gray = Image::new(200, 200, 3);
    let Made { dataset, _folder } = images(60, &[encode::jpeg(&gray, 50, Subsampling::S420).unwrap()]);
    // A twentieth of the samples could be kept decoded: that is less than what counts as better, however long decoding
    // takes.
    let memory = 3 * (200 * 200 * 3 + HEADER);
    assert!(dataset.manifest().total_bytes() <= memory);
    let stats = chosen(&dataset, CROP, memory);
    assert_eq!((stats.cache_at.as_str(), stats.cache_value_hits), ("bytes", 0), "{stats:?}");
    assert_eq!((stats.payloads, stats.cache_memory_hits), (60, 60));
}

#[test]
fn p067_nothing_is_cached_after_chance_and_the_refusal_says_why() {
    let Made { dataset, _folder } = alike(8);
    let ops = format!(r#"{CROP}, {{"op": "center_crop", "size": 20}}"#);
    for (at, why) in
        [("random_crop", "drawn anew"), ("center_crop", "chance was drawn"), ("resize", "no column")]
    {
        let mut loader = cached(&dataset, &recipe(&ops), 1 << 30, at, config(1));
        loader.begin().unwrap();
        let error = next(&mut loader).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig);
        assert!(error.message().contains(why), "{error}");
    }
}

#[test]
fn p067_damage_that_a_crop_does_not_see_stays_unseen_and_other_damage_is_handled_alike() {
    let mut templates: Vec<Vec<u8>> = (0..4).map(|seed| photo(seed, 64, 160)).collect();
    // Its last rows are missing: a crop of the middle does not need them.
    let half = templates[1].len() * 4 / 5;
    templates[1].truncate(half);
    templates[2] = b"no image at all".to_vec();
    let Made { dataset, _folder } = images(40, &templates);
    let recipe = recipe(r#"{"op": "center_crop", "size": 32}, {"op": "flip"}"#);
    for (at, on_error) in [
        ("decode", OnError::Skip),
        ("center_crop", OnError::Skip),
        ("decode", OnError::Substitute),
        ("auto", OnError::Substitute),
    ] {
        let config = || LoaderConfig { on_error, ..config(3) };
        let mut plain = loader(&dataset, &recipe, config());
        let mut kept = cached(&dataset, &recipe, 1 << 30, at, config());
        for _ in 0..3 {
            let expected: Vec<Vec<u8>> = epoch(&mut plain).iter().map(bytes).collect();
            let made: Vec<Vec<u8>> = epoch(&mut kept).iter().map(bytes).collect();
            assert!(expected == made, "{at} {on_error:?}");
        }
        let bad = |loader: &Loader| loader.faults().iter().map(|fault| fault.sample_id).collect::<Vec<_>>();
        assert_eq!(bad(&plain), bad(&kept));
        assert!(!bad(&kept).is_empty());
    }
}

#[test]
fn payloads_of_other_columns_are_kept_beside_values_and_a_disk_keeps_payloads() {
    let samples = 50;
    let Made { dataset, _folder } = images(samples as usize, &[0, 1, 2, 3].map(|seed| photo(seed, 40, 30)));
    let recipe = Recipe::from_json(&format!(
        r#"[{{"field": "jpg", "decode": "image", "ops": [{TRAIN}]}}, {{"field": "txt", "decode": "text"}}]"#
    ))
    .unwrap();
    let disk = tempfile::tempdir().unwrap();
    let resident = 20;
    let memory = resident * (40 * 30 * 3 + HEADER + "sample 10".len() as u64);
    for disk in [None, Some(format!("{}:64MiB", disk.path().display()))] {
        let mut setting = json!({"memory": memory, "at": "decode"});
        if let Some(disk) = &disk {
            setting["disk"] = json!(disk);
        }
        let settings = CacheSettings::local(CacheConfig::from_json(&setting).unwrap());
        let mut plain = loader(&dataset, &recipe, config(3));
        let mut kept = loader(&dataset, &recipe, config(3)).with_cache(settings);
        for _ in 0..3 {
            let expected: Vec<Vec<u8>> = epoch(&mut plain).iter().map(bytes).collect();
            let made: Vec<Vec<u8>> = epoch(&mut kept).iter().map(bytes).collect();
            assert!(expected == made, "{disk:?}");
        }
        let stats = kept.stats();
        assert!(stats.cache_memory_bytes <= memory, "{stats:?}");
        assert!(stats.cache_value_hits >= 2 * (resident - 1), "{stats:?}");
        match disk {
            // What is in memory needs no disk, and what is on disk needs no store.
            Some(_) => assert_eq!(stats.payloads, 2 * samples, "{stats:?}"),
            None => assert_eq!(stats.payloads, 6 * samples - stats.cache_memory_hits, "{stats:?}"),
        }
        kept.close();
    }
}

#[test]
fn room_may_change_and_order_may_be_by_arrival() {
    let samples = 80;
    let Made { dataset, _folder } = alike(samples as usize);
    let recipe = recipe(FIXED);
    let value_bytes = 32 * 32 * 3 + HEADER;
    let config = LoaderConfig { order: DeliveryOrder::Arrival { window: 40 }, epochs: None, ..config(1) };
    let mut loader = cached(&dataset, &recipe, 60 * value_bytes, "center_crop", config);
    for _ in 0..3 {
        counted(&mut loader, samples);
    }
    assert_eq!(loader.stats().cache_memory_bytes, 60 * value_bytes);
    loader.resize_cache(forebay_core::cache::Capacity { memory: 10 * value_bytes, disk: 0 }).unwrap();
    assert_eq!(loader.stats().cache_memory_bytes, 10 * value_bytes);
    counted(&mut loader, samples);
    loader.resize_cache(forebay_core::cache::Capacity { memory: 200 * value_bytes, disk: 0 }).unwrap();
    // What was fetched ahead before there was room comes by without being kept.
    let full = |loader: &Loader| loader.stats().cache_memory_bytes == 80 * value_bytes;
    for _ in 0..40 {
        counted(&mut loader, samples);
        if full(&loader) {
            break;
        }
    }
    assert!(full(&loader), "{:?}", loader.stats());
}
