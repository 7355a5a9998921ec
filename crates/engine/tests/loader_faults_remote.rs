//! Faults of a real server on loopback, seen by a loop: recovery or a clear error, nothing lost, nothing twice.
#![allow(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

mod common;

use common::*;
use forebay_core::ErrorKind;
use forebay_core::plan::Shuffle;
use forebay_core::recipe::Recipe;
use forebay_engine::source::{Dataset, OpenOptions, open};
use forebay_engine::{LoaderConfig, OnError};
use forebay_store::RetryOptions;
use forebay_testkit::server::{Act, BUCKET, Fault, Objects, SlowServer};
use forebay_testkit::tar::TarMaker;
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

const SAMPLES: u64 = 120;

fn payload(sample: u64) -> Vec<u8> {
    (0..3000u64).map(|at| (sample * 31 + at) as u8).collect()
}

/// Four shards of thirty samples behind HTTP, opened without a manifest kept on this machine.
fn shards() -> (SlowServer, Dataset, tempfile::TempDir) {
    let mut objects = Objects::new();
    for shard in 0..4 {
        let mut tar = TarMaker::new();
        for sample in shard * 30..(shard + 1) * 30 {
            tar = tar.file(&format!("{sample:05}.bin"), &payload(sample));
        }
        objects = objects.with(&format!("s-{shard}.tar"), &tar.finish());
    }
    let server = SlowServer::start(objects).unwrap();
    let (dataset, folder) = opened(&format!("{}/{BUCKET}/s-{{0..3}}.tar", server.url()), &[]);
    (server, dataset, folder)
}

/// One object a sample behind the S3 listing of the same server.
fn bucket() -> (SlowServer, Dataset, tempfile::TempDir) {
    let keyed = |objects: Objects, sample| objects.with(&format!("o/{sample:05}.bin"), &payload(sample));
    let server = SlowServer::start((0..SAMPLES).fold(Objects::new(), keyed)).unwrap();
    let words = [("endpoint", server.url()), ("anonymous", "true".to_owned())];
    let (dataset, folder) = opened(&format!("s3://{BUCKET}/o/"), &words);
    (server, dataset, folder)
}

fn opened(spec: &str, words: &[(&str, String)]) -> (Dataset, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let options = OpenOptions {
        manifest_dir: Some(folder.path().to_path_buf()),
        extensions: vec!["bin".into()],
        storage_options: words.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
        ..OpenOptions::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    (runtime.block_on(open(&[spec.to_owned()], &options)).unwrap(), folder)
}

fn recipe() -> Recipe {
    Recipe::from_json(r#"[{"field": "bin", "decode": {"kind": "bytes"}}]"#).unwrap()
}

fn config() -> LoaderConfig {
    LoaderConfig {
        shuffle: Shuffle::Full,
        epochs: Some(1),
        retry: RetryOptions { first_pause: Duration::from_millis(5), tries: 12, ..RetryOptions::default() },
        ..alone(8)
    }
}

/// Every sample exactly once, and each with its own bytes.
fn assert_whole(batches: &[forebay_engine::Batch]) {
    assert_each_once(ids(batches), SAMPLES);
    for batch in batches {
        let Some(forebay_ops::Column::Bytes(payloads)) = batch.column("bin") else { panic!("raw column") };
        assert!(batch.ids.iter().zip(payloads).all(|(id, bytes)| bytes[..] == payload(id.0)));
    }
}

#[test]
fn shards_and_objects_behind_a_url_are_read_as_from_a_disk() {
    for (_server, dataset, _folder) in [shards(), bucket()] {
        assert_eq!(dataset.manifest().len(), SAMPLES);
        let mut loader = loader(&dataset, &recipe(), config());
        assert_whole(&epoch(&mut loader));
        loader.close();
        assert!(loader.stats().window_bytes > 0, "what was found is told after the end too");
    }
}

#[test]
fn p013_cut_refused_and_broken_answers_are_made_good() {
    for (server, dataset, _folder) in [shards(), bucket()] {
        // By how often a key was asked for since it was opened: the first two answers of each are wrong, the very first
        // one a refusal.
        let asked: Mutex<HashMap<String, (usize, usize)>> = Mutex::default();
        server.script(move |seen| {
            let mut asked = asked.lock().unwrap();
            let keys = asked.len();
            let (first, times) = asked.entry(seen.key.to_string()).or_insert((keys, 0));
            *times += 1;
            match (*first + *times) % 3 {
                _ if *times > 2 => Act::default(),
                0 => Act::fault(Fault::Truncate(1000)),
                1 => Act::status(503),
                _ => Act::fault(Fault::Close),
            }
        });
        let mut loader = loader(&dataset, &recipe(), config());
        assert_whole(&epoch(&mut loader));
        assert!(loader.stats().retries > 0 && loader.stats().throttled > 0, "{:?}", loader.stats());
    }
}

/// Keeps the checksum of each object of [`bucket`] beside it, by writing it again through S3.
fn checked_bucket() -> (SlowServer, Dataset, tempfile::TempDir) {
    let (server, dataset, folder) = bucket();
    let words = [("endpoint".to_owned(), server.url()), ("anonymous".to_owned(), "true".to_owned())];
    let store = forebay_store::remote::open(&format!("s3://{BUCKET}"), &words.into()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for sample in 0..SAMPLES {
        runtime.block_on(store.write(&format!("o/{sample:05}.bin"), payload(sample).into())).unwrap();
    }
    (server, dataset, folder)
}

#[test]
fn p013_bytes_changed_on_the_way_are_read_again_until_they_are_right() {
    let (server, dataset, _folder) = checked_bucket();
    let asked: Mutex<HashMap<String, u64>> = Mutex::default();
    server.script(move |seen| {
        let mut asked = asked.lock().unwrap();
        let times = asked.entry(seen.key.to_string()).or_default();
        *times += 1;
        if *times == 1 { Act::fault(Fault::Corrupt(1234)) } else { Act::default() }
    });
    assert_whole(&epoch(&mut loader(&dataset, &recipe(), config())));
    // One that stays wrong is a bad sample with a name.
    server.script(|seen| {
        let wrong = seen.key.ends_with("00077.bin");
        if wrong { Act::fault(Fault::Corrupt(1234)) } else { Act::default() }
    });
    let mut skipping = loader(&dataset, &recipe(), LoaderConfig { on_error: OnError::Skip, ..config() });
    let delivered = ids(&epoch(&mut skipping));
    assert_eq!((delivered.len() as u64, delivered.contains(&77)), (SAMPLES - 1, false));
    let [fault] = skipping.faults() else { panic!("{:?}", skipping.faults().len()) };
    assert_eq!((fault.sample_id.0, fault.error.kind()), (77, ErrorKind::Corrupt));
    assert!(fault.error.report().contains("00077.bin"), "{:?}", fault.error);
}

#[test]
fn a_server_that_goes_away_and_comes_back_costs_no_sample() {
    let (server, dataset, _folder) = bucket();
    let mut loader = loader(&dataset, &recipe(), config());
    let mut batches = steps(&mut loader, 3);
    server.set_down(true);
    std::thread::sleep(Duration::from_millis(30));
    server.set_down(false);
    batches.extend(std::iter::from_fn(|| next(&mut loader).unwrap()));
    assert_whole(&batches);
}

#[test]
fn a_server_that_stays_away_is_an_error_that_names_it() {
    let (server, dataset, _folder) = bucket();
    // Two tries are too few for anything but a store that is waited for.
    let deadline = Duration::from_secs(2);
    let retry =
        RetryOptions { tries: 2, first_pause: Duration::from_millis(1), deadline, ..RetryOptions::default() };
    let mut loader = loader(&dataset, &recipe(), LoaderConfig { retry, ..config() });
    let address = server.url().replace("http://", "");
    drop(server);
    loader.begin().unwrap();
    let error = next(&mut loader).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    let report = error.report();
    assert!(report.contains("gave up after") && report.contains(&format!("s3://{BUCKET}/o/")), "{report}");
    assert!(report.contains(&address) && report.contains("refused"), "{report}");
    assert!(loader.stats().store_away_seconds > 1.0, "{:?}", loader.stats());
}

#[test]
fn one_missing_object_is_one_bad_sample_and_forbidden_ones_say_so() {
    for (code, kind) in [(404, ErrorKind::NotFound), (403, ErrorKind::Denied)] {
        let (server, dataset, _folder) = bucket();
        server.script(
            move |seen| if seen.key.ends_with("00077.bin") { Act::status(code) } else { Act::default() },
        );
        let mut skipping = loader(&dataset, &recipe(), LoaderConfig { on_error: OnError::Skip, ..config() });
        let delivered = ids(&epoch(&mut skipping));
        assert_eq!((delivered.len() as u64, delivered.contains(&77)), (SAMPLES - 1, false));
        let [fault] = skipping.faults() else { panic!("{:?}", skipping.faults().len()) };
        assert_eq!((fault.sample_id.0, fault.error.kind()), (77, kind));
        assert!(fault.error.report().contains("00077.bin"), "{:?}", fault.error);
    }
}

#[test]
fn an_object_that_changed_is_refused_and_never_mixed() {
    let (server, dataset, _folder) = bucket();
    server.put("o/00005.bin", &payload(5)[..100]);
    let mut skipping = loader(&dataset, &recipe(), LoaderConfig { on_error: OnError::Skip, ..config() });
    assert!(!ids(&epoch(&mut skipping)).contains(&5));
    assert_eq!(skipping.faults().len(), 1);
}

#[test]
fn p008_connections_at_the_server_equal_the_setting() {
    let (server, dataset, _folder) = bucket();
    // So slow that all that may be asked for at once is.
    server.script(|_| Act::after(Duration::from_millis(20)));
    let config = LoaderConfig { requests_in_flight: Some(3), hedge: false, ..config() };
    assert_whole(&epoch(&mut loader(&dataset, &recipe(), config)));
    assert_eq!(server.counts().most_open, 3, "{:?}", server.counts());
}

#[test]
fn a_name_that_does_not_resolve_is_an_error_that_names_it() {
    let options = OpenOptions::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let store = forebay_store::remote::open("http://no-such-host.invalid", &options.storage_options).unwrap();
    let error = runtime.block_on(store.head("a.tar")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.report().contains("no-such-host.invalid"), "{error:?}");
}
