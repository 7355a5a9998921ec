//! Rates that were made by construction are found: a store of known bandwidth, an op that sleeps, a step of known length.
//!
//! The promise is a rate, so this runs in real time. Everything sleeps and nothing computes, so other work on the machine
//! hardly matters; the best of three tries counts.
#![allow(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

mod common;

use common::*;
use forebay_core::recipe::Recipe;
use forebay_core::stall::{Analysis, Bottleneck, Rate, Rates, analyze};
use forebay_core::{Error, ErrorKind};
use forebay_engine::source::Dataset;
use forebay_engine::{LoaderConfig, measure};
use forebay_store::{ByteRange, LocalStore, Throttle, ThrottleStore};
use std::sync::Arc;

const BYTES: u64 = 4096;

/// Samples behind a link that carries `fetch` of them a second.
fn throttled(samples: u64, fetch: u64) -> Dataset {
    let data = noise(samples, BYTES, 1);
    let throttle = Throttle { bytes_per_second: Some(fetch * BYTES), ..Throttle::default() };
    let store = ThrottleStore::new(Arc::clone(data.store()), throttle);
    Dataset::new(data.manifest().clone(), Arc::new(store), "throttled").unwrap()
}

/// Ops of `threads` threads that give `prep` samples a second.
fn sleeping(prep: f64, threads: usize) -> Recipe {
    let seconds = threads as f64 / prep;
    let text = format!(
        r#"[{{"field": "bin", "decode": {{"kind": "bytes"}}, "ops": [{{"op": "delay", "seconds": {seconds}}}]}}]"#
    );
    Recipe::from_json(&text).unwrap()
}

fn analyzed(ingest: f64, prep: f64, fetch: u64) -> Analysis {
    // One request a sample: a long one would keep all of its samples back until its end.
    let config = LoaderConfig { threads: 8, request_bytes: Some(BYTES), ..alone(4) };
    let recipe = sleeping(prep, 8);
    let measured = measure(&throttled(4000, fetch), &recipe, &config, 2.0, &mut || Ok(())).unwrap();
    assert!(measured.cold, "what is behind a link is in nobody's page cache");
    let rates = Rates { ingest: Rate::exact(ingest), prep: measured.prep, fetch: measured.fetch };
    analyze(rates, measured.facts, None).unwrap()
}

fn off(found: f64, made: f64) -> f64 {
    (found / made - 1.0).abs()
}

#[test]
fn p068_known_sleeps_are_found_within_a_tenth_and_shares_within_five_points() {
    let mut said = Vec::new();
    for _ in 0..3 {
        let analysis = analyzed(200.0, 100.0, 50);
        let (prep, fetch) = (analysis.rates.prep, analysis.rates.fetch.unwrap());
        let first = analysis.prediction.first;
        let shares = [first.step_seconds, first.prep_stall_seconds, first.fetch_stall_seconds]
            .map(|s| s / first.seconds);
        let close = off(prep.per_second, 100.0) < 0.1
            && off(fetch.per_second, 50.0) < 0.1
            && shares.iter().zip([0.25, 0.25, 0.5]).all(|(found, made)| (found - made).abs() < 0.05);
        // What does not depend on time.
        assert_eq!((analysis.facts.sample_bytes, analysis.facts.samples), (BYTES as f64, 4000));
        if close && first.bottleneck == Bottleneck::Fetch {
            return;
        }
        said.push((prep, fetch, shares));
    }
    panic!("three times beside it: {said:?}");
}

#[test]
fn measuring_ends_when_the_caller_wants_it() {
    let mut asked = 0;
    let mut go_on = || {
        asked += 1;
        if asked > 3 { Err(Error::cancelled("enough")) } else { Ok(()) }
    };
    let error = measure(&throttled(400, 50), &raw_recipe(), &alone(4), 60.0, &mut go_on).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
}

#[test]
fn a_recipe_without_payloads_has_no_fetch_rate() {
    let measured = measure(&noise(400, BYTES, 1), &label_recipe(), &alone(4), 0.05, &mut || Ok(())).unwrap();
    assert_eq!(measured.fetch, None);
    assert_eq!(measured.facts.sample_bytes, 0.0);
    assert!(measured.prep.per_second > 0.0);
}

#[test]
fn files_are_measured_cold() {
    let data = noise(64, 5000, 1);
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let key = data.manifest().object(0).key.to_string();
    let bytes = runtime.block_on(data.store().read(&key, ByteRange::Full)).unwrap();
    let path = folder.path().join(&key);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
    let store = LocalStore::new(folder.path().to_path_buf());
    let dataset = Dataset::new(data.manifest().clone(), Arc::new(store), "files").unwrap();
    let measured = measure(&dataset, &bytes_recipe(), &alone(4), 0.05, &mut || Ok(())).unwrap();
    assert!(measured.cold && measured.fetch.is_some());
    assert_eq!(measured.facts.sample_bytes, 5000.0);
}
