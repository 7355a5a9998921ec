//! Real servers that are killed in the middle of an epoch and come back: nothing is lost, and nothing has to be set.
//!
//! `FOREBAY_TEST_S3_RESTART`, `FOREBAY_TEST_AIS_RESTART` and `FOREBAY_TEST_CASSANDRA_RESTART` name servers that a test may
//! kill; with `_RUN` behind it each is the folder that has their processes and a `restart`.
#![cfg(all(feature = "s3", feature = "cassandra"))]
#![expect(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

mod common;

use common::*;
use forebay_core::plan::Shuffle;
use forebay_core::recipe::Recipe;
use forebay_engine::source::ingest::{IngestOptions, ingest, row_id};
use forebay_engine::source::{Dataset, OpenOptions, open, open_rows};
use forebay_engine::{Batch, LoaderConfig};
use forebay_store::{CassandraStore, StoreOptions, remote};
use forebay_testkit::skip::server;
use forebay_testkit::tar::TarMaker;
use futures::stream::{self, StreamExt, TryStreamExt};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const SAMPLES: u64 = 1200;
/// Longer than five tries with their pauses take.
const AWAY: Duration = Duration::from_secs(8);

fn payload(sample: u64) -> Vec<u8> {
    (0..4000 + sample).map(|at| (sample * 31 + at * 7) as u8).collect()
}

fn key(sample: u64) -> String {
    format!("restart/{sample:05}.bin")
}

/// One object a sample, in a bucket that is there.
async fn filled(root: &str, words: &StoreOptions) -> Dataset {
    let store = remote::open(root, words).unwrap();
    let store = &store;
    let writes = stream::iter(0..SAMPLES)
        .map(|sample| async move { store.write(&key(sample), payload(sample).into()).await });
    writes.buffer_unordered(16).try_collect::<Vec<_>>().await.unwrap();
    let options = OpenOptions {
        extensions: vec!["bin".into()],
        storage_options: words.clone(),
        rebuild: true,
        ..OpenOptions::default()
    };
    open(&[format!("{root}/restart/")], &options).await.unwrap()
}

/// Ends processes as a power cut would, and waits until they are gone. Each must be one of the server in `run`.
fn kill(run: &Path, pid_files: &[&str]) {
    for file in pid_files {
        let pid = std::fs::read_to_string(run.join(file)).unwrap().trim().to_owned();
        let process = PathBuf::from("/proc").join(&pid).join("cmdline");
        let lives = || {
            let line = std::fs::read(&process).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(&run.display().to_string())
        };
        assert!(lives(), "process {pid} of `{file}` is a server of {}", run.display());
        assert!(Command::new("kill").args(["-KILL", &pid]).status().unwrap().success());
        let since = Instant::now();
        while lives() {
            assert!(since.elapsed() < Duration::from_secs(60), "the server is gone");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// An epoch whose server is killed when a part of it has come, and comes back a while later; and one epoch more.
fn ride_out(dataset: &Dataset, run: &str, pid_files: &[&str], expected: &HashMap<String, Vec<u8>>) {
    let run = Path::new(run).to_owned();
    let config = LoaderConfig {
        shuffle: Shuffle::Full,
        epochs: Some(2),
        // Few, so that most of the epoch is still to be asked for when the server is gone.
        prefetch_batches: Some(2),
        ..alone(16)
    };
    let recipe = Recipe::from_json(r#"[{"field": "bin", "decode": {"kind": "bytes"}}]"#).unwrap();
    let mut loader = loader(dataset, &recipe, config);
    let mut batches = steps(&mut loader, 20);
    kill(&run, pid_files);
    assert!(loader.stats().payloads < SAMPLES / 2, "{:?}", loader.stats());
    let back = std::thread::spawn(move || {
        std::thread::sleep(AWAY);
        let restarted = Command::new(run.join("restart")).output().unwrap();
        assert!(restarted.status.success(), "{}", String::from_utf8_lossy(&restarted.stderr));
    });
    batches.extend(std::iter::from_fn(|| next(&mut loader).unwrap()));
    back.join().unwrap();
    let stats = loader.stats();
    assert!(stats.store_away_seconds >= AWAY.as_secs_f64() / 2.0, "{stats:?}");
    assert_whole(dataset, &batches, expected);
    assert_whole(dataset, &epoch(&mut loader), expected);
}

/// Every sample exactly once, and each with its own bytes.
fn assert_whole(dataset: &Dataset, batches: &[Batch], expected: &HashMap<String, Vec<u8>>) {
    assert_each_once(ids(batches), SAMPLES);
    for batch in batches {
        let Some(forebay_ops::Column::Bytes(found)) = batch.column("bin") else { panic!("raw column") };
        for (id, bytes) in batch.ids.iter().zip(found) {
            assert!(expected[&dataset.manifest().key(*id)] == bytes[..], "sample {id:?}");
        }
    }
}

fn by_key(dataset: &Dataset) -> HashMap<String, Vec<u8>> {
    let keys = (0..SAMPLES).map(|sample| dataset.manifest().key(forebay_core::SampleId(sample)));
    keys.enumerate().map(|(sample, key)| (key, payload(sample as u64))).collect()
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

#[test]
fn minio_killed_and_started_again_in_the_middle_of_an_epoch_costs_no_sample() {
    let (Some(endpoint), Some(run)) =
        (server("FOREBAY_TEST_S3_RESTART"), server("FOREBAY_TEST_S3_RESTART_RUN"))
    else {
        return;
    };
    let words = StoreOptions::from([("endpoint".to_owned(), endpoint)]);
    let dataset = block_on(filled("s3://forebay-test", &words));
    ride_out(&dataset, &run, &["pid"], &by_key(&dataset));
}

#[test]
fn aistore_killed_and_started_again_in_the_middle_of_an_epoch_costs_no_sample() {
    let (Some(endpoint), Some(run)) =
        (server("FOREBAY_TEST_AIS_RESTART"), server("FOREBAY_TEST_AIS_RESTART_RUN"))
    else {
        return;
    };
    let words = StoreOptions::from([("endpoint".to_owned(), endpoint.clone())]);
    let created = Command::new("curl")
        .args([
            "-sSf",
            "-X",
            "POST",
            "-H",
            "content-type: application/json",
            "-d",
            r#"{"action":"create-bck"}"#,
        ])
        .arg(format!("{endpoint}/v1/buckets/forebay-restart"))
        .status();
    assert!(created.unwrap().success());
    let dataset = block_on(filled("ais://forebay-restart", &words));
    ride_out(&dataset, &run, &["target.pid", "proxy.pid"], &by_key(&dataset));
}

#[test]
fn cassandra_killed_and_started_again_in_the_middle_of_an_epoch_costs_no_sample() {
    let (Some(host), Some(run)) =
        (server("FOREBAY_TEST_CASSANDRA_RESTART"), server("FOREBAY_TEST_CASSANDRA_RESTART_RUN"))
    else {
        return;
    };
    let url = format!("cassandra://{host}/forebay_restart_test/killed");
    let folder = tempfile::tempdir().unwrap();
    let mut tar = TarMaker::new();
    for sample in 0..SAMPLES {
        tar = tar.file(&format!("{sample:05}.bin"), &payload(sample));
    }
    std::fs::write(folder.path().join("a.tar"), tar.finish()).unwrap();
    let options = OpenOptions {
        manifest_dir: Some(folder.path().join("manifests")),
        rebuild: true,
        ..OpenOptions::default()
    };
    let rows = block_on(async {
        let shard = open(&[folder.path().join("a.tar").display().to_string()], &options).await.unwrap();
        let store = CassandraStore::open(&url, &StoreOptions::new()).unwrap();
        let create = IngestOptions { create: Some(1), ..IngestOptions::default() };
        assert_eq!(ingest(&shard, &store, &create, &|_| Ok(())).await.unwrap().written, SAMPLES);
        open_rows(&url, &StoreOptions::new(), &options).await.unwrap()
    });
    let expected = (0..SAMPLES).map(|sample| (row_id(&format!("{sample:05}")), payload(sample))).collect();
    ride_out(&rows, &run, &["node1/pid"], &expected);
}
