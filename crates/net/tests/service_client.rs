//! The client over real sockets: workers of a service behind a real dispatcher, and a process of this host.

#![allow(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

mod workers;

use forebay_core::ErrorKind;
use forebay_core::dispatcher::{Command, Settings, WorkerId};
use forebay_engine::Meter;
use forebay_net::dispatcher::{Control, ControlOptions, DispatcherOptions, serve};
use forebay_net::service::Address;
use forebay_net::service::{Own, ViaConfig, supplier};
use forebay_net::{Credentials, Threads};
use forebay_ops::BufferPool;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use workers::{BATCH, STEPS, Worker, next, planned, start};

fn via(url: &str) -> ViaConfig {
    ViaConfig::from_json(&serde_json::json!({ "url": url, "job": "a job" })).unwrap()
}

#[test]
fn p054_p056_a_service_with_two_workers_gives_every_batch_in_order_and_goes_on_with_one() {
    let threads = Threads::shared().unwrap();
    let settings = Settings { worker_timeout_ms: 600_000, ..Settings::default() };
    let dispatcher =
        DispatcherOptions { listen: "127.0.0.1:0".into(), settings, ..DispatcherOptions::default() };
    let dispatcher = threads.block_on(serve(dispatcher, threads.clone())).unwrap();
    let url = format!("forebay://{}", dispatcher.address());
    let options_of_control = ControlOptions { address: url.clone(), credentials: Credentials::default() };
    let control = Control::new(&options_of_control, threads.clone()).unwrap();
    let any = Address::Tcp("127.0.0.1:0".into());
    let workers = [Worker::start(&any, BufferPool::new(0)), Worker::start(&any, BufferPool::new(0))];
    for (id, worker) in (1..).zip(&workers) {
        let address = worker.address.to_string();
        let command = Command::RegisterWorker { worker: WorkerId(id), address, tags: Vec::new(), slots: 2 };
        control.call(&command, Duration::from_secs(30)).unwrap();
    }
    let meter = Arc::new(Meter::default());
    let supply = start(supplier(&via(&url), &Own::default()).unwrap().unwrap().as_ref(), &meter);
    let half = STEPS + STEPS / 2;
    for number in 0..half {
        assert_eq!(next(supply.as_ref()), planned(number));
    }
    assert!(workers.iter().all(|worker| worker.taken.load(Ordering::SeqCst) > 0), "both have made some");
    assert_eq!(supply.view().workers, 2);
    workers[0].kill();
    for number in half..3 * STEPS {
        assert_eq!(next(supply.as_ref()), planned(number));
    }
    assert!(meter.wire_bytes.get() >= 3 * STEPS * BATCH * 8);
    assert_eq!(meter.skipped_batches.get(), 0);
    drop(supply);
    threads.block_on(dispatcher.stop());
}

#[test]
fn batches_of_a_host_process_come_as_shared_memory_and_it_may_start_anew() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("share.sock");
    let url = format!("unix://{}", socket.display());
    let meter = Arc::new(Meter::default());
    let share = supplier(&via(&url), &Own::default()).unwrap().unwrap();
    let missing = start(share.as_ref(), &meter);
    let error = loop {
        match missing.take(Duration::from_millis(50)) {
            Ok(None) => {}
            Ok(Some(_)) => panic!("nobody listens"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.hint().is_some());
    let address = Address::Unix(socket);
    let worker = Worker::start(&address, BufferPool::shared(1 << 20));
    let supply = start(share.as_ref(), &meter);
    for number in 0..STEPS {
        assert_eq!(next(supply.as_ref()), planned(number));
    }
    assert_eq!(meter.wire_bytes.get(), 0, "the bytes of tensors are not copied");
    drop(worker);
    let worker = Worker::start(&address, BufferPool::shared(1 << 20));
    for number in STEPS..2 * STEPS {
        assert_eq!(next(supply.as_ref()), planned(number));
    }
    drop((supply, worker));
}
