//! Three real Cassandra nodes of which one is killed while a loop reads. `FOREBAY_TEST_CASSANDRA_THREE` (host:port of
//! each) names them, `FOREBAY_TEST_CASSANDRA_THREE_RUN` the folder that has their processes in `nodeI/pid`.
#![cfg(feature = "cassandra")]
#![expect(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

mod common;

use common::*;
use forebay_core::SampleId;
use forebay_core::plan::Shuffle;
use forebay_core::recipe::Recipe;
use forebay_engine::source::ingest::{IngestOptions, ingest, row_id};
use forebay_engine::source::{Dataset, OpenOptions, open, open_rows};
use forebay_engine::{Batch, LoaderConfig};
use forebay_store::{ByteRange, CassandraStore, StoreOptions};
use forebay_testkit::skip;
use forebay_testkit::tar::TarMaker;
use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const SAMPLES: u64 = 1200;
const BATCH: u64 = 16;

fn payload(sample: u64) -> Vec<u8> {
    (0..4000 + sample).map(|at| (sample * 31 + at * 7) as u8).collect()
}

/// A table with each row on all three nodes.
async fn filled(url: &str, folder: &Path) -> Dataset {
    let mut tar = TarMaker::new();
    for sample in 0..SAMPLES {
        tar = tar.file(&format!("{sample:05}.bin"), &payload(sample));
    }
    std::fs::write(folder.join("a.tar"), tar.finish()).unwrap();
    let options =
        OpenOptions { manifest_dir: Some(folder.join("manifests")), rebuild: true, ..OpenOptions::default() };
    let shard = open(&[folder.join("a.tar").display().to_string()], &options).await.unwrap();
    let store = CassandraStore::open(url, &StoreOptions::new()).unwrap();
    let create = IngestOptions { create: Some(3), ..IngestOptions::default() };
    assert_eq!(ingest(&shard, &store, &create, &|_| Ok(())).await.unwrap().written, SAMPLES);
    open_rows(url, &StoreOptions::new(), &options).await.unwrap()
}

/// Every sample exactly once, and each with its own bytes.
fn assert_whole(rows: &Dataset, batches: &[Batch]) {
    let payloads: HashMap<String, Vec<u8>> =
        (0..SAMPLES).map(|sample| (row_id(&format!("{sample:05}")), payload(sample))).collect();
    assert_each_once(ids(batches), SAMPLES);
    for batch in batches {
        let Some(forebay_ops::Column::Bytes(found)) = batch.column("bin") else { panic!("raw column") };
        for (id, bytes) in batch.ids.iter().zip(found) {
            assert!(payloads[&rows.manifest().key(*id)] == bytes[..], "sample {id:?}");
        }
    }
}

/// Ends a node as a power cut would, and waits until it is gone.
fn kill(node: &Path) {
    let pid = std::fs::read_to_string(node.join("pid")).unwrap().trim().to_owned();
    let process = Path::new("/proc").join(&pid).join("cmdline");
    let is_node = || {
        let line = std::fs::read(&process).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(&node.join("conf").display().to_string())
    };
    assert!(is_node(), "process {pid} is the node");
    assert!(Command::new("kill").args(["-KILL", &pid]).status().unwrap().success());
    let since = Instant::now();
    while is_node() {
        assert!(since.elapsed() < Duration::from_secs(60), "the node is gone");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn p010_a_node_killed_in_the_middle_of_an_epoch_costs_no_sample() {
    let Some(nodes) = skip::server("FOREBAY_TEST_CASSANDRA_THREE") else { return };
    let Some(run) = skip::server("FOREBAY_TEST_CASSANDRA_THREE_RUN") else { return };
    let time = std::time::UNIX_EPOCH.elapsed().unwrap().as_micros();
    let url = format!("cassandra://{nodes}/forebay_three_test/killed_{time}");
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let rows = runtime.block_on(filled(&url, folder.path()));

    let config = LoaderConfig {
        shuffle: Shuffle::Full,
        epochs: Some(2),
        // Few, so that most of the epoch is still to be asked for when the node is gone.
        prefetch_batches: Some(2),
        ..alone(BATCH)
    };
    let recipe = Recipe::from_json(r#"[{"field": "bin", "decode": {"kind": "bytes"}}]"#).unwrap();
    let mut loader = loader(&rows, &recipe, config);
    let mut batches = steps(&mut loader, 20);
    // The one that was named first: the driver learns from it what the cluster looks like.
    kill(&Path::new(&run).join("node1"));
    assert!(loader.stats().payloads < SAMPLES / 2, "{:?}", loader.stats());
    batches.extend(std::iter::from_fn(|| next(&mut loader).unwrap()));
    assert_whole(&rows, &batches);
    assert_whole(&rows, &epoch(&mut loader));
    loader.close();

    // Whoever comes only now finds the others.
    let late = runtime.block_on(async {
        let options = OpenOptions { manifest_dir: None, rebuild: true, ..OpenOptions::default() };
        let rows = open_rows(&url, &StoreOptions::new(), &options).await.unwrap();
        assert_eq!(rows.manifest().len(), SAMPLES);
        rows.read_field(SampleId(7), 0, ByteRange::Full).await.unwrap().len()
    });
    assert!(late >= 4000);
}
