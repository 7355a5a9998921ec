//! Buckets of very many keys: listed once, a page at a time, and never again while the kept manifest is true.
#![allow(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

use crate::common::*;
use forebay_core::recipe::Recipe;
use forebay_engine::LoaderConfig;
use forebay_engine::source::{Dataset, OpenOptions, Progress, open};
use forebay_testkit::server::{Act, BUCKET, Objects, SlowServer};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// More than are compared with a listing each time.
const KEYS: u64 = 50_500;
/// Keys of one page, as S3 gives them.
const PAGE: u64 = 1000;

#[derive(Default)]
struct Asked {
    pages: AtomicU64,
    looks: AtomicU64,
    reads: AtomicU64,
}

impl Asked {
    fn take(&self) -> [u64; 3] {
        [&self.pages, &self.looks, &self.reads].map(|count| count.swap(0, Relaxed))
    }
}

fn opened(server: &SlowServer, options: &OpenOptions) -> Dataset {
    let words = [("endpoint".to_owned(), server.url()), ("anonymous".to_owned(), "true".to_owned())];
    let options = OpenOptions { storage_options: words.into(), ..options.clone() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(open(&[format!("s3://{BUCKET}/o/")], &options)).unwrap()
}

#[test]
fn very_many_keys_are_listed_once_and_then_do_not_hold_up_the_first_batch() {
    let server = SlowServer::start(Objects::new().many(KEYS, 10)).unwrap();
    let asked = Arc::new(Asked::default());
    let counted = Arc::clone(&asked);
    server.script(move |seen| {
        let count = match (seen.listing, seen.method) {
            (true, _) => &counted.pages,
            (false, "HEAD") => &counted.looks,
            _ => &counted.reads,
        };
        count.fetch_add(1, Relaxed);
        Act::default()
    });
    let folder = tempfile::tempdir().unwrap();
    let listed = Arc::new(AtomicU64::new(0));
    let told = Arc::clone(&listed);
    let told = move |now: Progress| {
        if now.is_listing {
            assert!(now.objects_done == 0 && told.swap(now.objects_total, Relaxed) <= now.objects_total);
        }
    };
    let options = OpenOptions {
        progress: Some(Arc::new(told)),
        manifest_dir: Some(folder.path().to_path_buf()),
        extensions: vec!["bin".into()],
        ..OpenOptions::default()
    };
    let dataset = opened(&server, &options);
    assert_eq!(dataset.manifest().len(), KEYS);
    let [pages, _, reads] = asked.take();
    // Listed from several places at once, of which some hold nothing.
    assert!((KEYS / PAGE..=3 * KEYS / PAGE).contains(&pages), "{pages} pages for {KEYS} keys");
    assert_eq!(listed.load(Relaxed), KEYS, "who waits is told how many were found");
    assert_eq!(reads, 0, "objects are not read to be indexed");
    let version = dataset.manifest().version().to_owned();

    let again = opened(&server, &options);
    assert_eq!(again.manifest().version(), version);
    let [pages, looks, _] = asked.take();
    assert_eq!(pages, 0, "the kept manifest stands for the listing");
    assert!((1..=64).contains(&looks), "{looks} objects were looked at");
    let recipe = Recipe::from_json(r#"[{"field": "bin", "decode": {"kind": "bytes"}}]"#).unwrap();
    let mut loader = loader(&again, &recipe, LoaderConfig { epochs: Some(1), ..alone(32) });
    assert_eq!(steps(&mut loader, 1)[0].ids.len(), 32);
    loader.close();
    assert_eq!(asked.take()[0], 0, "nor does the loader list");

    listed.store(0, Relaxed);
    // An object that changed is seen where it is looked at, and then all is listed again.
    server.put("o/000000.bin", b"another length");
    assert_eq!(opened(&server, &options).manifest().len(), KEYS);
    assert!(asked.take()[0] >= KEYS / PAGE);
}
