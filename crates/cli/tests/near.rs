//! Near-data work: a worker beside the store decodes and crops, and only what is left crosses the link to the job.
//!
//! The store counts what it sends, a relay in front of the worker what it passes on. All are processes of this machine
//! and nothing else is needed.
#![allow(clippy::unwrap_used, reason = "a test whose surroundings are broken may panic")]

mod harness;

use forebay_core::portion::Consumer;
use forebay_core::recipe::Recipe;
use forebay_engine::feed::FeedSpec;
use forebay_engine::source::{OpenOptions, open};
use forebay_engine::{Loader, LoaderConfig, Next};
use forebay_net::Threads;
use forebay_net::service::{Own, ViaConfig, supplier};
use forebay_testkit::made::Made;
use forebay_testkit::server::{Objects, SlowServer};
use forebay_testkit::wan::{Relay, WanOptions};
use harness::Harness;
use serde_json::json;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;

const SAMPLES: u64 = 24;
const SIDE: u64 = 64;
const EPOCHS: u64 = 30;

/// A process that ends with its test, and the first line it said.
struct Started(Child, String);

impl Started {
    fn new(harness: &Harness, args: &[&str]) -> Self {
        let mut child = harness.command(args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self(child, line.trim().to_owned())
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A store with photographs, a manifest of them here, and a pipeline that crops.
fn made(harness: &Harness, width: u32, height: u32) -> (SlowServer, u64) {
    let made = Made { samples: SAMPLES as usize, width, height, ..Made::default() };
    let photographs: u64 = (0..SAMPLES as usize).map(|sample| made.jpeg(sample).len() as u64).sum();
    let shards = made.shards(&harness.path("in"), 2);
    let objects = shards.iter().fold(Objects::new(), |objects, path| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        objects.with(&name, &std::fs::read(path).unwrap())
    });
    let server = SlowServer::start(objects).unwrap();
    let url = format!("{}/train-{{000000..000001}}.tar", server.url());
    harness.ok(&["index", &url, "--out", "train.fbm"]);
    let pipeline = format!(
        "[data]\nurl = '{}'\n[[recipe]]\nfield = 'jpg'\ndecode = 'image'\nops = [{{ op = 'center_crop', size = {SIDE} }}]\n
        [loader]\nbatch_size = 4\n",
        harness.path("train.fbm").display()
    );
    harness.write("p.toml", pipeline);
    (server, photographs)
}

/// Bytes that the job received from the store by itself, and from a worker beside it.
fn link_bytes(harness: &Harness, server: &SlowServer) -> (u64, u64) {
    let before = server.counts().bytes;
    harness.ok(&["materialize", "p.toml", "alone"]);
    let alone = server.counts().bytes - before;

    let service = Service::start(harness);
    let via = json!({ "url": service.url, "tag": "site=eu" }).to_string();
    harness.ok(&["materialize", "p.toml", "near", "--via", &via]);
    for name in ["data-000000.tar", "recipe.json", "materialized.json"] {
        let read = |out: &str| std::fs::read(harness.path(out).join(name)).unwrap();
        assert!(read("near") == read("alone"), "{name} is the same, whoever made the batches");
    }
    (alone, service.link_bytes())
}

/// A dispatcher, a worker near the data behind a relay, and one that is not.
struct Service {
    url: String,
    relay: Relay,
    _all: [Started; 3],
}

impl Service {
    fn start(harness: &Harness) -> Self {
        let dispatcher = Started::new(harness, &["dispatcher", "--listen", "127.0.0.1:0"]);
        let url = dispatcher.1.split(' ').next().unwrap().to_owned();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let relay = Relay::start("127.0.0.1:0".parse().unwrap(), port, WanOptions::default()).unwrap();
        let (listen, advertise) = (port.to_string(), relay.address().to_string());
        let worker = ["worker", "--dispatcher", &url, "--same-host", "tcp", "--tag"];
        let far = Started::new(harness, &[&worker[..], &["site=us"]].concat());
        let near = ["site=eu", "--listen", &listen, "--advertise", &advertise];
        let near = Started::new(harness, &[&worker[..], &near].concat());
        Self { url, relay, _all: [near, far, dispatcher] }
    }

    /// Bytes between jobs and the worker near the data.
    fn link_bytes(&self) -> u64 {
        let counts = self.relay.counts();
        counts.up_bytes + counts.down_bytes
    }
}

/// The share of a loop's batches that the worker near the data made, by bytes: a loop that leaves the choice to what is
/// measured, with steps in which either side is done in time.
fn share_of_worker(harness: &Harness, op: &serde_json::Value, side: u64) -> f64 {
    let service = Service::start(harness);
    let spec = [harness.path("train.fbm").display().to_string()];
    let data = Threads::shared().unwrap().block_on(open(&spec, &OpenOptions::default())).unwrap();
    let recipe = json!([{ "field": "jpg", "decode": { "kind": "image" }, "ops": [op] }]);
    let recipe = Recipe::from_json(&recipe.to_string()).unwrap();
    let defaults = LoaderConfig::default();
    let consumer = Consumer { batch_size: 4, ..defaults.consumer };
    let config = LoaderConfig { consumer, timeout: Some(Duration::from_secs(60)), ..defaults };
    let via = json!({ "url": service.url, "tag": "site=eu", "target": "auto", "job": "auto" });
    let via = ViaConfig::from_json(&via).unwrap();
    let feed = FeedSpec::new(&data, &recipe, &config).unwrap();
    let elsewhere = supplier(&via, &Own { threads: Some(1), ..Own::default() }).unwrap().unwrap();
    let loader = Loader::new(data.manifest(), Arc::clone(data.store()), &recipe, config).unwrap();
    let mut loader = loader.with_supplier(elsewhere, feed);
    for _ in 0..EPOCHS {
        let mut ids = Vec::new();
        loader.begin().unwrap();
        loop {
            match loader.next(Duration::from_millis(100)).unwrap() {
                Next::Batch(batch) => ids.extend(batch.ids.iter().map(|id| id.0)),
                Next::Waiting => continue,
                Next::End => break,
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        ids.sort_unstable();
        assert_eq!(ids, (0..SAMPLES).collect::<Vec<_>>());
    }
    service.link_bytes() as f64 / (EPOCHS * SAMPLES * side * side * 3) as f64
}

fn assert_about(found: u64, expected: u64, what: &str) {
    let share = found as f64 / expected as f64;
    assert!((0.98..1.15).contains(&share), "{what}: {found} bytes, {expected} were expected");
}

#[test]
fn p075_decode_and_crop_beside_the_store_send_pixels_instead_of_photographs() {
    let harness = Harness::new();
    let (server, photographs) = made(&harness, 640, 480);
    let pixels = SAMPLES * SIDE * SIDE * 3;
    let (alone, near) = link_bytes(&harness, &server);
    assert_about(alone, photographs, "a job that decodes by itself");
    assert_about(near, pixels, "a job whose worker is near the data");
    let (expected, found) = (photographs as f64 / pixels as f64, alone as f64 / near as f64);
    assert!(expected > 5.0, "{photographs} bytes of photographs, {pixels} of pixels");
    assert!((0.85..1.1).contains(&(found / expected)), "{found} times fewer bytes, not {expected}");
}

#[test]
fn p075_with_auto_measured_bytes_decide_whether_the_worker_near_the_data_makes_the_batches() {
    let harness = Harness::new();
    let (_server, photographs) = made(&harness, 320, 240);
    let payload = photographs / SAMPLES;
    let (small, large) = (32, 160);
    assert!(
        small * small * 3 * 3 < payload && payload < large * large * 3 / 2,
        "a photograph has {payload} bytes"
    );
    let share = share_of_worker(&harness, &json!({ "op": "center_crop", "size": small }), small);
    println!(
        "pixels that are smaller than their photographs: {share:.2} of the batches come from the worker"
    );
    assert!((0.7..1.1).contains(&share), "{share}");
    let share = share_of_worker(&harness, &json!({ "op": "resize", "size": [large, large] }), large);
    println!("pixels that are larger: {share:.2} of them");
    assert!(share < 0.3, "{share}");
}

#[test]
fn p075_a_job_is_served_by_workers_with_its_tag_alone() {
    let harness = Harness::new();
    let (_server, _) = made(&harness, 64, 48);
    let dispatcher = Started::new(&harness, &["dispatcher", "--listen", "127.0.0.1:0"]);
    let url = dispatcher.1.split(' ').next().unwrap().to_owned();
    let _far = Started::new(&harness, &["worker", "--dispatcher", &url, "--tag", "site=us"]);
    let via = json!({ "url": url, "tag": "site=eu" }).to_string();
    let pipeline = std::fs::read_to_string(harness.path("p.toml")).unwrap();
    harness.write("p.toml", pipeline + "timeout = 3\n");
    let said = harness.run(&["materialize", "p.toml", "out", "--via", &via]);
    assert_eq!(said.code, 4, "{}", said.stderr);
}
