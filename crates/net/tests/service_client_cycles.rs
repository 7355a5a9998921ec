//! Opening and closing again and again leaves nothing behind. Alone in its program, since it counts the process's own.

mod workers;

use forebay_engine::Meter;
use forebay_net::service::Address;
use forebay_net::service::{Own, ViaConfig, supplier};
use forebay_ops::BufferPool;
use std::sync::Arc;
use std::time::{Duration, Instant};
use workers::{Worker, next, planned, start};

fn count(what: &str) -> usize {
    std::fs::read_dir(format!("/proc/self/{what}")).map_or(0, Iterator::count)
}

#[test]
fn two_hundred_supplies_leave_no_thread_and_no_descriptor() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("share.sock");
    let worker = Worker::start(&Address::Unix(socket.clone()), BufferPool::shared(1 << 20));
    let url = format!("unix://{}", socket.display());
    let via = ViaConfig::from_json(&serde_json::json!({ "url": url, "job": "a job" })).unwrap();
    let share = supplier(&via, &Own::default()).unwrap().unwrap();
    let meter = Arc::new(Meter::default());
    let cycle = |batches: u64| {
        let supply = start(share.as_ref(), &meter);
        for number in 0..batches {
            assert_eq!(next(supply.as_ref()), planned(number));
        }
    };
    let before = (count("task"), count("fd"));
    for number in 0..200 {
        cycle(number % 4);
    }
    // The worker's threads and memory end on their own time.
    let until = Instant::now() + Duration::from_secs(30);
    let pooled = 8;
    while count("task") > before.0 || count("fd") > before.1 + pooled {
        let now = (count("task"), count("fd"));
        assert!(Instant::now() < until, "threads and descriptors: {before:?} before, {now:?} after");
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(worker);
}
