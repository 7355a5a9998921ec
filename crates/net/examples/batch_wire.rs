//! How fast batches cross between two processes, and what it costs: over TCP on this machine, and as shared memory.
//!
//! ```text
//! cargo run --release -p forebay-net --example batch_wire [ROUNDS [SECONDS]]
//! ```
//!
//! A batch is 256 images of 3 x 224 x 224 bytes with labels (38.5 MB). The client looks at one byte of each page of
//! what it receives, so that memory which is only promised does not count. Prints one JSON document: per round and
//! in the middle of all rounds, GB/s of the client's clock and CPU seconds per GB of both processes together.
#![allow(clippy::print_stdout, reason = "it prints its result")]
#![allow(clippy::unwrap_used, reason = "a measurement fails by panicking")]

use forebay_core::SampleId;
use forebay_core::tensor::{Dtype, TensorSpec};
use forebay_engine::Batch;
use forebay_net::Credentials;
use forebay_net::service::message::{Packing, ToClient, ToWorker};
use forebay_net::service::{Address, Limits, ListenOptions, Listener, Receiving, Sending, Times, connect};
use forebay_ops::{BufferPool, Column};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const ROWS: usize = 256;
const ROW_BYTES: usize = 3 * 224 * 224;
/// Batches that the client has asked for and not received.
const AHEAD: u64 = 3;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("serve") => serve(&arguments[1].parse().unwrap()),
        first => {
            let number = |index: usize| arguments.get(index).and_then(|text| text.parse::<f64>().ok());
            let rounds = first.and_then(|text| text.parse().ok()).unwrap_or(3);
            measure(rounds, Duration::from_secs_f64(number(1).unwrap_or(3.0)));
        }
    }
}

fn batch(pool: &BufferPool, salt: u8) -> Batch {
    let column = |shape: Vec<usize>, dtype| {
        let spec = TensorSpec { dtype, shape };
        let mut data = pool.take(spec.bytes() * ROWS);
        data.as_mut_slice().fill(salt);
        Column::Tensor { spec, rows: ROWS, data }
    };
    Batch {
        epoch: 0,
        step: 0,
        ids: (0..ROWS as u64).map(SampleId).collect(),
        padding: vec![false; ROWS],
        columns: vec![
            ("image".into(), column(vec![3, 224, 224], Dtype::U8)),
            ("label".into(), column(Vec::new(), Dtype::I64)),
        ],
        faults: Vec::new(),
        object: None,
    }
}

/// The worker: answers every `Take` with one of four batches that lie ready, as staging would.
fn serve(address: &Address) {
    let listener = Listener::bind(address, &Credentials::default(), ListenOptions::default()).unwrap();
    println!("{}", listener.address());
    let (mut to_client, mut from_client) = listener.accept().unwrap().unwrap().meet().unwrap();
    let pool = if to_client.shares_memory() { BufferPool::shared(1 << 30) } else { BufferPool::new(1 << 30) };
    let ready: Vec<Batch> = (0..4).map(|salt| batch(&pool, salt)).collect();
    let mut next = 0;
    while let Some(said) = from_client.receive().unwrap() {
        if let ToWorker::Take { request, .. } = said {
            to_client.send_batch(request, &ready[next % 4], Times::default(), Packing::None).unwrap();
            next += 1;
        }
    }
}

struct Measured {
    gigabytes_per_second: f64,
    cpu_seconds_per_gigabyte: f64,
}

fn run(address: &str, time: Duration) -> Measured {
    let mut worker = Command::new(std::env::current_exe().unwrap())
        .args(["serve", address])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = std::io::BufReader::new(worker.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut said, &mut line).unwrap();
    let address: Address = line.trim().parse().unwrap();
    let (mut to_worker, mut from_worker) = connect(&address, &Credentials::default()).unwrap();
    let pool = BufferPool::new(1 << 30);
    // The first batches pay for memory that later ones use again.
    take(&mut to_worker, &mut from_worker, &pool, |taken, _| taken < 8);
    let used_by_both = || cpu_seconds("self") + cpu_seconds(&worker.id().to_string());
    let (began, used) = (Instant::now(), used_by_both());
    let bytes = take(&mut to_worker, &mut from_worker, &pool, |_, _| began.elapsed() < time);
    let (seconds, used) = (began.elapsed().as_secs_f64(), used_by_both() - used);
    drop((to_worker, from_worker));
    worker.wait().unwrap();
    let gigabytes = bytes as f64 / 1e9;
    Measured { gigabytes_per_second: gigabytes / seconds, cpu_seconds_per_gigabyte: used / gigabytes }
}

/// Takes batches while `more` says so; their bytes.
fn take(
    to_worker: &mut Sending,
    from_worker: &mut Receiving,
    pool: &BufferPool,
    more: impl Fn(u64, u64) -> bool,
) -> u64 {
    let name = forebay_core::feed::BatchName { epoch: 0, runs: Vec::new() };
    let limits = Limits::expecting((ROWS * ROW_BYTES) as u64, ROWS as u64);
    let (mut asked, mut taken, mut bytes) = (0, 0, 0);
    loop {
        while asked < taken + AHEAD && more(asked, bytes) {
            to_worker.send(&ToWorker::Take { request: asked, name: name.clone() }).unwrap();
            asked += 1;
        }
        if taken == asked {
            return bytes;
        }
        let Some(ToClient::Batch { header, .. }) = from_worker.receive().unwrap() else { panic!("no batch") };
        let batch = from_worker.read_batch(&header, pool, limits).unwrap();
        for (_, column) in &batch.columns {
            let Column::Tensor { data, .. } = column else { panic!("no tensor") };
            bytes += data.len() as u64;
            std::hint::black_box(
                data.as_slice().iter().step_by(4096).map(|byte| u64::from(*byte)).sum::<u64>(),
            );
        }
        taken += 1;
    }
}

fn cpu_seconds(process: &str) -> f64 {
    // Ticks of user and system time, after the name in brackets; a tick is 10 ms on every Linux.
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}

fn measure(rounds: usize, time: Duration) {
    let folder = tempfile::tempdir().unwrap();
    let unix = format!("unix:{}", folder.path().join("a.sock").display());
    let (mut tcp, mut memory) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        tcp.push(run("127.0.0.1:0", time));
        memory.push(run(&unix, time));
    }
    let middle = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let show = |measured: &[Measured]| {
        let speeds: Vec<f64> = measured.iter().map(|one| one.gigabytes_per_second).collect();
        let costs: Vec<f64> = measured.iter().map(|one| one.cpu_seconds_per_gigabyte).collect();
        serde_json::json!({
            "gigabytes_per_second": middle(speeds.clone()),
            "cpu_seconds_per_gigabyte": middle(costs.clone()),
            "rounds": { "gigabytes_per_second": speeds, "cpu_seconds_per_gigabyte": costs },
        })
    };
    let report = serde_json::json!({
        "batch_bytes": ROWS * (ROW_BYTES + 8),
        "seconds": time.as_secs_f64(),
        "tcp": show(&tcp),
        "memfd": show(&memory),
    });
    println!("{report:#}");
}
