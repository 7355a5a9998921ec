//! A whole epoch over a line that loses packets. Alone in its file, because all network threads of this process shall
//! be in the client's network.
#![allow(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

mod common;

use common::*;
use forebay_core::plan::Shuffle;
use forebay_engine::LoaderConfig;
use forebay_engine::source::{OpenOptions, open};
use forebay_testkit::server::{BUCKET, Objects, SlowServer, generated};
use forebay_testkit::skip::skipped;
use forebay_testkit::wan::packets::{Cable, CableOptions, Side};
use std::time::Duration;

const SAMPLES: u64 = 600;
const BYTES: u64 = 30_000;

#[test]
fn an_epoch_over_a_line_that_loses_packets_is_exact() {
    let options = CableOptions {
        round_trip: Duration::from_millis(20),
        bytes_per_second: 100_000_000 / 8,
        loss: 0.01,
        seed: 3,
        ..CableOptions::default()
    };
    let cable = match Cable::start(&options) {
        Ok(cable) => cable,
        Err(fault) => return skipped(&fault.report()),
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The server lives and ends in its own network, however the client ends.
            cable.enter(Side::Server).unwrap();
            let listen = (Side::Server.address(), 0).into();
            let server = SlowServer::start_at(listen, Objects::new().many(SAMPLES, BYTES)).unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    cable.enter(Side::Client).unwrap();
                    read_epoch(&server.url());
                });
            });
        });
    });
    let counts = cable.counts();
    assert!(counts.lost > 50, "{counts:?}");
    assert!(counts.down_bytes > SAMPLES * BYTES, "{counts:?}");
}

/// Every sample of one shuffled epoch once, each with its own bytes.
fn read_epoch(endpoint: &str) {
    let folder = tempfile::tempdir().unwrap();
    let words = [("endpoint", endpoint), ("anonymous", "true"), ("allow_http", "true")];
    let options = OpenOptions {
        manifest_dir: Some(folder.path().to_path_buf()),
        extensions: vec!["bin".into()],
        storage_options: words.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        ..OpenOptions::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let dataset = runtime.block_on(open(&[format!("s3://{BUCKET}/")], &options)).unwrap();
    let config = LoaderConfig { shuffle: Shuffle::Full, epochs: Some(1), ..alone(32) };
    let batches = epoch(&mut loader(&dataset, &bytes_recipe(), config));
    assert_each_once(ids(&batches), SAMPLES);
    for batch in &batches {
        let Some(forebay_ops::Column::Bytes(payloads)) = batch.column("bin") else { panic!("raw column") };
        for (id, payload) in batch.ids.iter().zip(payloads) {
            let expected = generated(&format!("o/{:06}.bin", id.0), 0, BYTES as usize);
            assert!(payload[..] == expected, "bytes of sample {}", id.0);
        }
    }
}
