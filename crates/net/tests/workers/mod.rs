//! Workers that answer over real sockets with batches anybody can foretell: each row holds its position.
#![allow(dead_code, reason = "every test file uses its own part")]
#![allow(clippy::unwrap_used, reason = "a test helper fails by panicking")]
#![allow(unreachable_pub, reason = "shared by several test programs")]

use forebay_core::SampleId;
use forebay_core::cursor::Cursor;
use forebay_core::feed::BatchName;
use forebay_core::portion::{Consumer, LastBatch};
use forebay_core::tensor::{Dtype, TensorSpec};
use forebay_engine::feed::FeedSpec;
use forebay_engine::{Asked, Batch, DeliveryOrder, Meter, Supplier, Supply};
use forebay_net::Credentials;
use forebay_net::service::message::{Packing, ToClient, ToWorker};
use forebay_net::service::{
    Address, Closer, ListenOptions, Listener, ListenerCloser, Receiving, Sending, Times,
};
use forebay_ops::{BufferPool, Column};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub const SAMPLES: u64 = 160;
pub const BATCH: u64 = 4;
pub const STEPS: u64 = SAMPLES / BATCH;

/// A worker; dropping it ends it.
pub struct Worker {
    pub address: Address,
    pub taken: Arc<AtomicU64>,
    listener: ListenerCloser,
    ended: Arc<AtomicBool>,
    connections: Arc<Mutex<BTreeMap<u64, Closer>>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Worker {
    /// Listens at `address`; buffers come from `pool`.
    pub fn start(address: &Address, pool: BufferPool) -> Self {
        let listener = Listener::bind(address, &Credentials::default(), ListenOptions::default()).unwrap();
        let (taken, connections) =
            (Arc::<AtomicU64>::default(), Arc::<Mutex<BTreeMap<u64, Closer>>>::default());
        let mut worker = Self {
            address: listener.address().clone(),
            taken: Arc::clone(&taken),
            listener: listener.closer(),
            ended: Arc::default(),
            connections: Arc::clone(&connections),
            thread: None,
        };
        let ended = Arc::clone(&worker.ended);
        let thread = std::thread::spawn(move || {
            let mut threads = Vec::new();
            for number in 0.. {
                let Ok(Some(arriving)) = listener.accept() else { break };
                let (taken, connections, pool) = (Arc::clone(&taken), Arc::clone(&connections), pool.clone());
                let ended = Arc::clone(&ended);
                threads.push(std::thread::spawn(move || {
                    let Ok((sending, receiving)) = arriving.meet() else { return };
                    connections.lock().unwrap().insert(number, sending.closer());
                    if !ended.load(Ordering::SeqCst) {
                        answer(sending, receiving, &taken, &pool);
                    }
                    connections.lock().unwrap().remove(&number);
                }));
                threads.retain(|thread| !thread.is_finished());
            }
            for thread in threads {
                thread.join().unwrap();
            }
        });
        worker.thread = Some(thread);
        worker
    }

    /// Ends it as a kill does: every connection is lost.
    pub fn kill(&self) {
        self.ended.store(true, Ordering::SeqCst);
        self.listener.close();
        for connection in self.connections.lock().unwrap().values() {
            connection.close();
        }
    }
}

fn answer(mut sending: Sending, mut receiving: Receiving, taken: &AtomicU64, pool: &BufferPool) {
    while let Ok(Some(message)) = receiving.receive::<ToWorker>() {
        let sent = match message {
            ToWorker::Attach(attach) if attach.spec.is_empty() => sending.send(&ToClient::NeedSpec),
            ToWorker::Attach(attach) => {
                assert_eq!(FeedSpec::from_json(&attach.spec).unwrap().id(), attach.feed);
                sending.send(&ToClient::Attached { epoch_samples: SAMPLES, batch_bytes: BATCH * 8 })
            }
            ToWorker::Take { request, name } => {
                taken.fetch_add(1, Ordering::SeqCst);
                let times = Times { fetch: Duration::from_millis(1), prep: Duration::from_millis(3) };
                sending.send_batch(request, &make(&name, pool), times, Packing::None).map(drop)
            }
            _ => Ok(()),
        };
        if sent.is_err() {
            return;
        }
    }
}

fn make(name: &BatchName, pool: &BufferPool) -> Batch {
    let (ids, padding): (Vec<u64>, Vec<bool>) = name.positions().unzip();
    let rows: Vec<u8> = ids.iter().flat_map(|id| (*id as i64).to_le_bytes()).collect();
    // Large enough to be handed over as shared memory where that is possible.
    let extent = 4096;
    let mut data = pool.take(ids.len() * extent * 8);
    data.as_mut_slice().fill(0);
    for (row, id) in rows.chunks(8).enumerate() {
        data.as_mut_slice()[row * extent * 8..row * extent * 8 + 8].copy_from_slice(id);
    }
    let spec = TensorSpec { dtype: Dtype::I64, shape: vec![extent] };
    let column = Column::Tensor { spec, rows: ids.len(), data };
    let ids = ids.into_iter().map(SampleId).collect();
    Batch {
        epoch: name.epoch,
        step: 0,
        ids,
        padding,
        columns: vec![("x".into(), column)],
        faults: Vec::new(),
        object: None,
    }
}

pub fn start(supplier: &dyn Supplier, meter: &Arc<Meter>) -> Box<dyn Supply> {
    let asked = Asked {
        feed: feed(),
        sampler: forebay_core::plan::Sampler::stored(SAMPLES),
        consumer: Consumer { rank: 0, world_size: 1, batch_size: BATCH, last_batch: LastBatch::Partial },
        order: DeliveryOrder::Plan,
        epochs: None,
        ready_batches: 4,
        batch_bytes: BATCH * 8 * 4096,
        pool: BufferPool::new(1 << 20),
    };
    supplier.start(asked, Cursor::start_of(0), meter).unwrap()
}

/// The next batch's epoch, step and first id, after a look at its bytes.
pub fn next(supply: &dyn Supply) -> (u64, u64, u64) {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(taken) = supply.take(Duration::from_millis(50)).unwrap() {
            let batch = taken.batch.unwrap();
            let Some(Column::Tensor { spec, rows, data }) = batch.column("x") else { panic!("{batch:?}") };
            assert_eq!(*rows, batch.ids.len());
            for (row, id) in batch.ids.iter().enumerate() {
                let start = row * spec.bytes();
                assert_eq!(data.as_slice()[start..start + 8], id.0.to_le_bytes());
            }
            return (batch.epoch, batch.step, batch.ids[0].0);
        }
        assert!(Instant::now() < until, "no batch came: {}", supply.describe_wait());
    }
}

/// What comes as number `number`.
pub fn planned(number: u64) -> (u64, u64, u64) {
    (number / STEPS, number % STEPS, number % STEPS * BATCH)
}

fn feed() -> FeedSpec {
    FeedSpec::from_json(
        r#"{"format": 1, "data": {"spec": ["/data"], "extensions": []}, "dataset": "v1", "recipe": [],
            "order": {"seed": 1, "shuffle": "sequential"}, "on_error": "raise", "batch_size": 4,
            "fetch": {"inflight": null, "request_bytes": null, "tries": 1, "request_timeout": 1.0,
                      "request_deadline": 1.0, "hedge": false}}"#,
    )
    .unwrap()
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.kill();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}
