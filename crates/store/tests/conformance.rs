//! Every store and every adapter of this crate keeps the promises of the public suite.

use forebay_store::local::{LocalOptions, ReadMode};
use forebay_store::{CountingStore, LocalStore, MemoryStore, conformance};
use std::sync::Arc;

async fn check_local(read_mode: ReadMode) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let options = LocalOptions { read_mode, ..LocalOptions::default() };
    let store = LocalStore::with_options(dir.path().join("store"), &options);
    conformance::run(Arc::new(store)).await;
}

#[tokio::test]
async fn memory_conforms() {
    conformance::run(Arc::new(MemoryStore::new())).await;
}

#[tokio::test]
async fn local_conforms() {
    check_local(ReadMode::Auto).await;
}

#[tokio::test]
async fn local_buffered_conforms() {
    check_local(ReadMode::Buffered).await;
}

#[tokio::test]
async fn local_direct_conforms() {
    check_local(ReadMode::Direct).await;
}

#[tokio::test]
async fn local_conforms_on_a_file_system_that_refuses_direct_reads() {
    // tmpfs takes O_DIRECT from some kernel on and refuses it before: both must work.
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else { return };
    let options = LocalOptions { read_mode: ReadMode::Direct, ..LocalOptions::default() };
    conformance::run(Arc::new(LocalStore::with_options(dir.path().to_owned(), &options))).await;
}

#[test]
fn local_conforms_under_an_executor_that_is_not_tokio() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let store = LocalStore::new(dir.path().to_owned());
    futures::executor::block_on(conformance::run(Arc::new(store)));
}

#[tokio::test]
async fn counting_conforms() {
    conformance::run(Arc::new(CountingStore::with_log(Arc::new(MemoryStore::new())))).await;
}
